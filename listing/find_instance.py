"""One instance: its cell, its item in the index, and its position in the order of a page that begins after it."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.fleet.fleet import InstanceMapping
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.listing.announced import NO_ANNOUNCED, AnnouncedStore, find_announced
from fleetlight.listing.answer import CellAnswer, Consistency, Route
from fleetlight.listing.errors import CellDownError, MarkerNotFoundError
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import CellFailure, CellReader, ask_fleet
from fleetlight.query.filters import Eq, all_of
from fleetlight.query.sort import SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.kept_errors import without_frames
from fleetlight.views.projection import FieldValues, Projection

MaySee = Callable[[str | None, str | None], bool]
"""Whether the caller may see instances of a project and a user."""
Position = tuple[Any, ...]
# Per process. Each search asks every cell that the index does not answer for, so a caller that tries many uuids has
# to wait.
_SEARCHES_AT_ONCE = 4


class UnmappedInstances:
    """Finds instances without a mapping: other software made them, or the fleet database is older than the cells.

    It queries the index first, which is one query, and then the cells that may have more instances than the index.
    """

    def __init__(self, reader: CellReader, index: IndexGateway, announced: AnnouncedStore) -> None:
        self._reader = reader
        self._index = index
        self._announced = announced
        self._searches = asyncio.Semaphore(_SEARCHES_AT_ONCE)

    async def find(self, uuid: str, timeout_s: float) -> InstanceMapping | None:
        """Find the cell of an instance in the index, or in the cells that the index does not answer for.

        Leaves out cells whose deployment maps its own instances: the caller has asked those mappings already.
        timeout_s: time limit of a query to a cell. Raises the errors of `find_in_cells`.
        """
        progress = await self._index.progress_or_nothing()
        cells = await self._reader.cells()
        mapped_here = {cell.uuid for cell in cells if not cell.can.maps_instances}
        item = await self._index.find(Eq("uuid", uuid), mapped_here, _MAPPING)
        if item is not None:
            indexed = InstanceMapping(uuid, *msgspec.json.decode(item))
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
        """Find the cell of an instance by its announcement, or by a concurrent search in cells.

        indexed: uuids of cells for which the index has answered. The search covers cells in which other software makes
            instances, and native cells outside of `indexed`; never cells whose deployment maps its own instances.
        Raises CellDownError when no cell has it and a cell with instances of other software does not answer. (A native
        cell maps instances before it makes them, so there the fleet database decides.) Raises FleetUnreachableError
        when the fleet database is away, or too many other searches run.
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

    async def _ask(self, cell_uuid: str, uuid: str, timeout_s: float) -> InstanceRow | CellFailure | None:
        try:
            return await self._reader.find(cell_uuid, uuid, timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            return error


class _MappingValues(FieldValues):
    """The fields of an InstanceMapping after its uuid."""

    def __init__(self) -> None:
        super().__init__(INSTANCE_FIELDS, [name for name in InstanceMapping.FIELDS if name != "uuid"])

    def render(self, values: Sequence[Any], /, cell_uuid: str = "") -> bytes:
        return msgspec.json.encode([cell_uuid, *values[: len(self.fields)]])


_MAPPING = _MappingValues()


@dataclass(frozen=True, slots=True)
class _WantedInstance:
    """An instance whose position in an order is wanted, and the rights of the caller."""

    uuid: str
    order: SortOrder
    may_see: MaySee


class InstanceFinder:
    """Finds instances by uuid. find_mapping: `Mappings.mapping_of`; blocks. announced: see InstanceLister."""

    def __init__(
        self,
        reader: CellReader,
        find_mapping: Callable[[str], InstanceMapping | None],
        index: IndexGateway,
        settings: SearchSettings,
        announced: AnnouncedStore = NO_ANNOUNCED,
    ) -> None:
        self._reader = reader
        self._find_mapping = find_mapping
        self._index = index
        self._settings = settings
        self._announced = announced
        self._unmapped = UnmappedInstances(reader, index, announced)

    async def mapping_of(self, uuid: str, timeout_s: float) -> InstanceMapping | None:
        """Find the cell of an instance by its mapping; without one, by UnmappedInstances.

        timeout_s: time limit of a query to a cell.
        Raises FleetUnreachableError, and CellDownError when a cell that does not answer might have the instance.
        """
        return await self._ask_for_mapping(uuid) or await self._unmapped.find(uuid, timeout_s)

    async def row_of(self, uuid: str, cell_uuid: str, timeout_s: float) -> InstanceRow | None:
        """Read an instance from its cell; if the cell has no row, from its announcement.

        timeout_s: time limit of each read. Raises CellUnreachableError, UnknownCellError, FleetUnreachableError.
        """
        row = await self._reader.find(cell_uuid, uuid, timeout_s)
        return row or await self.announced_row(uuid, cell_uuid, timeout_s)

    async def announced_row(self, uuid: str, cell_uuid: str, timeout_s: float) -> InstanceRow | None:
        """Read the announced state of an instance of a cell. Raises FleetUnreachableError."""
        cells = [cell for cell in await self._reader.cells() if cell.uuid == cell_uuid]
        return await find_announced(self._announced, cells, uuid, timeout_s)

    async def known_item(
        self, uuid: str, cell_uuid: str, projection: Projection, *, forthcoming: bool = False
    ) -> bytes | None:
        """Return the index's item of an instance of a cell, by `projection`; None if the index has none or fails.

        forthcoming: whether to find a reservation instead of a server.
        """
        wanted = all_of(Eq("uuid", uuid), Eq("deleted", False), Eq("forthcoming", forthcoming))
        return await self._index.find(wanted, {cell_uuid}, projection)

    async def answer_while_down(self, cell: Cell) -> CellAnswer | None:
        """Return the contribution of the index for a cell that does not answer; None if it does not follow the cell."""
        progress = (await self._index.progress_or_nothing()).get(cell.uuid)
        if progress is None:
            return None
        age_s = self._index.freshness().age_s(progress)
        return CellAnswer(cell, Route.INDEX_WHILE_DOWN, False, progress.watermark, age_s)

    async def position_of(
        self,
        marker: str,
        order: SortOrder,
        consistency: Consistency,
        *,
        may_see: MaySee,
        down: dict[str, CellFailure] | None = None,
        cell_timeout_s: float | None = None,
    ) -> tuple[Any, ...]:
        """Return the values of the order's keys at the instance `marker`, deleted or not.

        The values come from the source of its cell's rows, since an index that lags may have other values.
        may_see: an instance that it denies is searched for in the same places as one that no cell has.
        down: receives the error of a cell that failed, by uuid.
        Raises MarkerNotFoundError, and CellDownError when neither its cell nor the index tells where the marker is.
        """
        timeout_s = cell_timeout_s or self._settings.cell_timeout_s
        looked_for = _WantedInstance(marker, order, may_see)
        position = await self._find(looked_for, consistency, {} if down is None else down, timeout_s)
        if position is None:
            raise MarkerNotFoundError(marker)
        return position

    async def _find(
        self, wanted: "_WantedInstance", consistency: Consistency, down: dict[str, CellFailure], timeout_s: float
    ) -> Position | None:
        uuid, may_see = wanted.uuid, wanted.may_see
        progress = {} if consistency is Consistency.STRONG else await self._index.progress_or_nothing()
        cells = await self._reader.cells()
        fresh = self._index.freshness()
        indexed = {cell.uuid for cell in cells if fresh.answers(progress.get(cell.uuid), consistency)}
        in_index = partial(self._find_in_index, wanted, {cell.uuid for cell in cells})
        if len(indexed) == len(cells) and (position := await in_index()) is not None:
            return position
        mapping = await self._ask_for_mapping(uuid)
        if mapping is None or not may_see(mapping.project_id, mapping.user_id):
            # The mapping may have been purged with the instance, while the index still knows the deleted row.
            if (position := await in_index()) is not None:
                return position
            mapping = mapping or await self._unmapped.find_in_cells(uuid, indexed, timeout_s)
            if mapping is None or not may_see(mapping.project_id, mapping.user_id):
                return None
        if mapping.cell_uuid in indexed and (position := await in_index()) is not None:
            return position
        try:
            row = await self.row_of(uuid, mapping.cell_uuid, timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            down[mapping.cell_uuid] = without_frames(error)
            if (position := await in_index()) is not None:
                return position
            raise CellDownError(mapping.cell_uuid) from error
        return await in_index() if row is None else wanted.order.values(row.record)

    async def _find_in_index(self, wanted: "_WantedInstance", cells: Collection[str]) -> Position | None:
        keys = (key.field for key in wanted.order.keys)
        projection = FieldValues(INSTANCE_FIELDS, ("project_id", "user_id", *keys))
        item = await self._index.find(Eq("uuid", wanted.uuid), cells, projection)
        if item is None:
            return None
        project_id, user_id, *position = msgspec.json.decode(item)
        return tuple(position) if wanted.may_see(project_id, user_id) else None

    async def _ask_for_mapping(self, uuid: str) -> InstanceMapping | None:
        return await ask_fleet(partial(self._find_mapping, uuid), self._settings.cell_timeout_s)
