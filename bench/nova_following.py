"""`scripts/bench nova.following`: how soon lists show what was committed in the databases of Nova, and what that costs.

100,000 servers in ten cells on one MariaDB of its own, which production's own indexer follows with its default
settings, and of which the API lists. Nova is played by statements: a hundred commits of servers and a hundred of
heartbeats each second.
"""

import itertools
import multiprocessing
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path
from subprocess import Popen
from uuid import UUID

import pymysql
import urllib3
from sqlalchemy import make_url

from bench.measure import Figure, at_least, at_most, figure
from bench.process_tree import processor_s
from fleetlight.cells.kinds.nova_db.commit_log.log import COMMIT_LOGS
from fleetlight.resources.clock import system_clock
from scripts.servers.private import private_server
from scripts.servers.process import free_port
from tests.support.servers.logged_nova import FollowedNova, LoggedNova, LoggingMariaDB, followed_nova
from tests.support.waiting import wait_until

_CELLS = 10
_HOSTS = 50
_PER_SECOND = 100
_PROBES = 4
_POLL_S = 0.02
# The address of the server is looked at each ten seconds.
_REST_S = 20.0
# Until connections of the fill are closed, and the journal has begun.
_SETTLES_S = 15.0
_MADE_WITHIN_S = 900
_LOST_AFTER_S = 30.0
_NUMBERED = (
    "INSERT(INSERT(INSERT(INSERT(MD5(CONCAT({cell}, '-', seq)), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')"
)


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 10,000 servers, and a quarter of the time."""
    count, seconds = (10_000, 15.0) if quick else (100_000, 60.0)
    with ExitStack() as stack:
        nova = LoggedNova(stack.enter_context(private_server(LoggingMariaDB())), "nova_")
        names = [f"cell{number}" for number in range(1, _CELLS + 1)]
        nova.create(["api", *names])
        uuids = {name: _fill(nova, name, count // _CELLS) for name in names}
        followed = stack.enter_context(followed_nova(nova, directory / "fleetlight"))
        cells = [followed.register(name, str(UUID(int=number))) for number, name in enumerate(names, 1)]
        config = _configure(directory, followed)
        indexer, _ = stack.enter_context(_process(config, "indexer"))
        begun_s = time.monotonic()
        wait_until(lambda: all(_is_fresh(followed, cell.uuid) for cell in cells), _MADE_WITHIN_S)
        yield figure(
            "nova.following.first_fill",
            time.monotonic() - begun_s,
            "s",
            f"until the index has {count} servers of {_CELLS} cells of Nova",
            runs=1,
        )
        time.sleep(_SETTLES_S)
        yield from _at_rest(nova, _REST_S)
        port = free_port()
        _, log = stack.enter_context(_process(config, "api", "--port", str(port), "--processes", "1"))
        wait_until(lambda: "api.ready" in log.read_text())
        with _Load(nova, uuids).playing() as load:
            wait_until(lambda: load.commits > 3 * _PER_SECOND)
            yield from _under_load(f"http://127.0.0.1:{port}", indexer, load, seconds)
            yield _reader(nova, names, load, seconds / 2)


def _fill(nova: LoggedNova, name: str, count: int) -> Sequence[str]:
    """The uuids of so many servers."""
    uuid = _NUMBERED.format(cell=f"'{name}'")
    schema = nova.schema(name)
    times = "NOW() - INTERVAL seq SECOND"
    values = {
        "instances": {
            **{"uuid": uuid, "display_name": "CONCAT('web-', seq)", "hostname": "CONCAT('web-', seq)"},
            **{"project_id": "MD5(seq % 100)", "user_id": "'ada'", "vm_state": "'active'", "power_state": "1"},
            **{"deleted": "0", "hidden": "0", "created_at": times, "updated_at": times},
            **{"host": "CONCAT('host-', seq % 50)", "node": "CONCAT('node-', seq % 50)"},
        },
        "instance_metadata": {"instance_uuid": uuid, "deleted": "0", "`key`": "'role'", "value": "'web'"},
        "services": {"host": "CONCAT('host-', seq)", "`binary`": "'nova-compute'", "deleted": "0"},
    }
    for table, made in values.items():
        rows = f"{schema}.seq_1_to_{_HOSTS if table == 'services' else count}"
        nova.administer(
            f"INSERT INTO {schema}.{table} ({', '.join(made)}) SELECT {', '.join(made.values())} FROM {rows}"  # noqa: S608
        )
    with closing(_connect(nova)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT uuid FROM {schema}.instances")  # noqa: S608
        return [str(row[0]) for row in cursor.fetchall()]


def _connect(nova: LoggedNova) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    return pymysql.connect(host="127.0.0.1", port=nova.server.port, user="root", autocommit=True)


def _is_fresh(followed: FollowedNova, cell_uuid: str) -> bool:
    progress = followed.progress(cell_uuid)
    return progress is not None and progress.is_complete and system_clock() - progress.fresh_as_of < 5_000_000


def _configure(directory: Path, followed: FollowedNova) -> Path:
    """A file with the settings that they have by themselves."""
    config = directory / "fleetlight.toml"
    config.write_text(
        f'[fleet]\ndatabase_url = "sqlite:///{directory}/fleetlight/fleet.db"\n'
        f'[index]\nbackend = "sqlite"\npath = "{followed.index_settings.path}"\n'
        "[search]\nenabled = true\n"
    )
    return config


@contextmanager
def _process(config: Path, *command: str) -> Iterator[tuple[int, Path]]:
    """A command of `fleetlight`: the number of its process, and its log."""
    log = config.with_name(f"{command[0]}.log")
    environment = {**os.environ, "FLEETLIGHT_MONITORING_PORT": str(free_port())}
    with log.open("w") as file:
        arguments = [sys.executable, "-m", "fleetlight.cli", *command, "--config", str(config)]
        process = Popen(arguments, env=environment, stdout=file, stderr=file)
    try:
        yield process.pid, log
    finally:
        process.kill()
        process.wait(60)


def _at_rest(nova: LoggedNova, seconds: float) -> Iterator[Figure]:
    """What the server is asked while nothing happens, and how many connections there are."""
    with closing(_connect(nova)) as connection, connection.cursor() as cursor:

        def asked() -> int:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            return int(cursor.fetchone()[1])

        before, begun_s = asked(), time.monotonic()
        time.sleep(seconds)
        statements = (asked() - before - 1) / (time.monotonic() - begun_s)
        cursor.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'fleetlight'")
        connections = int(cursor.fetchone()[0])
    yield figure(
        "nova.following.rest.statements",
        statements,
        "per s",
        f"statements at the server of {_CELLS} cells in which nothing happens",
        runs=1,
        goal=at_most(2),
    )
    yield figure(
        "nova.following.rest.connections",
        connections,
        "connections",
        f"of the indexer to the server of {_CELLS} cells in which nothing happens",
        runs=1,
        goal=at_most(2),
    )


@dataclass
class _Load:
    """Commits of servers, and of heartbeats, at an even pace. Probes change servers that it leaves alone."""

    nova: LoggedNova
    uuids: Mapping[str, Sequence[str]]
    commits: int = 0
    heartbeats: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def playing(self) -> Iterator["_Load"]:
        threads = [threading.Thread(target=play) for play in (self._servers, self._services)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _servers(self) -> None:
        draw, names = random.Random(1), sorted(self.uuids)

        def change(cursor: pymysql.cursors.Cursor, number: int) -> None:
            name = draw.choice(names)
            cursor.execute(
                f"UPDATE {self.nova.schema(name)}.instances SET display_name = %s, updated_at = NOW() "  # noqa: S608
                "WHERE uuid = %s",
                (f"load-{number}", draw.choice(self.uuids[name][_PROBES:])),
            )
            self.commits += 1

        self._evenly(change)

    def _services(self) -> None:
        def beat(cursor: pymysql.cursors.Cursor, number: int) -> None:
            name = f"cell{number % _CELLS + 1}"
            statement = f"UPDATE {self.nova.schema(name)}.services SET last_seen_up = NOW() + INTERVAL %s SECOND "  # noqa: S608
            cursor.execute(statement + "WHERE host = %s", (number, f"host-{number // _CELLS % _HOSTS + 1}"))
            self.heartbeats += 1

        self._evenly(beat)

    def _evenly(self, play: Callable[[pymysql.cursors.Cursor, int], None]) -> None:
        begun_s = time.monotonic()
        with closing(_connect(self.nova)) as connection, connection.cursor() as cursor:
            for number in itertools.count():
                if self._stop.wait(max(0.0, begun_s + number / _PER_SECOND - time.monotonic())):
                    return
                play(cursor, number)


@dataclass
class _Seen:
    """What clients of the API saw. after_s: how long after its commit a change was in a list."""

    after_s: list[float] = field(default_factory=list)
    lists: int = 0
    complete: int = 0
    from_index: int = 0
    lost: int = 0


def _under_load(url: str, indexer: int, load: _Load, seconds: float) -> Iterator[Figure]:
    seen, stop = _Seen(), threading.Event()
    probes = [
        threading.Thread(target=_Probe(url, load.nova, name, load.uuids[name][number], seen).play, args=(stop,))
        for number, name in enumerate(sorted(load.uuids)[:_PROBES])
    ]
    commits, processor, begun_s = (load.commits, load.heartbeats), processor_s(indexer), time.monotonic()
    for probe in probes:
        probe.start()
    time.sleep(seconds)
    stop.set()
    took_s = time.monotonic() - begun_s
    rates = ((load.commits - commits[0]) / took_s, (load.heartbeats - commits[1]) / took_s)
    share = (processor_s(indexer) - processor) / took_s
    for probe in probes:
        probe.join()
    after_s = sorted(seen.after_s)
    under = f"at {rates[0]:.0f} commits of servers and {rates[1]:.0f} of heartbeats a second, SQLite index"
    said = partial(figure, is_valid=min(rates) > 0.9 * _PER_SECOND and seen.lost == 0)
    for name, value, goal in (
        ("p50", statistics.median(after_s), 0.5),
        ("p99", after_s[int(len(after_s) * 0.99)], 1.5),
    ):
        what = f"from a commit until a list shows it, {under}"
        yield said(f"nova.following.list.{name}", value, "s", what, runs=len(after_s), goal=at_most(goal))
    yield said(
        "nova.following.complete",
        seen.complete / seen.lists,
        "share",
        f"lists that say they are complete, with the default settings ({seen.from_index} of {seen.lists} of the index "
        f"alone), {under}",
        runs=seen.lists,
        goal=at_least(1),
    )
    what = f"of the whole indexer, {under}"
    yield said("nova.following.indexer.processor", share, "processors", what, runs=1)


@dataclass(frozen=True, slots=True)
class _Probe:
    """Changes one server again and again, and asks for it by a list until that shows the change."""

    url: str
    nova: LoggedNova
    cell: str
    uuid: str
    seen: _Seen

    def play(self, stop: threading.Event) -> None:
        statement = f"UPDATE {self.nova.schema(self.cell)}.instances SET display_name = %s WHERE uuid = %s"  # noqa: S608
        http, draw = urllib3.PoolManager(), random.Random(self.uuid)
        with closing(_connect(self.nova)) as connection, connection.cursor() as cursor:
            for number in itertools.count():
                # So that it keeps no step with the indexer.
                if stop.wait(draw.uniform(0, 0.2)):
                    return
                cursor.execute(statement, (f"probe-{number}", self.uuid))
                committed_s = time.monotonic()
                while not self._shows(http, f"probe-{number}"):
                    if time.monotonic() - committed_s > _LOST_AFTER_S:
                        self.seen.lost += 1
                        return
                    time.sleep(_POLL_S)
                self.seen.after_s.append(time.monotonic() - committed_s)

    def _shows(self, http: urllib3.PoolManager, name: str) -> bool:
        answer = http.request("GET", f"{self.url}/v2.1/servers?all_tenants=1&uuid={self.uuid}")
        self.seen.lists += 1
        self.seen.complete += answer.headers["Fleetlight-Complete"] == "true"
        self.seen.from_index += "live" not in answer.headers["Fleetlight-Route"]
        return [each["name"] for each in answer.json()["servers"]] == [name]


def _reader(nova: LoggedNova, names: Sequence[str], load: _Load, seconds: float) -> Figure:
    """A process that reads the log, and does nothing else."""
    processes = multiprocessing.get_context("spawn")
    ready = processes.Event()
    reader = processes.Process(target=_read, args=([nova.url(name) for name in names], ready), daemon=True)
    reader.start()
    assert reader.pid is not None
    try:
        assert ready.wait(60)
        before, committed, begun_s = processor_s(reader.pid), load.commits + load.heartbeats, time.monotonic()
        time.sleep(seconds)
        took_s = time.monotonic() - begun_s
        share = (processor_s(reader.pid) - before) / took_s
        rate = (load.commits + load.heartbeats - committed) / took_s
    finally:
        reader.terminate()
        reader.join()
    return figure(
        "nova.following.reader.processor",
        share,
        "processors",
        f"of a process that reads the log and does nothing else, at {rate:.0f} commits a second, half of heartbeats",
        runs=1,
        goal=at_most(0.15),
        is_valid=rate > 1.8 * _PER_SECOND,
    )


def _read(urls: Sequence[str], ready: Event) -> None:
    parsed = [make_url(url) for url in urls]
    subscription = COMMIT_LOGS.at(parsed[0], system_clock).subscribe([str(url.database) for url in parsed], None)
    ready.set()
    while True:
        subscription.wait(1.0)
        subscription.take()
