"""What a damaged index file costs: an error that the caller understands, never the process."""

import asyncio
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from indexer.backends.sqlite.searcher import SqliteSearcher
from indexer.backends.sqlite.writer import SqliteWriter
from indexer.errors import IndexerError
from query.filters import EVERYTHING
from query.page import PageRequest
from query.sort import SortOrder
from resources.instance import INSTANCE_FIELDS
from tests.support.documents import TEMPLATE, make_document

EVERY_ROW = PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 1000)


def test_file_that_is_cut_off_costs_a_search_and_not_the_process(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    writer = SqliteWriter(path)
    writer.prepare()
    writer.write([make_document(number) for number in range(500)])
    # Everything into the file itself, which the running writer keeps open.
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

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
