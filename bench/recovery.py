"""`scripts/bench recovery`: how soon lists come from the index again, with 200,000 instances in eight cells.

A relay, an indexer and an API as processes of their own with the settings that they have unless told otherwise, over
PostgreSQL, RabbitMQ and Elasticsearch that are started for this. Each is killed in turn: processes start again as
systemd does it (deploy/systemd), servers after some seconds, from when they answer the time counts. Then the index is
deleted, and what comes back by itself is compared with a rebuild in the same run.

A member of a project asks for a page again and again meanwhile.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from elasticsearch import Elasticsearch

from bench import fleet as made_up
from bench.faults.index_damage import IndexDamage
from bench.faults.processes import Daemon, daemon
from bench.faults.run import Supply
from bench.faults.world import CELLS, Sections, Servers, World, new_world
from bench.measure import Figure, Goal, at_most, figure
from bench.process_tree import processor_s
from fleetlight.cells.database.engines import writing
from fleetlight.cells.fleet.fleet import InstanceMapping
from fleetlight.cells.kinds.native.instance_rows import add_rows
from fleetlight.cells.model import InstanceRow
from scripts.servers.private import PrivateServer
from scripts.servers.process import free_port

_COUNT, _QUICK_COUNT = 200_000, 4_000
_BATCH = 1000
_AT_ONCE = 2
_MEMBER = {"X-Project-Id": f"{7:032x}", "X-User-Id": "ada", "X-Roles": "member"}
_POLL_S = 0.1
# So long the lists must come from the index without an exception; longer than an index that stands still is believed.
_STEADY_S = 10.0
_TIMEOUT_S = 1800.0
_RESTART_S = 2.0  # RestartSec in deploy/systemd
_AWAY_S = 30.0  # processes that wait for a server wait the longest then
_SEARCH = {"enabled": True, "retry_after_s": 5.0}  # as in docker-compose.yml
_PROCESS_GOAL, _SERVER_GOAL, _EMPTY_GOAL = at_most(5), at_most(10), at_most(1)


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 4,000 instances instead of 200,000."""
    count = _QUICK_COUNT if quick else _COUNT
    with followed_fleet(directory, count) as followed:
        yield from synced(followed)
        yield from processes_killed(followed)
        yield from servers_killed(followed)
        yield from (rebuilding := list(rebuilt(followed)))
        yield from (again := list(emptied(followed)))
        ratio = again[0].value / rebuilding[0].value
        yield figure("recovery.emptied.ratio", ratio, "ratio", "to the rebuild", runs=1, goal=_EMPTY_GOAL)


def synced(followed: "Followed") -> Iterator[Figure]:
    """How long an index takes that was just made."""
    what = f"processes begun, with {followed.count} instances and an empty index"
    yield _as_figure("synced", followed.wait(), what, goal=None)


def processes_killed(followed: "Followed") -> Iterator[Figure]:
    """Each in turn, from when it is killed."""
    for name, process in followed.processes.items():
        recovery = followed.after(process.kill, process.start, _RESTART_S)
        yield _as_figure(f"{name}_killed", recovery, f"{name} killed")


def servers_killed(followed: "Followed") -> Iterator[Figure]:
    """Each in turn, from when it answers again."""
    for kind, server in followed.servers.items():
        with followed.being_asked():
            server.kill()
            time.sleep(_AWAY_S)
            server.start()
        what = f"{kind} killed, from when it answers again"
        yield _as_figure(f"{kind}_killed", followed.wait(), what, goal=_SERVER_GOAL)


def rebuilt(followed: "Followed") -> Iterator[Figure]:
    """How long the command takes, beside the indexer."""
    log = followed.world.config.parent / "rebuild.log"
    rebuilding = Daemon("index rebuild", followed.world.config, log)
    begun_s = time.monotonic()
    rebuilding.start()
    assert rebuilding.wait(_TIMEOUT_S) == 0, log.read_text()[-3000:]
    took_s = time.monotonic() - begun_s
    yield figure("recovery.rebuild", took_s, "s", f"fleetlight index rebuild: {took_s:.1f} s", runs=1)


def emptied(followed: "Followed") -> Iterator[Figure]:
    """How long it takes until there is an index again that was deleted."""
    world = followed.world
    with Elasticsearch(world.servers.elasticsearch, request_timeout=60) as client:
        IndexDamage(client, world.settings.index.prefix).delete_everything()
    yield _as_figure("emptied", followed.wait(), "all indexes deleted", goal=None)


