"""What was removed from Elasticsearch can be written again at once, with any version."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from fleetlight.indexer.backends.elasticsearch.writer import ElasticsearchWriter
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.memory.memory_cell import CELL_UUID
from tests.support.servers.index_server import index_at

pytestmark = [pytest.mark.no_rerun, pytest.mark.elasticsearch]


@pytest.fixture
def writer(elasticsearch_url: str, elasticsearch_prefix: str) -> Iterator[ElasticsearchWriter]:
    settings = index_at(elasticsearch_url, elasticsearch_prefix.rstrip("-"))
    with closing(ElasticsearchWriter(settings)) as writer:
        writer.prepare()
        yield writer


def test_documents_that_were_removed_can_be_written_with_older_versions(writer: ElasticsearchWriter) -> None:
    writer.write([make_document(1, version=9), make_document(2, version=9), make_document(3, version=12)])
    writer.remove({make_uuid(1): 9, make_uuid(2): 9, make_uuid(3): 9})
    assert writer.write([make_document(1, version=3), make_document(2, version=1)]).applied == 2
    found = writer.read([make_uuid(number) for number in (1, 2, 3)])
    assert {uuid: document.version for uuid, document in found.items()} == {
        make_uuid(1): 3,
        make_uuid(2): 1,
        make_uuid(3): 12,
    }


def test_cell_that_was_removed_can_come_back_at_once(
    writer: ElasticsearchWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.indexer.backends.elasticsearch.writer._REMOVE_BATCH", 2)
    writer.write([make_document(number, version=9, cell_uuid=CELL_UUID) for number in range(5)])
    assert writer.remove_cell(CELL_UUID) == 5
    again = [make_document(number, version=1, cell_uuid=make_uuid(99)) for number in range(5)]
    assert writer.write(again).applied == 5
