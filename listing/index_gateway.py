"""The index for lists: whether they use it, how far it follows the cells, and what happens when it fails."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import structlog

from fleetlight.cells.model import NO_INSTANCE
from fleetlight.indexer.backends.base import CellProgress, FoundPage, FoundRow, IndexSearcher
from fleetlight.indexer.backends.damaged import log_damaged_document
from fleetlight.indexer.backends.seal import SealState
from fleetlight.indexer.errors import (
    IndexDocumentError,
    IndexerError,
    IndexQueryError,
    IndexRequestError,
    IndexUnsealedError,
)
from fleetlight.listing.answer import Consistency, Freshness
from fleetlight.listing.explanation import DescribesSearches, Query
from fleetlight.listing.merge_sort import Source
from fleetlight.listing.progress_cache import IndexSlowError, ProgressCache
from fleetlight.listing.safe_connect import SafeConnect
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import BatchedSource
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import Eq, Filter
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.projection import FieldValues, Projection

T = TypeVar("T")
ProgressByCell = Mapping[str, CellProgress]
_log = structlog.get_logger(__name__)
_READ_AGAIN_AFTER_S = 0.2
_MOST_SHARES = 4
# What shows for next to nothing that a page could be made.
_NO_ROW = PageRequest(Eq("uuid", NO_INSTANCE), INSTANCES_BY_UUID, 1)
_UUID = FieldValues(INSTANCE_FIELDS, ("uuid",))


class _SlowerThanACellError(IndexSlowError):
    """The index has not answered even within the time that a cell gets."""


class IndexDeadline:
    """Runs queries, and raises IndexSlowError for one that the index has not answered within `deadline_s`.

    Lists do not wait for a slow index while cells can answer. Falling back to the cells only when the index has missed
    its own time limit would add that limit to the request. So a request waits for a moment and goes to the cells. Its
    query goes on by itself; when that ends, it is known whether the index failed, or was slow once.

    Nor is it the index that is slow when many queries share it, in a process that has much to do: the cells would cost
    several times as much, and make everything later. So while it answers others, a query may take as many times as long
    as there are queries under way, up to four.

    One heavy query must not take the index from all callers. So while nothing is known of the index but that a query is
    overdue, one other at a time tries it; once one has been answered, it is that query that is slow, and not the index.
    on_failure: called when the index fails after all, unless it has answered others since the query began.
    """

    def __init__(self, deadline_s: float, on_failure: Callable[[IndexerError], None]) -> None:
        self._deadline_s = deadline_s
        self._on_failure = on_failure
        self._answered_at = float("-inf")
        self._overdue: dict[asyncio.Future[Any], float] = {}
        self._is_tried = False
        self._under_way = 0

    def note_answer(self) -> None:
        """The index has just answered a query of another way. Any thread may call this."""
        self._answered_at = time.monotonic()

    async def run(self, query: Coroutine[Any, Any, T]) -> T:
        """What `query`, a request to the index, returns or raises."""
        if not any(map(self._is_silent_since, self._overdue.values())):
            return await self._wait_for(query)
        if self._is_tried:
            query.close()
            raise IndexSlowError("earlier queries still wait for an answer")
        self._is_tried = True
        try:
            return await self._wait_for(query)
        finally:
            self._is_tried = False

    async def _wait_for(self, query: Coroutine[Any, Any, T]) -> T:
        began_at = time.monotonic()
        running = asyncio.ensure_future(query)
        self._under_way += 1
        shares = 0
        try:
            while not running.done() and (not shares or self._may_take(began_at, shares + 1)):
                shares += 1
                await asyncio.wait({running}, timeout=self._deadline_s)
        except asyncio.CancelledError:
            running.cancel()
            raise
        finally:
            self._under_way -= 1
        if running.done():
            answer = running.result()
            self._answered_at = time.monotonic()
            return answer
        waited_s = shares * self._deadline_s
        _log.warning("index_slow", deadline_s=waited_s)
        self._overdue[running] = began_at
        running.add_done_callback(self._ended)
        raise IndexSlowError(f"no answer within {waited_s:g} s")

    def _may_take(self, began_at: float, shares: int) -> bool:
        return shares <= min(self._under_way, _MOST_SHARES) and not self._is_silent_since(began_at)

    def _is_silent_since(self, began_at: float) -> bool:
        return began_at > self._answered_at

    def _ended(self, query: asyncio.Future[Any]) -> None:
        began_at = self._overdue.pop(query)
        if query.cancelled():
            return
        error = query.exception()
        if error is None:
            self._answered_at = time.monotonic()
        elif isinstance(error, IndexerError) and self._is_silent_since(began_at):
            self._on_failure(error)


class IndexGateway:
    """One index, the flag that keeps lists off it after a failure, and its progress.

    See docs/architecture.md, "Safe connect".

    searcher: None when lists do not use the index, as when `search.enabled` is off.
    clock: microseconds since the epoch, for the age of what the index has. is_clock_sure: whether it is right.
    """

    def __init__(
        self,
        searcher: IndexSearcher | None,
        settings: SearchSettings,
        *,
        clock: Clock = system_clock,
        is_clock_sure: Callable[[], bool] = lambda: True,
    ) -> None:
        self._searcher = searcher if settings.enabled else None
        self._settings = settings
        self._clock = clock
        self._is_clock_sure = is_clock_sure
        self.safe_connect = SafeConnect(self._probe, settings.retry_after_s)
        self._refused_kinds: set[str] = set()
        self._deadline = IndexDeadline(settings.index_deadline_s, self.failed)
        self._progress = ProgressCache(
            lambda: self._required().progress(), settings.index_deadline_s, self._deadline.note_answer
        )

    @property
    def is_used(self) -> bool:
        """Whether lists use the index when it works."""
        return self._searcher is not None

    @property
    def is_absent(self) -> bool:
        """Whether there was no index at the last query, and never was before."""
        return self._progress.is_absent

    @property
    def why_not(self) -> str | None:
        """Why lists do not ask the index now; None when they do."""
        if self._searcher is None:
            return "lists do not use the index (search.enabled)"
        if (reason := self.safe_connect.reason) is not None:
            return f"the index failed and is not asked any more: {reason}"
        return None

    async def progress(self) -> ProgressByCell | None:
        """How far the index follows the cells, by uuid; None when it is not to be asked. Raises IndexerError.

        When what is remembered would send a list to cells, the list waits for what the index says now: only its reader
        may be late, in a process that has much to do.
        """
        if self.why_not is not None:
            return None
        progress = await self._progress.get()
        fresh = self.freshness()
        if any(cell.is_complete and not fresh.is_complete(cell) for cell in progress.values()):
            return await self._progress.get(_READ_AGAIN_AFTER_S, timeout_s=self._settings.index_deadline_s)
        return progress

    async def checked_progress(self) -> ProgressByCell | None:
        """As `progress`, of an index that follows cells only if instances can be searched for, too."""
        progress = await self.progress()
        if progress:
            await _find_nothing(self)
        return progress

    async def progress_or_nothing(self) -> ProgressByCell:
        """As `progress`; nothing is known of an index that fails."""
        try:
            return await self.progress() or {}
        except IndexerError as error:
            self.failed(error)
            return {}

    async def followed(self, max_age_s: float) -> ProgressByCell:
        """The progress of cells whose rows come from the index (`bounded`), by uuid; no older than `max_age_s`."""
        if self.why_not is not None:
            return {}
        try:
            progress = await self._progress.get(max_age_s)
        except IndexerError as error:
            self.failed(error)
            return {}
        fresh = self.freshness()
        return {uuid: cell for uuid, cell in progress.items() if fresh.answers(cell, Consistency.BOUNDED)}

    async def or_cells(
        self,
        consistency: Consistency,
        attempt: Callable[[ProgressByCell, Consistency], Awaitable[T]],
        on_failure: Callable[[str], None],
    ) -> T:
        """The answer of an `attempt` with the index; of one without it, if it is not to be asked, or cannot answer.

        An index that was only late may still answer for cells that do not answer in time either: old rows are better
        than none. attempt: gets the progress, where nothing is followed if the index is not used, and the consistency
        by which the index is asked first; by `strong` it only stands in for cells. on_failure: gets why not.
        """
        late: ProgressByCell = {}
        if consistency is not Consistency.STRONG:
            try:
                if (progress := await self.progress()) is not None:
                    return await attempt(progress, consistency)
            except IndexerError as error:
                self.failed(error)
                if isinstance(error, IndexSlowError) and not isinstance(error, _SlowerThanACellError):
                    late = self._progress.remembered
                on_failure(str(error) if isinstance(error, IndexQueryError) else f"the index failed: {error}")
            except NotExpressibleError as error:
                _log.debug("index_cannot_express", what=error.what)
                on_failure(f"the index cannot express {error.what}")
        if late:
            try:
                return await attempt(late, Consistency.STRONG)
            except IndexerError as error:
                self.failed(error)
            except NotExpressibleError as error:
                on_failure(f"the index cannot express {error.what}")
        return await attempt({}, Consistency.STRONG)

    def freshness(self) -> Freshness:
        """How fresh what is known of it is now; to be taken once for an answer, before the index is queried for it."""
        return Freshness(self._clock(), self._settings.staleness_limit_s, is_sure=self._is_clock_sure())

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        """See IndexSearcher.page; only after `progress`."""
        return await self._deadline.run(self._required().page(request, cells, projection))

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        """See IndexSearcher.search; only after `progress`."""
        return await self._deadline.run(self._required().search(request, cells, projection))

    async def count(
        self, request: CountRequest, cells: Collection[str], *, stands_in_s: float | None = None
    ) -> Mapping[str, Counts]:
        """See IndexSearcher.count; only after `progress`. stands_in_s: as of `source`."""
        counting = self._required().count(request, cells)
        return await (self._deadline.run(counting) if stands_in_s is None else self._stand_in(counting, stands_in_s))

    async def items_or_nothing(self, item_type: str, cells: Collection[str]) -> Mapping[str, Sequence[Record]]:
        """See IndexSearcher.items; only after `progress`. Nothing of an index that fails."""
        try:
            return await self._deadline.run(self._required().items(item_type, cells))
        except IndexerError as error:
            self.failed(error)
        return {}

    async def seal(self) -> SealState | None:
        """What is known of its seal; None when it is not to be asked, or fails."""
        if self.why_not is not None:
            return None
        try:
            return await self._deadline.run(self._required().seal())
        except IndexerError as error:
            self.failed(error)
            return None

    def source(
        self, request: PageRequest, cells: Collection[str], projection: Projection, *, stands_in_s: float | None = None
    ) -> Source:
        """The index, restricted to `cells` (uuids), as one source of a merge.

        stands_in_s: set where they do not answer: as long as the request waits for a cell, it then waits for the index.
        """

        def search(part: PageRequest) -> Awaitable[Sequence[FoundRow]]:
            searching = self._required().search(part, cells, projection)
            return self._deadline.run(searching) if stands_in_s is None else self._stand_in(searching, stands_in_s)

        return BatchedSource(search, request, request.limit)

    async def _stand_in(self, query: Awaitable[T], timeout_s: float) -> T:
        timeout_s = max(timeout_s, self._settings.index_deadline_s)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await query
        except TimeoutError as error:
            raise _SlowerThanACellError(f"no answer within {timeout_s:g} s") from error
        self._deadline.note_answer()
        return answer

    async def find(self, wanted: Filter, cells: Collection[str], projection: Projection) -> bytes | None:
        """The item of an instance of `cells` that is `wanted`; None without one, if it is not to be asked, or fails."""
        if self.why_not is not None:
            return None
        try:
            rows = await self.search(PageRequest(wanted, INSTANCES_BY_UUID, 1), cells, projection)
        except IndexerError as error:
            self.failed(error)
            return None
        return rows[0].item if rows else None

    def describe(self, request: PageRequest, cells: Collection[str]) -> Query | None:
        """The compiled query of a search; None when it cannot be shown."""
        if not isinstance(self._searcher, DescribesSearches):
            return None
        try:
            return self._searcher.describe(request, cells)
        except NotExpressibleError:
            return None

    def failed(self, error: IndexerError) -> None:
        """Stop using the index, unless only this one request cannot be answered by it, or its progress says so itself.

        The one is so while it is slow, when it refuses the query as such, and when one of its documents is damaged; the
        other when another program has written to it. The log names a document, or a kind of refusal, once.
        """
        if isinstance(error, IndexDocumentError):
            log_damaged_document(error.document_id, str(error))
        elif isinstance(error, IndexQueryError):
            self._log_refused(error)
        elif not isinstance(error, IndexSlowError | IndexUnsealedError):
            self.safe_connect.trip(error)

    def close(self) -> None:
        self.safe_connect.close()
        self._progress.close()

    def _required(self) -> IndexSearcher:
        if self._searcher is None:
            raise ValueError("lists do not use the index")
        return self._searcher

    def _log_refused(self, error: IndexQueryError) -> None:
        """Once for each kind, since callers can have as many queries refused as they like."""
        if error.kind not in self._refused_kinds:
            self._refused_kinds.add(error.kind)
            _log.warning("index_refused_query", kind=error.kind, reason=str(error))

    async def _probe(self) -> None:
        if self._searcher is not None:
            await read_as_lists_do(self._searcher)


async def read_as_lists_do(searcher: IndexSearcher) -> ProgressByCell:
    """The progress of an index that gives all that a list needs of it; raises IndexerError.

    One may know its progress, and have lost its instances, or have them where nothing can be searched.
    """
    progress = await searcher.progress()
    await _find_nothing(searcher)
    return progress


async def _find_nothing(searcher: "IndexSearcher | IndexGateway") -> None:
    """Raises IndexerError; the index that refuses this query refuses any."""
    try:
        await searcher.search(_NO_ROW, {NO_INSTANCE}, _UUID)
    except IndexQueryError as error:
        raise IndexRequestError(str(error)) from error
