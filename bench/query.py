"""`scripts/bench query`: what a page of chosen fields costs, and a whole list, and what a long filter costs to read."""

import asyncio
import resource
import sqlite3
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from api.compute.protocol.proof import AskedFreshness
from api.identity.caller import Caller
from api.query.question import question_of
from bench.listing import Served, event_loop, fill_index, make_fleet
from bench.measure import Figure, at_most, figure, interleaved, seconds
from cli.processes.collector import keep_collector_out_of_the_way
from indexer.backends.settings import IndexSettings
from listing.answer import Consistency
from query.evaluate import matcher
from query.expressions import to_filter
from query.filter_text import parse_filter
from resources.query_fields.instance import INSTANCE

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
_ADMIN = Caller("bench", None, frozenset({"admin"}))
_CLAUSES = (1_000, 10_000)


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 10,000 instances instead of 100,000, and fewer runs."""
    count, runs = (10_000, 7) if quick else (100_000, 21)
    index = IndexSettings(path=directory / "index.db")
    fill_index(index, make_fleet(directory, count), count)
    yield from _page(directory, index, count, runs)
    yield from _whole(directory, index, count)
    yield from _filters(3 if quick else 7)


def _page(directory: Path, index: IndexSettings, count: int, runs: int) -> Iterator[Figure]:
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
    connection = sqlite3.connect(f"{index.path.as_uri()}?mode=ro", uri=True)
    with event_loop() as loop:
        served = Served(directory, index)
        keep_collector_out_of_the_way()  # as the API does

        def ours() -> None:
            status, answer = loop(served.post("/fleetlight/query", body))
            assert status == 200, answer
            assert answer.count(b'"active"') == _PAGE

        def bare() -> None:
            assert len(connection.execute(_BARE).fetchall()) == _PAGE

        pair = interleaved(ours, bare, runs, rest=lambda: loop(asyncio.sleep(_BETWEEN_S)))
        loop(served.close())
    connection.close()
    yield figure(
        "query.page.embedded",
        pair.ratio,
        "ratio",
        f"POST /fleetlight/query, {_PAGE} of {count} instances, {len(_FIELDS)} fields, two conditions "
        f"({pair.ours_s * 1e3:.1f} ms) / bare query of the same values ({pair.bare_s * 1e3:.1f} ms)",
        runs=pair.runs,
        goal=at_most(1.5),
    )


def _whole(directory: Path, index: IndexSettings, count: int) -> Iterator[Figure]:
    """Every instance in one answer, as the remote API sends it: batch after batch, none kept."""
    with event_loop() as loop:
        served = Served(directory, index)
        question = question_of(INSTANCE, list(_FIELDS), order=["-ctime"], all_projects=True)
        fresh = AskedFreshness(Consistency.BOUNDED, (), 60)
        told: dict[str, Any] = {"rows": 0, "bytes": 0, "first_s": None}

        async def read() -> None:
            begin = time.perf_counter()
            async for batch in served.answerer.batches(question, _ADMIN, fresh):
                if told["first_s"] is None:
                    told["first_s"] = time.perf_counter() - begin
                told["rows"] += len(batch.rows)
                told["bytes"] += len(msgspec.json.encode(batch.rows))

        loop(served.answerer.answer(question, _ADMIN, fresh))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        whole_s = seconds(partial(loop, read()))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        loop(served.close())
    assert told["rows"] == count, told
    what = f"{count} instances in one answer of {told['bytes'] / 1e6:.0f} MB, {whole_s:.1f} s"
    yield figure(
        "query.whole.memory",
        grown / told["bytes"],
        "ratio",
        f"{what}: growth of the process / size of the answer",
        runs=1,
        goal=at_most(1.2),
    )
    yield figure(
        "query.whole.first",
        told["first_s"] / whole_s,
        "ratio",
        f"{what}: time to the first rows / to the last",
        runs=1,
        goal=at_most(0.1),
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
