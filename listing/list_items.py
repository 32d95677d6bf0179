"""Lists of what cells have beside instances: nodes, groups, networks, jobs … No index has them, so cells are asked."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

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

    async def _ask(
        self, cell: Cell, item_type: str, fields: Collection[str], keys: Collection[Any] | None, timeout_s: float
    ) -> CellItems:
        def read(adapter: CellAdapter) -> Sequence[Record] | None:
            return adapter.read_items(item_type, fields, keys) if isinstance(adapter, ItemsAdapter) else None

        try:
            records = await self._reader.ask(cell.uuid, read, timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            log_failure(cell.uuid, error)
            return _skipped(cell, str(error))
        if records is None:
            return _skipped(cell, f"cells of kind '{cell.kind}' do not tell of their items of type '{item_type}'")
        return CellItems(CellAnswer(cell, Route.LIVE, is_complete=True), records)


def _skipped(cell: Cell, reason: str) -> CellItems:
    return CellItems(CellAnswer(cell, Route.SKIPPED, is_complete=False, failure=reason), [])
