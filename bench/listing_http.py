"""Part of `scripts/bench list`: lists over HTTP from Elasticsearch, against the bare query for the same documents.

The bare query asks the same index, which is sorted at write time, for the same documents in the same order; a client of
the same kind reads its answer as bytes and does nothing with them. The figures `client` are from the request to objects
(the official client with its fastest JSON, and the API's answer read by the same decoder), and are only reported
(docs/performance.md). The API is a process of its own, as in production.

A caller that lists again what was listed a moment ago, as dashboards do, gets what is remembered of the page
(docs/performance.md). The figures `new` are of pages that no caller has asked for: each has another length.
"""

import itertools
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import urllib3
from elasticsearch import Elasticsearch, OrjsonSerializer

from bench import fleet as made_up
from bench.measure import Figure, at_most, figure, interleaved
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.transform.documents import to_document
from fleetlight.query.to_dsl import uuid_parts
from fleetlight.resources.clock import system_clock

_PAGE = 1000
_CELLS = 64
_BATCH = 2000
_START_TIMEOUT_S = 60
_GOAL = at_most(1.3)
_GOAL_NEW = at_most(2.0)  # docs/decisions/0008
_SAME = at_most(1.3)
_DETAIL = "/v2.1/servers/detail"
_JSON = {"content-type": "application/json"}
_NEWEST = {"OpenStack-API-Version": "compute latest"}


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 20,000 instances instead of 200,000. Nothing without the URL of an Elasticsearch."""
    url = os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL")
    if not url:
        return
    count = 20_000 if quick else 200_000
    runs = 11 if quick else 41
    with _served(directory / "many", url, count, _CELLS) as many:
        yield from _pages(many, runs)
        with _served(directory / "one", url, min(count, 20_000), 1) as one:
            pair = interleaved(many.page, one.page, runs)
            what = f"first page with {_CELLS} cells ({{ours}}) / with one ({{bare}})"
            yield _figure("list.http.cells", pair, what, _SAME)


def _pages(served: "_Served", runs: int) -> Iterator[Figure]:
    depth = min(150, served.count // _PAGE - 1)
    deep = served.page_end(depth * _PAGE)
    middle = served.page_end(served.count // 2)
    full_items = f"{_PAGE} of {served.count} full items in {_CELLS} cells, newest microversion"
    asked = f"over HTTP ({{ours}}) / bare query ({{bare}}), {full_items}"
    for name, what, listed in (
        ("first", "first page", _Listed()),
        ("project", "first page of a project of 1 %", _Listed(project=f"{7:032x}")),
        ("middle", "page behind the middle", _Listed(after=middle)),
    ):
        again = itertools.repeat(listed)
        new = (replace(listed, limit=_PAGE - number) for number in itertools.count(1))
        for when, how, pages, goal in (("", "again", again, _GOAL), (".new", "for the first time", new, _GOAL_NEW)):
            pair = interleaved(
                lambda: served.page(next(pages)),  # noqa: B023  # called before the next round
                lambda: served.bare_page(listed),  # noqa: B023
                runs,
            )
            yield _figure(f"list.http.{name}{when}", pair, f"{what}, {how}, {asked}", goal)
            pair = interleaved(
                lambda: served.instances(next(pages)),  # noqa: B023
                lambda: served.documents(listed),  # noqa: B023
                runs,
            )
            yield _figure(f"list.http.{name}{when}.client", pair, f"{what}, {how}, as objects, {asked}", None)
    pair = interleaved(lambda: served.page(_Listed(after=deep)), served.page, runs)
    yield _figure("list.http.depth", pair, f"page {depth + 1} ({{ours}}) / first page ({{bare}}), {full_items}", _SAME)


@dataclass(frozen=True, slots=True)
class _Position:
    created_at: int
    uuid: str


@dataclass(frozen=True, slots=True)
class _Listed:
    """What is listed: everything, or one project; from the start, or behind a position; at most `limit` rows."""

    project: str | None = None
    after: _Position | None = None
    limit: int = _PAGE

    @property
    def at_least(self) -> int:
        """How many rows the page must have."""
        return self.limit if self.project is None else self.limit // 10


class _Served:
    """An API and the index that it lists from."""

    def __init__(self, api_url: str, client: Elasticsearch, index_url: str, index: str, count: int) -> None:
        self.count = count
        self._api_url = api_url
        self._client = client
        self._index = index
        self._search_url = f"{index_url}/{index}/_search"
        self._http = urllib3.PoolManager()

    def instances(self, listed: _Listed) -> None:
        servers = orjson.loads(self.page(listed))["servers"]
        assert len(servers) >= listed.at_least

    def documents(self, listed: _Listed) -> None:
        hits = self._client.search(index=self._index, **_bare_query(listed)).body["hits"]["hits"]
        assert len(hits) >= listed.at_least

    def page(self, listed: _Listed = _Listed()) -> bytes:  # it cannot change
        query = f"all_tenants=1&limit={listed.limit}"
        if listed.project is not None:
            query += f"&project_id={listed.project}"
        if listed.after is not None:
            query += f"&marker={listed.after.uuid}"
        answer = self._http.request("GET", f"{self._api_url}{_DETAIL}?{query}", headers=_NEWEST)
        assert answer.status == 200, answer.data[:500]
        assert answer.headers["Fleetlight-Route"].count("=index") == answer.headers["Fleetlight-Route"].count(", ") + 1
        assert answer.data.count(b'"OS-EXT-STS:vm_state"') >= listed.at_least
        return answer.data

    def bare_page(self, listed: _Listed) -> None:
        answer = self._http.request("POST", self._search_url, body=orjson.dumps(_bare_query(listed)), headers=_JSON)
        assert answer.status == 200
        assert answer.data.count(b'"OS-EXT-STS:vm_state"') >= listed.at_least

    def page_end(self, rows: int) -> _Position:
        """Where `rows` instances are in front of the page; a client has it from the page before, which is asked for."""
        self.page(_Listed(after=self._position_after(rows - _PAGE)))
        position = self._position_after(rows)
        assert position is not None
        return position

    def _position_after(self, rows: int) -> _Position | None:
        """None for the first page."""
        position: _Position | None = None
        while rows:
            size = min(rows, 10_000)
            query = _bare_query(_Listed(after=position), size=size, source=["created_at", "uuid"])
            last = self._client.search(index=self._index, **query).body["hits"]["hits"][-1]["_source"]
            position = _Position(**last)
            rows -= size
        return position


def _bare_query(listed: _Listed, **changes: Any) -> dict[str, Any]:
    terms: list[dict[str, Any]] = [{"term": {"deleted": False}}]
    if listed.project is not None:
        terms.append({"term": {"project_id": listed.project}})
    body: dict[str, Any] = {
        "size": _PAGE,
        "track_total_hits": False,
        "query": {"bool": {"filter": terms}},
        "sort": [{"created_at": "desc"}, {"uuid_high": "asc"}, {"uuid_low": "asc"}],
        **changes,
    }
    if listed.after is not None:
        body["search_after"] = [listed.after.created_at, *uuid_parts(listed.after.uuid)]
    return body


def _figure(name: str, pair: Any, what: str, goal: Any) -> Figure:
    times = {"ours": f"{pair.ours_s * 1e3:.1f} ms", "bare": f"{pair.bare_s * 1e3:.1f} ms"}
    return figure(name, pair.ratio, "ratio", what.format(**times), runs=pair.runs, goal=goal)


@contextmanager
def _served(directory: Path, index_url: str, count: int, cells: int) -> Iterator[_Served]:
    """The API over a fleet of `count` instances, all of which are in an index of its own."""
    directory.mkdir()
    prefix = f"fleetlight-bench-{uuid4().hex}"
    try:
        fill(directory, IndexSettings(backend="elasticsearch", urls=(index_url,), prefix=prefix), count, cells)
        with (
            api_process(
                directory, {"INDEX_BACKEND": "elasticsearch", "INDEX_URLS": f'["{index_url}"]', "INDEX_PREFIX": prefix}
            ) as (api_url, _),
            Elasticsearch(index_url, serializer=OrjsonSerializer()) as client,
        ):
            yield _Served(api_url, client, index_url, f"{prefix}-instances", count)
    finally:
        with Elasticsearch(index_url, request_timeout=30) as client:
            client.indices.delete(index=list(client.indices.get(index=f"{prefix}-*").body))


def fill(directory: Path, index: IndexSettings, count: int, cells: int) -> None:
    """A fleet of empty cells in `directory`, and `count` made-up instances of them in the index."""
    engine = create_database_engine(f"sqlite:///{directory}/fleet.db")
    upgrade_fleet(engine)
    fleet = Fleet(engine)
    # Their services are asked for the status of hosts, so they must be there.
    empty = directory / "empty.db"
    cell_engine = create_database_engine(f"sqlite:///{empty}")
    upgrade_cell(cell_engine)
    cell_engine.dispose()  # or what was written is still in another file, and a copy is no cell
    for number in range(cells):
        path = shutil.copy(empty, directory / f"cell{number}.db")
        fleet.add_cell(f"cell{number}", CellKind.NATIVE, f"sqlite:///{path}", "memory://")
    uuids = [cell.uuid for cell in fleet.cells()]
    fleet.close()
    writer = open_writer(index)
    writer.prepare()
    numbered = enumerate(made_up.records(count))
    while batch := list(itertools.islice(numbered, _BATCH)):
        writer.write([to_document(uuids[number % cells], 1, record) for number, record in batch])
    writer.make_searchable()
    writer.save_progress([CellProgress(uuid, 0, system_clock(), is_complete=True) for uuid in uuids])
    writer.close()


@contextmanager
def api_process(directory: Path, settings: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """A process of the API over the fleet in `directory`: its address, and its number.

    settings: by their names in the environment, without FLEETLIGHT_.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "FLEETLIGHT_FLEET_DATABASE_URL": f"sqlite:///{directory}/fleet.db",
        "FLEETLIGHT_SEARCH_ENABLED": "true",
        "FLEETLIGHT_SEARCH_STALENESS_LIMIT_S": "86400",
        "FLEETLIGHT_LOG_LEVEL": "warning",
        **{f"FLEETLIGHT_{key}": value for key, value in settings.items()},
    }
    command = [sys.executable, "-m", "fleetlight.cli", "api", "--port", str(port)]
    process = subprocess.Popen(command, env=environment)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until(lambda: _answers(url))
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return urllib3.request("GET", f"{url}/healthz", retries=False).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError("the API does not start")
        time.sleep(0.05)
