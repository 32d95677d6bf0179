"""`scripts/bench list`: what a page of 1,000 instances costs, against a bare query that returns the same documents."""

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from sqlalchemy import insert

from bench import fleet as made_up
from bench import hung_cell, listing_http, nova_cells
from bench.measure import Figure, at_most, figure, interleaved
from fleetlight.api.app import create_app
from fleetlight.api.http import in_process
from fleetlight.api.parts import ApiParts
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.tables import instances
from fleetlight.cli.interpreter import keep_collector_out_of_the_way
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.backends.sqlite.schema import PIECE_COLUMNS
from fleetlight.indexer.backends.sqlite.searcher import CACHE_KIB
from fleetlight.indexer.transform.documents import to_document
from fleetlight.listing.answer import Consistency, ReadOptions
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import live_batch_size
from fleetlight.query.filters import Eq
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import FullTemplate

_PAGE = 1000
_CELLS = 16
_BATCH = 1000
_BETWEEN_S = 0.02
# The newest microversion: what clients ask for, and the largest items.
_HEADERS = {
    "Host": "127.0.0.1:8774",
    "OpenStack-API-Version": "compute latest",
    "Content-Type": "application/json",
}
_LIST = "all_tenants=1"
_NEWEST_FIRST = SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at", Direction.DESC)])
_TEMPLATE = FullTemplate(104, is_admin=True, versioned_base="http://127.0.0.1/v2.1", plain_base="http://127.0.0.1")


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """All parts. quick: a tenth of the data, fewer runs."""
    for part in PARTS.values():
        yield from part(directory, quick)


def _own_cells(directory: Path, quick: bool) -> Iterator[Figure]:
    """From the SQLite index, and from the cells; quick: 10,000 instances instead of 100,000."""
    count = 10_000 if quick else 100_000
    runs = 7 if quick else 31
    cells = make_fleet(directory, count)
    index = IndexSettings(path=directory / "index.db")
    fill_index(index, cells, count)
    yield from _embedded_page(directory, index, count, runs)
    yield from _fan_out(directory, count)
    with event_loop() as run_in_loop:
        page = PageRequest(Eq("deleted", False), _NEWEST_FIRST, _PAGE)
        yield from hung_cell.run(run_in_loop, cells, page, _TEMPLATE, runs)


def _cells_of_nova(cells: int, directory: Path, quick: bool) -> Iterator[Figure]:
    with event_loop() as run_in_loop:
        yield from nova_cells.run(run_in_loop, directory, _TEMPLATE, quick, (cells,))


PARTS: Mapping[str, Callable[[Path, bool], Iterator[Figure]]] = {
    "list.cells": _own_cells,
    **{f"list.nova.{cells}_cells": partial(_cells_of_nova, cells) for cells in nova_cells.CELLS},
    # From Elasticsearch only where its URL is known.
    "list.http": listing_http.run,
}
"""What can be measured by itself."""


def _embedded_page(directory: Path, index: IndexSettings, count: int, runs: int) -> Iterator[Figure]:
    """The page as the listing service returns it, and the whole request, from its parsed head to the bytes to send."""
    connection, with_our_cache = (sqlite3.connect(f"{index.path.as_uri()}?mode=ro", uri=True) for _ in range(2))
    with_our_cache.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    columns = ", ".join(PIECE_COLUMNS[piece].name for piece in _TEMPLATE.pieces)
    statement = (
        f"SELECT uuid, created_at, {columns} FROM documents WHERE deleted = 0 "  # noqa: S608
        f"ORDER BY created_at DESC, uuid LIMIT {_PAGE}"
    )
    request = PageRequest(Eq("deleted", False), _NEWEST_FIRST, _PAGE)
    with event_loop() as run:
        served = Served(directory, index)
        keep_collector_out_of_the_way()  # as the API does

        def page() -> None:
            listed = run(served.lister.list_page(request, _TEMPLATE, ReadOptions(Consistency.BOUNDED, (), 5)))
            assert (listed.rows, listed.summary) == (_PAGE, "index")

        def answer() -> None:
            status, body = run(served.get("/v2.1/servers/detail", _LIST))
            assert (status, body.count(b'"OS-EXT-STS:vm_state"')) == (200, _PAGE)

        def bare(asked: sqlite3.Connection = connection) -> None:
            assert len(asked.execute(statement).fetchall()) == _PAGE

        asked = f"{_PAGE} of {count} full items, newest microversion, {_CELLS} cells, SQLite index"
        bare_query = "bare query of the same columns"
        measured = (
            ("", page, "page of the listing service", bare, bare_query, at_most(1.5)),
            (".answer", answer, "whole GET /servers/detail but the socket", bare, bare_query, None),
            # SQLite's own cache is too small for the page, and ours is not.
            (
                ".same_cache",
                page,
                "page of the listing service",
                partial(bare, with_our_cache),
                f"{bare_query}, with the cache of the listing service",
                None,
            ),
        )
        for suffix, ours, what, theirs, compared, goal in measured:
            # As in a server, the loop goes on when an answer is out: what is read beside the requests, five times a
            # second at most, is read then. Otherwise it would wait for the next request and compete with it.
            pair = interleaved(ours, theirs, runs, rest=lambda: run(asyncio.sleep(_BETWEEN_S)))
            yield figure(
                f"list.index.embedded{suffix}",
                pair.ratio,
                "ratio",
                f"{what} ({asked}; {pair.ours_s * 1e3:.1f} ms) / {compared} ({pair.bare_s * 1e3:.1f} ms)",
                runs=pair.runs,
                goal=goal,
            )
        run(served.close())
    connection.close()
    with_our_cache.close()


