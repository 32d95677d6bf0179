"""Queries many cells at once, each within a deadline, so that a cell that hangs does not hold up requests to others.

A process opens each cell once: with one adapter, one pool of connections, and one circuit breaker with a few threads
(fleetlight.cells.fan_out.guarded_cell), for queries as well as for changes.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import structlog

from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.fan_out.guarded_cell import GuardedCell
from fleetlight.cells.model import NO_INSTANCE, Cell, CellAdapter, DescribingAdapter, InstanceRow, ProbedAdapter
from fleetlight.query.page import PageRequest

T = TypeVar("T")

_log = structlog.get_logger(__name__)

# How long a caller waits for the registry if it could not be read last time.
_FAILING_TIMEOUT_S = 0.1


class CellPool:
    """The cells of the fleet, for the API's queries and changes. Used in one event loop, except `opened`.

    list_cells: reads the registry (`Fleet.cells`); called again after `refresh_interval_s`. proves_for_s: how long the
    last reading counts as the complete list of cells; meanwhile it is read again in the background. By default callers
    wait for each refresh. open_adapter: see fleetlight.cells.kinds.opening; raises CellUnreachableError for a cell that
    can never be queried. threads_per_cell: queries of one cell at the same time, and as many changes; others wait,
    queries within their deadline. list_timeout_s: how long a caller waits for the registry. deadline_s,
    probe_interval_s: see GuardedCell.
    """

    def __init__(
        self,
        list_cells: Callable[[], Sequence[Cell]],
        open_adapter: Callable[[Cell], CellAdapter],
        *,
        threads_per_cell: int = 4,
        refresh_interval_s: float = 10.0,
        proves_for_s: float | None = None,
        list_timeout_s: float = 2.0,
        deadline_s: float = 5.0,
        probe_interval_s: float = 1.0,
    ) -> None:
        self._list_cells = list_cells
        self._new_open_cell = partial(
            _OpenCell,
            open_adapter=open_adapter,
            threads=threads_per_cell,
            deadline_s=deadline_s,
            probe_interval_s=probe_interval_s,
        )
        self._refresh_interval_s = refresh_interval_s
        self._deadline_s = deadline_s
        # Replaced as a whole and never changed, since other threads read it.
        self._open_cells: Mapping[str, _OpenCell] = {}
        self._moved: list[_OpenCell] = []  # are closed in the event loop
        # Opened since the current reading of the registry began, which may not include them yet.
        self._opened_meanwhile: dict[str, _OpenCell] = {}
        self._reading = DaemonThreads(1, "registry")
        self._replacing = threading.Lock()
        self._is_closed = False
        self._proves_for_s = refresh_interval_s if proves_for_s is None else proves_for_s
        self._tried_at = self._read_at = float("-inf")
        self._is_failing = False
        self._refreshing_since = float("-inf")
        self._list_timeout_s = list_timeout_s
        self._refreshing: asyncio.Task[FleetUnreachableError | None] | None = None

    @property
    def deadline_s(self) -> float:
        """How long a cell may be silent."""
        return self._deadline_s

    async def cells(self) -> tuple[Cell, ...]:
        """Every cell of the fleet; as last read, if the fleet database is down or hangs.

        Raises FleetUnreachableError if it was never read.
        """
        now = time.monotonic()
        is_proven = now - self._read_at <= self._proves_for_s
        if now - self._tried_at > self._refresh_interval_s or not (is_proven or self._is_failing):
            if is_proven:
                self._begin_refresh()
            elif (failure := await self._refresh_in_time()) is not None and self._read_at == float("-inf"):
                self._tried_at = float("-inf")
                raise failure
        return tuple(opened.cell for opened in self._open_cells.values())

    async def knows_all_cells(self, cell_uuids: Collection[str] = ()) -> bool:
        """Whether `cells` are all cells of the fleet, as of `proves_for_s` ago at most.

        cell_uuids: cells that the caller knows; if one is missing, the registry is read again. Raises
        FleetUnreachableError.
        """
        await self.cells()
        if self._is_proven() and not self._open_cells.keys() >= set(cell_uuids):
            await self._refresh_in_time()
        return self._is_proven() and self._open_cells.keys() >= set(cell_uuids)

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        """Read one page of one cell (see CellAdapter.read_page).

        Raises CellUnreachableError if the cell fails or does not answer in time, UnknownCellError without a query.
        """
        return await self.ask(cell_uuid, lambda adapter: adapter.read_page(request), timeout_s)

    async def find(self, cell_uuid: str, uuid: str, timeout_s: float) -> InstanceRow | None:
        """Find an instance in one cell (see CellAdapter.find). Raises as `read_page` does."""
        return await self.ask(cell_uuid, lambda adapter: adapter.find(uuid), timeout_s)

    async def describe(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Mapping[str, Any] | None:
        """The statement that a cell's adapter compiles for a page; None if that is unknown."""

        def describe(adapter: CellAdapter) -> Mapping[str, Any] | None:
            return adapter.describe(request) if isinstance(adapter, DescribingAdapter) else None

        try:
            return await self.ask(cell_uuid, describe, timeout_s)
        except (CellUnreachableError, UnknownCellError):
            return None

    def hanging(self) -> frozenset[str]:
        """The uuids of cells that count as down, and are not queried, until they answer a probe."""
        return frozenset(uuid for uuid, opened in self._open_cells.items() if opened.hangs)

    async def close(self) -> None:
        """Close the cells, without waiting for one that hangs."""
        with self._replacing:
            self._is_closed = True
            closing = [*self._open_cells.values(), *self._moved]
            self._open_cells, self._moved = {}, []
        self._reading.shutdown(wait=False)
        for opened in closing:
            opened.close(opened.close_adapter)

    async def ask(self, cell_uuid: str, question: Callable[[CellAdapter], T], timeout_s: float) -> T:
        """Run a `question` on the adapter of one cell. Raises as `read_page` does."""
        await self.knows_all_cells((cell_uuid,))
        opened = self._open_cells.get(cell_uuid)
        if opened is None:
            raise UnknownCellError(cell_uuid, tuple(known.cell.name for known in self._open_cells.values()))
        return await opened.ask(lambda: question(opened.opened()), timeout_s)

    async def ask_known(self, cell: Cell, question: Callable[[], T], timeout_s: float) -> T:
        """Run a `question` about a `cell` just named by the registry; see `opened` and `ask`. Raises as `ask`."""
        return await self._open_cell(cell).ask(question, timeout_s)

    async def act(self, cell: Cell, change: Callable[[], T]) -> T:
        """Run a `change` of a `cell` just named by the registry, and wait for it however long (see GuardedCell.act)."""
        return await self._open_cell(cell).act(change)

    def opened(self, cell: Cell) -> CellAdapter:
        """The adapter of a cell just named by the registry, for blocking queries and changes.

        Any thread may call this. Raises CellUnreachableError for a cell that cannot be opened.
        """
        return self._open_cell(cell).opened()

    def _open_cell(self, cell: Cell) -> "_OpenCell":
        with self._replacing:
            opened = self._open_cells.get(cell.uuid)
            if opened is None or opened.cell.database_url != cell.database_url:
                if self._is_closed:
                    raise CellUnreachableError(cell.name, "this process is about to end")
                if opened is not None:
                    self._moved.append(opened)
                opened = self._new_open_cell(cell)
                self._open_cells = {**self._open_cells, cell.uuid: opened}
                self._opened_meanwhile[cell.uuid] = opened
            return opened

    def _is_proven(self) -> bool:
        return not self._is_failing or time.monotonic() - self._read_at <= self._proves_for_s

    def _begin_refresh(self) -> "asyncio.Task[FleetUnreachableError | None]":
        """Begin to read the registry, once for all callers that wait; not while another reading hangs."""
        self._tried_at = time.monotonic()
        reading = self._refreshing
        if reading is None or reading.done():
            self._refreshing_since = self._tried_at
            reading = self._refreshing = asyncio.create_task(self._refresh())
        return reading

    async def _refresh_in_time(self) -> FleetUnreachableError | None:
        reading = self._begin_refresh()
        # Counted from the beginning of the reading, which may be long before this caller had to wait for it.
        left_s = self._refreshing_since + self._list_timeout_s - time.monotonic()
        least_s = min(_FAILING_TIMEOUT_S, self._list_timeout_s)
        timeout_s = least_s if self._is_failing else max(least_s, left_s)
        done, _ = await asyncio.wait({reading}, timeout=timeout_s)
        if done:
            return reading.result()
        failure = FleetUnreachableError(f"no answer within {self._list_timeout_s:g} s")
        if not self._is_failing:
            _log.warning("fan_out.fleet_unreachable", reason=failure.reason)
        self._is_failing = True
        return failure

    async def _refresh(self) -> FleetUnreachableError | None:
        began_at = time.monotonic()
        with self._replacing:
            if self._is_closed:
                return FleetUnreachableError("this process is about to end")
            self._opened_meanwhile = {}
        try:
            cells = await self._reading.run(self._list_cells)
        except FleetUnreachableError as error:
            _log.warning("fan_out.fleet_unreachable", reason=error.reason)
            self._is_failing = True
            return error
        self._use(cells)
        self._read_at, self._is_failing = began_at, False
        return None

    def _use(self, cells: Sequence[Cell]) -> None:
        with self._replacing:
            if self._is_closed:
                return
            previous = {**self._open_cells}
            open_cells: dict[str, _OpenCell] = {}
            meanwhile = [opened.cell for opened in self._opened_meanwhile.values()]
            for cell in {cell.uuid: cell for cell in (*cells, *meanwhile)}.values():
                opened = previous.get(cell.uuid)
                if opened is not None and opened.cell == cell:
                    open_cells[cell.uuid] = previous.pop(cell.uuid)
                else:
                    open_cells[cell.uuid] = self._new_open_cell(cell)
            closing = [*previous.values(), *self._moved]
            self._open_cells, self._moved = open_cells, []
        for opened in closing:
            opened.close(opened.close_adapter)


def _probe(adapter: CellAdapter) -> None:
    if isinstance(adapter, ProbedAdapter):
        adapter.probe()
    else:
        adapter.find(NO_INSTANCE)


class _OpenCell(GuardedCell):
    """One cell with its adapter, which is opened when first needed, and its circuit breaker."""

    def __init__(self, cell: Cell, open_adapter: Callable[[Cell], CellAdapter], **limits: Any) -> None:
        """limits: see GuardedCell."""
        super().__init__(cell.name, lambda: _probe(self.opened()), **limits)
        self.cell = cell
        self._open = open_adapter
        self._adapter: CellAdapter | None = None
        self._opening = threading.Lock()
        self._is_over = False

    def opened(self) -> CellAdapter:
        """The adapter. Raises CellUnreachableError, also after it was closed."""
        with self._opening:
            if self._is_over:
                raise CellUnreachableError(self.cell.name, "it has moved, has left the fleet, or this process ends")
            if self._adapter is None:
                self._adapter = self._open(self.cell)
            return self._adapter

    def close_adapter(self) -> None:
        with self._opening:
            adapter, self._adapter, self._is_over = self._adapter, None, True
        if adapter is not None:
            adapter.close()
