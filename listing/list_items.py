"""Lists of what cells have beside instances: nodes, groups, networks, jobs … No index has them, so cells are asked."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cells.errors import CellUnreachableError, UnknownCellError
from cells.model import Cell, CellAdapter, ItemsAdapter
from listing.answer import CellAnswer, Route
from listing.sources import CellReader, log_failure
from resources.fields import Record


@dataclass(frozen=True, slots=True)
class CellItems:
    """What one cell has, and how it was asked. records: as of cells.model.ItemsAdapter; none of a cell that failed."""

    answer: CellAnswer
    records: Sequence[Record]


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
        only: Collection[str] | None = None,
    ) -> Items:
        """All items of a type.

        fields: names of those that are needed. cell_timeout_s: what one cell may cost. only: uuids of the cells to ask;
        None for all.
        Raises FleetUnreachableError when it is not known which cells there are.
        """
        has_all_cells = await self._reader.knows_all_cells()
        cells = [cell for cell in await self._reader.cells() if only is None or cell.uuid in only]
        asked = (self._ask(cell, item_type, fields, cell_timeout_s) for cell in cells)
        return Items(await asyncio.gather(*asked), has_all_cells)

    async def _ask(self, cell: Cell, item_type: str, fields: Collection[str], timeout_s: float) -> CellItems:
        try:
            records = await self._reader.ask(cell.uuid, lambda each: _read_items(each, item_type, fields), timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            log_failure(cell.uuid, error)
            return CellItems(CellAnswer(cell, Route.SKIPPED, is_complete=False, failure=str(error)), [])
        return CellItems(CellAnswer(cell, Route.LIVE, is_complete=True), records)


def _read_items(adapter: CellAdapter, item_type: str, fields: Collection[str]) -> Sequence[Record]:
    return adapter.read_items(item_type, fields) if isinstance(adapter, ItemsAdapter) else []
