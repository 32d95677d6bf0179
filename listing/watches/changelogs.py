"""Changes of instances and nodes, read from the changelog of a native cell, or from the journal that an indexer keeps
for another cell. This module knows nothing about watches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from fleetlight.cells.bounded_threads import AllThreadsHangError, BoundedThreads
from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.fleet.journals import KEPT, JournalReading
from fleetlight.cells.model import FIRST_REVISION, NO_REVISION, Cell, CellAdapter, Change, ChangelogAdapter, InstanceRow
from fleetlight.indexer.errors import MalformedMessageError
from fleetlight.indexer.transform.messages import interpret
from fleetlight.indexer.transform.native_messages import read_record
from fleetlight.indexer.transform.other_items import OtherItemChange
from fleetlight.notifications.envelope import size_problem
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import Record
from fleetlight.resources.indexed_items import INDEXED_ITEMS
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

T = TypeVar("T")

_BATCH_SIZE = 500
_JOURNAL_THREADS = 2
# An indexer reports each two seconds that it follows a cell; clocks may differ.
_SILENT_AFTER_S = 20
# Larger than the number of any change.
_BEYOND_ALL = 2**62


class ResetReason(StrEnum):
    """Why a reader has missed changes and has to list again; the values are for programs, `text` for people."""

    FORGOTTEN = "forgotten"
    RESTORED = "restored"
    CELL_JOINED = "cell-joined"
    CELL_LEFT = "cell-left"
    UNKNOWN_CURSOR = "unknown-cursor"
    OTHER_QUESTION = "other-question"
    UNREADABLE_ROW = "unreadable-row"

    @property
    def text(self) -> str:
        """The reason as a sentence for the reader."""
        return _REASONS[self]


_REASONS = {
    ResetReason.FORGOTTEN: "not all changes of a cell since then are kept",
    ResetReason.RESTORED: "a cell was restored, or its changelog was begun anew",
    ResetReason.CELL_JOINED: "a cell has joined the fleet, or can be asked for the first time",
    ResetReason.CELL_LEFT: "a cell has left the fleet",
    ResetReason.UNKNOWN_CURSOR: "where the reader was is not known here",
    ResetReason.OTHER_QUESTION: "it was made for another filter, for other fields, or for other projects",
    ResetReason.UNREADABLE_ROW: "a row that has changed cannot be read",
}


@dataclass(frozen=True, slots=True)
class ChangedItem:
    """One change in a cell's changelog, at `position`. row: the item after the change; None if it concerns no item.

    item_type: the item's type; a node's record has the values of fleetlight.resources.node.shown_node. is_gone: the
    cell has deleted the item, and `row` is its last known state. is_new: the change made the item. before: the record
    before the change; None if unknown.
    """

    cell_uuid: str
    position: Position
    row: InstanceRow | None
    item_type: str = INSTANCE_FIELDS.name
    is_gone: bool = False
    is_new: bool = False
    before: Record | None = None


@dataclass(frozen=True, slots=True)
class ChangelogReading:
    """changes: in order. reached: the position up to which they are complete. has_more: whether more had followed."""

    changes: Sequence[ChangedItem]
    reached: Position
    has_more: bool


class QueriesCells(Protocol):
    """The part of `fleetlight.cells.fan_out.cell_pool.CellPool` that reads changelogs."""

    async def ask(self, cell_uuid: str, query: Callable[[CellAdapter], T], timeout_s: float) -> T: ...


class ReadsJournals(Protocol):
    """The part of fleetlight.cells.fleet.journals.Journals that reads; each call raises FleetUnreachableError."""

    def read(self, cell_uuid: str, after: int, limit: int) -> JournalReading | None: ...

    def read_back(self, cell_uuid: str, before: int, limit: int) -> JournalReading | None: ...


class Changelogs:
    """The changelogs of all cells. timeout_s: time limit of a query. clock: microseconds since the epoch.

    Calls raise CellUnreachableError when the changes of the cell cannot be read now, and UnknownCellError.
    """

    def __init__(
        self, cells: QueriesCells, journals: ReadsJournals, timeout_s: float, *, clock: Clock = system_clock
    ) -> None:
        self._cells = cells
        self._journals = journals
        self._timeout_s = timeout_s
        self._clock = clock
        self._threads = BoundedThreads(_JOURNAL_THREADS, "journals", deadline_s=timeout_s)

    async def newest_position(self, cell: Cell) -> Position:
        """Return the position of the newest numbered change of the cell. Raises as the class says."""
        if cell.can.numbers_changes:
            return await self._cells.ask(cell.uuid, lambda adapter: _changelog_of(adapter).position(), self._timeout_s)
        reading = await self._read_journal(cell, lambda: self._journals.read(cell.uuid, _BEYOND_ALL, 1))
        self._require_follower(cell, reading)
        return reading.now

    async def read_back(self, cell: Cell, before: Position | None, limit: int) -> JournalReading:
        """Read the journal of a cell without numbers backwards: the newest entries before `before`, newest first."""
        below = _BEYOND_ALL if before is None else before.sequence
        reading = await self._read_journal(cell, lambda: self._journals.read_back(cell.uuid, below, limit))
        self._require_follower(cell, reading)
        return reading

    async def read_on(self, cell: Cell, after: Position) -> ChangelogReading | ResetReason:
        """Read a batch of the changes after `after`; returns a ResetReason if those changes are unknown.

        They are unknown when the changelog does not go back that far, or was begun anew: the cell was restored from a
        backup, or its journal was interrupted.
        """
        if cell.can.numbers_changes:
            return await self._cells.ask(cell.uuid, lambda adapter: read_on(adapter, after), self._timeout_s)
        reading = await self._read_journal(cell, lambda: self._journals.read(cell.uuid, after.sequence, _BATCH_SIZE))
        now = reading.now
        if now.epoch != after.epoch or now.sequence < after.sequence:
            return ResetReason.RESTORED
        if after.sequence < now.sequence - KEPT:
            return ResetReason.FORGOTTEN
        if not reading.entries:
            self._require_follower(cell, reading)
        changes = [
            ChangedItem(
                cell.uuid,
                Position(now.epoch, number),
                InstanceRow(cell.uuid, found.version, found.record),
                is_gone=found.is_gone,
            )
            for number, found in reading.entries
        ]
        has_more = len(changes) == _BATCH_SIZE
        return ChangelogReading(changes, changes[-1].position if has_more else now, has_more)

    def close(self) -> None:
        """End the threads that read journals."""
        self._threads.close(lambda: None)

    async def _read_journal(self, cell: Cell, read: Callable[[], JournalReading | None]) -> JournalReading:
        try:
            reading = await self._threads.run(read, self._timeout_s)
        except (FleetUnreachableError, AllThreadsHangError, TimeoutError) as error:
            raise CellUnreachableError(cell.name, f"its journal cannot be read: {error}") from error
        if reading is None:
            raise CellUnreachableError(cell.name, "no indexer has followed it yet")
        return reading

    def _require_follower(self, cell: Cell, reading: JournalReading) -> None:
        if abs(self._clock() - reading.followed_at) > _SILENT_AFTER_S * MICROSECONDS_PER_SECOND:
            raise CellUnreachableError(cell.name, "no indexer follows it")


def read_on(adapter: CellAdapter, after: Position) -> ChangelogReading | ResetReason:
    """As Changelogs.read_on, for a cell that keeps its own changelog. Blocks; raises CellUnreachableError."""
    log = _changelog_of(adapter)
    now = log.position()
    if now == after:
        return ChangelogReading((), after, has_more=False)
    if now.sequence < after.sequence or not _is_past_of(log, after, now):
        return ResetReason.RESTORED
    # Leave changes numbered after `now`, which may belong to a later epoch, to the next read.
    changes = [change for change in log.changes_after(after.sequence, _BATCH_SIZE) if change.sequence <= now.sequence]
    if [change.sequence for change in changes[:1]] != [after.sequence + 1][: now.sequence - after.sequence]:
        return ResetReason.FORGOTTEN
    try:
        changed = [_changed(log, change, Position(now.epoch, change.sequence)) for change in changes]
    except MalformedMessageError:
        return ResetReason.UNREADABLE_ROW
    reached = changed[-1].position if changed else now
    return ChangelogReading(changed, reached, has_more=reached != now)


def _is_past_of(log: ChangelogAdapter, after: Position, now: Position) -> bool:
    """Whether the change at `after` belongs to the history that leads to `now`."""
    # Before the first epoch no change had a number, so every change comes after that.
    is_same = after.epoch in {None, now.epoch}
    return is_same or log.epoch_history().contains(str(after.epoch), after.sequence)


def _changelog_of(adapter: CellAdapter) -> ChangelogAdapter:
    if isinstance(adapter, ChangelogAdapter):
        return adapter
    raise CellUnreachableError(adapter.cell.name, f"nothing numbers the changes of cells of kind '{adapter.cell.kind}'")


def _changed(log: ChangelogAdapter, change: Change, position: Position) -> ChangedItem:
    """Convert a change of an instance or node. Raises MalformedMessageError for a message that cannot be read."""
    if change.revision == NO_REVISION:
        return ChangedItem(log.cell.uuid, position, None)
    if not change.instance_uuid:
        return _changed_other(log.cell.uuid, change, position)
    record = None if size_problem(change.message) else read_record(change.message)
    # A newer version of Fleetlight may have written the message: then read the row from the cell.
    row = log.find(change.instance_uuid) if record is None else InstanceRow(log.cell.uuid, change.revision, record)
    before: Record | None = None
    if record is not None and change.previous is not None:
        before = {**record, **{name: value for name, value in change.previous.items() if name in record}}
    return ChangedItem(log.cell.uuid, position, row, is_new=change.revision == FIRST_REVISION, before=before)


def _changed_other(cell_uuid: str, change: Change, position: Position) -> ChangedItem:
    """Convert a change of an item that is no instance; the changelog keeps no earlier record of it."""
    said = interpret(change.message, change.revision)
    if not isinstance(said, OtherItemChange):
        return ChangedItem(cell_uuid, position, None)
    row = InstanceRow(cell_uuid, said.revision, INDEXED_ITEMS[said.item_type].shown(said.record))
    is_gone, is_new = bool(said.record["deleted"]), said.revision == FIRST_REVISION
    return ChangedItem(cell_uuid, position, row, said.item_type, is_gone=is_gone, is_new=is_new)