def _fan_out(directory: Path, count: int) -> Iterator[Figure]:
    """What the classic fan-out reads for one page."""
    with event_loop() as run:
        served = Served(directory, index=None)
        status, body = run(served.get("/v2.1/servers/detail", _LIST))
        run(served.close())
    assert status == 200
    shown = {server["id"] for server in msgspec.json.decode(body)["servers"]}
    assert len(shown) == _PAGE
    batch = live_batch_size(_PAGE, _CELLS)
    beyond = [len(rows) - len(shown.intersection(rows)) for rows in served.pool.read.values()]
    yield figure(
        "list.fan_out.read_ahead",
        max(beyond) / batch,
        "batches",
        f"rows that the fan-out read of a cell and did not need, in batches of {batch}; the worst of {_CELLS} cells",
        runs=_CELLS,
        goal=at_most(1),
    )
    total = sum(len(rows) for rows in served.pool.read.values())
    yield figure(
        "list.fan_out.rows_read",
        total / _PAGE,
        "ratio",
        f"rows that the fan-out read of {count} in all cells / rows of the page",
        runs=1,
    )


@contextmanager
def event_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs coroutines as a server's loop would. (asyncio.Runner prepares for signals with each call, which costs more
    than the list: it makes a text of the last result.)
    """
    loop = uvloop.new_event_loop()
    yield loop.run_until_complete
    loop.close()


class _CountingPool(CellPool):
    """A cell pool that remembers which rows it has read."""

    def __init__(self, list_cells: Callable[[], Sequence[Cell]]) -> None:
        super().__init__(list_cells, open_adapter)
        self.read: dict[str, list[str]] = {}

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        rows = await super().read_page(cell_uuid, request, timeout_s)
        self.read.setdefault(cell_uuid, []).extend(row.uuid for row in rows)
        return rows


class Served:
    """The API over the fleet in `directory`, called as a web server would. index: None for lists by the cells."""

    def __init__(self, directory: Path, index: IndexSettings | None) -> None:
        self._fleet = Fleet(create_database_engine(_url(directory / "fleet.db")))
        self.pool = _CountingPool(self._fleet.cells)
        self._searcher = None if index is None else open_searcher(index)
        search = SearchSettings(enabled=index is not None, staleness_limit_s=86_400)
        native = NativeCells(self._fleet.cells, self.pool)
        parts = ApiParts(self.pool, self._fleet, native, self._searcher, ApiSettings(), search)
        self._app = create_app(parts)
        self.lister = self._app.services.lister
        self.query_engine = self._app.query_engine

    async def get(self, path: str, query: str) -> tuple[int, bytes]:
        answer = await in_process.call(self._app.web, "GET", path, query=query, headers=_HEADERS)
        return answer.status, answer.body

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        answer = await in_process.call(self._app.web, "POST", path, body=body, headers=_HEADERS)
        return answer.status, answer.body

    async def close(self) -> None:
        self._app.close()
        if self._searcher is not None:
            await self._searcher.close()
        await self.pool.close()
        self._fleet.close()


def make_fleet(directory: Path, count: int) -> list[Cell]:
    """A fleet of SQLite files with `count` instances."""
    fleet_engine = create_database_engine(_url(directory / "fleet.db"))
    upgrade_fleet(fleet_engine)
    fleet = Fleet(fleet_engine)
    cells = []
    records = made_up.records(count)
    for number in range(_CELLS):
        url = _url(directory / f"cell{number}.db")
        engine = create_database_engine(url)
        upgrade_cell(engine)
        cells.append(fleet.add_cell(f"cell{number}", CellKind.NATIVE, url, "memory://"))
        for batch in _batches(itertools.islice(records, count // _CELLS)):
            with writing(engine) as connection:
                connection.execute(insert(instances), [{**record, "revision": 1} for record in batch])
        engine.dispose()
    fleet.close()
    return cells


def fill_index(index: IndexSettings, cells: Sequence[Cell], count: int) -> None:
    """Write the instances that `make_fleet` has made into an index, which follows these cells then."""
    writer = open_writer(index)
    writer.prepare()
    records = made_up.records(count)
    for cell in cells:
        for batch in _batches(itertools.islice(records, count // _CELLS)):
            writer.write([to_document(cell.uuid, 1, record) for record in batch])
    writer.make_searchable()
    writer.save_progress([CellProgress(cell.uuid, 0, system_clock(), is_complete=True) for cell in cells])
    writer.close()


def _batches(records: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while batch := list(itertools.islice(records, _BATCH)):
        yield batch


def _url(path: Path) -> str:
    return f"sqlite:///{path}"
