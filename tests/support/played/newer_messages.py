"""Notifications of a producer that is newer than this version."""

from typing import Any
from uuid import uuid4

from fleetlight.cells.payloads.instance_payload import to_payload
from fleetlight.indexer.extra_fields import SCHEMA_KEY
from fleetlight.notifications.envelope import Notification, encode
from fleetlight.notifications.event_types import INSTANCE_UPDATE
from fleetlight.resources.fields import from_microseconds
from tests.support.fleets.documents import CREATED_AT, make_uuid
from tests.support.memory.memory_cell import MemoryCell


def newer_message(
    fields: dict[str, Any], schemas: dict[str, Any] | None = None, *, version: str = "1.9", number: int = 1
) -> bytes:
    """What a producer says of an instance whose payload has `fields` more than ours."""
    cell, uuid = MemoryCell(), make_uuid(number)
    cell.create(uuid=uuid)
    payload = to_payload(cell.rows[uuid].record).wrap()
    payload["nova_object.version"] = version
    payload["nova_object.data"] |= fields
    if schemas is not None:
        payload[SCHEMA_KEY] = schemas
    return encode(
        Notification(
            event_type=INSTANCE_UPDATE,
            payload=payload,
            publisher_id="test",
            priority="INFO",
            timestamp=from_microseconds(CREATED_AT),
            message_id=str(uuid4()),
        )
    )
