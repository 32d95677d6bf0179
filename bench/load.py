"""`scripts/bench load`: what many clients get at once, and what becomes of those that come too many.

A process of the API over an index with all instances of 8 cells, SQLite's and Elasticsearch's, and clients in a process
of their own. Each page is another one: behind a marker of its own, all markers in random order. First so many clients
that each send the next request when they have the answer; then four times the requests a second that can be served,
whatever becomes of those before; and then as many clients again, five seconds later.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from elasticsearch import Elasticsearch

from bench import fleet as made_up
from bench.listing_http import api_process, fill
from bench.load_clients import LoadOutcome, LoadPlan, quantile
from bench.load_slow import Crowd, memory_under
from bench.measure import Figure, at_least, at_most, figure
from fleetlight.indexer.backends.settings import IndexSettings

_CELLS = 8
_CLIENTS = (1, 4, 16, 64)
_FEW = (1, 4)
_STEADY = (1, 4, 16)
_PAGES = (50, 1000)
_OVERLOAD = 4
_PAUSE_S = 5.0
_KEPT = at_least(0.9)
_TAIL = at_most(3)
_NONE = at_most(0)
_FLAT = at_most(1.1)
_REFUSAL_MS = at_most(100)


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 20,000 instances alone, three seconds for each figure. Elasticsearch where the environment has its URL."""
    url = os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL")
    seconds = 3.0 if quick else 10.0
    for count in (20_000,) if quick else (20_000, 200_000):
        for backend in ("sqlite", "elasticsearch") if url else ("sqlite",):
            with _served(directory / f"{backend}{count}", backend, url, count) as served:
                for limit in _PAGES:
                    yield from _loaded(served, limit, seconds)
                if backend == "sqlite":
                    yield _bounded(served, Crowd(16, 100, 20, 10, 20) if quick else Crowd(64, 1000, 200, 60, 180))


@dataclass(frozen=True, slots=True)
class _Served:
    """name: of the figures. url, pid: of the API."""

    name: str
    directory: Path
    url: str
    pid: int
    count: int

    def load(self, limit: int, seconds: float, *, clients: int = 0, rate: float = 0.0) -> LoadOutcome:
        """What clients in another process get."""
        address = urlsplit(self.url)
        assert address.hostname is not None
        assert address.port is not None
        paths = str(self.directory / f"paths{limit}")
        plan = LoadPlan(address.hostname, address.port, paths, seconds, clients, rate)
        command = [sys.executable, "-m", "bench.load_clients"]
        done = subprocess.run(command, input=msgspec.json.encode(plan), stdout=subprocess.PIPE, check=True)
        return msgspec.json.decode(done.stdout, type=LoadOutcome)


def _loaded(served: _Served, limit: int, seconds: float) -> Iterator[Figure]:
    served.load(limit, 1.0, clients=4)  # what every page needs is there before
    outcomes = {clients: served.load(limit, seconds, clients=clients) for clients in _CLIENTS}
    best = max(outcomes[clients].rate for clients in _FEW)
    name, of = f"load.{served.name}.{limit}", f"pages of {limit} of {served.count} instances in {_CELLS} cells"
    for clients, outcome in outcomes.items():
        what = f"{of}, {clients} clients: {_told(outcome)}"
        ratio = outcome.rate / best
        goal = None if clients == 1 else _KEPT
        yield figure(f"{name}.{clients}", ratio, "ratio", f"{what}; to the best of 1 and 4", runs=1, goal=goal)
        tail = quantile(outcome.served, 0.99) / max(quantile(outcome.served, 0.5), 1e-9)
        goal = _TAIL if clients in _STEADY else None
        yield figure(f"{name}.{clients}.tail", tail, "ratio", f"{what}; p99 / p50", runs=1, goal=goal)
        wrong = outcome.late + outcome.failed + outcome.live + len(outcome.refused)
        yield figure(f"{name}.{clients}.not_index", wrong, "pages", f"{what}; all else", runs=1, goal=_NONE)
    flood = served.load(limit, seconds, rate=_OVERLOAD * best)
    time.sleep(_PAUSE_S)
    after = served.load(limit, seconds, clients=_FEW[-1])
    what = f"{of}, {_OVERLOAD * best:.0f} requests a second: {_told(flood)}"
    yield figure(f"{name}.flood", flood.rate / best, "ratio", f"{what}; pages to the best", runs=1, goal=_KEPT)
    refused_ms = quantile(flood.refused, 0.99) * 1000
    yield figure(f"{name}.flood.refusal", refused_ms, "ms", f"{what}; p99 of refusals", runs=1, goal=_REFUSAL_MS)
    wrong = flood.late + flood.failed + flood.live
    yield figure(f"{name}.flood.not_index", wrong, "pages", f"{what}; all else", runs=1, goal=_NONE)
    what = f"{of}, {_FEW[-1]} clients {_PAUSE_S:g} s after that: {_told(after)}"
    yield figure(f"{name}.after", after.rate / outcomes[_FEW[-1]].rate, "ratio", what, runs=1, goal=_KEPT)


