"""The file of the SQLite index: its version, and what happens when it is not as expected."""

import asyncio
import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from fleetlight.indexer.backends.base import FoundRow
from fleetlight.indexer.backends.sqlite.schema import SCHEMA_VERSION, creation_statements, query_translated
from fleetlight.indexer.backends.sqlite.searcher import SqliteSearcher
from fleetlight.indexer.backends.sqlite.writer import SqliteWriter
from fleetlight.indexer.errors import IndexQueryError, IndexUnavailableError, IndexUnreadableError, IndexVersionError
from fleetlight.query.filters import EVERYTHING, Eq
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID
from tests.support.fleets.documents import TEMPLATE, make_document, make_uuid

FINGERPRINT = "e742fa2842de6dad"


def test_changed_tables_need_a_new_schema_version() -> None:
    text = "".join("\n".join(creation_statements()).split())
    assert (SCHEMA_VERSION, hashlib.sha256(text.encode()).hexdigest()[:16]) == (7, FINGERPRINT)


def execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(statement)
    finally:
        connection.close()


async def search(searcher: SqliteSearcher) -> Sequence[FoundRow]:
    return await searcher.search(PageRequest(EVERYTHING, INSTANCES_BY_UUID, 1), ["c0"], TEMPLATE)


def find(path: Path) -> None:
    searcher = SqliteSearcher(path)

    async def ask() -> None:
        try:
            await search(searcher)
        finally:
            await searcher.close()

    asyncio.run(ask())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An index with nothing in it."""
    path = tmp_path / "index.db"
    writer = SqliteWriter(path)
    writer.prepare()
    writer.close()
    return path


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_index_of_another_version_is_used_by_neither_side_and_waits_for_a_rebuild(path: Path, version: int) -> None:
    execute(path, f"PRAGMA user_version = {version}")
    writer = SqliteWriter(path)
    for use in (writer.prepare, lambda: writer.write([make_document(1)]), lambda: find(path)):
        with pytest.raises(IndexVersionError, match=f"has version {version}, .* `fleetlight index rebuild`"):
            use()
    writer.close()


def test_index_that_another_version_has_rebuilt_meanwhile_is_not_used_any_more(path: Path) -> None:
    searcher, writer = SqliteSearcher(path), SqliteWriter(path)
    writer.prepare()

    async def use() -> None:
        assert await search(searcher) == []
        execute(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        with pytest.raises(IndexVersionError):
            await search(searcher)
        await searcher.close()

    asyncio.run(use())
    for write in (lambda: writer.write([make_document(1)]), lambda: writer.save_progress([])):
        with pytest.raises(IndexVersionError):
            write()
    writer.close()


def test_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, and long enough to be seen as what it is not\n" * 100)
    writer = SqliteWriter(path)
    with pytest.raises(IndexUnreadableError, match="not a database; if the file was the index, move it away"):
        writer.prepare()
    writer.close()
    assert path.read_text().startswith("not a database")


def test_page_of_a_whole_reading_sorts_nothing_and_begins_where_the_last_ended(path: Path) -> None:
    request = PageRequest(Eq("deleted", False), INSTANCES_BY_UUID, 5, after=(make_uuid(1),))
    question = SqliteSearcher(path).describe(request, ["c0"])
    with closing(sqlite3.connect(path)) as connection:
        [(*_, step)] = connection.execute(f"EXPLAIN QUERY PLAN {question['sql']}", question["values"])
    assert step.endswith("(uuid>?)")


def test_searcher_cannot_write(path: Path) -> None:
    searcher = SqliteSearcher(path)
    connection = searcher._open()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM documents")
    connection.close()
    asyncio.run(searcher.close())


def test_full_disk_is_unavailable_and_leaves_the_index_as_it_was(path: Path) -> None:
    writer = SqliteWriter(path)
    writer.prepare()
    writer.write([make_document(1)])
    pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
    writer._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(IndexUnavailableError, match="full"):
        writer.write([make_document(number) for number in range(2, 200)])
    writer._connection.execute("PRAGMA max_page_count = 1000000")
    assert writer.read([make_uuid(1), make_uuid(2)]).keys() == {make_uuid(1)}
    assert writer.write([make_document(2)]).applied == 1
    writer.close()


def test_reader_sees_the_last_commit_while_a_write_is_under_way(path: Path) -> None:
    writer = SqliteWriter(path)
    writer.prepare()
    writer.write([make_document(1)])
    with writer.transaction():
        writer._connection.execute("DELETE FROM documents")
        find(path)
    writer.close()


@pytest.mark.parametrize(
    ("statement", "values"), [(f"SELECT {'NOT ' * 2000}1", ()), ("SELECT zeroblob(?)", (2_000_000_000,))]
)
def test_refusal_of_one_query_is_that_query_s_own(tmp_path: Path, statement: str, values: tuple[int, ...]) -> None:
    refused = pytest.raises(IndexQueryError, match="refuses this query")
    with closing(sqlite3.connect(":memory:")) as connection, refused, query_translated(tmp_path / "index.db"):
        connection.execute(statement, values).fetchall()


def test_file_without_its_tables_refuses_any_query(tmp_path: Path) -> None:
    refused = pytest.raises(sqlite3.OperationalError, match="no such table")
    with closing(sqlite3.connect(":memory:")) as connection, refused, query_translated(tmp_path / "index.db"):
        connection.execute("SELECT * FROM documents")
