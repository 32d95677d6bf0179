"""Reads from the embedded index: pages, single instances, and the progress of each cell.

Each request becomes one statement.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Select, and_, select
from sqlalchemy.dialects import sqlite

from fleetlight.indexer.backends.base import CELL_FACTS, MISSHAPEN, CellProgress, FoundPage, FoundRow, counts_by_cell
from fleetlight.indexer.backends.seal import SealState
from fleetlight.indexer.backends.sqlite.other_items import search_items
from fleetlight.indexer.backends.sqlite.schema import (
    BUSY_TIMEOUT_S,
    DOCUMENTS,
    FIELD_COLUMNS,
    NICE_NAME,
    PIECE_COLUMNS,
    file_of,
    query_translated,
    read_progress,
    reader_of,
    require_known_schema,
    translated,
)
from fleetlight.indexer.backends.sqlite.seal import REASON, Account, read_account, require_sealed
from fleetlight.indexer.errors import IndexDocumentError
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import Filter, leaves
from fleetlight.query.page import PageRequest
from fleetlight.query.sqlite_functions import register_functions
from fleetlight.query.to_sql import after, columns_by_unique, count_statement, in_nice_order, order_by, to_sql
from fleetlight.resources.fields import Kind, Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.projection import Projection

# sqlite3 binds by position, since looking up named parameters takes longer.
_DIALECT = sqlite.dialect(paramstyle="qmark")
COLUMNS = {name: DOCUMENTS.c[name] for name in INSTANCE_FIELDS if name in DOCUMENTS.c} | {
    in_nice_order("display_name"): DOCUMENTS.c[NICE_NAME]
}
_COLUMNS_BY_UUID = columns_by_unique(COLUMNS)


def select_rows(
    connection: sqlite3.Connection, request: PageRequest, cells: Collection[str], projection: Projection
) -> list[FoundRow]:
    """Run one search over fleetlight.query.sqlite_functions of `connection`. Raises IndexDocumentError."""
    render, kinds = _render_of(projection), [request.order.item_type[key.field].kind for key in request.order.keys]
    row: Sequence[Any] = ()
    rows: list[FoundRow] = []
    found, cell = _select(connection, request, cells, projection)
    try:
        for row in found:
            rows.append(FoundRow(_stored(row[cell + 1 :], kinds), render(row, row[cell])))
    except MISSHAPEN as error:
        raise IndexDocumentError.caused_by(error, row[-1]) from error
    return rows


def select_page(
    connection: sqlite3.Connection, request: PageRequest, cells: Collection[str], projection: Projection
) -> FoundPage:
    """Run one search, and join the items it finds. Raises IndexDocumentError."""
    render, kinds = _render_of(projection), [request.order.item_type[key.field].kind for key in request.order.keys]
    row: Sequence[Any] = ()
    items: list[bytes] = []
    found, cell = _select(connection, request, cells, projection)
    try:
        for row in found:
            items.append(render(row, row[cell]))
    except MISSHAPEN as error:
        raise IndexDocumentError.caused_by(error, row[-1]) from error
    last = _stored(row[cell + 1 :], kinds) if items else None
    return FoundPage(b",".join(filter(None, items)), len(items), last)


def _select(
    connection: sqlite3.Connection, request: PageRequest, cells: Collection[str], projection: Projection
) -> tuple[Iterable[Sequence[Any]], int]:
    """The rows of a search, with the columns for the projection, the cell, and the keys; and the place of the cell.

    SQLAlchemy only compiles the statement; the rows come straight from the driver. Render each row before reading the
    next, so that all use the same few pages of memory.
    """
    pieces, fields = projection.pieces, () if projection.pieces else projection.fields or ()
    statement, values = _compile(request, tuple(cells), pieces, fields, with_version=projection.shows_revision)
    found: Iterable[Sequence[Any]] = connection.execute(statement, values)
    return found, len(pieces) + len(fields) + projection.shows_revision


def _render_of(projection: Projection) -> Callable[[Sequence[Any], str], bytes]:
    """A function that renders the item from SQLite's columns of a row and its cell."""
    read = None if projection.pieces else reader_of(projection.fields or ())
    return projection.render if read is None else lambda row, cell_uuid: projection.render(read(row), cell_uuid)


def _stored(values: Sequence[Any], kinds: Sequence[Kind]) -> tuple[Any, ...]:
    """The stored values of fields of these kinds; SQLite keeps booleans as 0 and 1."""
    pairs = zip(values, kinds, strict=True)
    return tuple([bool(value) if kind is Kind.BOOL and value is not None else value for value, kind in pairs])


def count(connection: sqlite3.Connection, request: CountRequest, cells: Collection[str]) -> dict[str, Counts]:
    """Count rows by cell and group. Raises NotExpressibleError."""
    _require_kept(request.filter)
    cell = DOCUMENTS.c.cell_uuid
    counted = count_statement(DOCUMENTS, COLUMNS, request, "sqlite", cell).where(cell.in_(cells))
    statement, values = _to_text(counted)
    kinds = [request.item_type[name].kind for name in request.by]
    found = (
        (cell_uuid, _stored(group, kinds), number)
        for cell_uuid, *group, number in connection.execute(statement, values)
    )
    return counts_by_cell(found, request.max_groups)


