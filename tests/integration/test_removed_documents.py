"""What was removed from Elasticsearch can be written again at once, also while others remove something."""

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


@pytest.fixture
def durations(writer: ElasticsearchWriter, monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """What the writer sets; when it does so first, another one ends the forgetting for all."""
    durations: list[str | None] = []
    set_gc_deletes = writer._set_gc_deletes

    def and_another_one_ends(duration: str | None) -> None:
        set_gc_deletes(duration)
        if not durations:
            set_gc_deletes(None)
        durations.append(duration)

    monkeypatch.setattr(writer, "_set_gc_deletes", and_another_one_ends)
    return durations


def test_removal_that_another_one_ends_too_early_is_ended_properly(
    writer: ElasticsearchWriter, durations: list[str | None]
) -> None:
    writer.write([make_document(1, version=9), make_document(2, version=9), make_document(3, version=12)])
    writer.remove({make_uuid(1): 9, make_uuid(2): 9, make_uuid(3): 9})
    assert writer.write([make_document(1, version=3), make_document(2, version=1)]).applied == 2
    found = writer.read([make_uuid(number) for number in (1, 2, 3)])
    assert {uuid: document.version for uuid, document in found.items()} == {
        make_uuid(1): 3,
        make_uuid(2): 1,
        make_uuid(3): 12,
    }
    # Once or, unless the server has forgotten by itself before the other one ended it, twice.
    assert durations
    assert durations == ["0s", None] * (len(durations) // 2)


def test_cell_that_was_removed_while_others_removed_too_can_come_back_at_once(
    writer: ElasticsearchWriter, durations: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.indexer.backends.elasticsearch.writer._REMOVE_BATCH", 2)
    writer.write([make_document(number, version=9, cell_uuid=CELL_UUID) for number in range(5)])
    assert writer.remove_cell(CELL_UUID) == 5
    again = [make_document(number, version=1, cell_uuid=make_uuid(99)) for number in range(5)]
    assert writer.write(again).applied == 5
    # Once or, unless the server has forgotten by itself before the other one ended it, twice.
    assert durations
    assert durations == ["0s", None] * (len(durations) // 2)
