"""Lists of instances: the choice of the sources of a page, and their merge. All lists of instances go through here."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import FoundPage
from fleetlight.listing.admission import Slot
from fleetlight.listing.announced import NO_ANNOUNCED, AnnouncedRows, AnnouncedSource, AnnouncedStore
from fleetlight.listing.answer import Consistency, Freshness, Page, ReadOptions, answer_of, choose_indexed
from fleetlight.listing.explanation import DescribesPages, Observer, Query, Reasons
from fleetlight.listing.index_gateway import IndexGateway, ProgressByCell
from fleetlight.listing.merge_sort import Row, Source, merge_sorted
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import CellFailure, CellReader, CellSource, RowsMovedError, begun, live_batch_size
from fleetlight.query.filters import leaves
from fleetlight.query.page import PageRequest
from fleetlight.views.projection import Projection


@dataclass(frozen=True, slots=True)
class _Listing:
    """The request of a page, the same for every attempt with and without the index.

    slot: the slot of the page. cells: those that are listed. down: errors of cells that failed, by uuid; every attempt
    adds its own, and does not ask these cells again. For the rest see `InstanceLister.list_page`.
    """

    slot: Slot
    request: PageRequest
    projection: Projection
    options: ReadOptions
    cells: Sequence[Cell]
    down: dict[str, CellFailure]
    observer: Observer | None


class InstanceLister:
    """Lists instances of all cells. announced: the instances that only notifications announced."""

    def __init__(
        self,
        reader: CellReader,
        index: IndexGateway,
        settings: SearchSettings,
        announced: AnnouncedStore = NO_ANNOUNCED,
    ) -> None:
        self._reader = reader
        self._index = index
        self._settings = settings
        self._announced = announced

    async def list_page(
        self,
        request: PageRequest,
        projection: Projection,
        options: ReadOptions,
        *,
        down: Mapping[str, CellFailure] = MappingProxyType({}),
        only: Collection[str] | None = None,
        observer: Observer | None = None,
    ) -> Page:
        """Return one page. It is collected first, so that cells can still replace an index that fails.

        down: errors of cells that failed when the marker was looked up, by uuid; the list does not ask them again.
        only: uuids of the cells to list; None for all. observer: records the sources of the page.
        Raises FleetUnreachableError when the list of cells cannot be read, QueryError for a filter that no source can
        answer, and the errors of `options.admission`. A cell that fails becomes a `CellAnswer` of the page.
        """
        async with options.admission.page() as slot:
            # Before `cells`, since it may read the registry again.
            has_all_cells = await self._reader.knows_all_cells(options.ask_live)
            cells = [cell for cell in await self._reader.cells() if only is None or cell.uuid in only]
            observed = observer or Observer()
            if not has_all_cells:
                observed.remarks.append("the fleet database does not answer: there may be more cells than these")
            listing = _Listing(slot, request, projection, options, cells, dict(down), observer)
            try:
                page = await self._index.or_cells(
                    options.consistency, partial(self._merge, listing), observed.do_without_index
                )
            except RowsMovedError:
                # Two batches may both have missed a row that moved. The next attempt reads each cell once.
                observed.give_up("rows moved while they were read in batches: read again, all at once")
                at_once = partial(self._merge, listing, in_batches=False)
                page = await self._index.or_cells(options.consistency, at_once, observed.do_without_index)
        return page if has_all_cells else replace(page, has_all_cells=False)

    async def describe(self, request: PageRequest, cell_uuid: str | None, indexed: Collection[str]) -> Query | None:
        """Return the compiled query of one source; None if it cannot show it. cell_uuid: None for the index."""
        if cell_uuid is None:
            return self._index.describe(request, indexed)
        if not isinstance(self._reader, DescribesPages):
            return None
        return await self._reader.describe(cell_uuid, request, self._settings.cell_timeout_s)

    async def _merge(
        self, listing: _Listing, progress: ProgressByCell, consistency: Consistency, *, in_batches: bool = True
    ) -> Page:
        """Make one attempt at the page. consistency: see IndexGateway.or_cells.

        in_batches: read from a cell at once only as many rows as the page will most likely need of it.
        """
        request, cells, observer = listing.request, listing.cells, listing.observer
        fresh = self._index.freshness()
        chosen = choose_indexed(
            request.filter, cells, progress, fresh, consistency=consistency, ask_live=listing.options.ask_live
        )
        indexed = chosen.cells
        asked = [cell for cell in cells if cell.uuid not in indexed]
        if indexed and not asked and observer is None:
            # The usual page: nothing to merge.
            found = await self._index.page(request, indexed, listing.projection)
            return self._page(listing, found, {}, progress, fresh)
        live = self._live_sources(listing, asked, progress, in_batches=in_batches)
        by_cell: list[tuple[str | None, Source]] = list(live.items())
        if indexed:
            by_cell.append((None, self._index.source(request, indexed, listing.projection)))
        sources: list[Source] = [source for _, source in by_cell]
        if observer is not None:
            why = Reasons(
                listing.options.consistency,
                self._settings.staleness_limit_s,
                self._index.why_not or observer.no_index,
                listing.options.ask_live,
                chosen,
            )
            sources = observer.begin(
                replace(request, fields=listing.projection.fields),
                {cell.uuid: why.of(progress.get(cell.uuid), fresh) for cell in cells},
                by_cell,
            )
        announced = self._announced_source(listing, live)
        try:
            if indexed:
                # What removes documents waits for lists, but not until they may ask the cells.
                sources[-1] = await begun(sources[-1])
            if live:
                await listing.slot.ask_cells()
            if before_cells := [number for number, cell in enumerate(asked) if cell.is_before_cells]:
                # Nova writes a new server to its cell, and then deletes its build request. A list that read build
                # requests last could miss the server in both.
                first = await asyncio.gather(*(begun(sources[number]) for number in before_cells))
                for number, source in zip(before_cells, first, strict=True):
                    sources[number] = source
            merged = await _first_of([*sources, announced], request)
        finally:
            listing.down.update({uuid: source.failure for uuid, source in live.items() if source.failure is not None})
        for uuid, reason in announced.lacking.items():
            live[uuid].lacks = reason
        if observer is not None:
            for cell in cells:
                if cell.uuid in live and (damaged := live[cell.uuid].damaged):
                    observer.remarks.append(f"rows of cell '{cell.name}' that are damaged, as the log says: {damaged}")
        return self._page(listing, merged, live, progress, fresh)

    def _live_sources(
        self, listing: _Listing, asked: Sequence[Cell], progress: ProgressByCell, *, in_batches: bool
    ) -> dict[str, CellSource]:
        """Return the sources of the cells that the list reads live, by uuid; those of `down` have failed already."""
        request = listing.request
        size = live_batch_size(request.limit, len(listing.cells)) if in_batches else request.limit
        live = {
            cell.uuid: CellSource(
                cell.uuid,
                self._reader,
                request,
                listing.projection,
                batch_size=request.limit if cell.is_before_cells else size,
                deadline_s=listing.options.cell_timeout_s,
                substitute=self._substitute(cell, listing) if cell.uuid in progress else None,
                may_start_over=in_batches,
            )
            for cell in asked
        }
        for uuid, error in listing.down.items():
            if uuid in live:
                live[uuid].fail(error)
        return live

    def _announced_source(self, listing: _Listing, live: Collection[str]) -> AnnouncedSource:
        """Return the announced instances of the live cells that are not down; the index stands in for the others."""
        cells = [cell for cell in listing.cells if cell.uuid in live and cell.uuid not in listing.down]
        rows = AnnouncedRows(self._announced, self._reader, cells, listing.request, listing.options.cell_timeout_s)
        return AnnouncedSource(rows, listing.request, listing.projection)

    def _page(
        self,
        listing: _Listing,
        found: FoundPage,
        live: Mapping[str, CellSource],
        progress: ProgressByCell,
        fresh: Freshness,
    ) -> Page:
        # On another route rows may have another place in the order, and be on none of the successive pages.
        decisive = {leaf.field for leaf in leaves(listing.request.filter)}
        decisive |= {key.field for key in listing.request.order.keys}
        answers = [
            answer_of(cell, live.get(cell.uuid), progress.get(cell.uuid), fresh, decisive) for cell in listing.cells
        ]
        return Page(found.items, found.rows, found.last, answers)

    def _substitute(self, cell: Cell, listing: _Listing) -> Callable[[PageRequest], Source] | None:
        """Return a function that opens the index as the substitute of a cell; None if the index is not in use."""
        if not self._index.is_used:
            return None
        down = listing.projection.of_cell_that_is_down()
        return partial(
            self._index.source, cells={cell.uuid}, projection=down, stands_in_s=listing.options.cell_timeout_s
        )


async def _first_of(sources: Sequence[Source], request: PageRequest) -> FoundPage:
    """Merge the rows of the page from sorted sources."""
    rows: list[Row] = []
    async with aclosing(merge_sorted(sources, request.order)) as runs:
        async for run in runs:
            rows += run[: request.limit - len(rows)]
            if len(rows) == request.limit:
                break
    last = rows[-1].position if rows else None
    return FoundPage(b",".join(filter(None, [row.item for row in rows])), len(rows), last)
