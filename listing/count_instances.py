"""Counts of the instances that match a filter in all cells, by the same routes and as complete as pages of a list."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from fleetlight.cells.counting import count_rows
from fleetlight.cells.errors import CellUnreachableError, UnknownCellError
from fleetlight.cells.model import Cell
from fleetlight.listing.admission import Slot
from fleetlight.listing.announced import NO_ANNOUNCED, AnnouncedRows, AnnouncedStore
from fleetlight.listing.answer import CellAnswer, Consistency, ReadOptions, answer_of, choose_indexed
from fleetlight.listing.index_gateway import IndexGateway, ProgressByCell
from fleetlight.listing.sources import CellFailure, CellReader, log_failure
from fleetlight.query.counts import CountRequest, Counts, Group, limited, merged
from fleetlight.query.filters import leaves
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.resources.kept_errors import without_frames

_ANNOUNCED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class CountResult:
    """The counts of all cells.

    by_cell: the counts of each cell that could be counted, by uuid. An instance that moves between two cells during the
        count may be counted in both.
    cells, has_all_cells: as in a Page. remarks: why the index was chosen and did not answer.
    """

    request: CountRequest
    by_cell: Mapping[str, Counts]
    cells: Sequence[CellAnswer]
    has_all_cells: bool
    remarks: Sequence[str] = ()

    @property
    def total(self) -> Counts:
        """The sum over all cells."""
        return merged(self.by_cell.values(), self.request.max_groups)

    @property
    def is_complete(self) -> bool:
        """Whether every cell was counted in full, as of now."""
        return self.has_all_cells and all(answer.is_complete for answer in self.cells) and not self.total.is_partial


@dataclass(frozen=True, slots=True)
class _CountQuery:
    """The parameters of `InstanceCounter.count`.

    slot: the slot of the count. down: errors of cells that failed, by uuid; every attempt adds its own.
    """

    slot: Slot
    request: CountRequest
    cells: Sequence[Cell]
    options: ReadOptions
    down: dict[str, CellFailure] = field(default_factory=dict)


@dataclass(slots=True)
class _LiveCount:
    """The outcome of a count in one cell (fleetlight.listing.answer.LiveCell)."""

    failure: CellFailure | None = None
    has_substitute: bool = False
    damaged: int = 0
    left_out: int = 0
    lacks: str | None = None


class InstanceCounter:
    """Counts instances of all cells. announced: see InstanceLister."""

    def __init__(
        self,
        reader: CellReader,
        index: IndexGateway,
        announced: AnnouncedStore = NO_ANNOUNCED,
    ) -> None:
        self._reader = reader
        self._index = index
        self._announced = announced

    async def count(
        self, request: CountRequest, options: ReadOptions, *, only: Collection[str] | None = None
    ) -> CountResult:
        """Count the instances of all cells. Parameters and errors are those of `InstanceLister.list_page`."""
        async with options.admission.page() as slot:
            has_all_cells = await self._reader.knows_all_cells(options.ask_live)
            cells = [cell for cell in await self._reader.cells() if only is None or cell.uuid in only]
            query = _CountQuery(slot, request, cells, options)
            remarks: list[str] = []
            by_cell, answers = await self._index.or_cells(
                options.consistency, partial(self._count, query), remarks.append
            )
        return CountResult(request, by_cell, answers, has_all_cells, remarks)

    async def _count(
        self, query: _CountQuery, progress: ProgressByCell, consistency: Consistency
    ) -> tuple[Mapping[str, Counts], Sequence[CellAnswer]]:
        """Make one attempt, with the index where `progress` and `consistency` allow it (IndexGateway.or_cells)."""
        fresh = self._index.freshness()
        chosen = choose_indexed(
            query.request.filter,
            query.cells,
            progress,
            fresh,
            consistency=consistency,
            ask_live=query.options.ask_live,
        )
        live = [cell for cell in query.cells if cell.uuid not in chosen.cells]
        by_cell: dict[str, Counts] = {}
        # As in a page: the index does not wait for the cells; what waits for a cell may be in one at the next read.
        await self._search(query, chosen.cells, by_cell)
        if live:
            await query.slot.ask_cells()
        for is_first in (True, False):
            asked = [cell for cell in live if cell.is_before_cells is is_first]
            await asyncio.gather(*(self._ask(query, cell, by_cell) for cell in asked))
        lacking = await self._add_announced(query, [cell for cell in live if cell.uuid not in query.down], by_cell)
        outcomes = {cell.uuid: _LiveCount(query.down.get(cell.uuid), lacks=lacking.get(cell.uuid)) for cell in live}
        substitutes = [uuid for uuid, outcome in outcomes.items() if outcome.failure is not None and uuid in progress]
        await self._search(query, substitutes, by_cell, stands_in_s=query.options.cell_timeout_s)
        for uuid, outcome in outcomes.items():
            outcome.has_substitute = uuid in substitutes
            outcome.damaged = int(uuid in by_cell and by_cell[uuid].is_partial)
        decisive = {leaf.field for leaf in leaves(query.request.filter)} | {*query.request.by}
        answers = [
            answer_of(cell, outcomes.get(cell.uuid), progress.get(cell.uuid), fresh, decisive) for cell in query.cells
        ]
        return by_cell, answers

    async def _add_announced(
        self, query: _CountQuery, cells: Collection[Cell], by_cell: dict[str, Counts]
    ) -> Mapping[str, str]:
        """Add the announced instances of `cells`, which counted their rows; returns AnnouncedRows.lacking."""
        request = query.request
        page = PageRequest(request.filter, INSTANCES_BY_UUID, _ANNOUNCED_AT_ONCE)
        announced = AnnouncedRows(self._announced, self._reader, cells, page, query.options.cell_timeout_s)
        groups: defaultdict[str, Counter[Group]] = defaultdict(Counter)
        while rows := await announced.next_rows():
            for row in rows:
                groups[row.cell_uuid].update(request.groups_of(row.record))
        for uuid, found in groups.items():
            by_cell[uuid] = merged([by_cell[uuid], limited(found, request.max_groups)], request.max_groups)
        return announced.lacking

    async def _search(
        self,
        query: _CountQuery,
        cells: Collection[str],
        by_cell: dict[str, Counts],
        *,
        stands_in_s: float | None = None,
    ) -> None:
        if cells:
            found = await self._index.count(query.request, cells, stands_in_s=stands_in_s)
            # If the index has cut its answer off, a cell may have groups behind the cut.
            nothing = Counts(is_partial=any(counts.is_partial for counts in found.values()))
            by_cell.update({uuid: found.get(uuid, nothing) for uuid in cells})

    async def _ask(self, query: _CountQuery, cell: Cell, by_cell: dict[str, Counts]) -> None:
        if cell.uuid in query.down:
            return
        try:
            by_cell[cell.uuid] = await self._reader.ask(
                cell.uuid, lambda adapter: count_rows(adapter, query.request), query.options.cell_timeout_s
            )
        except (CellUnreachableError, UnknownCellError) as error:
            log_failure(cell.uuid, error)
            query.down[cell.uuid] = without_frames(error)
