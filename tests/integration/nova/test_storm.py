"""Cells of Nova that Nova's own code changes at random while what follows them is killed, and readers ask all the time.

The database server, the indexer, the API, the index and the bus are killed or cut off; the log is purged, the index is
lost. Each list that says it is complete is held against the rows of the log (tests/support/oracles/committed_rows.py),
and so is the feed. tests/nova/storm.py says what changes; FLEETLIGHT_TEST_STORM_ROUNDS makes it last, with 1,000
changes in each round, and the figures are printed.
"""

import itertools
import json
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import kombu
import pytest

from bench.faults.proxy import TcpProxy, tcp_proxy
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.kinds.nova_db.deployment import Deployment
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.settings import IndexSettings
from scripts.servers.private import private_server
from tests.integration.test_up import free_port
from tests.support.commands import Command
from tests.support.oracles.committed_rows import CommittedRows
from tests.support.oracles.watched_nova import FeedReader, ListWatcher
from tests.support.servers.logged_nova import FollowedNova, LoggedNova, LoggingMariaDB, followed_nova
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.night,
    pytest.mark.own_servers,
    pytest.mark.mariadb,
    pytest.mark.nova,
    pytest.mark.no_rerun,
    pytest.mark.timeout(int(os.environ.get("FLEETLIGHT_TEST_STORM_TIMEOUT_S", "1200"))),
]

SCRIPT = Path(__file__).resolve().parents[2] / "nova" / "storm.py"
_SHORT = 3
ROUNDS = int(os.environ.get("FLEETLIGHT_TEST_STORM_ROUNDS", str(_SHORT)))
CHANGES = 200 if ROUNDS <= _SHORT else 1000
TEMPLATED = "{scheme}://{username}@{hostname}:{port}/{path}"
_DATABASES = ("api", "cell0", "cell1", "cell2")
# So long what was killed, or cut off, is away.
_CUT_S = 4.0


class DurableMariaDB(LoggingMariaDB):
    """What it has told to have committed it still has when it was killed, so that its log is what was."""

    _SETTINGS = (
        *LoggingMariaDB._SETTINGS,
        "innodb_flush_log_at_trx_commit=2",
        "innodb_lock_wait_timeout=2",
        "skip-name-resolve",
    )


