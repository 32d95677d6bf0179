"""Documents of the index from records of a cell: the one transformation, for live changes, catch-up and sync; pure.

A native cell sends its rows whole, with a revision. A notification from elsewhere (Nova) carries a part of the fields
and no revision: its version is the time it was sent, and what it does not carry is kept from the document that is
there (contracts/nova-notifications, sections 9 to 12).
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


def remade(cell_uuid: str, bare: BareDocument) -> Document:
    """The document of an instance as another program has left it; fields that it did not know are blank."""
    known = {name: bare.record[name] for name in INSTANCE_FIELDS if bare.record.get(name) is not None}
    record = {**BLANK_INSTANCE, **known}
    return to_document(cell_uuid, bare.version, {**record, **derived_values(record), **known})


def merge(cell_uuid: str, existing: Document | None, changes: Sequence[ExternalChange]) -> Document | None:
    """The document after `changes` of one instance, at least one, in whichever order they arrived.

    existing: the document that is there, if any. Returns None when nothing in `changes` is newer.
    """
    if existing is None:
        version, record, extra = 0, dict(BLANK_INSTANCE), None
    elif existing.record["deleted"] or existing.version < OLDEST_TIME_VERSION:
        # A deletion is final, and uuids are never used again (section 11). And an instance whose cell counts its
        # revisions is known better from there.
        return None
    else:
        version, record, extra = existing.version, dict(existing.record), existing.extra
    found = version
    for change in sorted(changes, key=_moment):
        if change.event_type == INSTANCE_DELETE_END:
            # Clocks of hosts differ, so the end may look older than what came before it.
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
    """By what the changes of one instance are ordered: the end of it, the second of its row, and when it was sent."""
    return change.event_type == INSTANCE_DELETE_END, _second(change.carried.get("updated_at")), change.version


def _news(change: ExternalChange, record: Record, version: int) -> Record:
    """What to take from a change for a record of that version (section 11).

    A notification shows what a process had in memory, which may be older than what another one has sent before. The
    time of its row decides, in whole seconds; where that is the same or not known, and for what does not move it, the
    time of sending decides.
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
    """Nulls are lowest; databases keep more of a second than notifications carry."""
    return 0 if time is None else time // MICROSECONDS_PER_SECOND


# What can change without a new time of the row (section 11).
_TIMELESS = frozenset({"tags", "ip_addresses", "block_devices", "shares"})
# What the source of a move still says of it when the destination has said otherwise (section 12).
_ABOUT_THE_PAST = {
    "instance.live_migration_post.end": frozenset({"host", "node", "task_state"}),
    "instance.resize.end": frozenset({"host", "node", "task_state", "flavor", *DERIVED_FIELDS}),
}


def _deleted(change: ExternalChange) -> dict[str, Any]:
    """`deleted_at` is only set where a compute service did the deletion; without it the row would have no age."""
    return {
        **change.carried,
        "deleted": True,
        "deleted_at": change.carried.get("deleted_at") or change.version,
    }
