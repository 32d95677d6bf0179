"""Documents of the index, made up for tests."""

from typing import Any
from uuid import UUID

from fleetlight.indexer.backends.base import Document
from fleetlight.resources.derived_fields import derived_values
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import FullTemplate, render_view

CREATED_AT = 1_700_000_000_000_000
TEMPLATE = FullTemplate(104, is_admin=True, versioned_base="http://api/v2.1", plain_base="http://api")
"""The newest item, as administrators see it."""


def make_uuid(number: int) -> str:
    """A uuid that orders as its number does."""
    return str(UUID(int=number))


def make_record(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A complete record of a running instance, with `changes`."""
    record: dict[str, Any] = dict.fromkeys(INSTANCE_FIELDS)
    record |= {
        "uuid": make_uuid(number),
        "project_id": "demo",
        "user_id": "ada",
        "display_name": f"web-{number}",
        "host": f"node-{number % 3}",
        "vm_state": "active",
        "power_state": 1,
        "created_at": CREATED_AT + number,
        "deleted": False,
        "forthcoming": False,
        "hidden": False,
        "locked": False,
        "image_ref": "",
        "tags": [],
        "metadata": {"role": "web"},
        "user_data": "IyEvYmluL3NoCg==",
        "security_groups": ["default"],
    }
    record |= changes
    return record | derived_values(record) | changes


def make_document(number: int = 1, *, cell_uuid: str = "c0", version: int = 1, **changes: Any) -> Document:
    """A document of that record."""
    record = make_record(number, **changes)
    return Document(cell_uuid, version, record, render_view(record))