def _bounded(served: _Served, crowd: Crowd) -> Figure:
    address = urlsplit(served.url)
    assert address.hostname is not None
    assert address.port is not None
    page = (served.directory / f"paths{_PAGES[-1]}").read_text().partition("\n")[0]
    memory = memory_under(crowd, address.hostname, address.port, page, served.pid)
    what = (
        f"{crowd.readers} clients that read slowly, {crowd.idle} idle connections, {crowd.watches} watches: memory "
        f"after {crowd.warm_s:g} s ({memory.after_mib:.0f} MiB) to before ({memory.before_mib:.0f} MiB)"
    )
    ratio = memory.after_mib / memory.before_mib
    return figure(f"load.{served.name}.bounded", ratio, "ratio", what, runs=1, goal=_FLAT)


def _told(outcome: LoadOutcome) -> str:
    p50, p99 = (quantile(outcome.served, share) * 1000 for share in (0.5, 0.99))
    return (
        f"{outcome.rate:.1f} pages/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms, {len(outcome.refused)} refused, "
        f"{outcome.late} late, {outcome.failed} failed, {outcome.live} live"
    )


@contextmanager
def _served(directory: Path, backend: str, index_url: str | None, count: int) -> Iterator[_Served]:
    """The API over a fleet of `count` instances, all of which are in an index of its own."""
    directory.mkdir()
    for limit in _PAGES:
        (directory / f"paths{limit}").write_text("\n".join(_paths(count, limit)))
    name = f"{backend}.{count // 1000}k"
    if backend == "sqlite" or index_url is None:
        path = directory / "index.db"
        fill(directory, IndexSettings(backend="sqlite", path=path), count, _CELLS)
        with api_process(directory, {"INDEX_BACKEND": "sqlite", "INDEX_PATH": str(path)}) as (api_url, pid):
            yield _Served(name, directory, api_url, pid, count)
        return
    prefix = f"fleetlight-bench-{uuid4().hex}"
    settings = {"INDEX_BACKEND": "elasticsearch", "INDEX_URLS": f'["{index_url}"]', "INDEX_PREFIX": prefix}
    try:
        fill(directory, IndexSettings(backend="elasticsearch", urls=(index_url,), prefix=prefix), count, _CELLS)
        with api_process(directory, settings) as (api_url, pid):
            yield _Served(name, directory, api_url, pid, count)
    finally:
        with Elasticsearch(index_url, request_timeout=30) as client:
            client.indices.delete(index=list(client.indices.get(index=f"{prefix}-*").body))


def _paths(count: int, limit: int) -> list[str]:
    """The address of each page that has a marker before it and `limit` rows behind, in random order."""
    newest_first = sorted((-record["created_at"], record["uuid"]) for record in made_up.records(count))
    markers = [uuid for _, uuid in newest_first[: count - limit]]
    random.Random(limit).shuffle(markers)
    return [f"/v2.1/servers/detail?all_tenants=1&limit={limit}&marker={marker}" for marker in markers]
