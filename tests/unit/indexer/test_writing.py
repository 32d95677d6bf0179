"""Writing that waits while the index is away, and writes nothing twice."""

from collections.abc import Iterable
from threading import Event

import pytest
from prometheus_client import CollectorRegistry

from fleetlight.cells import retrying
from fleetlight.indexer.backends.base import Document, PartlyWrittenError, Rejection, WriteResult
from fleetlight.indexer.errors import IndexPausedError, IndexUnavailableError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.writing.retrying_writer import RetryingWriter
from tests.support.fleets.documents import make_document
from tests.support.memory.memory_index import MemoryIndex


class Overloaded(MemoryIndex):
    """Takes the first two documents of each request, rejects the third, and is too busy for the rest."""

    def write(self, documents: Iterable[Document]) -> WriteResult:
        documents = list(documents)
        super().write(documents[:2])
        self.writes[-1] = len(documents)
        rejected = tuple(Rejection(document, "too long") for document in documents[2:3])
        result = WriteResult(len(documents[:2]), 0, rejected, schema_violations=1)
        if len(documents) > 3:
            raise PartlyWrittenError(IndexUnavailableError("busy"), result, documents[3:])
        return result


class Paused(MemoryIndex):
    """Takes nothing the first five times, as of a bulk of which nothing was taken."""

    attempts = 0

    def write(self, documents: Iterable[Document]) -> WriteResult:
        self.attempts += 1
        if self.attempts > 5:
            return super().write(documents)
        raise PartlyWrittenError(IndexPausedError("a rebuild ends"), WriteResult(0, 0), list(documents))


def writer(
    index: MemoryIndex,
    waits: list[Exception],
    registry: CollectorRegistry | None = None,
    *,
    retry_wait_max_s: float = 0.01,
) -> RetryingWriter:
    return RetryingWriter(
        index,
        "c0",
        Event(),
        retry_wait_max_s=retry_wait_max_s,
        metrics=IndexerMetrics(registry or CollectorRegistry()),
        on_wait=waits.append,
        on_answer=lambda: None,
    )


def test_only_what_could_not_be_written_is_written_again() -> None:
    index, waits, registry = Overloaded(), list[Exception](), CollectorRegistry()
    documents = [make_document(number) for number in range(1, 9)]
    result = writer(index, waits, registry).write(documents)
    assert index.writes == [8, 5, 2]
    assert (result.applied, result.stale, result.schema_violations) == (6, 0, 3)
    assert registry.get_sample_value("fleetlight_indexer_schema_violation_fields_total", {"cell": "c0"}) == 3
    assert [rejection.document for rejection in result.rejected] == [documents[2], documents[5]]
    assert index.documents.keys() == {document.id for document in documents} - {documents[2].id, documents[5].id}
    assert len(waits) == 2


@pytest.mark.parametrize("failures", [1, 5])
def test_write_that_failed_as_a_whole_is_repeated(failures: int) -> None:
    index, waits = MemoryIndex(failures=failures), list[Exception]()
    assert writer(index, waits).write([make_document(1)]).applied == 1
    assert len(waits) == failures


def test_pause_is_waited_out_in_short_steps_and_told_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(retrying, "sleep_using_event", lambda _: slept.append)
    # The longest that it could choose.
    monkeypatch.setattr("random.uniform", lambda _, high: high)
    waits = list[Exception]()
    assert writer(Paused(), waits, retry_wait_max_s=60).write([make_document(1)]).applied == 1
    assert slept == [0.1, 0.2, 0.3, 0.3, 0.3]
    assert [type(wait) for wait in waits] == [IndexPausedError] * 5
