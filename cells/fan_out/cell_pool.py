"""Asking many cells at once, each within a deadline, so that a cell that hangs holds up nobody else.

Adapters block, so each cell has a few threads of its own, and one that hangs is waited for once
(cells.fan_out.guarded_cell).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog

from cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from cells.fan_out.guarded_cell import GuardedCell
from cells.model import NOBODY, Cell, CellAdapter, DescribingAdapter, InstanceRow, ProbedAdapter
from query.page import PageRequest

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class CellPool:
    """The cells of the fleet, as the API asks them.

    list_cells: reads the registry (`Fleet.cells`); called again when the list is older than `refresh_interval_s`.
    open_adapter: `cells.adapters.open_adapter`; raises CellUnreachableError for a cell that cannot be asked at all.
    threads_per_cell: questions that one cell answers at the same time; more wait, inside their deadline.
    list_timeout_s: how long a caller waits for the registry.
    deadline_s, probe_interval_s: see GuardedCell.
    """

    def __init__(
        self,
        list_cells: Callable[[], Sequence[Cell]],
        open_adapter: Callable[[Cell], CellAdapter],
        *,
        threads_per_cell: int = 3,
        refresh_interval_s: float = 10.0,
        list_timeout_s: float = 2.0,
        deadline_s: float = 5.0,
        probe_interval_s: float = 1.0,
    ) -> None:
        self._list_cells = list_cells
        self._open_adapter = open_adapter
        self._open_guarded = partial(
            GuardedCell, threads=threads_per_cell, deadline_s=deadline_s, probe_interval_s=probe_interval_s
        )
        self._refresh_interval_s = refresh_interval_s
        self._lines: dict[str, _Line] = {}
        self._refreshed_at = float("-inf")
        self._is_current = False
        self._list_timeout_s = list_timeout_s
        self._refreshing: asyncio.Task[FleetUnreachableError | None] | None = None

    async def cells(self) -> tuple[Cell, ...]:
        """Every cell of the fleet. While the fleet database is away, or hangs, the list is the one read last.

        Raises FleetUnreachableError if it was never read.
        """
        if time.monotonic() - self._refreshed_at > self._refresh_interval_s:
            failure = await self._refresh_in_time()
            if failure is not None and not self._lines:
                self._refreshed_at = float("-inf")
                raise failure
        return tuple(line.cell for line in self._lines.values())

    async def knows_all_cells(self, cell_uuids: Collection[str] = ()) -> bool:
        """Whether `cells` are all of the fleet, as of `refresh_interval_s` ago at most.

        cell_uuids: cells that somebody knows of; the registry is read again if one of them is not there.
        Raises as `cells` does.
        """
        await self.cells()
        if self._is_current and not self._lines.keys() >= set(cell_uuids):
            await self._refresh_in_time()
        return self._is_current and self._lines.keys() >= set(cell_uuids)

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        """One page of one cell (see CellAdapter.read_page).

        Raises CellUnreachableError when the cell fails or does not answer in time, UnknownCellError without asking.
        """
        return await self.ask(cell_uuid, lambda adapter: adapter.read_page(request), timeout_s)

    async def find(self, cell_uuid: str, uuid: str, timeout_s: float) -> InstanceRow | None:
        """One instance of one cell (see CellAdapter.find); raises as `read_page` does."""
        return await self.ask(cell_uuid, lambda adapter: adapter.find(uuid), timeout_s)

    async def describe(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Mapping[str, Any] | None:
        """The statement that a page of one cell takes, as its adapter compiles it; None where that cannot be told."""

        def describe(adapter: CellAdapter) -> Mapping[str, Any] | None:
            return adapter.describe(request) if isinstance(adapter, DescribingAdapter) else None

        try:
            return await self.ask(cell_uuid, describe, timeout_s)
        except (CellUnreachableError, UnknownCellError):
            return None

    def hanging(self) -> frozenset[str]:
        """The uuids of cells that are treated as down, without being asked, until a probe was answered."""
        return frozenset(uuid for uuid, line in self._lines.items() if line.hangs)

    def treat_as_hanging(self, cell_uuid: str, reason: str) -> None:
        """Ask that cell nothing until a probe was answered; somebody found out by other ways that it hangs."""
        if cell_uuid in self._lines:
            self._lines[cell_uuid].treat_as_hanging(reason)

    async def close(self) -> None:
        """Let go of the cells; does not wait for one that hangs."""
        lines, self._lines = list(self._lines.values()), {}
        for line in lines:
            line.close()

    async def ask(self, cell_uuid: str, question: Callable[[CellAdapter], T], timeout_s: float) -> T:
        """The answer of one cell to a `question` to its adapter; raises as `read_page` does."""
        await self.knows_all_cells((cell_uuid,))
        line = self._lines.get(cell_uuid)
        if line is None:
            raise UnknownCellError(cell_uuid, tuple(known.cell.name for known in self._lines.values()))
        return await line.ask(question, timeout_s)

    async def _refresh_in_time(self) -> FleetUnreachableError | None:
        """Read the registry, once for all who wait for it; a reading that hangs goes on, and no second one begins."""
        reading = self._refreshing
        if reading is None or reading.done():
            reading = self._refreshing = asyncio.create_task(self._refresh())
        done, _ = await asyncio.wait({reading}, timeout=self._list_timeout_s)
        if done:
            failure = reading.result()
        else:
            failure = FleetUnreachableError(f"no answer within {self._list_timeout_s:g} s")
            _log.warning("fan_out.fleet_unreachable", reason=failure.reason)
        self._is_current = failure is None
        self._refreshed_at = time.monotonic()
        return failure

    async def _refresh(self) -> FleetUnreachableError | None:
        try:
            cells = await asyncio.to_thread(self._list_cells)
        except FleetUnreachableError as error:
            _log.warning("fan_out.fleet_unreachable", reason=error.reason)
            return error
        self._use(cells)
        return None

    def _use(self, cells: Sequence[Cell]) -> None:
        previous, self._lines = self._lines, {}
        for cell in cells:
            line = previous.get(cell.uuid)
            if line is not None and line.cell == cell:
                self._lines[cell.uuid] = previous.pop(cell.uuid)
            else:
                self._lines[cell.uuid] = _Line(cell, partial(self._open_adapter, cell), self._open_guarded)
        for line in previous.values():
            line.close()


def _probe(adapter: CellAdapter) -> None:
    if isinstance(adapter, ProbedAdapter):
        adapter.probe()
    else:
        adapter.find(NOBODY)


class _Line:
    """The connection to one cell: its adapter, opened at the first question, and what guards it."""

    def __init__(
        self, cell: Cell, open_adapter: Callable[[], CellAdapter], open_guarded: Callable[..., GuardedCell]
    ) -> None:
        self.cell = cell
        self._open = open_adapter
        self._guarded = open_guarded(cell.name, lambda: _probe(self._opened()))
        self._adapter: CellAdapter | None = None
        self._opening = threading.Lock()

    @property
    def hangs(self) -> bool:
        return self._guarded.hangs

    def treat_as_hanging(self, reason: str) -> None:
        self._guarded.treat_as_hanging(reason)

    async def ask(self, question: Callable[[CellAdapter], T], timeout_s: float) -> T:
        return await self._guarded.ask(lambda: question(self._opened()), timeout_s)

    def close(self) -> None:
        # Behind the questions that wait or run already.
        self._guarded.close(self._close_adapter)

    def _opened(self) -> CellAdapter:
        with self._opening:
            if self._adapter is None:
                self._adapter = self._open()
            return self._adapter

    def _close_adapter(self) -> None:
        with self._opening:
            adapter, self._adapter = self._adapter, None
        if adapter is not None:
            adapter.close()
