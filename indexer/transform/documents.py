"""The one transformation from records of a cell to documents, for live changes, catch-up and sync; pure.

A native cell sends whole rows with a revision. A notification from elsewhere (Nova) carries some fields and no
revision: its version is the time it was sent, and the existing document keeps the other fields
(contracts/nova-notifications, sections 9 to 12).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, BareDocument, Document
from fleetlight.indexer.extra_fields import Extra, merged
from fleetlight.notifications.event_types import INSTANCE_DELETE_END
from fleetlight.resources.derived_fields import derived_values
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import BLANK_INSTANCE, DERIVED_FIELDS, INSTANCE_FIELDS
from fleetlight.resources.units import MICROSECONDS_PER_SECOND
from fleetlight.views.compute.view import render_view


class NativeChange(msgspec.Struct, frozen=True, gc=False):
    """One revision of an instance, with its complete record."""

    revision: int
    record: Record
    extra: Extra | None = None

    @property
    def uuid(self) -> str:
        return str(self.record["uuid"])


@dataclass(frozen=True, slots=True)
class ExternalChange:
    """The change of an instance in a notification without a revision.

    version: the time it was sent, in microseconds, at least OLDEST_TIME_VERSION. carried: stored values of the fields
    in the notification, by name.
    """

    uuid: str
    version: int
    event_type: str
    carried: Record
    extra: Extra | None = None


def to_document(cell_uuid: str, revision: int, record: Record, extra: Extra | None = None) -> Document:
    """The document of one row of a cell.

    record: every field of INSTANCE_FIELDS. Raises KeyError with the name of a missing field.
    """
    return Document(cell_uuid, revision, record, render_view(record), extra)


def remade(cell_uuid: str, bare: BareDocument) -> Document:
    """The complete document for one that another version wrote; fields that this version did not know are blank."""
    known = {name: bare.record[name] for name in INSTANCE_FIELDS if bare.record.get(name) is not None}
    record = {**BLANK_INSTANCE, **known}
    return to_document(cell_uuid, bare.version, {**record, **derived_values(record), **known})


def merge(cell_uuid: str, existing: Document | None, changes: Sequence[ExternalChange]) -> Document | None:
    """The document after one or more `changes` of one instance, in any order of arrival.

    existing: the document in the index, if any. Returns None if no change is newer.
    """
    if existing is None:
        version, record, extra = 0, dict(BLANK_INSTANCE), None
    elif existing.record["deleted"] or existing.version < OLDEST_TIME_VERSION:
        # A deletion is final, and uuids are never used again (section 11). A row with a revision is better known from
        # its cell.
        return None
    else:
        version, record, extra = existing.version, dict(existing.record), existing.extra
    found = version
    for change in sorted(changes, key=_moment):
        if change.event_type == INSTANCE_DELETE_END:
            # Clocks of hosts differ, so the deletion may look older than earlier changes.
            record |= _deleted(change)
            extra = merged(extra, change.extra)
            version = max(change.version, version + 1)
            break
        news = _news(change, record, version)
        if news:
            record |= news
            extra = merged(extra, change.extra)
            version = max(change.version, version + 1)
    return None if version == found else to_document(cell_uuid, version, record, extra)


def _moment(change: ExternalChange) -> tuple[bool, int, int]:
    """Sort key for the changes of one instance: deletions last, then by the second of the row, then by sending time."""
    return change.event_type == INSTANCE_DELETE_END, _second(change.carried.get("updated_at")), change.version


def _news(change: ExternalChange, record: Record, version: int) -> Record:
    """The fields that a change contributes to a record of that version (section 11).

    A notification shows the memory of a process, which may be older than an earlier notification of another. The
    `updated_at` of the row decides, in whole seconds; the time of sending decides if that is equal or unknown, and for
    fields that do not change it.
    """
    past = _ABOUT_THE_PAST.get(change.event_type, frozenset())
    carried = {name: value for name, value in change.carried.items() if name not in past}
    is_later = change.version > version
    if "updated_at" in carried:
        theirs, ours = _second(carried["updated_at"]), _second(record["updated_at"])
        if theirs < ours:
            carried = {name: value for name, value in carried.items() if name in _TIMELESS}
        elif theirs > ours and not is_later:
            return {name: value for name, value in carried.items() if name not in _TIMELESS}
    return carried if is_later else {}


def _second(time: int | None) -> int:
    """The time in whole seconds, as notifications carry it; 0 for None."""
    return 0 if time is None else time // MICROSECONDS_PER_SECOND


# Fields that change without a new `updated_at` of the row (section 11).
_TIMELESS = frozenset({"tags", "ip_addresses", "block_devices", "shares"})
# Fields that the source of a move still sends with old values after the destination has sent new ones (section 12).
_ABOUT_THE_PAST = {
    "instance.live_migration_post.end": frozenset({"host", "node", "task_state"}),
    "instance.resize.end": frozenset({"host", "node", "task_state", "flavor", *DERIVED_FIELDS}),
}


def _deleted(change: ExternalChange) -> dict[str, Any]:
    """The fields of a deletion. Only a compute service sets `deleted_at`; otherwise the time of sending replaces it."""
    return {
        **change.carried,
        "deleted": True,
        "deleted_at": change.carried.get("deleted_at") or change.version,
    }
