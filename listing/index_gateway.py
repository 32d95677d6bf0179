"""The index as lists use it: whether it is in use, its progress in the cells, and the handling of its failures."""

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
# A cheap query that shows whether the index can answer a page.
_NO_ROW = PageRequest(Eq("uuid", NO_INSTANCE), INSTANCES_BY_UUID, 1)
_UUID = FieldValues(INSTANCE_FIELDS, ("uuid",))


class _NoStandInError(IndexSlowError):
    """The index has not answered in place of a cell."""


class IndexDeadline:
    """Runs queries; raises IndexSlowError for a query that the index has not answered within `deadline_s`.

    A list does not wait for a slow index while cells can answer: after the deadline the request goes to the cells, and
    the query runs on in the background. Its end shows whether the index failed or was slow once.

    In a busy process many queries share the index, and cells would cost several times as much. So while the index
    answers other queries, a query may take `deadline_s` times the number of running queries, at most four times.

    One heavy query must not take the index from all callers. While a query is overdue and the index has answered none
    since, one other query at a time tries the index; when the index answers it, only the overdue query counts as slow.
    A query with `patience_s` ignores overdue queries without it, so all that begin together wait that long, once.
    on_failure: called when an overdue query fails, unless the index has answered other queries since it began.
    """

    def __init__(self, deadline_s: float, on_failure: Callable[[IndexerError], None]) -> None:
        self._deadline_s = deadline_s
        self._on_failure = on_failure
        self._answered_at = float("-inf")
        # When each query began, and whether it has patience_s.
        self._overdue: dict[asyncio.Future[Any], tuple[float, bool]] = {}
        self._is_tried = False
        self._under_way = 0

    def note_answer(self) -> None:
        """Record that the index has answered a query that ran elsewhere. Any thread may call this."""
        self._answered_at = time.monotonic()

    async def run(self, query: Coroutine[Any, Any, T], patience_s: float | None = None) -> T:
        """Return or raise the result of `query`, a request to the index. Raises IndexSlowError at the deadline.

        patience_s: the deadline of a query that no cell can answer, unless an earlier one of these is overdue.
        """
        overdue = [began_at for began_at, was_patient in self._overdue.values() if was_patient or not patience_s]
        if not any(map(self._is_silent_since, overdue)):
            return await self._wait_for(query, patience_s)
        if self._is_tried:
            query.close()
            raise IndexSlowError("earlier queries still wait for an answer")
        self._is_tried = True
        try:
            return await self._wait_for(query)
        finally:
            self._is_tried = False

    async def _wait_for(self, query: Coroutine[Any, Any, T], patience_s: float | None = None) -> T:
        began_at = time.monotonic()
        running = asyncio.ensure_future(query)
        self._under_way += 1
        shares = 0
        try:
            while not running.done() and (not shares or (not patience_s and self._may_take(began_at, shares + 1))):
                shares += 1
                await asyncio.wait({running}, timeout=patience_s or self._deadline_s)
        except asyncio.CancelledError:
            running.cancel()
            raise
        finally:
            self._under_way -= 1
        if running.done():
            answer = running.result()
            self._answered_at = time.monotonic()
            return answer
        waited_s = patience_s or shares * self._deadline_s
        _log.warning("index_slow", deadline_s=waited_s)
        self._overdue[running] = began_at, bool(patience_s)
        running.add_done_callback(self._ended)
        raise IndexSlowError(f"no answer within {waited_s:g} s")

    def _may_take(self, began_at: float, shares: int) -> bool:
        return shares <= min(self._under_way, _MOST_SHARES) and not self._is_silent_since(began_at)

    def _is_silent_since(self, began_at: float) -> bool:
        return began_at > self._answered_at

    def _ended(self, query: asyncio.Future[Any]) -> None:
        began_at, _ = self._overdue.pop(query)
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

    searcher: None if lists do not use the index. `search.enabled` has the same effect when it is off.
    clock: microseconds since the epoch, for the age of the index. is_clock_sure: whether the clock is surely right.
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
        """Whether no index existed at the last query, nor at any before."""
        return self._progress.is_absent

    @property
    def why_not(self) -> str | None:
        """Why lists do not use the index now; None if they do."""
        if self._searcher is None:
            return "lists do not use the index (search.enabled)"
        if (reason := self.safe_connect.reason) is not None:
            return f"the index failed and is not asked any more: {reason}"
        return None

    async def progress(self) -> ProgressByCell | None:
        """Return the index's progress by cell uuid; None if lists do not use the index. Raises IndexerError.

        If the remembered progress would send a list to cells, the list waits for a new reading: in a busy process only
        the reader of the progress may be late, and not the index.
        """
        if self.why_not is not None:
            return None
        progress = await self._progress.get()
        fresh = self.freshness()
        if any(cell.is_complete and not fresh.is_complete(cell) for cell in progress.values()):
            return await self._progress.get(_READ_AGAIN_AFTER_S, timeout_s=self._settings.index_deadline_s)
        return progress

    async def checked_progress(self) -> ProgressByCell | None:
        """As `progress`, and check by a query that the index can be searched. Raises IndexerError."""
        progress = await self.progress()
        if progress:
            await _find_nothing(self)
        return progress

    async def progress_or_nothing(self) -> ProgressByCell:
        """As `progress`; an empty mapping if the index fails."""
        try:
            return await self.progress() or {}
        except IndexerError as error:
            self.failed(error)
            return {}

    async def followed(self, max_age_s: float) -> ProgressByCell:
        """Return the progress of the cells that the index answers for (`bounded`), by uuid, read within `max_age_s`."""
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
        """Return the answer of an `attempt` with the index; of one without it, if it is not in use or fails.

        After a deadline, the index may still stand in for cells that do not answer in time: old rows are better than
        none. attempt: gets the progress (empty without index), and the consistency by which it chooses the index first;
        with `strong` the index only stands in for cells. on_failure: gets the reason for going on without the index.
        """
        late: ProgressByCell = {}
        if consistency is not Consistency.STRONG:
            try:
                if (progress := await self.progress()) is not None:
                    return await attempt(progress, consistency)
            except IndexerError as error:
                self.failed(error)
                if isinstance(error, IndexSlowError) and not isinstance(error, _NoStandInError):
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
        """Return the freshness of the index now. An answer takes it once, before its first query to the index."""
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
        """See IndexSearcher.count; only after `progress`. stands_in_s: see `source`."""
        counting = self._required().count(request, cells)
        return await (self._deadline.run(counting) if stands_in_s is None else self._stand_in(counting, stands_in_s))

    async def items_or_nothing(self, item_type: str, cells: Collection[str]) -> Mapping[str, Sequence[Record]]:
        """See IndexSearcher.items; only after `progress`. An empty mapping if the index fails."""
        try:
            return await self._deadline.run(self._required().items(item_type, cells))
        except IndexerError as error:
            self.failed(error)
        return {}

    async def seal(self) -> SealState | None:
        """Return the state of the index's seal; None if the index is not in use, or fails."""
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
        """Return the index, restricted to `cells` (uuids), as one source of a merge.

        stands_in_s: set where the index replaces cells that do not answer; the time limit of a cell, for the index.
        """

        def search(part: PageRequest) -> Awaitable[Sequence[FoundRow]]:
            searching = self._required().search(part, cells, projection)
            return self._deadline.run(searching) if stands_in_s is None else self._stand_in(searching, stands_in_s)

        return BatchedSource(search, request, request.limit)

    async def _stand_in(self, query: Coroutine[Any, Any, T], timeout_s: float) -> T:
        try:
            return await self._deadline.run(query, max(timeout_s, self._settings.index_deadline_s))
        except IndexSlowError as error:
            raise _NoStandInError(str(error)) from error

    async def find(self, wanted: Filter, cells: Collection[str], projection: Projection) -> bytes | None:
        """Return the item of an instance that matches; None if there is none, or the index is not in use or fails."""
        if self.why_not is not None:
            return None
        try:
            rows = await self.search(PageRequest(wanted, INSTANCES_BY_UUID, 1), cells, projection)
        except IndexerError as error:
            self.failed(error)
            return None
        return rows[0].item if rows else None

    def describe(self, request: PageRequest, cells: Collection[str]) -> Query | None:
        """Return the compiled query of a search; None if the index cannot show it."""
        if not isinstance(self._searcher, DescribesSearches):
            return None
        try:
            return self._searcher.describe(request, cells)
        except NotExpressibleError:
            return None

    def failed(self, error: IndexerError) -> None:
        """Stop using the index after `error`, unless the error concerns one request, or shows in the progress.

        Slowness, a refused query and a damaged document concern one request; foreign writes (IndexUnsealedError) show
        in the progress. The log names each document and each kind of refusal once, since callers can repeat them.
        """
        if isinstance(error, IndexDocumentError):
            log_damaged_document(error.document_id, str(error))
        elif isinstance(error, IndexQueryError):
            if error.kind not in self._refused_kinds:
                self._refused_kinds.add(error.kind)
                _log.warning("index_refused_query", kind=error.kind, reason=str(error))
        elif not isinstance(error, IndexSlowError | IndexUnsealedError):
            self.safe_connect.trip(error)

    def close(self) -> None:
        """Stop probing the index and reading its progress."""
        self.safe_connect.close()
        self._progress.close()

    def _required(self) -> IndexSearcher:
        if self._searcher is None:
            raise ValueError("lists do not use the index")
        return self._searcher

    async def _probe(self) -> None:
        if self._searcher is not None:
            await read_as_lists_do(self._searcher)


async def read_as_lists_do(searcher: IndexSearcher) -> ProgressByCell:
    """Read from an index all that a list needs, and return its progress. Raises IndexerError.

    An index may still know its progress when it has lost its instances, or cannot search them.
    """
    progress = await searcher.progress()
    await _find_nothing(searcher)
    return progress


async def _find_nothing(searcher: "IndexSearcher | IndexGateway") -> None:
    """Run a query that every index can answer. Raises IndexerError, IndexRequestError if the index refuses it."""
    try:
        await searcher.search(_NO_ROW, {NO_INSTANCE}, _UUID)
    except IndexQueryError as error:
        raise IndexRequestError(str(error)) from error
