"""What a damaged index file costs: an error that the caller understands, never the process."""

import asyncio
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fleetlight.indexer.backends.sqlite.searcher import SqliteSearcher
from fleetlight.indexer.backends.sqlite.writer import SqliteWriter
from fleetlight.indexer.errors import IndexDamagedError, IndexerError
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.fleets.documents import TEMPLATE, make_document

EVERY_ROW = PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 1000)


def _put_into_the_file(path: Path) -> None:
    """What the running writer, which keeps the file open, has so far only in its log."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_file_that_is_cut_off_costs_a_search_and_not_the_process(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    writer = SqliteWriter(path)
    writer.prepare()
    writer.write([make_document(number) for number in range(500)])
    _put_into_the_file(path)

    async def search_before_and_after() -> None:
        searcher = SqliteSearcher(path)
        assert len(await searcher.search(EVERY_ROW, ["c0"], TEMPLATE)) == 500
        os.truncate(path, 0)
        # What was read before may still be remembered; anything but all rows or an error would be wrong.
        with suppress(IndexerError):
            assert len(await searcher.search(EVERY_ROW, ["c0"], TEMPLATE)) == 500
        await searcher.close()

    asyncio.run(search_before_and_after())
    writer.close()


def test_writer_notices_a_cut_of_what_it_has_in_memory_and_makes_the_index_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    writer = SqliteWriter(path)
    writer.prepare()
    writer.write([make_document(number) for number in range(500)])
    _put_into_the_file(path)
    writer.save_progress([])
    os.truncate(path, 4096)
    with pytest.raises(IndexDamagedError, match=r"cut from [0-9]+ to 4096 bytes"):
        writer.save_progress([])
    writer.prepare()
    assert writer.write([make_document(2)]).applied == 1
    assert len(writer.read([make_document(number).id for number in range(500)])) == 1
    writer.close()
    assert len(list(tmp_path.glob("index.db.damaged-*"))) >= 1


def test_index_whose_first_page_is_destroyed_is_put_aside_and_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    writer = SqliteWriter(path)
    writer.prepare()
    writer.write([make_document(1)])
    _put_into_the_file(path)
    with path.open("r+b") as file:
        file.write(b"\x5a" * 4096)
    with pytest.raises(IndexDamagedError, match="not a database"):
        writer.write([make_document(2)])
    writer.prepare()
    assert writer.write([make_document(2)]).applied == 1
    writer.close()
    (aside,) = tmp_path.glob("index.db.damaged-*")
    assert aside.read_bytes().startswith(b"\x5a")


def test_file_that_another_process_has_made_anew_is_not_put_aside(tmp_path: Path) -> None:
    """Both had the damaged one open, and the second one comes to it when the first has put it aside."""
    path = tmp_path / "index.db"
    one, two = SqliteWriter(path), SqliteWriter(path)
    for writer in (one, two):
        writer.prepare()
    one.write([make_document(number) for number in range(500)])
    _put_into_the_file(path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    document = make_document(7)
    for writer in (one, two):
        with pytest.raises(IndexDamagedError):
            writer.read([document.id])
    one.prepare()
    one.write([document])
    two.prepare()
    assert two.read([document.id]).keys() == {document.id}
    two.make_searchable()
    one.make_searchable()
    aside = [kept for kept in tmp_path.glob("index.db.damaged-*") if not kept.name.endswith("-wal")]
    assert len(aside) == 1
    for writer in (one, two):
        writer.close()
