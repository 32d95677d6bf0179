"""A writer that waits, longer and longer, while the index is down; the consumer waits as well, so nothing piles up."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Event
from typing import Any, Protocol, TypeVar

from tenacity import RetryCallState

from fleetlight.cells.retrying import failure_of, retrying_until
from fleetlight.indexer.backends.base import Document, PartlyWrittenError, WriteResult
from fleetlight.indexer.errors import IndexPausedError, IndexUnavailableError
from fleetlight.indexer.metrics import IndexerMetrics

T = TypeVar("T")

_FIRST_WAIT_S = 0.1
# A rebuild pauses the index for about a second.
_PAUSE_WAIT_S = 0.3


class WritesDocuments(Protocol):
    """The part of an IndexWriter that writes documents."""

    def write(self, documents: Iterable[Document]) -> WriteResult:
        """As IndexWriter.write. Raises IndexerError."""


class WritesAndReads(WritesDocuments, Protocol):
    """The part of an IndexWriter that writes and reads documents."""

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        """As IndexWriter.read. Raises IndexerError."""


class RetryingWriter:
    """Writes and reads documents of one cell; thread-safe.

    Calls wait until the index answers, however long it is down; documents that it took are not written again. If `stop`
    is set meanwhile, they raise the last IndexUnavailableError. Raises IndexRequestError at once.
    on_wait: called before each wait. on_answer: called when the index answers again after a wait.
    """

    def __init__(
        self,
        writer: WritesAndReads,
        cell_uuid: str,
        stop: Event,
        *,
        retry_wait_max_s: float,
        metrics: IndexerMetrics,
        on_wait: Callable[[IndexUnavailableError], None],
        on_answer: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._cell_uuid = cell_uuid
        self._stop = stop
        self._retry_wait_max_s = retry_wait_max_s
        self._metrics = metrics
        self._on_wait = on_wait
        self._on_answer = on_answer

    def write(self, documents: Iterable[Document]) -> WriteResult:
        started = time.perf_counter()
        done: list[WriteResult] = []
        remaining = documents

        def write_remaining() -> WriteResult:
            nonlocal remaining
            try:
                return self._writer.write(remaining)
            except PartlyWrittenError as error:
                done.append(error.result)
                remaining = error.remaining
                raise

        done.append(self._retrying(write_remaining))
        result = WriteResult(
            sum(each.applied for each in done),
            sum(each.stale for each in done),
            tuple(rejection for each in done for rejection in each.rejected),
            sum(each.schema_violations for each in done),
        )
        self._metrics.documents_written(
            self._cell_uuid,
            applied=result.applied,
            stale=result.stale,
            rejected=len(result.rejected),
            schema_violations=result.schema_violations,
            duration_s=time.perf_counter() - started,
        )
        return result

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        return self._retrying(lambda: self._writer.read(ids))

    def _retrying(self, call: Callable[[], T]) -> T:
        waited = False

        def before_wait(error: IndexUnavailableError, _attempt: int, _wait_s: float) -> None:
            nonlocal waited
            waited = True
            cause = _cause(error)
            self._metrics.failures.labels(self._cell_uuid, type(cause).__name__).inc()
            self._on_wait(cause)

        retrying = retrying_until(
            self._stop,
            IndexUnavailableError,
            before_wait,
            first_wait_s=_FIRST_WAIT_S,
            longest_wait_s=self._retry_wait_max_s,
        )

        def wait_s(state: RetryCallState) -> float:
            is_paused = isinstance(_cause(failure_of(state)), IndexPausedError)
            return min(retrying.wait(state), _PAUSE_WAIT_S if is_paused else self._retry_wait_max_s)

        result = retrying.copy(wait=wait_s, reraise=True, retry_error_callback=None)(call)
        if waited:
            self._on_answer()
        return result


def _cause(error: Any) -> Any:
    """The error with which an attempt failed."""
    return error.cause if isinstance(error, PartlyWrittenError) else error
