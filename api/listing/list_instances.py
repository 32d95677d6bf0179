"""The decision: which sources answer a request. Everything that lists instances comes through here."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import structlog

from api.errors import CellDownError, MarkerNotFoundError
from api.listing.answer import CellAnswer, Consistency, Page, Route
from api.listing.explanation import DescribesPages, DescribesSearches, Observer, Query, Reasons
from api.listing.merge_sort import Row, Source, merge_sorted
from api.listing.patient_index import IndexSlowError, PatientIndex
from api.listing.progress import ProgressCache
from api.listing.safe_connect import SafeConnect
from api.listing.sources import CellReader, CellSource, ask_fleet, index_source, live_batch_size
from api.listing.unmapped import find_unmapped
from api.settings import SearchSettings
from cells.clock import Clock, system_clock
from cells.errors import CellUnreachableError, UnknownCellError
from cells.fleet.fleet import InstanceMapping
from cells.model import NOBODY, Cell
from indexer.backends.base import CellProgress, FoundPage, IndexSearcher
from indexer.errors import IndexerError
from indexer.items.view import ItemTemplate
from query.errors import NotExpressibleError
from query.fields import Record
from query.filters import Eq, all_of
from query.instances import INSTANCE_FIELDS
from query.page import PageRequest
from query.retention import may_match_forgotten
from query.sort import SortOrder

_log = structlog.get_logger(__name__)

MaySee = Callable[[str | None, str | None], bool]
"""Whether who is asking may see what belongs to a project and a user."""
_BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())
CellFailure = CellUnreachableError | UnknownCellError
ProgressByCell = Mapping[str, CellProgress]


class InstanceLister:
    """Lists instances of all cells.

    find_mapping: `Mappings.mapping_of`; blocks.
    searcher: the index; None when lists do not use it (`search.enabled`).
    clock: microseconds since the epoch, to tell the age of what the index has.
    """

    def __init__(
        self,
        reader: CellReader,
        find_mapping: Callable[[str], InstanceMapping | None],
        searcher: IndexSearcher | None,
        settings: SearchSettings,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._reader = reader
        self._find_mapping = find_mapping
        self._settings = settings
        self._clock = clock
        self._searcher = searcher if settings.enabled else None
        self.safe_connect = SafeConnect(self._probe, settings.retry_after_s)
        self._index = (
            None
            if self._searcher is None
            else PatientIndex(self._searcher, settings.index_patience_s, self.safe_connect.trip)
        )
        self._progress = None if self._index is None else ProgressCache(self._index)

    async def list_page(
        self,
        request: PageRequest,
        template: ItemTemplate,
        consistency: Consistency,
        *,
        down: Mapping[str, CellFailure] = MappingProxyType({}),
        cell_timeout_s: float | None = None,
        ask_live: Collection[str] = (),
        observer: Observer | None = None,
    ) -> Page:
        """One page. Collected before it is returned, so that a failing index can still be replaced by the cells.

        down: by uuid, cells that failed to tell where the page starts; they are not waited for again.
        cell_timeout_s: what one cell may cost; `search.cell_timeout_s` unless given.
        ask_live: uuids of cells that are asked themselves, however fresh the index is.
        observer: told how the page comes about.
        Raises FleetUnreachableError when it is not known which cells there are, QueryError for a filter that no source
        can answer. A cell that fails is a `CellAnswer` of the page.
        """
        # First, since it may read the registry again.
        has_all_cells = await self._reader.knows_all_cells(ask_live)
        cells = await self._reader.cells()
        if observer is not None and not has_all_cells:
            observer.remarks.append("the fleet database does not answer: there may be more cells than these")
        collect = partial(
            self._collect,
            request,
            template,
            consistency,
            cells=cells,
            down=dict(down),
            cell_timeout_s=cell_timeout_s or self._settings.cell_timeout_s,
            ask_live=ask_live,
            observer=observer,
        )
        page = await self._index_or_cells(collect, consistency, observer)
        return page if has_all_cells else replace(page, has_all_cells=False)

    async def _index_or_cells(
        self, collect: Callable[..., Awaitable[Page]], consistency: Consistency, observer: Observer | None
    ) -> Page:
        if consistency is not Consistency.STRONG:
            try:
                if self._progress is not None and (progress := await self.progress()) is not None:
                    page = await collect(progress=progress)
                    self._progress.read_again()
                    return page
            except IndexerError as error:
                self.index_failed(error)
                if observer is not None:
                    observer.give_up(f"the index failed: {error}")
            except NotExpressibleError as error:
                _log.debug("index_cannot_express", what=error.what)
                if observer is not None:
                    observer.give_up(f"the index cannot express {error.what}")
        return await collect(progress={})

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

    async def known_item(self, uuid: str, cell_uuid: str, template: ItemTemplate) -> bytes | None:
        """What the index has of an instance of a cell, as `template` shows it; None when it has, or is, nothing."""
        if self._index is None or self.safe_connect.is_tripped:
            return None
        wanted = all_of(Eq("uuid", uuid), Eq("deleted", False))
        try:
            rows = await self._index.search(PageRequest(wanted, _BY_UUID, 1), {cell_uuid}, template)
        except IndexerError as error:
            self.index_failed(error)
            return None
        return rows[0].item if rows else None

    async def mapping_of(self, uuid: str, timeout_s: float) -> InstanceMapping | None:
        """Where an instance lives. timeout_s: what a cell may cost that has to be asked for it.

        Raises FleetUnreachableError, and CellDownError when a cell that cannot be reached might have it.
        """
        return await self._ask_for_mapping(uuid) or await find_unmapped(self._reader, uuid, timeout_s)

    async def progress(self) -> ProgressByCell | None:
        """How far the index follows the cells; None when the index is not to be used. Raises IndexerError."""
        if self._progress is None or self.safe_connect.is_tripped:
            return None
        return await self._progress.get()

    async def followed(self, max_age_s: float) -> Mapping[str, int]:
        """By uuid, the watermarks of cells whose rows come from the index (`bounded`); no older than `max_age_s`."""
        if self._progress is None or self.safe_connect.is_tripped:
            return {}
        try:
            progress = await self._progress.get(max_age_s)
        except IndexerError as error:
            self.index_failed(error)
            return {}
        return {
            uuid: cell.watermark
            for uuid, cell in progress.items()
            if self._is_answered_by_index(cell, Consistency.BOUNDED)
        }

    async def cells(self) -> Sequence[Cell]:
        """Every cell that is listed. Raises FleetUnreachableError."""
        return await self._reader.cells()

    @property
    def uses_index(self) -> bool:
        """Whether lists use the index when it works."""
        return self._index is not None

    def age_s(self, progress: CellProgress) -> float:
        """Seconds since the moment up to which the index is known to be complete."""
        return max(0, self._clock() - progress.fresh_as_of) / 1e6

    def index_failed(self, error: IndexerError) -> None:
        """Stop asking the index, unless it is only slow: then this one request is answered without it."""
        if not isinstance(error, IndexSlowError):
            self.safe_connect.trip(error)

    def close(self) -> None:
        self.safe_connect.close()
        if self._progress is not None:
            self._progress.close()

    async def _collect(
        self,
        request: PageRequest,
        template: ItemTemplate,
        consistency: Consistency,
        *,
        cells: Sequence[Cell],
        progress: ProgressByCell,
        down: dict[str, CellFailure],
        cell_timeout_s: float,
        ask_live: Collection[str],
        observer: Observer | None,
    ) -> Page:
        """Merge one page. `down` are cells that failed in an earlier attempt; those that fail now are added."""
        # Of deleted instances the index has those since the horizon; a request that may want older ones asks the cell.
        too_short = [
            horizon
            for horizon in {progress[uuid].horizon for uuid in progress}
            if may_match_forgotten(request.filter, horizon)
        ]
        indexed = {
            cell.uuid
            for cell in cells
            if cell.uuid not in ask_live
            and self._is_answered_by_index(progress.get(cell.uuid), consistency)
            and progress[cell.uuid].horizon not in too_short
        }
        live = {
            cell.uuid: CellSource(
                cell.uuid,
                self._reader,
                request,
                template,
                batch_size=request.limit if cell.is_before_cells else live_batch_size(request.limit, len(cells)),
                patience_s=cell_timeout_s,
                stand_in=self._stand_in(cell, template) if cell.uuid in progress else None,
            )
            for cell in cells
            if cell.uuid not in indexed
        }
        for uuid, error in down.items():
            if uuid in live:
                live[uuid].fail(error)
        if self._index is not None and indexed and not live and observer is None:
            # The usual page: nothing to merge.
            found = await self._index.page(request, indexed, template)
            return self._page(found, cells, live, progress)
        by_cell: list[tuple[str | None, Source]] = list(live.items())
        if indexed and self._index is not None:
            by_cell.append((None, index_source(self._index, request, indexed, template)))
        sources = [source for _, source in by_cell]
        if observer is not None:
            why = Reasons(consistency, self._settings.staleness_limit_s, self._why_no_index(), ask_live, too_short)
            sources = observer.begin(
                request,
                {cell.uuid: why.of(progress.get(cell.uuid), self._behind_s(progress.get(cell.uuid))) for cell in cells},
                by_cell,
            )
        rows: list[Row] = []
        try:
            if before_cells := [live[cell.uuid] for cell in cells if cell.is_before_cells and cell.uuid in live]:
                # Nova writes a server to its cell, and then takes it from where it was before. Whoever looked there
                # last could find it in neither.
                await asyncio.gather(*(source.read_ahead() for source in before_cells))
            async with aclosing(merge_sorted(sources, request.order)) as runs:
                async for run in runs:
                    rows += run[: request.limit - len(rows)]
                    if len(rows) == request.limit:
                        break
        finally:
            down.update({uuid: source.failure for uuid, source in live.items() if source.failure is not None})
        last = rows[-1].position if rows else None
        merged = FoundPage(b",".join([row.item for row in rows]), len(rows), last)
        return self._page(merged, cells, live, progress)

    def _page(
        self, found: FoundPage, cells: Sequence[Cell], live: Mapping[str, CellSource], progress: ProgressByCell
    ) -> Page:
        answers = [self._answer_of(cell, live.get(cell.uuid), progress.get(cell.uuid)) for cell in cells]
        return Page(found.items, found.rows, None if found.last is None else found.last[-1], answers)

    def _is_answered_by_index(self, progress: CellProgress | None, consistency: Consistency) -> bool:
        match progress, consistency:
            case None, _:
                return False
            case _, Consistency.ANY:
                return True
            case _, Consistency.BOUNDED:
                return progress.is_complete and self._is_fresh(progress)
        return False

    def _is_fresh(self, progress: CellProgress) -> bool:
        """Whether the index is known to be complete up to about now.

        A moment far in the future tells of a clock that is wrong, and would stay fresh long after the indexer stopped.
        """
        return abs(self._behind_s(progress)) <= self._settings.staleness_limit_s

    def _behind_s(self, progress: CellProgress | None) -> float:
        return 0.0 if progress is None else (self._clock() - progress.fresh_as_of) / 1e6

    def _why_no_index(self) -> str | None:
        if self._index is None:
            return "lists do not use the index (search.enabled)"
        if self.safe_connect.is_tripped:
            return f"the index failed and is not asked any more: {self.safe_connect.reason}"
        return None

    async def describe(self, request: PageRequest, cell_uuid: str | None, indexed: Collection[str]) -> Query | None:
        """The compiled query of one source; None when it cannot tell. cell_uuid: None for the index of `indexed`."""
        if cell_uuid is not None:
            if not isinstance(self._reader, DescribesPages):
                return None
            return await self._reader.describe(cell_uuid, request, self._settings.cell_timeout_s)
        if not isinstance(self._searcher, DescribesSearches):
            return None
        try:
            return self._searcher.describe(request, indexed)
        except NotExpressibleError:
            return None

    def _stand_in(self, cell: Cell, template: ItemTemplate) -> Callable[[PageRequest], Source] | None:
        """What opens the index in the place of a cell that cannot be reached."""
        if self._index is None:
            return None
        return partial(index_source, self._index, cells={cell.uuid}, template=template)

    def _answer_of(self, cell: Cell, source: CellSource | None, progress: CellProgress | None) -> CellAnswer:
        if source is not None and source.failure is None:
            return CellAnswer(cell, Route.LIVE, is_complete=True)
        failure = None if source is None else str(source.failure)
        if progress is None or (source is not None and not source.has_stand_in):
            return CellAnswer(cell, Route.SKIPPED, is_complete=False, failure=failure)
        age_s = self.age_s(progress)
        if source is None:
            is_complete = progress.is_complete and self._is_fresh(progress)
            return CellAnswer(cell, Route.INDEX, is_complete, progress.watermark, age_s)
        return CellAnswer(cell, Route.INDEX_WHILE_DOWN, False, progress.watermark, age_s, failure)

    async def _find(
        self, uuid: str, consistency: Consistency, may_see: MaySee, down: dict[str, CellFailure], timeout_s: float
    ) -> Record | None:
        progress = {} if consistency is Consistency.STRONG else await self._usable_progress()
        cells = await self._reader.cells()
        indexed = {cell.uuid for cell in cells if self._is_answered_by_index(progress.get(cell.uuid), consistency)}
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

    async def _ask_for_mapping(self, uuid: str) -> InstanceMapping | None:
        return await ask_fleet(partial(self._find_mapping, uuid), self._settings.cell_timeout_s)

    async def _usable_progress(self) -> ProgressByCell:
        try:
            return await self.progress() or {}
        except IndexerError as error:
            self.index_failed(error)
            return {}

    async def _find_in_index(self, uuid: str, may_see: MaySee) -> Record | None:
        if self._index is None or self.safe_connect.is_tripped:
            return None
        try:
            record = await self._index.find(uuid)
        except IndexerError as error:
            self.index_failed(error)
            return None
        return record if record is not None and may_see(record["project_id"], record["user_id"]) else None

    async def _probe(self) -> None:
        """Ask the index for all that a list needs of it: it may know its progress and have lost its instances."""
        if self._searcher is not None:
            await self._searcher.progress()
            await self._searcher.find(NOBODY)