@contextmanager
def nova_process(
    nova: LoggedNova, folder: Path, nova_environment: str, announced: Mapping[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    for database in _DATABASES:
        nova.administer(f"CREATE DATABASE `{nova.prefix}{database}`")
    world = {name: nova.url(name, "root") for name in _DATABASES}
    (folder / "world.json").write_text(
        json.dumps({**world, "folder": str(folder), "templated": TEMPLATED, **announced})
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    process = subprocess.Popen(
        [Path(nova_environment).parent / "bin" / "python", "-W", "ignore", SCRIPT, folder / "world.json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "Nova has ended; what it said is above"
    return line.strip()


class Process:
    """A command of `fleetlight` that may be killed, and has to be ended by nothing else. port: that it listens on."""

    def __init__(self, arguments: list[str], log: Path, port: int = 0) -> None:
        self._arguments = arguments
        self._log = log
        self._port = port
        self._running: Command | None = None

    def start(self) -> None:
        self._running = Command(
            *self._arguments, log=self._log, environment=os.environ | {"FLEETLIGHT_MONITORING_PORT": str(free_port())}
        )

    def kill(self) -> None:
        if self._running is not None:
            assert self._running.poll() is None, f"it ended by itself: {self._log.read_text()[-3000:]}"
            self.end()

    def end(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait(60)
            self._running = None
            # The process that answers notices a moment later that its parent is gone.
            wait_until(lambda: not is_listened_on(self._port))


def is_listened_on(port: int) -> bool:
    with socket.socket() as client:
        return port != 0 and client.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Bus:
    """Where Nova announces what it does; the indexer reaches it through `proxy`."""

    proxy: TcpProxy
    address: str
    announced: Mapping[str, str]


@contextmanager
def announcing(amqp_url: str) -> Iterator[Bus]:
    """An exchange of its own; it goes with its queues."""
    name = f"fleetlight-test-{uuid4().hex}"
    parts = urlsplit(amqp_url)
    assert parts.hostname
    assert parts.port
    with tcp_proxy(parts.hostname, parts.port) as proxy:
        through = parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{proxy.port}").geturl()
        lines = (
            "[notifications]\nnotification_format = versioned\nnotify_on_state_change = vm_and_task_state\n"
            f"versioned_notifications_topics = {name}\n"
            "[oslo_messaging_notifications]\ndriver = messagingv2\n"
            "[glance]\nendpoint_override = http://nowhere.invalid\n"
        )
        bus = f"{amqp_url.replace('amqp://', 'rabbit://')}\ncontrol_exchange = {name}"
        try:
            yield Bus(proxy, f"{through}?exchange={name}&topics={name}", {"bus": bus, "announced": lines})
        finally:
            with kombu.Connection(amqp_url) as connection, connection.channel() as channel:
                for priority in ("info", "error"):
                    channel.queue_delete(f"{name}.{priority}")
                channel.exchange_delete(name)


def registered(followed: FollowedNova, uuids: Iterator[str], bus: Bus | None) -> list[Cell]:
    """The cells of the deployment as `cell add-nova` adds them."""
    nova = followed.nova
    api = nova.url("api")
    with closing(Deployment(nova.url("api", "root"))) as deployment:
        known = {each.name: each.uuid for each in deployment.cells()}
    added = [followed.fleet.add_cell("build-requests", CellKind.NOVA_DB, api, "", api_database_url=api)]
    for name in ("cell0", "cell1", "cell2"):
        url = nova.url(name)
        added.append(
            followed.fleet.add_cell(
                name,
                CellKind.NOVA_DB,
                url,
                "" if bus is None else bus.address,
                api_database_url=api,
                nova_uuid=known[name],
                uuid=next(uuids),
            )
        )
    return added


@dataclass
class Troubles:
    """What happens to everything that may fail. Each returns when all is there again."""

    nova: LoggedNova
    indexer: Process
    api: Process
    rows: CommittedRows
    index: IndexSettings
    search_server: TcpProxy | None
    bus: Bus | None
    draw: random.Random
    happened: dict[str, int] = field(default_factory=dict)

    def by_turns(self) -> Iterator[Callable[[], None]]:
        all_of_them = [self.indexer_killed, self.api_killed, self.database_killed, self.log_purged, self.index_gone]
        if self.bus is not None:
            all_of_them.append(self.bus_cut)
        self.draw.shuffle(all_of_them)
        return itertools.cycle(all_of_them)

    def play(self, trouble: Callable[[], None]) -> None:
        trouble()
        name = trouble.__name__
        self.happened[name] = self.happened.get(name, 0) + 1

    def indexer_killed(self) -> None:
        self.indexer.kill()
        self._wait()
        self.indexer.start()

    def api_killed(self) -> None:
        self.api.kill()
        self.api.start()

    def database_killed(self) -> None:
        self.nova.server.kill()
        self._wait()
        self.nova.server.start()

    def log_purged(self) -> None:
        """While nobody reads it."""
        self.indexer.kill()
        self._wait()
        self.rows.catch_up()
        self.nova.administer("FLUSH LOGS")
        with closing(self.rows.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            newest = cursor.fetchone()[0]
        self.rows.catch_up()
        self.nova.administer(f"PURGE BINARY LOGS TO '{newest}'")
        self.indexer.start()

    def index_gone(self) -> None:
        """The file is lost, or the cluster is cut off; then lists are back on the index when the API begins anew."""
        if self.search_server is not None:
            self.search_server.cut()
            self._wait()
            self.search_server.restore()
            self.api_killed()
            return
        self.indexer.kill()
        self.api.kill()
        for file in self.index.path.parent.glob(f"{self.index.path.name}*"):
            file.unlink()
        self.indexer.start()
        self.api.start()

    def bus_cut(self) -> None:
        assert self.bus is not None
        self.bus.proxy.cut()
        self._wait()
        self.bus.proxy.restore()

    def _wait(self) -> None:
        time.sleep(self.draw.uniform(0, _CUT_S))


@pytest.mark.parametrize(
    "variant",
    [
        "sqlite",
        pytest.param("sqlite and a bus", marks=pytest.mark.rabbitmq),
        pytest.param("elasticsearch", marks=pytest.mark.elasticsearch),
    ],
)
def test_no_complete_list_is_wrong_and_the_feed_tells_each_state_once_though_all_are_killed(
    tmp_path: Path, nova_environment: str, variant: str, request: pytest.FixtureRequest
) -> None:
    draw = random.Random(20261128)
    new_cell = request.getfixturevalue("new_amqp_cell") if "bus" in variant else lambda: str(uuid4())
    with ExitStack() as stack:
        bus = stack.enter_context(announcing(request.getfixturevalue("amqp_url"))) if "bus" in variant else None
        index, search_server = IndexSettings(path=tmp_path / "fleetlight" / "index.db"), None
        if variant == "elasticsearch":
            host = urlsplit(request.getfixturevalue("elasticsearch_url"))
            assert host.hostname
            assert host.port
            search_server = stack.enter_context(tcp_proxy(host.hostname, host.port))
            index = IndexSettings(
                backend="elasticsearch",
                urls=(f"http://127.0.0.1:{search_server.port}",),
                prefix=request.getfixturevalue("elasticsearch_prefix"),
            )
        nova = LoggedNova(stack.enter_context(private_server(DurableMariaDB())), "nova_")
        process = stack.enter_context(
            nova_process(nova, tmp_path, nova_environment, {} if bus is None else bus.announced)
        )
        assert said(process) == "ready"
        nova.grant(_DATABASES)
        rows = CommittedRows(nova.server.port, [f"{nova.prefix}{name}" for name in _DATABASES])
        stack.enter_context(rows.reading())
        followed = stack.enter_context(followed_nova(nova, tmp_path / "fleetlight", index))
        cells = registered(followed, iter(new_cell, None), bus)
        url, indexer, api = started(stack, tmp_path, followed)
        troubles = Troubles(nova, indexer, api, rows, index, search_server, bus, draw)
        lists, feed = ListWatcher(url, rows, draw), FeedReader(url)
        for cell in cells:
            followed.wait_until_fresh(cell.uuid)
        stack.enter_context(feed.reading())
        feed.catch_up()
        with lists.watching(), ThreadPoolExecutor(1) as threads:
            turns = troubles.by_turns()
            for round_ in range(ROUNDS):
                play_round(threads.submit(play, process, draw.getrandbits(32)), troubles, turns, lists)
                for cell in cells:
                    wait_until(partial(follows_log, followed, cell), timeout_s=300)
                    assert followed.differing(cell) == {}, cell.name
                feed.catch_up()
                lists.judge()
                lists.wrong += [*feed.failed, *feed.wrong(rows)]
                print(  # noqa: T201  # the figures of the long run
                    f"round {round_ + 1}: {(round_ + 1) * CHANGES} changes, {rows.transactions} transactions, "
                    f"{rows.row_changes} rows; lists asked {lists.asked}, complete {lists.complete}, from the index "
                    f"{lists.from_index}, compared {lists.compared}, wrong {len(lists.wrong)}; feed {feed.changes}, "
                    f"begun anew {len(feed.begun_anew)}; {troubles.happened}",
                    flush=True,
                )
                assert not lists.wrong, "\n".join(lists.wrong[:20])
        # Only where the index was lost the journals are begun anew.
        assert search_server is None or not feed.begun_anew
        assert lists.compared > 10 * ROUNDS
        assert lists.from_index > lists.compared / 4


def follows_log(followed: FollowedNova, cell: Cell) -> bool:
    """Whether the index has all of the cell by its log. A slow machine gives it up for two minutes now and then."""
    return followed.wait_until_fresh(cell.uuid).watermark > 0


def play(process: "subprocess.Popen[str]", seed: int) -> str:
    assert process.stdin is not None
    process.stdin.write(f"{seed} {CHANGES}\n")
    process.stdin.flush()
    return said(process)


def play_round(
    done: "Future[str]", troubles: Troubles, turns: Iterator[Callable[[], None]], lists: ListWatcher
) -> None:
    """Let one thing after the other happen until Nova has made its changes."""
    while not done.done():
        wait([done], timeout=troubles.draw.uniform(1, 4 if ROUNDS <= _SHORT else 25))
        if not done.done() or ROUNDS <= _SHORT:
            troubles.play(next(turns))
        lists.judge()
    assert done.result() == "done"


def started(stack: ExitStack, folder: Path, followed: FollowedNova) -> tuple[str, Process, Process]:
    """The address of the API, and its process and the indexer's, with the settings that they have by themselves."""
    config, port, index = folder / "fleetlight.toml", free_port(), followed.index_settings
    config.write_text(
        f'[fleet]\ndatabase_url = "sqlite:///{folder}/fleetlight/fleet.db"\n'
        f'[index]\nbackend = "{index.backend}"\npath = "{index.path}"\nprefix = "{index.prefix}"\n'
        f'urls = ["{index.urls[0]}"]\n'
        "[search]\nenabled = true\n"
        '[api]\nwatch_key = "a secret of sixteen letters"\n'
    )
    indexer = Process(["indexer", "--config", str(config)], folder / "indexer.log")
    api = Process(["api", "--config", str(config), "--port", str(port), "--processes", "1"], folder / "api.log", port)
    for each in (indexer, api):
        each.start()
        stack.callback(each.end)
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: "api.ready" in (folder / "api.log").read_text(), 60)
    return url, indexer, api
