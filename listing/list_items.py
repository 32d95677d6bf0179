"""Lists of what cells have beside instances: nodes, groups, networks, jobs … No index has them, so cells are asked."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cells.errors import CellUnreachableError, UnknownCellError
from cells.model import Cell, CellAdapter, DescribingItemsAdapter, ItemsAdapter
from listing.answer import CellAnswer, Route
from listing.sources import CellReader, log_failure
from resources.fields import Record


@dataclass(frozen=True, slots=True)
class CellItems:
    """What one cell has, and how it was asked. records: as of cells.model.ItemsAdapter; none of a cell that failed.

    duration_s: how long it took to answer, or to fail.
    """

    answer: CellAnswer
    records: Sequence[Record]
    duration_s: float


@dataclass(frozen=True, slots=True)
class Items:
    """by_cell: of each cell that was asked. has_all_cells: as of listing.answer.Page."""

    by_cell: Sequence[CellItems]
    has_all_cells: bool


class ItemLister:
    """Asks cells for their items, all at once."""

    def __init__(self, reader: CellReader) -> None:
        self._reader = reader

    async def list_items(
        self,
        item_type: str,
        fields: Collection[str],
        *,
        cell_timeout_s: float,
        keys: Collection[Any] | None = None,
        only: Collection[str] | None = None,
    ) -> Items:
        """All items of a type.

        fields, keys: as of cells.model.ItemsAdapter. cell_timeout_s: what one cell may cost. only: uuids of the cells
        to ask; None for all. A cell of a kind that does not tell of such items is skipped, and the answer not complete.
        Raises FleetUnreachableError when it is not known which cells there are.
        """
        has_all_cells = await self._reader.knows_all_cells()
        cells = [cell for cell in await self._reader.cells() if only is None or cell.uuid in only]
        asked = (self._ask(cell, item_type, fields, keys, cell_timeout_s) for cell in cells)
        return Items(await asyncio.gather(*asked), has_all_cells)

    async def describe(
        self, cell_uuid: str, item_type: str, fields: Collection[str], keys: Collection[Any] | None, timeout_s: float
    ) -> Mapping[str, Any] | None:
        """What a cell is asked for its items (cells.model.DescribingItemsAdapter); None when it cannot tell."""

        def describe(adapter: CellAdapter) -> Mapping[str, Any] | None:
            if isinstance(adapter, DescribingItemsAdapter):
                return adapter.describe_items(item_type, fields, keys)
            return None

        try:
            return await self._reader.ask(cell_uuid, describe, timeout_s)
        except (CellUnreachableError, UnknownCellError):
            return None

    async def _ask(
        self, cell: Cell, item_type: str, fields: Collection[str], keys: Collection[Any] | None, timeout_s: float
    ) -> CellItems:
        def read(adapter: CellAdapter) -> Sequence[Record] | None:
            return adapter.read_items(item_type, fields, keys) if isinstance(adapter, ItemsAdapter) else None

        began = time.perf_counter()
        try:
            records = await self._reader.ask(cell.uuid, read, timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            log_failure(cell.uuid, error)
            return _skipped(cell, str(error), time.perf_counter() - began)
        duration_s = time.perf_counter() - began
        if records is None:
            reason = f"cells of kind '{cell.kind}' do not tell of their items of type '{item_type}'"
            return _skipped(cell, reason, duration_s)
        return CellItems(CellAnswer(cell, Route.LIVE, is_complete=True), records, duration_s)


def _skipped(cell: Cell, reason: str, duration_s: float) -> CellItems:
    return CellItems(CellAnswer(cell, Route.SKIPPED, is_complete=False, failure=reason), [], duration_s)
