"""The changes of all cells as they are numbered, read once for all watches of this process.

A cell is followed through its changelog, by sequence, so nothing is left out (fleetlight.listing.watches.changelogs).
Without a watch nothing is read. What cannot be reported change by change is reported as a reset: a cell that has joined
or left the fleet, one that could not be asked at first, one that was restored or whose changelog was pruned or begun
anew meanwhile.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.model import Cell
from fleetlight.listing.watches.changelogs import ChangedItem, ChangelogReading, Changelogs, ResetReason
from fleetlight.listing.watches.watch_index import WatchIndex, Watching
from fleetlight.listing.watches.watched_list import Effect

_log = structlog.get_logger(__name__)
_POLL_INTERVAL_S = 0.25
# All journals are in one database.
_JOURNAL_INTERVAL_S = 1.0
_CELLS_INTERVAL_S = 5.0


class ListsCells(Protocol):
    """What the feed needs of `fleetlight.cells.fan_out.cell_pool.CellPool`."""

    async def cells(self) -> tuple[Cell, ...]: ...
    async def knows_all_cells(self, cell_uuids: Collection[str] = ()) -> bool: ...


@dataclass(frozen=True, slots=True)
class FollowedCell:
    """A cell of the fleet. why_not: what keeps it from being followed at the moment; None while it is."""

    cell: Cell
    why_not: str | None


class Watcher(Watching, Protocol):
    """What gets the changes of a list. Calls come from the event loop and must not block."""

    def offer(self, change: ChangedItem, effect: Effect) -> None:
        """effect: what the change is to the list that is watched."""

    def report(self) -> None:
        """Which cells of the fleet are followed has changed."""

    def reset(self, reason: ResetReason, cell_uuid: str, position: Position | None) -> None:
        """Changes of a cell were missed. position: from where it is followed now, if at all."""

    def end(self) -> None:
        """The process stops."""


class ChangeFeed:
    """Follows every cell while there are watches."""

    def __init__(self, reader: ListsCells, changelogs: Changelogs) -> None:
        self._reader = reader
        self._changelogs = changelogs
        self._watchers = WatchIndex[Watcher]()
        self._cells: dict[str, Cell] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watching_cells: asyncio.Task[None] | None = None
        self._positions: dict[str, Position] = {}
        # By cell and epoch, up to which number it is part of the history that is followed.
        self._past: dict[str, dict[str | None, int]] = {}
        self._why_not: dict[str, str] = {}
        self._starting = asyncio.Lock()
        self._joining = 0
        self._is_closed = False

    def followed(self) -> Sequence[FollowedCell]:
        """All cells of the fleet, while there are watches."""
        return [FollowedCell(cell, self._why_not.get(uuid)) for uuid, cell in self._cells.items()]

    @property
    def positions(self) -> Mapping[str, Position]:
        """By cell, up to where its changes were offered to all watches."""
        return self._positions

    def current_name(self, cell_uuid: str, position: Position) -> Position:
        """The same position by the epoch that the cell is followed in; `position` where that is not known.

        Two epochs give a number to the same change only up to where the later one began.
        """
        if position.sequence > self._past.get(cell_uuid, {}).get(position.epoch, -1):
            return position
        return Position(self._positions[cell_uuid].epoch, position.sequence)

    async def join(self, watcher: Watcher, known: Collection[str] = ()) -> Mapping[str, Position]:
        """Pass each change to `watcher` from now on; returns what comes before. Raises FleetUnreachableError.

        known: uuids of cells that the watcher has followed before, perhaps in a process that learned of them earlier.
        A closed feed ends it at once.
        """
        if self._is_closed:
            watcher.end()
            return {}
        self._joining += 1
        try:
            async with self._starting:
                if self._watching_cells is None:
                    await self._follow_cells()
                    self._watching_cells = asyncio.create_task(self._watch_cells())
                    self._watching_cells.add_done_callback(self._ended)
                if not self._cells.keys() >= set(known):
                    await self._look_for(known)
                self._watchers.add(watcher)
                return dict(self._positions)
        finally:
            self._joining -= 1
            self._stop_unless_used()

    def leave(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)
        self._stop_unless_used()

    def _stop_unless_used(self) -> None:
        if not self._watchers and not self._joining:
            self._stop()

    def close(self) -> None:
        """End all watches, and those that are still to come."""
        self._is_closed = True
        self._end_watches()

    def _end_watches(self) -> None:
        for watcher in self._watchers:
            watcher.end()
        self._watchers.clear()
        self._stop()

    async def replay(self, cell_uuid: str, after: Position) -> ChangelogReading | ResetReason:
        """Changes of a cell that follow `after`, a batch; why not, when they are not known any more.

        Raises CellUnreachableError and UnknownCellError.
        """
        cell = self._cells.get(cell_uuid)
        if cell is None:
            raise UnknownCellError(cell_uuid, tuple(known.name for known in self._cells.values()))
        return await self._changelogs.read_on(cell, after)

    def _stop(self) -> None:
        for task in (*self._tasks.values(), *filter(None, [self._watching_cells])):
            task.cancel()
        self._cells.clear()
        self._tasks.clear()
        self._watching_cells = None
        self._positions.clear()
        self._past.clear()
        self._why_not.clear()

    async def _look_for(self, cell_uuids: Collection[str]) -> None:
        """Follow these cells too, unless they have left the fleet. Raises FleetUnreachableError."""
        if not (await self._reader.knows_all_cells(cell_uuids) or await self._reader.knows_all_cells()):
            raise FleetUnreachableError("which cells there are cannot be read now")
        await self._follow_cells()

    async def _watch_cells(self) -> None:
        while True:
            await asyncio.sleep(_CELLS_INTERVAL_S)
            try:
                await self._follow_cells()
            except FleetUnreachableError as error:
                _log.warning("watch.fleet_unreachable", reason=error.reason)

    async def _follow_cells(self) -> None:
        cells = {cell.uuid: cell for cell in await self._reader.cells()}
        for uuid in self._cells.keys() - cells.keys():
            del self._cells[uuid]
            if uuid in self._tasks:
                self._tasks.pop(uuid).cancel()
            self._positions.pop(uuid, None)
            self._past.pop(uuid, None)
            self._reset(ResetReason.CELL_LEFT, uuid)
            self._mark(uuid, None)
        await asyncio.gather(*(self._begin(cell) for uuid, cell in cells.items() if uuid not in self._cells))

    async def _begin(self, cell: Cell) -> None:
        self._cells[cell.uuid] = cell
        if not await self._find_position(cell, ResetReason.CELL_JOINED):
            self._reset(ResetReason.CELL_JOINED, cell.uuid)
        following = self._tasks[cell.uuid] = asyncio.create_task(self._follow(cell))
        following.add_done_callback(self._ended)

    async def _find_position(self, cell: Cell, reason: ResetReason) -> bool:
        """Whether it is followed from now on. reason: why what came before is missed by watches."""
        try:
            self._positions[cell.uuid] = await self._changelogs.newest_position(cell)
        except (CellUnreachableError, UnknownCellError) as error:
            self._mark(cell.uuid, str(error))
            return False
        self._reset(reason, cell.uuid)
        self._mark(cell.uuid, None)
        return True

    async def _follow(self, cell: Cell) -> None:
        interval_s = _POLL_INTERVAL_S if cell.can.numbers_changes else _JOURNAL_INTERVAL_S
        reason = ResetReason.CELL_JOINED
        while True:
            if cell.uuid not in self._positions:
                await self._find_position(cell, reason)
            elif isinstance(has_more := await self._read_on(cell.uuid), ResetReason):
                reason = has_more
                continue
            elif has_more:
                continue
            await asyncio.sleep(interval_s)

    async def _read_on(self, cell_uuid: str) -> bool | ResetReason:
        """Pass on what is new; whether there may be more, or why it is not known."""
        before = self._positions[cell_uuid]
        try:
            reading = await self.replay(cell_uuid, before)
        except (CellUnreachableError, UnknownCellError) as error:
            self._mark(cell_uuid, str(error))
            return False
        if isinstance(reading, ResetReason):
            del self._positions[cell_uuid]
            self._past.pop(cell_uuid, None)
            return reading
        for change in reading.changes:
            for watcher, effect in self._watchers.concerned(change):
                watcher.offer(change, effect)
        if reading.reached.epoch != before.epoch:
            self._past.setdefault(cell_uuid, {})[before.epoch] = before.sequence
        self._positions[cell_uuid] = reading.reached
        if not reading.has_more:
            self._mark(cell_uuid, None)
        return reading.has_more

    def _ended(self, following: asyncio.Task[None]) -> None:
        """A mistake of this program: watches that would get nothing more end, since silence means no change."""
        if not following.cancelled() and (error := following.exception()) is not None:
            _log.error("watch.failed", exc_info=error)
            self._end_watches()

    def _mark(self, cell_uuid: str, why_not: str | None) -> None:
        if (cell_uuid in self._why_not) is (why_not is not None):
            return
        if why_not is None:
            del self._why_not[cell_uuid]
        else:
            self._why_not[cell_uuid] = why_not
        for watcher in self._watchers:
            watcher.report()

    def _reset(self, reason: ResetReason, cell_uuid: str) -> None:
        for watcher in self._watchers:
            watcher.reset(reason, cell_uuid, self._positions.get(cell_uuid))
