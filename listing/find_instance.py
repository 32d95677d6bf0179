"""One instance: where it lives, what the index knows of it, and where a page that begins behind it begins."""

from collections.abc import Callable
from functools import partial
from typing import Any

from cells.errors import CellUnreachableError, UnknownCellError
from cells.fleet.fleet import InstanceMapping
from indexer.errors import IndexerError
from listing.answer import Consistency
from listing.errors import CellDownError, MarkerNotFoundError
from listing.index_gateway import IndexGateway
from listing.settings import SearchSettings
from listing.sources import CellFailure, CellReader, ask_fleet
from listing.unmapped_instances import find_unmapped
from query.filters import Eq, all_of
from query.page import PageRequest
from query.sort import SortOrder
from resources.fields import Record
from resources.instance import INSTANCE_FIELDS
from views.projection import Projection

MaySee = Callable[[str | None, str | None], bool]
"""Whether who is asking may see what belongs to a project and a user."""
_BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())


class InstanceFinder:
    """Finds instances by their uuid. find_mapping: `Mappings.mapping_of`; blocks."""

    def __init__(
        self,
        reader: CellReader,
        find_mapping: Callable[[str], InstanceMapping | None],
        index: IndexGateway,
        settings: SearchSettings,
    ) -> None:
        self._reader = reader
        self._find_mapping = find_mapping
        self._index = index
        self._settings = settings

    async def mapping_of(self, uuid: str, timeout_s: float) -> InstanceMapping | None:
        """Where an instance lives. timeout_s: what a cell may cost that has to be asked for it.

        Raises FleetUnreachableError, and CellDownError when a cell that cannot be reached might have it.
        """
        return await self._ask_for_mapping(uuid) or await find_unmapped(self._reader, uuid, timeout_s)

    async def known_item(self, uuid: str, cell_uuid: str, projection: Projection) -> bytes | None:
        """What the index has of an instance of a cell, as `projection` shows it; None when it has, or is, nothing."""
        if self._index.why_not is not None:
            return None
        wanted = all_of(Eq("uuid", uuid), Eq("deleted", False))
        try:
            rows = await self._index.search(PageRequest(wanted, _BY_UUID, 1), {cell_uuid}, projection)
        except IndexerError as error:
            self._index.failed(error)
            return None
        return rows[0].item if rows else None

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
        """The values of the order's keys at the instance `marker`, deleted or not.

        may_see: an instance that it denies is looked for in the same places as one that nobody has.
        down: gets the cell that was asked, by its uuid, when it failed.
        They come from where the rows of its cell come from, since an index that lags may know other values.
        Raises MarkerNotFoundError, and CellDownError when only a cell that cannot be reached knows.
        """
        timeout_s = cell_timeout_s or self._settings.cell_timeout_s
        record = await self._find(marker, consistency, may_see, {} if down is None else down, timeout_s)
        if record is None:
            raise MarkerNotFoundError(marker)
        return order.values(record)

    async def _find(
        self, uuid: str, consistency: Consistency, may_see: MaySee, down: dict[str, CellFailure], timeout_s: float
    ) -> Record | None:
        progress = {} if consistency is Consistency.STRONG else await self._index.progress_or_nothing()
        cells = await self._reader.cells()
        fresh = self._index.freshness()
        indexed = {cell.uuid for cell in cells if fresh.answers(progress.get(cell.uuid), consistency)}
        if len(indexed) == len(cells) and (record := await self._find_in_index(uuid, may_see)) is not None:
            return record
        mapping = await self._ask_for_mapping(uuid)
        if mapping is None or not may_see(mapping.project_id, mapping.user_id):
            # The mapping may have been purged with the instance, while the index still knows the deleted row.
            if (record := await self._find_in_index(uuid, may_see)) is not None:
                return record
            mapping = mapping or await find_unmapped(self._reader, uuid, timeout_s)
            if mapping is None or not may_see(mapping.project_id, mapping.user_id):
                return None
        if mapping.cell_uuid in indexed and (record := await self._find_in_index(uuid, may_see)) is not None:
            return record
        try:
            row = await self._reader.find(mapping.cell_uuid, uuid, timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            down[mapping.cell_uuid] = error
            if (record := await self._find_in_index(uuid, may_see)) is not None:
                return record
            raise CellDownError(mapping.cell_uuid) from error
        return await self._find_in_index(uuid, may_see) if row is None else row.record

    async def _find_in_index(self, uuid: str, may_see: MaySee) -> Record | None:
        record = await self._index.find(uuid)
        return record if record is not None and may_see(record["project_id"], record["user_id"]) else None

    async def _ask_for_mapping(self, uuid: str) -> InstanceMapping | None:
        return await ask_fleet(partial(self._find_mapping, uuid), self._settings.cell_timeout_s)
