"""What lists, the index and its repair cost in a fleet of so many instances, which production's processes follow.

The fleet is that of `scripts/bench recovery`. No page was asked for before: each has another length, or another filter.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial

import httpx
from elasticsearch import Elasticsearch
from sqlalchemy import func, select

from bench import audit, recovery
from bench.measure import Figure, figure, seconds
from bench.process_tree import memory_mib
from bench.recovery import Followed
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.tables import instances
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.reconcile.ranges import ComparisonCounts, IndexRanges, differing
from fleetlight.query.counts import CountRequest
from fleetlight.query.filters import Eq
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.waiting import wait_until

_ROUNDS = 15
_ADMIN = {"X-Project-Id": "operators", "X-User-Id": "root", "X-Roles": "admin"}
_ALL = "all_tenants=1"
_LIVING = Eq("deleted", False)


def _memory(followed: Followed) -> Iterator[Figure]:
    pids = {name: each.pid for name, each in followed.processes.items()}
    pids |= {name: each.pid for name, each in followed.servers.items()}
    for name, pid in pids.items():
        yield figure(name, memory_mib(pid), "MiB", f"resident memory of {name}", runs=1)


def _lists(followed: Followed) -> Iterator[Figure]:
    deep = f"{_ALL}&marker={_deep(followed)}"
    # One round more than counts.
    rounds = range(_ROUNDS + 1)
    asked: Mapping[str, tuple[str, Sequence[str]]] = {
        "page_50": ("first page of 50", [f"{_ALL}&limit={50 - each}" for each in rounds]),
        "page_1000": ("first page of 1,000", [f"{_ALL}&limit={1000 - each}" for each in rounds]),
        "deep": ("page of 50 behind nine tenths of all", [f"{deep}&limit={50 - each}" for each in rounds]),
        "project": ("page of 50 of 1 %, a project", [f"{_ALL}&limit=50&project_id={each:032x}" for each in rounds]),
        "filter": ("page of 50 of 0.04 %, by two fields", [f"{_ALL}&limit=50&{_fields(each)}" for each in rounds]),
        "name": ("page of 50 by a pattern of the name", [f"{_ALL}&limit=50&name=7{each:02}.*shop" for each in rounds]),
    }
    with httpx.Client(timeout=60, headers=_ADMIN) as client:
        for name, (what, queries) in asked.items():
            urls = [f"{followed.url}/v2.1/servers/detail?{query}" for query in queries]
            # An answer of the cells, while the index is taken for too old, is not what is measured.
            _, *taken_ms = [wait_until(partial(_list_ms, client, url)) for url in urls]
            yield figure(name, statistics.median(taken_ms), "ms", f"{what}, by HTTP", runs=_ROUNDS)


def _fields(number: int) -> str:
    return f"status=ERROR&host=compute{number:03}"


def _list_ms(client: httpx.Client, url: str) -> float:
    """Raises AssertionError if it does not come from the index."""
    begun_s = time.perf_counter()
    answer = client.get(url)
    took_s = time.perf_counter() - begun_s
    assert answer.status_code == httpx.codes.OK, answer.text
    # For administrators it names each cell.
    route = answer.headers["Fleetlight-Route"]
    assert all("=index;" in each for each in route.split(", ")), f"{url}: {route}"
    return took_s * 1e3


def _deep(followed: Followed) -> str:
    """An instance that nine tenths of all are newer than, about: each cell has instances of all ages."""
    cells = followed.world.cells
    oldest_first = select(instances.c.uuid).order_by(instances.c.created_at)
    with followed.world.engines[cells[0].name].connect() as connection:
        return str(connection.scalar(oldest_first.limit(1).offset(followed.count // len(cells) // 10)))


def _counts(followed: Followed) -> Iterator[Figure]:
    uuids = [cell.uuid for cell in followed.world.cells]
    searcher = open_searcher(followed.world.settings.index.model_copy(update={"page_cache": False}))
    with asyncio.Runner() as runner:

        def median_ms(by: tuple[str, ...]) -> float:
            request = CountRequest(_LIVING, INSTANCE_FIELDS, by)
            taken_s = [seconds(lambda: runner.run(searcher.count(request, uuids))) for _ in range(_ROUNDS)]
            return statistics.median(taken_s) * 1e3

        yield figure("all", median_ms(()), "ms", "counting all that live", runs=_ROUNDS)
        yield figure("groups", median_ms(("vm_state", "host")), "ms", "counting by state and host", runs=_ROUNDS)
        runner.run(searcher.close())


def _comparison(followed: Followed) -> Iterator[Figure]:
    with closing(open_writer(followed.world.settings.index)) as writer:

        def compare() -> None:
            for cell in followed.world.cells:
                with closing(open_changelog_adapter(cell)) as adapter:
                    ranges = IndexRanges(writer, cell.uuid, horizon=0, external=False)
                    assert not list(differing(adapter, ranges, ComparisonCounts(), lambda: None))

        what = "comparing revisions of all ranges, cell after cell"
        yield figure("revisions", seconds(compare), "s", what, runs=1)


def _audit(followed: Followed) -> Iterator[Figure]:
    yield from audit.repaired(followed, ("hole", "surplus"))


def _bytes(followed: Followed) -> Iterator[Figure]:
    world = followed.world
    with Elasticsearch(world.servers.elasticsearch, request_timeout=900) as client:
        index = f"{world.settings.index.prefix}-instances"
        client.indices.forcemerge(index=index, max_num_segments=1)
        client.indices.refresh(index=index)
        # Without the segments that were merged, which stay until no reader has them open.
        shards = next(iter(client.indices.segments(index=index)["indices"].values()))["shards"].values()
        segments = [each for copies in shards for copy in copies for each in copy["segments"].values()]
        stored = sum(each["size_in_bytes"] for each in segments if each["search"])
    yield figure("index", stored / followed.count, "bytes/instance", "primary shards of the index, merged", runs=1)
    size = select(func.pg_database_size(func.current_database()))
    whole = 0
    for engine in world.engines.values():
        with engine.connect() as connection:
            whole += connection.execute(size).scalar_one()
    yield figure("cells", whole / followed.count, "bytes/instance", "databases of the cells, in PostgreSQL", runs=1)


def _share(followed: Followed) -> Iterator[Figure]:
    yield audit.share(followed)


MEASUREMENTS: Mapping[str, Callable[[Followed], Iterator[Figure]]] = {
    "sync": recovery.synced,
    "memory": _memory,
    "lists": _lists,
    "counts": _counts,
    "comparison": _comparison,
    "audit": _audit,
    "processes": recovery.processes_killed,
    "servers": recovery.servers_killed,
    "bytes": _bytes,
    "rebuild": recovery.rebuilt,
    "emptied": recovery.emptied,
    "audit_share": _share,
}
"""In the order in which they are made: the last ones change what is measured."""
