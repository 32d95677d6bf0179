"""The changes of all cells as they are numbered, read once for all watches of this process.

A cell is followed through its changelog, by sequence, so nothing is left out and nothing depends on the index or the
bus. Nobody watches: nothing is read.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from cells.model import NO_REVISION, Cell, CellAdapter, CellKind, Change, ChangelogAdapter, InstanceRow
from indexer.native_messages import read_record

T = TypeVar("T")

_log = structlog.get_logger(__name__)
_BATCH_SIZE = 500
_POLL_INTERVAL_S = 0.25
_CELLS_INTERVAL_S = 5.0


class AsksCells(Protocol):
    """What the feed needs of `cells.fan_out.CellPool`."""

    async def cells(self) -> tuple[Cell, ...]: ...

    async def ask(self, cell_uuid: str, question: Callable[[CellAdapter], T], timeout_s: float) -> T: ...


@dataclass(frozen=True, slots=True)
class ChangedInstance:
    """What a cell's changelog says up to `sequence`. row: the instance after it; None when it is about none."""

    cell_uuid: str
    sequence: int
    row: InstanceRow | None


class Watcher(Protocol):
    """Who is told. Calls come from the event loop and must not block."""

    def offer(self, change: ChangedInstance) -> None: ...

    def tell(self, *, is_complete: bool) -> None:
        """Whether all cells of the fleet are followed, whenever that changes."""
        ...

    def reset(self, reason: str) -> None:
        """Changes were missed that nobody can tell any more."""
        ...

    def end(self) -> None:
        """The process stops."""
        ...


class ChangeFeed:
    """Follows every native cell while somebody watches. timeout_s: what a question to a cell may cost."""

    def __init__(self, reader: AsksCells, timeout_s: float) -> None:
        self._reader = reader
        self._timeout_s = timeout_s
        self._watchers: set[Watcher] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watching_cells: asyncio.Task[None] | None = None
        self._positions: dict[str, int] = {}
        self._not_followed: set[str] = set()
        self._starting = asyncio.Lock()

    @property
    def is_complete(self) -> bool:
        """Whether all cells of the fleet are followed at the moment."""
        return not self._not_followed

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    async def join(self, watcher: Watcher) -> Mapping[str, int]:
        """Tell `watcher` of each change from now on; returns the sequences that come before. Raises
        FleetUnreachableError.
        """
        async with self._starting:
            if not self._tasks:
                await self._follow_cells()
                self._watching_cells = asyncio.create_task(self._watch_cells())
            self._watchers.add(watcher)
            return dict(self._positions)

    def leave(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)
        if not self._watchers:
            self._stop()

    def close(self) -> None:
        """End all watches."""
        for watcher in tuple(self._watchers):
            watcher.end()
        self._watchers.clear()
        self._stop()

    async def replay(self, cell_uuid: str, after: int) -> Sequence[ChangedInstance] | None:
        """Changes of a cell that follow the sequence `after`, a batch; None when they are not known any more.

        Raises CellUnreachableError and UnknownCellError.
        """

        def read(adapter: CellAdapter) -> Sequence[ChangedInstance] | None:
            log = _changelog(adapter)
            if not log.oldest_kept_sequence() - 1 <= after <= log.published_sequence():
                return None
            return [_changed(adapter, change) for change in log.changes_after(after, _BATCH_SIZE)]

        return await self._reader.ask(cell_uuid, read, self._timeout_s)

    def _stop(self) -> None:
        for task in (*self._tasks.values(), *filter(None, [self._watching_cells])):
            task.cancel()
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
        for uuid in set(self._tasks) - set(cells):
            self._tasks.pop(uuid).cancel()
            self._positions.pop(uuid, None)
            self._mark(uuid, is_followed=True)
        new = [cell for uuid, cell in cells.items() if uuid not in self._tasks]
        await asyncio.gather(*map(self._begin, new))

    async def _begin(self, cell: Cell) -> None:
        if cell.kind is not CellKind.NATIVE:
            # It numbers nothing that could be followed.
            self._mark(cell.uuid, is_followed=False)
            return
        await self._find_position(cell)
        self._tasks[cell.uuid] = asyncio.create_task(self._follow(cell))

    async def _find_position(self, cell: Cell) -> bool:
        try:
            self._positions[cell.uuid] = await self._reader.ask(cell.uuid, _published, self._timeout_s)
        except (CellUnreachableError, UnknownCellError):
            self._mark(cell.uuid, is_followed=False)
            return False
        self._mark(cell.uuid, is_followed=True)
        return True

    async def _follow(self, cell: Cell) -> None:
        uuid = cell.uuid
        while True:
            if uuid not in self._positions:
                if await self._find_position(cell):
                    self._reset("a cell is followed that could not be asked before")
            elif await self._read_on(uuid):
                continue
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def _read_on(self, cell_uuid: str) -> bool:
        """Pass on what is new; whether there may be more."""
        after = self._positions[cell_uuid]
        try:
            changes = await self.replay(cell_uuid, after)
        except (CellUnreachableError, UnknownCellError):
            self._mark(cell_uuid, is_followed=False)
            return False
        self._mark(cell_uuid, is_followed=True)
        if changes is None:
            # Somebody has put an older copy of the cell in its place, or its changelog was pruned in the meantime.
            self._positions.pop(cell_uuid, None)
            return True
        for change in changes:
            self._positions[cell_uuid] = change.sequence
            for watcher in tuple(self._watchers):
                watcher.offer(change)
        return len(changes) == _BATCH_SIZE

    def _mark(self, cell_uuid: str, *, is_followed: bool) -> None:
        was_complete = self.is_complete
        (self._not_followed.discard if is_followed else self._not_followed.add)(cell_uuid)
        if self.is_complete is not was_complete:
            for watcher in tuple(self._watchers):
                watcher.tell(is_complete=self.is_complete)

    def _reset(self, reason: str) -> None:
        for watcher in tuple(self._watchers):
            watcher.reset(reason)


def _changelog(adapter: CellAdapter) -> ChangelogAdapter:
    """Native cells alone are followed, and theirs have a changelog."""
    return adapter  # type: ignore[return-value]  # what the kind of the cell says


def _published(adapter: CellAdapter) -> int:
    return _changelog(adapter).published_sequence()


def _changed(adapter: CellAdapter, change: Change) -> ChangedInstance:
    row: InstanceRow | None = None
    if change.revision != NO_REVISION and change.instance_uuid:
        record = read_record(change.message)
        # What a newer version of us has written, the cell itself can tell.
        row = (
            adapter.find(change.instance_uuid)
            if record is None
            else InstanceRow(adapter.cell.uuid, change.revision, record)
        )
    return ChangedInstance(adapter.cell.uuid, change.sequence, row)
