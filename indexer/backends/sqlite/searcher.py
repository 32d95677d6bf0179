"""Reading from the embedded index: pages, single instances, and how far each cell is followed."""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec

from fleetlight.indexer.backends.base import CELL_FACTS, CellProgress, FoundPage, FoundRow
from fleetlight.indexer.backends.seal import SealState
from fleetlight.indexer.backends.sqlite.access import (
    BUSY_TIMEOUT_S,
    file_of,
    query_translated,
    read_progress,
    require_known_schema,
    translated,
)
from fleetlight.indexer.backends.sqlite.other_items import search_items
from fleetlight.indexer.backends.sqlite.schema import schema_version
from fleetlight.indexer.backends.sqlite.seal import REASON, Account, read_account, require_sealed
from fleetlight.indexer.backends.sqlite.search import count, describe_page, select_page, select_rows
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.page import PageRequest
from fleetlight.query.sqlite_functions import register_functions
from fleetlight.resources.fields import Record
from fleetlight.views.projection import Projection

T = TypeVar("T")

# Reading a page is mostly Python's work, which one thread does at a time: with four of them at it each page took half
# as much of the processor more, since they hand the interpreter to each other at every row.
_PAGE_THREADS = 2
# For what is no page, so that it is not behind pages.
_OTHER_THREADS = 2
CACHE_KIB = 16 * 1024
_READ_FACTS = f"SELECT kind, name, value FROM state WHERE kind IN ({', '.join('?' * len(CELL_FACTS))})"  # noqa: S608


class SqliteSearcher:
    """The reading side (fleetlight.indexer.backends.base.IndexSearcher): a few threads, and a connection for each
    search.

    Searches for a single row, and queries about the index itself, have threads that pages do not use.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # With the file that each was opened on: another one may have been put in its place.
        self._idle: SimpleQueue[tuple[tuple[int, int] | None, sqlite3.Connection]] = SimpleQueue()
        # As of when progress was read last, which says nothing of a page from an older copy of the file.
        self._accounted = 0
        self._page_threads = ThreadPoolExecutor(_PAGE_THREADS, thread_name_prefix="index-page")
        self._threads = ThreadPoolExecutor(_OTHER_THREADS, thread_name_prefix="index-search")

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        threads = self._threads if request.limit == 1 else self._page_threads
        return await self._call_sealed(lambda connection: select_rows(connection, request, cells, projection), threads)

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        return await self._call_sealed(
            lambda connection: select_page(connection, request, cells, projection), self._page_threads
        )

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        return await self._call_sealed(lambda connection: count(connection, request, cells), self._page_threads)

    async def items(self, item_type: str, cells: Collection[str]) -> Mapping[str, Sequence[Record]]:
        return await self._call_sealed(
            lambda connection: search_items(connection, item_type, cells), self._page_threads
        )

    def describe(self, request: PageRequest, cells: Collection[str]) -> Mapping[str, Any]:
        """The statement of a search. Raises NotExpressibleError."""
        return describe_page(request, cells)

    async def progress(self) -> Mapping[str, CellProgress]:
        return await self._call(self._read_progress, self._threads)

    async def seal(self) -> SealState:
        return await self._call(lambda connection: _seal_of(read_account(connection)), self._threads)

    async def close(self) -> None:
        for threads in (self._page_threads, self._threads):
            await asyncio.to_thread(threads.shutdown)
        while not self._idle.empty():
            self._idle.get_nowait()[1].close()

    async def _call_sealed(self, function: Callable[[sqlite3.Connection], T], threads: ThreadPoolExecutor) -> T:
        def call(connection: sqlite3.Connection) -> T:
            require_sealed(read_account(connection), self._accounted)
            with query_translated(self._path):
                return function(connection)

        return await self._call(call, threads)

    def _read_progress(self, connection: sqlite3.Connection) -> dict[str, CellProgress]:
        account = read_account(connection)
        self._accounted = 0 if account is None else account.accounted
        return _progress(connection, _seal_of(account))

    async def _call(self, function: Callable[[sqlite3.Connection], T], threads: ThreadPoolExecutor) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, self._with_connection, function)

    def _with_connection(self, function: Callable[[sqlite3.Connection], T]) -> T:
        with translated(self._path):
            file, connection = self._take()
            try:
                # All that one call reads is of one moment, and the seal of the same.
                connection.execute("BEGIN")
                # It may have been rebuilt by a program of another version since it was opened.
                require_known_schema(schema_version(connection), self._path)
                result = function(connection)
                connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
            self._idle.put((file, connection))
            return result

    def _take(self) -> tuple[tuple[int, int] | None, sqlite3.Connection]:
        """A connection to the file that is there now, and which that is."""
        file = file_of(self._path)
        with suppress(Empty):
            while True:
                opened_on, connection = self._idle.get_nowait()
                if opened_on == file:
                    return file, connection
                connection.close()
        return file, self._open()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False
        )
        try:
            # Not mapped to memory, though a list would take a quarter less: a process that cuts off a mapped file (`cp`
            # over it is enough) kills every process that reads it, where others get an error and ask the cells.
            connection.execute("PRAGMA mmap_size = 0")
            # A page of 1,000 instances reads some 6 MB. The 2 MB that SQLite keeps by default have lost its first rows
            # when they are read again.
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            register_functions(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _seal_of(account: Account | None) -> SealState:
    is_sealed = account is not None and account.unaccounted == 0
    return SealState(None, () if is_sealed else (REASON,))


def _progress(connection: sqlite3.Connection, seal: SealState) -> dict[str, CellProgress]:
    found = connection.execute(_READ_FACTS, CELL_FACTS)
    facts = {(kind, cell_uuid): msgspec.json.decode(value) for kind, cell_uuid, value in found}
    return {uuid: cell.with_facts(facts, seal) for uuid, cell in read_progress(connection).items()}
