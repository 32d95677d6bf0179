"""A watched list, and the effect of a change on it."""

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
    """How a change of an item appears in a list.

    ENTER: the item is new in the list. CHANGE: the list has the item, and may have had it before. LEAVE: the list does
    not have the item, and may have had it before.
    """

    ENTER = "enter"
    CHANGE = "change"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class CoveredCell:
    """The position up to which a reader has every change of a cell.

    position: None if unknown. why_not: why later changes do not come; None while they do.
    """

    cell: Cell
    position: Position | None
    why_not: str | None


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition that a list's items meet; lists with equal conditions have equal items.

    item_type: the items' type. cells: uuids of the cells; None for all. visible: filter of the items that the caller
    may see. wanted: filter of the items that the list has; both on stored fields. rest: further filter, on computed
    fields.
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
        """Whether the caller may see the row. Raises UnreadableRowError for a damaged row."""

    def has(self, row: InstanceRow) -> bool:
        """Whether the list has the row, if the caller may see it. Raises UnreadableRowError for a damaged row."""

    def event(self, kind: ChangeKind, change: ChangedItem, row: InstanceRow) -> tuple[str, bytes]:
        """Return name and data of an event. row: the row of `change`. Raises UnreadableRowError for a damaged row."""

    def coverage(self, cells: Sequence[CoveredCell], cursor: str | None) -> bytes:
        """Return the data of `ready`, which has a cursor, `complete` or `incomplete`."""


class Effect(Enum):
    """The effect of a change on all lists of one condition.

    LEAVES_PERHAPS: the list does not have the item, and may have had it. UNKNOWN: the row is damaged, so that its
    visibility is unknown.
    """

    NOTHING = 0
    ENTERS = 1
    CHANGES = 2
    LEAVES = 3
    LEAVES_PERHAPS = 4
    UNKNOWN = 5


def effect_of(change: ChangedItem, watched: WatchedList) -> Effect:
    """Return the effect of a change on a list. If the earlier state is unknown, the effect is right in either case."""
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
    """Whether the list had the item before the change; None if unknown."""
    if change.is_new:
        return False
    if change.before is None:
        return None
    return _has(watched, InstanceRow(row.cell_uuid, row.revision - 1, change.before))


def _has(watched: WatchedList, row: InstanceRow) -> bool:
    return watched.shows(row) and watched.has(row)
