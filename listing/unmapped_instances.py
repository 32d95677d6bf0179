"""Instances that the fleet database does not know: other software made them without announcing them, or the database is
older than the cells.

The index is asked first, which is one query. Then those cells that may have more than the index.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.fleet.fleet import InstanceMapping
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.listing.announced import AnnouncedStore, find_announced
from fleetlight.listing.answer import Consistency
from fleetlight.listing.errors import CellDownError
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.sources import CellFailure, CellReader
from fleetlight.query.filters import Eq
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.projection import FieldValues

# Of a process: each asks all cells that the index does not answer for, and a caller that tries many uuids has to wait
# in a queue.
_SEARCHES_AT_ONCE = 4


class UnmappedInstances:
    """Finds instances that no mapping names."""

    def __init__(self, reader: CellReader, index: IndexGateway, announced: AnnouncedStore) -> None:
        self._reader = reader
        self._index = index
        self._announced = announced
        self._searches = asyncio.Semaphore(_SEARCHES_AT_ONCE)

    async def find(self, uuid: str, timeout_s: float) -> InstanceMapping | None:
        """Where an instance lives, by the index, or by the cells that it does not answer for.

        Not in a cell whose deployment maps instances: that has been asked, and has none for what it does not map.
        timeout_s: what the cells may cost. Raises as `find_in_cells` does.
        """
        progress = await self._index.progress_or_nothing()
        cells = await self._reader.cells()
        indexed = await self._find_in_index(uuid, cells)
        if indexed is not None:
            answer = await self._ask(indexed.cell_uuid, uuid, timeout_s)
            if isinstance(answer, InstanceRow):
                return InstanceMapping.of(answer, system_clock())
            if answer is not None:
                return indexed
        fresh = self._index.freshness()
        bounded = Consistency.BOUNDED
        return await self.find_in_cells(
            uuid, {cell.uuid for cell in cells if fresh.answers(progress.get(cell.uuid), bounded)}, timeout_s
        )

    async def find_in_cells(self, uuid: str, indexed: Collection[str], timeout_s: float) -> InstanceMapping | None:
        """Where an instance lives, by what was announced of it, or by a search in all cells at the same time.

        indexed: cells (uuids) for which the index has answered. Those that are asked all the same are the ones in which
            other software makes instances; never those whose deployment maps them, since that has been asked.
        Raises CellDownError when none has it and one of those could not say so; of a cell that takes changes, which
        are mapped before they are made, the fleet database has the last word. Raises FleetUnreachableError, also when
        too many others search.
        """
        all_cells = await self._reader.cells()
        if (announced := await find_announced(self._announced, all_cells, uuid, timeout_s)) is not None:
            return InstanceMapping.of(announced, system_clock())
        cells = [
            cell
            for cell in all_cells
            if cell.can.is_asked_for_unmapped or (cell.can.takes_changes and cell.uuid not in indexed)
        ]
        if not cells:
            return None
        try:
            await asyncio.wait_for(self._searches.acquire(), timeout_s)
        except TimeoutError:
            raise FleetUnreachableError("too many look for instances that no mapping names") from None
        try:
            answers = await asyncio.gather(*(self._ask(cell.uuid, uuid, timeout_s) for cell in cells))
        finally:
            self._searches.release()
        found = [answer for answer in answers if isinstance(answer, InstanceRow)]
        if found:
            return InstanceMapping.of(found[0], system_clock())
        for cell, answer in zip(cells, answers, strict=True):
            if isinstance(answer, Exception) and cell.can.is_asked_for_unmapped:
                raise CellDownError(str(answer)) from answer
        return None

    async def _find_in_index(self, uuid: str, cells: Sequence[Cell]) -> InstanceMapping | None:
        mapped_here = {cell.uuid for cell in cells if not cell.can.maps_instances}
        item = await self._index.find(Eq("uuid", uuid), mapped_here, _MAPPING)
        return None if item is None else InstanceMapping(uuid, *msgspec.json.decode(item))

    async def _ask(self, cell_uuid: str, uuid: str, timeout_s: float) -> InstanceRow | CellFailure | None:
        try:
            return await self._reader.find(cell_uuid, uuid, timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            return error


class _MappingValues(FieldValues):
    """What an InstanceMapping is made of, behind the uuid."""

    def __init__(self) -> None:
        super().__init__(INSTANCE_FIELDS, [name for name in InstanceMapping.FIELDS if name != "uuid"])

    def render(self, values: Sequence[Any], /, cell_uuid: str = "") -> bytes:
        return msgspec.json.encode([cell_uuid, *values[: len(self.fields)]])


_MAPPING = _MappingValues()