@lru_cache(maxsize=256)
def _compile(
    request: PageRequest,
    cells: tuple[str, ...],
    pieces: tuple[str, ...] = (),
    fields: tuple[str, ...] = (),
    *,
    with_version: bool = False,
) -> tuple[str, Sequence[object]]:
    """Compile a request to a statement and its values, cached because first pages are requested repeatedly.

    Raises NotExpressibleError for a filter by a field that is not kept.
    """
    _require_kept(request.filter)
    columns = _COLUMNS_BY_UUID if request.order.keys[0].field == "uuid" else COLUMNS
    terms = [to_sql(request.filter, columns, INSTANCE_FIELDS, "sqlite")]
    if request.after is not None:
        terms.append(after(request.order, request.after, COLUMNS, "sqlite"))
    # The indexes end with the cell, so this only checks the index entry, even if all cells are wanted.
    terms.append(DOCUMENTS.c.cell_uuid.in_(cells))
    statement = (
        select(
            *(PIECE_COLUMNS[piece] for piece in pieces),
            *(FIELD_COLUMNS[name] for name in fields),
            *([DOCUMENTS.c.version] if with_version else []),
            DOCUMENTS.c.cell_uuid,
            *(DOCUMENTS.c[key.field] for key in request.order.keys),
        )
        .where(and_(*terms))
        .order_by(*order_by(request.order, COLUMNS, "sqlite"))
        .limit(request.limit)
    )
    return _to_text(statement)


def _require_kept(node: Filter) -> None:
    for leaf in leaves(node):
        if leaf.field not in COLUMNS:
            raise NotExpressibleError("the SQLite index", f"a filter about '{leaf.field}'")


def _to_text(statement: Select[Any]) -> tuple[str, Sequence[object]]:
    compiled = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    names = compiled.positiontup or ()
    return compiled.string, [compiled.params[name] for name in names]


T = TypeVar("T")

# Reading a page is mostly work in Python, which one thread does at a time. With four threads each page took half as
# much processor time more, since they passed the interpreter on at every row.
_PAGE_THREADS = 2
# Threads for everything but pages, so that it does not wait behind pages.
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
        # Each with the file it was opened on, since another file may replace that.
        self._idle: SimpleQueue[tuple[tuple[int, int] | None, sqlite3.Connection]] = SimpleQueue()
        # The account when progress was last read; a page from an older copy of the file is not covered by that
        # progress.
        self._accounted = 0
        self._page_threads = ThreadPoolExecutor(_PAGE_THREADS, thread_name_prefix="index-page")
        self._threads = ThreadPoolExecutor(_OTHER_THREADS, thread_name_prefix="index-search")

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        threads = self._threads if request.limit == 1 else self._page_threads
        return await self._call(lambda connection: select_rows(connection, request, cells, projection), threads)

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        return await self._call(
            lambda connection: select_page(connection, request, cells, projection), self._page_threads
        )

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        return await self._call(lambda connection: count(connection, request, cells), self._page_threads)

    async def items(self, item_type: str, cells: Collection[str]) -> Mapping[str, Sequence[Record]]:
        return await self._call(lambda connection: search_items(connection, item_type, cells), self._page_threads)

    def describe(self, request: PageRequest, cells: Collection[str]) -> Mapping[str, Any]:
        """The statement of a search, without the columns for items, and its values. Raises NotExpressibleError."""
        statement, values = _compile(request, tuple(cells))
        return {"sql": statement, "values": list(values)}

    async def progress(self) -> Mapping[str, CellProgress]:
        return await self._call(self._read_progress, self._threads, reads_seal=True)

    async def seal(self) -> SealState:
        return await self._call(lambda connection: _seal_of(read_account(connection)), self._threads, reads_seal=True)

    async def close(self) -> None:
        for threads in (self._page_threads, self._threads):
            await asyncio.to_thread(threads.shutdown)
        while not self._idle.empty():
            self._idle.get_nowait()[1].close()

    def _read_progress(self, connection: sqlite3.Connection) -> dict[str, CellProgress]:
        account = read_account(connection)
        self._accounted = 0 if account is None else account.accounted
        return _progress(connection, _seal_of(account))

    async def _call(
        self, function: Callable[[sqlite3.Connection], T], threads: ThreadPoolExecutor, *, reads_seal: bool = False
    ) -> T:
        """Run a function of a connection in a thread. reads_seal: it reads the seal itself, broken or not."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, self._with_connection, function, reads_seal)

    def _with_connection(self, function: Callable[[sqlite3.Connection], T], reads_seal: bool) -> T:
        with translated(self._path):
            file, connection = self._take()
            try:
                # One transaction, so that all that a call reads, and the seal, are as of one moment.
                connection.execute("BEGIN")
                # A program of another version may have rebuilt the file since it was opened.
                require_known_schema(connection, self._path)
                if not reads_seal:
                    require_sealed(read_account(connection), self._accounted)
                with nullcontext() if reads_seal else query_translated(self._path):
                    result = function(connection)
                connection.execute("COMMIT")
            except BaseException:
                connection.close()
                raise
            self._idle.put((file, connection))
            return result

    def _take(self) -> tuple[tuple[int, int] | None, sqlite3.Connection]:
        """A connection to the current file, and the identity of that file."""
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
            # Without memory mapping, which would save a list a quarter of its time: a process that truncates a mapped
            # file, as `cp` over it does, kills every process that reads it. Now these get an error and ask the cells.
            connection.execute("PRAGMA mmap_size = 0")
            # A page of 1,000 instances reads some 6 MB. SQLite's default cache of 2 MB has dropped its first rows when
            # they are read again.
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
