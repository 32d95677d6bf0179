"""What every index promises of items other than instances: one suite, run over each backend."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from fleetlight.indexer.backends.base import CellProgress, Document, IndexSearcher, IndexWriter, WriteResult
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.backends.sqlite.writer import SqliteWriter
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.resources.fields import Record
from tests.support.fleets.documents import make_document, make_uuid
from tests.support.servers.index_server import index_at, index_client

HERE, THERE = "c0", "c1"
NODE = "node"


class Items:
    """An index, by both of its sides."""

    def __init__(
        self, settings: IndexSettings, writer: IndexWriter, searcher: IndexSearcher, runner: asyncio.Runner
    ) -> None:
        self._settings = settings
        self.writer = writer
        self._searcher = searcher
        self._runner = runner

    def write(self, *documents: Document) -> WriteResult:
        result = self.writer.write(documents)
        self.writer.make_searchable()
        return result

    def listed(self, *cells: str) -> Mapping[str, Sequence[Record]]:
        """The records of each of the cells, by their uuids."""
        found = self._runner.run(self._searcher.items(NODE, cells or (HERE, THERE)))
        return {cell: sorted(records, key=lambda record: str(record["uuid"])) for cell, records in found.items()}

    def lose(self) -> None:
        """As where an older program has prepared the index, or an operator has removed what is of items.

        What another program does to a file is in test_seal_sqlite.py.
        """
        if self._settings.backend == "sqlite":
            with closing(SqliteWriter(self._settings.path)) as writer, writer.transaction() as connection:
                connection.execute("DROP TABLE items")
        else:
            with closing(index_client(self._settings.urls[0])) as client:
                client.indices.delete(index=f"{self._settings.prefix}-items-v1")

    def instances(self) -> Mapping[str, Document]:
        return self.writer.read([make_uuid(1)])


@pytest.fixture(params=["sqlite", pytest.param("elasticsearch", marks=pytest.mark.elasticsearch)])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Items]:
    if request.param == "sqlite":
        settings = IndexSettings(backend="sqlite", path=tmp_path / "index.db")
    else:
        urls = (request.getfixturevalue("elasticsearch_url"),)
        prefix = request.getfixturevalue("elasticsearch_prefix")
        settings = index_at(urls[0], prefix, search_timeout_s=30)
    writer, searcher = open_writer(settings), open_searcher(settings)
    with asyncio.Runner() as runner:
        try:
            writer.prepare()
            yield Items(settings, writer, searcher, runner)
        finally:
            runner.run(searcher.close())
            writer.close()


def item(number: int, version: int = 1, cell: str = HERE, **values: Any) -> Document:
    record = {"uuid": make_uuid(number), "deleted": False, "deleted_at": None, "tags": ["a"], **values}
    return Document(cell, version, record, (), None, NODE)


def gone(number: int, version: int, at: int = 5) -> Document:
    return item(number, version, deleted=True, deleted_at=at)


def test_newest_version_of_an_item_stays(index: Items) -> None:
    assert index.write(item(1, 2, name="new"), item(2)) == WriteResult(2, 0)
    assert index.write(item(1, 1, name="old"), item(1, 2, name="again")) == WriteResult(0, 2)
    assert index.writer.items(NODE, HERE) == {make_uuid(1): item(1, 2, name="new"), make_uuid(2): item(2)}


@pytest.mark.dialect
def test_items_are_listed_of_the_cells_that_are_said_to_be_whole(index: Items) -> None:
    index.write(item(1), item(2), item(1, cell=THERE))
    assert index.listed() == {}
    index.writer.mark_items(NODE, HERE, are_whole=True)
    assert index.listed() == {HERE: [item(1).record, item(2).record]}
    assert [index.writer.are_items_whole(NODE, cell) for cell in (HERE, THERE)] == [True, False]
    index.writer.mark_items(NODE, THERE, are_whole=True)
    assert index.listed(THERE) == {THERE: [item(1).record]}
    index.writer.mark_items(NODE, THERE, are_whole=False)
    index.writer.mark_items(NODE, THERE, are_whole=False)
    assert index.listed(THERE) == {}


def test_whole_cell_without_items_is_listed_empty(index: Items) -> None:
    index.writer.mark_items(NODE, HERE, are_whole=True)
    assert index.listed() == {HERE: []}
    assert index.writer.items(NODE, HERE) == {}


def test_late_update_does_not_bring_a_deleted_item_back(index: Items) -> None:
    index.writer.mark_items(NODE, HERE, are_whole=True)
    index.write(gone(1, 3))
    assert index.write(item(1, 2)) == WriteResult(0, 1)
    assert index.listed() == {HERE: []}
    assert list(index.writer.items(NODE, HERE)) == [make_uuid(1)]


def test_cells_do_not_write_each_others_items(index: Items) -> None:
    index.write(item(1, 9, name="theirs", cell=THERE))
    assert index.write(item(1, 1, name="ours")) == WriteResult(1, 0)
    assert index.writer.items(NODE, HERE)[make_uuid(1)].record["name"] == "ours"


@pytest.mark.dialect
def test_item_of_any_version_takes_the_place_of_one_that_was_removed(index: Items) -> None:
    index.write(item(1, 7), item(2, 7))
    index.writer.remove_items(NODE, HERE, {make_uuid(1): 7, make_uuid(2): 6, make_uuid(3): 1})
    assert list(index.writer.items(NODE, HERE)) == [make_uuid(2)], "one that is newer than is said stays"
    assert index.write(item(1, 1)) == WriteResult(1, 0)


def test_purge_forgets_items_that_were_deleted_before_the_horizon(index: Items) -> None:
    index.write(item(1), gone(2, 2, at=5), gone(3, 2, at=6))
    assert index.writer.purge(HERE, 6) == 0, "items are not counted"
    assert index.writer.items(NODE, HERE).keys() == {make_uuid(1), make_uuid(3)}


def test_nothing_stays_of_a_cell_that_is_removed(index: Items) -> None:
    index.write(item(1), item(1, cell=THERE), make_document(1, cell_uuid=HERE))
    for cell in (HERE, THERE):
        index.writer.mark_items(NODE, cell, are_whole=True)
    assert index.writer.remove_cell(HERE) == 1
    assert index.listed() == {THERE: [item(1).record]}
    assert index.writer.items(NODE, HERE) == {}


def test_instances_and_items_are_written_together(index: Items) -> None:
    index.write(make_document(1, version=1, cell_uuid=HERE), item(1, 4), make_document(1, version=2, cell_uuid=HERE))
    assert index.instances()[make_uuid(1)].version == 2
    assert index.writer.items(NODE, HERE)[make_uuid(1)].version == 4
    assert index.writer.revisions(HERE, [""]) == {make_uuid(1): 2}


def test_preparing_again_keeps_items(index: Items) -> None:
    index.write(item(1))
    index.writer.mark_items(NODE, HERE, are_whole=True)
    index.writer.save_progress([CellProgress(HERE, 1, 1, is_complete=True)])
    index.writer.prepare()
    assert index.listed() == {HERE: [item(1).record]}


@pytest.mark.dialect
def test_index_without_a_place_for_items_has_none_and_gets_one(index: Items) -> None:
    index.writer.mark_items(NODE, HERE, are_whole=True)
    index.lose()
    with suppress(IndexUnavailableError):
        assert index.listed() == {}
    index.writer.prepare()
    index.write(item(1))
    assert index.listed() == {}, "nothing is believed of one that is new"
    index.writer.mark_items(NODE, HERE, are_whole=True)
    assert index.listed() == {HERE: [item(1).record]}
