"""From what a cell says to what the index keeps: the one transformation, for live changes, catch-up and sync; pure.

A native cell sends its rows whole, with a revision. A notification from elsewhere (Nova) carries a part of the fields
and no revision: its version is the time it was sent, and what it does not carry is kept from the document that is
there (contracts/nova-notifications, sections 9 to 12).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from indexer.backends.base import OLDEST_TIME_VERSION, Document
from indexer.extra_fields import Extra, merged
from indexer.view import render_view
from notifications.event_types import INSTANCE_DELETE_END
from query.fields import Record
from query.instances import INSTANCE_FIELDS

_NEVER_NULL = {"deleted": False, "hidden": False, "locked": False}
_UNKNOWN: Record = {name: [] if field.is_list else _NEVER_NULL.get(name) for name, field in INSTANCE_FIELDS.items()}


@dataclass(frozen=True, slots=True)
class NativeChange:
    """One revision of an instance, with its complete record."""

    revision: int
    record: Record
    extra: Extra | None = None

    @property
    def uuid(self) -> str:
        return str(self.record["uuid"])


@dataclass(frozen=True, slots=True)
class ForeignChange:
    """What a notification without a revision says of an instance.

    version: the time it was sent, in microseconds, at least OLDEST_TIME_VERSION.
    carried: field name -> stored value of the fields that the notification carries.
    """

    uuid: str
    version: int
    event_type: str
    carried: Record
    extra: Extra | None = None


def to_document(cell_uuid: str, revision: int, record: Record, extra: Extra | None = None) -> Document:
    """The document of one row of a cell.

    record: every field of INSTANCE_FIELDS. Raises KeyError naming a field that is missing.
    """
    return Document(cell_uuid, revision, record, render_view(record), extra)


def merge(cell_uuid: str, existing: Document | None, changes: Sequence[ForeignChange]) -> Document | None:
    """The document after `changes` of one instance, at least one, in whichever order they arrived.

    existing: the document that is there, if any. Returns None when nothing in `changes` is newer.
    """
    if existing is None:
        version, record, extra = 0, dict(_UNKNOWN), None
    elif existing.record["deleted"] or existing.version < OLDEST_TIME_VERSION:
        # A deletion is final, and uuids are never used again (section 11). And an instance whose cell counts its
        # revisions is known better from there.
        return None
    else:
        version, record, extra = existing.version, dict(existing.record), existing.extra
    found = version
    for change in sorted(changes, key=lambda change: change.version):
        if change.event_type == INSTANCE_DELETE_END:
            # Clocks of hosts differ, so the end may look older than what came before it.
            record |= _deleted(change)
            version = max(change.version, version + 1)
            break
        if change.version > version:
            record |= change.carried
            extra = merged(extra, change.extra)
            version = change.version
    return None if version == found else to_document(cell_uuid, version, record, extra)


def _deleted(change: ForeignChange) -> dict[str, Any]:
    """`deleted_at` is only set where a compute service did the deletion; without it the row would have no age."""
    return {
        **change.carried,
        "deleted": True,
        "deleted_at": change.carried.get("deleted_at") or change.version,
    }
