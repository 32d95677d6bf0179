"""Part of `scripts/bench list`: what one cell that hangs costs a page that the cells answer themselves."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from bench.measure import Figure, at_most, figure, interleaved
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.listing.answer import Consistency, Page, ReadOptions
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.settings import SearchSettings
from fleetlight.query.page import PageRequest
from fleetlight.views.compute.view import ItemTemplate

_DEADLINE_S = 2.0


class _HungAdapter(NativeAdapter):
    """Answers nothing before `gate` is set."""

    def __init__(self, cell: Cell, gate: threading.Event) -> None:
        super().__init__(cell)
        self._gate = gate

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        self._gate.wait()
        return super().read_page(request)

    def find(self, uuid: str) -> InstanceRow | None:
        self._gate.wait()
        return super().find(uuid)


def run(
    loop_run: Callable[[Coroutine[Any, Any, Any]], Any],
    cells: Sequence[Cell],
    request: PageRequest,
    template: ItemTemplate,
    runs: int,
) -> Iterator[Figure]:
    """The last of `cells` hangs. loop_run: runs a coroutine in one event loop."""
    gate = threading.Event()
    hung = cells[-1]

    def open_adapter(cell: Cell) -> NativeAdapter:
        return _HungAdapter(cell, gate) if cell == hung else NativeAdapter(cell)

    settings = SearchSettings(cell_timeout_s=_DEADLINE_S)
    all_cells = CellPool(lambda: cells, open_adapter, deadline_s=_DEADLINE_S)
    others = CellPool(lambda: cells[:-1], open_adapter, deadline_s=_DEADLINE_S)
    listers = [InstanceLister(pool, IndexGateway(None, settings), settings) for pool in (all_cells, others)]

    def page(lister: InstanceLister) -> Page:
        listed: Page = loop_run(lister.list_page(request, template, ReadOptions(Consistency.STRONG, (), _DEADLINE_S)))
        return listed

    without = page(listers[1])
    began = time.perf_counter()
    first = page(listers[0])
    first_s = time.perf_counter() - began
    assert without.is_complete
    assert [cell.name for cell in first.skipped_cells] == [hung.name]
    pair = interleaved(lambda: page(listers[0]), lambda: page(listers[1]), runs)
    asked = f"{request.limit} full items from {len(cells)} cells of which one hangs, deadline {_DEADLINE_S:g} s"
    yield figure(
        "list.hung_cell.first",
        (first_s - pair.bare_s) / _DEADLINE_S,
        "deadlines",
        f"first page ({first_s * 1e3:.0f} ms, {asked}), without the time of a page of the other cells / deadline",
        runs=1,
        goal=at_most(1.1),
    )
    yield figure(
        "list.hung_cell.later",
        pair.ratio,
        "ratio",
        f"later pages ({pair.ours_s * 1e3:.1f} ms, {asked}) / pages of the other cells ({pair.bare_s * 1e3:.1f} ms)",
        runs=pair.runs,
        goal=at_most(1.2),
    )
    gate.set()
    for pool in (all_cells, others):
        loop_run(pool.close())
    loop_run(asyncio.sleep(0))