def _fill(world: World, count: int) -> None:
    # Records are made while the databases write others.
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(partial(_fill_cell, world, count // CELLS), range(CELLS)))


def _fill_cell(world: World, count: int, number: int) -> None:
    cell = world.cells[number]
    records = made_up.records(count, seed=number + 2)
    while batch := list(itertools.islice(records, _BATCH)):
        with writing(world.engines[cell.name]) as connection:
            add_rows(connection, [InstanceRow(cell.uuid, 1, record) for record in batch])
        world.fleet.add_mappings(
            [
                InstanceMapping(
                    record["uuid"], cell.uuid, record["project_id"], record["user_id"], record["created_at"]
                )
                for record in batch
            ]
        )


@dataclass(frozen=True, slots=True)
class _Recovery:
    """seconds: until lists came from the index. processor_s: what indexer, relay and API took meanwhile."""

    seconds: float
    processor_s: float


class Followed:
    """A fleet of `count` instances, its servers and its processes, by name. url: of its API."""

    def __init__(
        self, world: World, count: int, servers: Mapping[str, PrivateServer], processes: Mapping[str, Daemon], url: str
    ) -> None:
        self.world = world
        self.count = count
        self.servers = servers
        self.processes = processes
        self.url = url
        self._client = httpx.Client(timeout=30, headers=_MEMBER)

    def close(self) -> None:
        self._client.close()

    def wait(self) -> _Recovery:
        """How long it takes from now until lists come from the index, and go on to."""
        begun_s, before_s = time.monotonic(), self._processor_s()
        good_since_s, spent_s = None, before_s
        while good_since_s is None or time.monotonic() < good_since_s + _STEADY_S:
            asked_s = time.monotonic()
            assert asked_s < begun_s + _TIMEOUT_S, "lists do not come from the index again"
            if not self._is_from_index():
                good_since_s = None
            elif good_since_s is None:
                good_since_s, spent_s = asked_s, self._processor_s()
            time.sleep(_POLL_S)
        return _Recovery(good_since_s - begun_s, spent_s - before_s)

    def after(self, take_away: Callable[[], None], give_back: Callable[[], None], pause_s: float) -> _Recovery:
        """From when something is taken away, which is given back after a while."""
        take_away()
        restarting = threading.Timer(pause_s, give_back)
        restarting.start()
        recovery = self.wait()
        restarting.join()
        return recovery

    @contextmanager
    def being_asked(self) -> Iterator[None]:
        """Lists are asked for meanwhile, so that the API meets what is away."""
        is_over = threading.Event()

        def ask() -> None:
            while not is_over.wait(_POLL_S):
                self._is_from_index()

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            yield
        finally:
            is_over.set()
            asking.join()

    def _is_from_index(self) -> bool:
        try:
            answer = self._client.get(f"{self.url}/v2.1/servers?limit=50")
        except httpx.TransportError:
            return False
        headers = answer.headers
        if answer.status_code != 200 or headers.get("Fleetlight-Complete") != "true":
            return False
        return bool(headers.get("Fleetlight-Route") == "index")

    def _processor_s(self) -> float:
        """Of the processes that are there; one that has begun anew begins at 0."""
        return sum(processor_s(process.pid) for process in self.processes.values())


@contextmanager
def followed_fleet(directory: Path, count: int) -> Iterator[Followed]:
    """A fleet of `count` instances, and an empty index that its processes begin to fill."""
    port = free_port()
    with ExitStack() as stack:
        supply = Supply(stack, {})
        private = {kind: supply.own(kind) for kind in ("elasticsearch", "rabbitmq", "postgresql")}
        servers = Servers(private["elasticsearch"].url, private["rabbitmq"].url, private["postgresql"].url)
        sections: Sections = {"search": _SEARCH, "api": {"port": port}}
        world = stack.enter_context(new_world(directory, servers, sections, is_proxied=False))
        _fill(world, count)
        processes = {
            command: stack.enter_context(daemon(world, command, directory)) for command in ("relay", "indexer", "api")
        }
        url = f"http://127.0.0.1:{port}"
        yield stack.enter_context(closing(Followed(world, count, private, processes, url)))


def _as_figure(name: str, recovery: _Recovery, what: str, *, goal: Goal | None = _PROCESS_GOAL) -> Figure:
    return figure(
        f"recovery.{name}",
        recovery.seconds,
        "s",
        f"{what}: {recovery.seconds:.1f} s until lists come from the index; "
        f"relay, indexer and API took {recovery.processor_s:.1f} s of processors",
        runs=1,
        goal=goal,
    )
