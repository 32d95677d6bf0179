"""The feed: the changes of all cells, read once for all watches of this process.

The feed follows each cell's changelog by sequence, so it misses no change (fleetlight.listing.watches.changelogs). It
reads nothing while there is no watch. A reset stands for changes that cannot be reported one by one: when a cell has
joined or left the fleet, did not answer at first, was restored, or has pruned or restarted its changelog.
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
# Less often than changelogs, since the fleet database holds all journals.
_JOURNAL_INTERVAL_S = 1.0
_CELLS_INTERVAL_S = 5.0


class ListsCells(Protocol):
    """The part of `fleetlight.cells.fan_out.cell_pool.CellPool` that the feed uses."""

    async def cells(self) -> tuple[Cell, ...]: ...
    async def knows_all_cells(self, cell_uuids: Collection[str] = ()) -> bool: ...


@dataclass(frozen=True, slots=True)
class FollowedCell:
    """A cell of the fleet. why_not: why the feed cannot follow it now; None while it does."""

    cell: Cell
    why_not: str | None


class Watcher(Watching, Protocol):
    """The receiver of a list's changes. The feed calls it in the event loop, so its methods must not block."""

    def offer(self, change: ChangedItem, effect: Effect) -> None:
        """Take a change. effect: its effect on the watched list."""

    def report(self) -> None:
        """Note that the set of followed cells has changed."""

    def reset(self, reason: ResetReason, cell_uuid: str, position: Position | None) -> None:
        """Note that changes of a cell were missed. position: where the feed resumes; None if it does not."""

    def end(self) -> None:
        """Note that the process stops."""


class ChangeFeed:
    """Follows the changelog of every cell while there are watches."""

    def __init__(self, reader: ListsCells, changelogs: Changelogs) -> None:
        self._reader = reader
        self._changelogs = changelogs
        self._watchers = WatchIndex[Watcher]()
        self._cells: dict[str, Cell] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watching_cells: asyncio.Task[None] | None = None
        self._positions: dict[str, Position] = {}
        # By cell and epoch, the last number of that epoch in the history that the feed follows.
        self._past: dict[str, dict[str | None, int]] = {}
        self._why_not: dict[str, str] = {}
        self._starting = asyncio.Lock()
        self._joining = 0
        self._is_closed = False

    def followed(self) -> Sequence[FollowedCell]:
        """Return all cells of the fleet; none without watches."""
        return [FollowedCell(cell, self._why_not.get(uuid)) for uuid, cell in self._cells.items()]

    @property
    def positions(self) -> Mapping[str, Position]:
        """By cell, the position up to which all watches were offered its changes."""
        return self._positions

    def current_name(self, cell_uuid: str, position: Position) -> Position:
        """Convert `position` to the epoch in which the feed follows the cell; unchanged if that is not possible.

        Two epochs give the same number to the same change only up to where the later epoch began.
        """
        if position.sequence > self._past.get(cell_uuid, {}).get(position.epoch, -1):
            return position
        return Position(self._positions[cell_uuid].epoch, position.sequence)

    async def join(self, watcher: Watcher, known: Collection[str] = ()) -> Mapping[str, Position]:
        """Pass each later change to `watcher`; returns the positions from which on. Raises FleetUnreachableError.

        known: uuids of cells that the watcher has followed before, perhaps in a process that read the registry later.
        A closed feed ends the watcher at once.
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
        """Pass no more changes to `watcher`; the last watcher stops the feed."""
        self._watchers.discard(watcher)
        self._stop_unless_used()

    def _stop_unless_used(self) -> None:
        if not self._watchers and not self._joining:
            self._stop()

    def close(self) -> None:
        """End all watches, and each later one as it joins."""
        self._is_closed = True
        self._end_watches()

    def _end_watches(self) -> None:
        for watcher in self._watchers:
            watcher.end()
        self._watchers.clear()
        self._stop()

    async def replay(self, cell_uuid: str, after: Position) -> ChangelogReading | ResetReason:
        """Read a batch of a cell's changes after `after`, as Changelogs.read_on does.

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
        """Begin to follow a cell; returns whether that worked. reason: why watches have missed its earlier changes."""
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
        """Offer new changes to the watches; returns whether more may follow, or why changes are unknown."""
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
        """End all watches if the task failed: their silence would mean that nothing changes."""
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
