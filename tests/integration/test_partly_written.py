"""A bulk request of which Elasticsearch takes a part: the rest is written, and nothing twice."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest
from elasticsearch import Elasticsearch as Client
from prometheus_client import CollectorRegistry

from fleetlight.indexer.backends.base import Document, IndexWriter, WriteResult
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.writing.retrying_writer import RetryingWriter
from scripts.servers.elasticsearch import BriefElasticsearch
from scripts.servers.private import private_server
from tests.support.fleets.documents import make_document, make_uuid

pytestmark = [
    pytest.mark.night,
    pytest.mark.no_rerun,
    pytest.mark.own_servers,
    pytest.mark.elasticsearch,
    pytest.mark.timeout(400),
]

COUNT, SHARDS = 400, 8
CELL = "c0"
REFUSED = COUNT // 2


class BusyElasticsearch(BriefElasticsearch):
    """Does one thing, has room for one more, and refuses the rest (429): a bulk for many shards at once is too much."""

    NAME: ClassVar[str] = "elasticsearch-busy"

    def set_up(self, folder: Path, port: int) -> None:
        super().set_up(folder, port)
        with (folder / "config" / "elasticsearch.yml").open("a") as settings:
            settings.write("thread_pool.write.size: 1\nthread_pool.write.queue_size: 1\n")


class Counted:
    """What is asked of a writer: the documents of each attempt."""

    def __init__(self, writer: IndexWriter) -> None:
        self._writer = writer
        self.attempts: list[set[str]] = []

    def write(self, documents: Iterable[Document]) -> WriteResult:
        documents = list(documents)
        self.attempts.append({document.id for document in documents})
        return self._writer.write(documents)

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        return self._writer.read(ids)


@pytest.fixture
def busy_url() -> Iterator[str]:
    with private_server(BusyElasticsearch()) as server:
        yield server.url


def test_documents_that_a_busy_server_refuses_are_written_later_and_the_others_once(busy_url: str) -> None:
    settings = IndexSettings(backend="elasticsearch", urls=(busy_url,), shards=SHARDS)
    # A term longer than any that the server takes, so that its mapping refuses one document in the middle for good.
    documents = [make_document(number, cell_uuid=CELL) for number in range(COUNT)]
    documents[REFUSED] = make_document(REFUSED, cell_uuid=CELL, display_description="x" * 40_000)
    waits: list[IndexUnavailableError] = []
    with closing(open_writer(settings)) as writer, Client(busy_url) as client:
        writer.prepare()
        counted = Counted(writer)
        patient = RetryingWriter(
            counted,
            CELL,
            Event(),
            retry_wait_max_s=0.05,
            metrics=IndexerMetrics(CollectorRegistry()),
            on_wait=waits.append,
            on_answer=lambda: None,
        )
        result = patient.write(documents)
        writer.make_searchable()
        stored = client.count(index=settings.prefix + "-instances-write")["count"]
        done = client.indices.stats(index=settings.prefix + "-instances-write", metric="indexing")
    assert len(counted.attempts) == len(waits) + 1 > 1
    assert "es_rejected_execution_exception" in str(waits[0])
    for earlier, later in zip(counted.attempts, counted.attempts[1:], strict=False):
        assert later < earlier
    assert [rejection.document.id for rejection in result.rejected] == [make_uuid(REFUSED)]
    # A document that is written again would be stale.
    assert (result.applied, result.stale) == (COUNT - 1, 0)
    assert stored == COUNT - 1
    assert done["_all"]["primaries"]["indexing"]["index_total"] == COUNT - 1
