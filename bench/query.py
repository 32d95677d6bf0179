"""`scripts/bench query`: what a page of chosen fields costs, and a whole list, and what a long filter costs to read."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
import urllib3
from elasticsearch import Elasticsearch

from bench import query_whole
from bench.listing import Served, event_loop, fill_index, make_fleet
from bench.measure import Figure, at_most, figure, interleaved
from fleetlight.cells.model import Cell
from fleetlight.cli.interpreter import keep_collector_out_of_the_way
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.query.evaluate import matcher
from fleetlight.query.expressions import to_filter
from fleetlight.query.filter_text import parse_filter
from fleetlight.resources.query_fields.instance import INSTANCE

_PAGE = 1000
_BETWEEN_S = 0.02
# As Query2 names them, and as they are stored.
_FIELDS = {
    "name": "display_name",
    "uuid": "uuid",
    "project_id": "project_id",
    "user_id": "user_id",
    "vm_state": "vm_state",
    "power_state": "power_state",
    "host": "host",
    "availability_zone": "availability_zone",
    "ctime": "created_at",
    "locked": "locked",
}
_FILTER = 'vm_state == "active" and not locked'
_BARE = (
    f"SELECT {', '.join(_FIELDS.values())} FROM documents "  # noqa: S608
    "WHERE deleted = 0 AND hidden = 0 AND vm_state = 'active' AND locked = 0 ORDER BY created_at DESC, uuid LIMIT 1000"
)
_BARE_DSL = {
    "size": _PAGE,
    "track_total_hits": False,
    "query": {
        "bool": {
            "filter": [
                {"term": {"deleted": False}},
                {"term": {"hidden": False}},
                {"term": {"vm_state": "active"}},
                {"term": {"locked": False}},
            ]
        }
    },
    "sort": [{"created_at": "desc"}, {"uuid_high": "asc"}, {"uuid_low": "asc"}],
    # Columns cost it less than to leave something out of the documents (docs/decisions/0009).
    "_source": False,
    "stored_fields": "_none_",
    "docvalue_fields": list(_FIELDS.values()),
}
_CLAUSES = (1_000, 10_000)


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 10,000 instances instead of 100,000, and fewer runs. Elasticsearch only with its URL."""
    count, runs = (10_000, 7) if quick else (100_000, 21)
    index = IndexSettings(path=directory / "index.db")
    cells = make_fleet(directory, count)
    fill_index(index, cells, count)
    yield from _page_of_file(directory, index, count, runs)
    if url := os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL"):
        yield from _page_of_elasticsearch(directory, cells, url, count, runs)
    yield from query_whole.run(directory, index, count)
    yield from _filters(3 if quick else 7)


def _page_of_file(directory: Path, index: IndexSettings, count: int, runs: int) -> Iterator[Figure]:
    connection = sqlite3.connect(f"{index.path.as_uri()}?mode=ro", uri=True)

    def bare() -> None:
        assert len(connection.execute(_BARE).fetchall()) == _PAGE

    yield _page("embedded", directory, index, bare, count=count, runs=runs)
    connection.close()


def _page_of_elasticsearch(directory: Path, cells: Sequence[Cell], url: str, count: int, runs: int) -> Iterator[Figure]:
    prefix = f"fleetlight-bench-{uuid4().hex}"
    index = IndexSettings(backend="elasticsearch", urls=(url,), prefix=prefix)
    http = urllib3.PoolManager()
    search_url, question = f"{url}/{prefix}-instances/_search", msgspec.json.encode(_BARE_DSL)

    def bare() -> None:
        answer = http.request("POST", search_url, body=question, headers={"content-type": "application/json"})
        assert answer.data.count(b'"active"') == _PAGE

    try:
        fill_index(index, cells, count)
        yield _page("elasticsearch", directory, index, bare, count=count, runs=runs)
    finally:
        with Elasticsearch(url, request_timeout=30) as client:
            client.indices.delete(index=list(client.indices.get(index=f"{prefix}-*").body))


def _page(
    backend: str, directory: Path, index: IndexSettings, bare: Callable[[], None], *, count: int, runs: int
) -> Figure:
    """One page by the API, against the bare query for the same values."""
    body = msgspec.json.encode(
        {
            "what": "instance",
            "fields": list(_FIELDS),
            "filter": _FILTER,
            "order": ["-ctime"],
            "limit": _PAGE,
            "all_projects": True,
        }
    )
    with event_loop() as loop:
        served = Served(directory, index)
        keep_collector_out_of_the_way()  # as the API does

        def ours() -> None:
            status, answer = loop(served.post("/fleetlight/query", body))
            assert status == 200, answer
            assert answer.count(b'"active"') == _PAGE

        pair = interleaved(ours, bare, runs, rest=lambda: loop(asyncio.sleep(_BETWEEN_S)))
        loop(served.close())
    return figure(
        f"query.page.{backend}",
        pair.ratio,
        "ratio",
        f"POST /fleetlight/query, {_PAGE} of {count} instances, {len(_FIELDS)} fields, two conditions "
        f"({pair.ours_s * 1e3:.1f} ms) / bare query of the same values ({pair.bare_s * 1e3:.1f} ms)",
        runs=pair.runs,
        goal=at_most(1.5),
    )


def _filters(runs: int) -> Iterator[Figure]:
    """A filter as text, read, checked and compiled for rows."""
    texts = [" or ".join(f'name == "web{number}"' for number in range(clauses)) for clauses in _CLAUSES]

    def read(text: str) -> None:
        matcher(to_filter(parse_filter(text), INSTANCE), INSTANCE)

    small, large = texts
    pair = interleaved(partial(read, large), partial(read, small), runs)
    yield figure(
        "query.filter",
        pair.ratio,
        "ratio",
        f"parsing and compiling {_CLAUSES[1]} clauses ({pair.ours_s * 1e3:.0f} ms) / {_CLAUSES[0]} "
        f"({pair.bare_s * 1e3:.0f} ms)",
        runs=pair.runs,
        goal=at_most(12),
    )
