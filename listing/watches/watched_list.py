"""A list that is watched, and what a change is to it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import UnreadableRowError
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.listing.watches.changelogs import ChangedItem
from fleetlight.query.filters import EVERYTHING, Filter


class ChangeKind(StrEnum):
    """What a change is to a list.

    ENTER: the list has it from now on. CHANGE: it has it, and may have had it before. LEAVE: it does not have it, and
    may have had it before.
    """

    ENTER = "enter"
    CHANGE = "change"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class CoveredCell:
    """Up to where a reader has every change of a cell.

    position: None where that is not known. why_not: what keeps later ones from it; None while they come.
    """

    cell: Cell
    position: Position | None
    why_not: str | None


@dataclass(frozen=True, slots=True)
class Condition:
    """Which items a list has; lists with equal conditions have the same.

    item_type: their type. cells: uuids of the cells that they are in; None for all. visible: what the caller may see at
    all, of fields of the record. wanted: what of that the list has, of fields of the record too; rest: and of fields
    that are made of it.
    """

    item_type: str
    cells: Collection[str] | None
    visible: Filter
    wanted: Filter
    rest: Filter = EVERYTHING


class WatchedList(Protocol):
    """The list whose changes a watch is about."""

    @property
    def condition(self) -> Condition: ...

    def shows(self, row: InstanceRow) -> bool:
        """Whether the caller may see it at all. Raises UnreadableRowError."""

    def has(self, row: InstanceRow) -> bool:
        """Whether the list has what the caller may see. Raises UnreadableRowError."""

    def event(self, kind: ChangeKind, change: ChangedItem, row: InstanceRow) -> tuple[str, bytes]:
        """Name and data of an event. row: of the change. Raises UnreadableRowError."""

    def coverage(self, cells: Sequence[CoveredCell], cursor: str | None) -> bytes:
        """Data of `ready`, which has a cursor, `complete` and `incomplete`."""


class Effect(Enum):
    """What a change is to all lists of one condition.

    LEAVES_PERHAPS: the list does not have the item, and it is not known whether it did. UNKNOWN: the row is damaged,
    and it is not known whether the caller may see it.
    """

    NOTHING = 0
    ENTERS = 1
    CHANGES = 2
    LEAVES = 3
    LEAVES_PERHAPS = 4
    UNKNOWN = 5


def effect_of(change: ChangedItem, watched: WatchedList) -> Effect:
    """Where the state before is not known, the list is right in any case after what is said."""
    if change.row is None or change.item_type != watched.condition.item_type:
        return Effect.NOTHING
    try:
        return _effect_of(change, change.row, watched)
    except UnreadableRowError:
        return Effect.UNKNOWN


def _effect_of(change: ChangedItem, row: InstanceRow, watched: WatchedList) -> Effect:
    had = _had(change, row, watched)
    if not change.is_gone and _has(watched, row):
        return Effect.ENTERS if had is False else Effect.CHANGES
    if had:
        return Effect.LEAVES
    return Effect.LEAVES_PERHAPS if had is None and watched.shows(row) else Effect.NOTHING


def _had(change: ChangedItem, row: InstanceRow, watched: WatchedList) -> bool | None:
    """Whether the list had the item before the change; None where that is not known."""
    if change.is_new:
        return False
    if change.before is None:
        return None
    return _has(watched, InstanceRow(row.cell_uuid, row.revision - 1, change.before))


def _has(watched: WatchedList, row: InstanceRow) -> bool:
    return watched.shows(row) and watched.has(row)
