"""The changes of all cells as they are numbered, read once for all watches of this process.

A cell is followed through its changelog, by sequence, so nothing is left out (fleetlight.listing.watches.changelogs).
Without a watch nothing is read. What cannot be reported change by change is reported as a reset: a cell that has joined
or left the fleet, one that could not be asked at first, one that was restored or whose changelog was pruned or begun
anew meanwhile.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import structlog

from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.model import Cell
from fleetlight.listing.watches.changelogs import ChangedInstance, ChangelogReading, Changelogs

_log = structlog.get_logger(__name__)
_POLL_INTERVAL_S = 0.25
# All journals are in one database.
_JOURNAL_INTERVAL_S = 1.0
_CELLS_INTERVAL_S = 5.0


class ListsCells(Protocol):
    """What the feed needs of `fleetlight.cells.fan_out.cell_pool.CellPool`."""

    async def cells(self) -> tuple[Cell, ...]: ...


class Watcher(Protocol):
    """What gets the changes. Calls come from the event loop and must not block."""

    def offer(self, change: ChangedInstance) -> None: ...

    def report(self, *, is_complete: bool) -> None:
        """Whether all cells of the fleet are followed, whenever that changes."""

    def reset(self, reason: str, cell_uuid: str, position: Position | None) -> None:
        """Changes of a cell were missed that its changelog does not have any more.

        position: from where it is followed now, if at all.
        """

    def end(self) -> None:
        """The process stops."""


class ChangeFeed:
    """Follows every cell while there are watches."""

    def __init__(self, reader: ListsCells, changelogs: Changelogs) -> None:
        self._reader = reader
        self._changelogs = changelogs
        self._watchers: set[Watcher] = set()
        self._cells: dict[str, Cell] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watching_cells: asyncio.Task[None] | None = None
        self._positions: dict[str, Position] = {}
        self._not_followed: set[str] = set()
        self._starting = asyncio.Lock()
        self._is_closed = False

    @property
    def is_complete(self) -> bool:
        """Whether all cells of the fleet are followed at the moment."""
        return not self._not_followed

    async def join(self, watcher: Watcher) -> Mapping[str, Position]:
        """Pass each change to `watcher` from now on; returns what comes before. Raises FleetUnreachableError.

        A closed feed ends it at once.
        """
        if self._is_closed:
            watcher.end()
            return {}
        async with self._starting:
            if self._watching_cells is None:
                await self._follow_cells()
                self._watching_cells = asyncio.create_task(self._watch_cells())
                self._watching_cells.add_done_callback(self._ended)
            self._watchers.add(watcher)
            return dict(self._positions)

    def leave(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)
        if not self._watchers:
            self._stop()

    def close(self) -> None:
        """End all watches, and those that are still to come."""
        self._is_closed = True
        self._end_watches()

    def _end_watches(self) -> None:
        for watcher in tuple(self._watchers):
            watcher.end()
        self._watchers.clear()
        self._stop()

    async def replay(self, cell_uuid: str, after: Position) -> ChangelogReading | None:
        """Changes of a cell that follow `after`, a batch; None when they are not known any more.

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
        self._not_followed.clear()

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
            self._mark(uuid, is_followed=True)
            self._reset("a cell has left the fleet", uuid)
        await asyncio.gather(*(self._begin(cell) for uuid, cell in cells.items() if uuid not in self._cells))

    async def _begin(self, cell: Cell) -> None:
        self._cells[cell.uuid] = cell
        await self._find_position(cell)
        following = self._tasks[cell.uuid] = asyncio.create_task(self._follow(cell))
        following.add_done_callback(self._ended)
        self._reset("a cell has joined the fleet", cell.uuid)

    async def _find_position(self, cell: Cell) -> bool:
        try:
            self._positions[cell.uuid] = await self._changelogs.newest_position(cell)
        except (CellUnreachableError, UnknownCellError):
            self._mark(cell.uuid, is_followed=False)
            return False
        self._mark(cell.uuid, is_followed=True)
        return True

    async def _follow(self, cell: Cell) -> None:
        interval_s = _POLL_INTERVAL_S if cell.can.numbers_changes else _JOURNAL_INTERVAL_S
        while True:
            if cell.uuid not in self._positions:
                if await self._find_position(cell):
                    self._reset("not all changes of a cell are known", cell.uuid)
            elif await self._read_on(cell.uuid):
                continue
            await asyncio.sleep(interval_s)

    async def _read_on(self, cell_uuid: str) -> bool:
        """Pass on what is new; whether there may be more."""
        try:
            reading = await self.replay(cell_uuid, self._positions[cell_uuid])
        except (CellUnreachableError, UnknownCellError):
            self._mark(cell_uuid, is_followed=False)
            return False
        self._mark(cell_uuid, is_followed=True)
        if reading is None:
            del self._positions[cell_uuid]
            return True
        for change in reading.changes:
            for watcher in tuple(self._watchers):
                watcher.offer(change)
        self._positions[cell_uuid] = reading.reached
        return reading.has_more

    def _ended(self, following: asyncio.Task[None]) -> None:
        """A mistake of this program: watches that would get nothing more end, since silence means no change."""
        if not following.cancelled() and (error := following.exception()) is not None:
            _log.error("watch.failed", exc_info=error)
            self._end_watches()

    def _mark(self, cell_uuid: str, *, is_followed: bool) -> None:
        was_complete = self.is_complete
        (self._not_followed.discard if is_followed else self._not_followed.add)(cell_uuid)
        if self.is_complete is not was_complete:
            for watcher in tuple(self._watchers):
                watcher.report(is_complete=self.is_complete)

    def _reset(self, reason: str, cell_uuid: str) -> None:
        for watcher in tuple(self._watchers):
            watcher.reset(reason, cell_uuid, self._positions.get(cell_uuid))
