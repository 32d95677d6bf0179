"""Lists of items other than instances: nodes, groups, networks, jobs …

The lists read the cells. For the types that the index has (fleetlight.resources.indexed_items) it answers for the cells
in which it is fresh, if it has all requested fields; so a fleet-wide list of nodes asks no cell.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlight.cells.errors import CellUnreachableError, UnknownCellError
from fleetlight.cells.model import Cell, CellAdapter, DescribingItemsAdapter, ItemsAdapter
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.listing.admission import NO_LIMIT, Admission
from fleetlight.listing.answer import CellAnswer, Consistency, Freshness, Route
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.sources import CellReader, log_failure
from fleetlight.resources.fields import Record
from fleetlight.resources.indexed_items import INDEXED_ITEMS


@dataclass(frozen=True, slots=True)
class CellItems:
    """The items of one cell. records: see fleetlight.cells.model.ItemsAdapter; empty if the cell failed.

    duration_s: time until the cell answered or failed.
    """

    answer: CellAnswer
    records: Sequence[Record]
    duration_s: float


@dataclass(frozen=True, slots=True)
class ItemList:
    """The items of all cells. has_all_cells: see fleetlight.listing.answer.Page.

    why_not_indexed: a sentence that says why the list read some cells live.
    """

    by_cell: Sequence[CellItems]
    has_all_cells: bool
    why_not_indexed: str


class ItemLister:
    """Lists items from the index, where there is one, and from the other cells concurrently."""

    def __init__(self, reader: CellReader, index: IndexGateway | None = None) -> None:
        self._reader = reader
        self._index = index

    async def list_items(
        self,
        item_type: str,
        fields: Collection[str],
        *,
        cell_timeout_s: float,
        keys: Collection[Any] | None = None,
        only: Collection[str] | None = None,
        consistency: Consistency = Consistency.STRONG,
        ask_live: Collection[str] = (),
        admission: Admission = NO_LIMIT,
    ) -> ItemList:
        """List all items of a type. A cell whose kind does not report such items is skipped: the answer is incomplete.

        fields, keys: see fleetlight.cells.model.ItemsAdapter. cell_timeout_s: time limit of one cell.
        only: uuids of the cells to ask; None for all.
        consistency, ask_live, admission: see InstanceLister.list_page.
        Raises FleetUnreachableError when the list of cells cannot be read, and the errors of `admission`.
        """
        async with admission.page() as slot:
            has_all_cells = await self._reader.knows_all_cells()
            cells = [cell for cell in await self._reader.cells() if only is None or cell.uuid in only]
            indexed, why_not = await self._indexed(item_type, fields, cells, consistency)
            fresh = {
                uuid: of_cell
                for uuid, of_cell in indexed.items()
                if uuid not in ask_live and of_cell.answers(consistency)
            }
            live = [cell for cell in cells if cell.uuid not in fresh]
            if live:
                await slot.ask_cells()
            queries = (
                self._ask(cell, item_type, fields, keys, cell_timeout_s, substitute=indexed.get(cell.uuid))
                for cell in live
            )
            by_cell = {each.answer.cell.uuid: each for each in await asyncio.gather(*queries)}
        by_cell |= {uuid: of_cell.items(Route.INDEX) for uuid, of_cell in fresh.items()}
        return ItemList([by_cell[cell.uuid] for cell in cells], has_all_cells, why_not)

    async def _indexed(
        self, item_type: str, fields: Collection[str], cells: Sequence[Cell], consistency: Consistency
    ) -> tuple[Mapping[str, "_IndexedItems"], str]:
        """Return the index's items by cell uuid, and the reason for which it does not answer for the other cells."""
        stored = INDEXED_ITEMS.get(item_type)
        if stored is None:
            return {}, "no index has such items, so cells are asked"
        if consistency is Consistency.STRONG:
            return {}, "the cells themselves were asked for"
        if lacking := sorted({*fields} - {*stored.fields}):
            return {}, f"the index does not have the field '{lacking[0]}', so cells are asked"
        if self._index is None or self._index.why_not is not None:
            return {}, "lists do not use the index" if self._index is None else str(self._index.why_not)
        progress = await self._index.progress_or_nothing()
        fresh = self._index.freshness()
        followed = {cell.uuid: cell for cell in cells if cell.uuid in progress}
        began = time.perf_counter()
        found = await self._index.items_or_nothing(stored.item_type, followed) if followed else {}
        duration_s = time.perf_counter() - began
        indexed = {
            uuid: _IndexedItems(
                followed[uuid], progress[uuid], fresh, [stored.shown(each) for each in records], duration_s
            )
            for uuid, records in found.items()
        }
        return indexed, "the index does not have all such items of the cell, or not closely enough"

    async def describe(
        self, cell_uuid: str, item_type: str, fields: Collection[str], keys: Collection[Any] | None, timeout_s: float
    ) -> Mapping[str, Any] | None:
        """Return the query that reads a cell's items (DescribingItemsAdapter); None if the cell cannot show it."""

        def describe(adapter: CellAdapter) -> Mapping[str, Any] | None:
            if isinstance(adapter, DescribingItemsAdapter):
                return adapter.describe_items(item_type, fields, keys)
            return None

        try:
            return await self._reader.ask(cell_uuid, describe, timeout_s)
        except (CellUnreachableError, UnknownCellError):
            return None

    async def _ask(
        self,
        cell: Cell,
        item_type: str,
        fields: Collection[str],
        keys: Collection[Any] | None,
        timeout_s: float,
        *,
        substitute: "_IndexedItems | None",
    ) -> CellItems:
        """Read the items of one cell. substitute: the index's items, for a cell that does not answer."""

        def read(adapter: CellAdapter) -> Sequence[Record] | None:
            return adapter.read_items(item_type, fields, keys) if isinstance(adapter, ItemsAdapter) else None

        began = time.perf_counter()
        try:
            records = await self._reader.ask(cell.uuid, read, timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            log_failure(cell.uuid, error)
            if substitute is not None:
                return substitute.items(Route.INDEX_WHILE_DOWN, str(error))
            return _skipped(cell, str(error), time.perf_counter() - began)
        duration_s = time.perf_counter() - began
        if records is None:
            reason = f"cells of kind '{cell.kind}' do not report their items of type '{item_type}'"
            return _skipped(cell, reason, duration_s)
        return CellItems(CellAnswer(cell, Route.LIVE, is_complete=True), records, duration_s)


@dataclass(frozen=True, slots=True)
class _IndexedItems:
    """The index's items of one cell, and its progress in the cell."""

    cell: Cell
    progress: CellProgress
    fresh: Freshness
    records: Sequence[Record]
    duration_s: float

    def answers(self, consistency: Consistency) -> bool:
        return self.fresh.answers(self.progress, consistency)

    def items(self, route: Route, failure: str | None = None) -> CellItems:
        is_complete = failure is None and self.fresh.is_complete(self.progress)
        age_s = self.fresh.age_s(self.progress)
        answer = CellAnswer(self.cell, route, is_complete, self.progress.watermark, age_s, failure)
        return CellItems(answer, self.records, self.duration_s)


def _skipped(cell: Cell, reason: str, duration_s: float) -> CellItems:
    return CellItems(CellAnswer(cell, Route.SKIPPED, is_complete=False, failure=reason), [], duration_s)
