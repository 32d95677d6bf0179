"""Notifications that Nova itself builds and oslo.messaging's notifier sends, over a real broker, into the index.

What happens in the cell, and in which order and how often it is announced: tests/nova/notify.py.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import kombu
import pytest
from prometheus_client import CollectorRegistry

from fleetlight.bus.bus import Receiver
from fleetlight.bus.external_exchange import split_address
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexerError
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.external_follower import ExternalFollower
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.memory.memory_fleet import MemoryFailures
from tests.support.memory.stage import follower_parts, following
from tests.support.servers.index_server import index_at
from tests.support.servers.nova import NovaServer, create_database, drop_databases
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.rabbitmq, pytest.mark.nova, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).resolve().parents[2] / "nova" / "notify.py"
FLEETLIGHT = (sys.executable, "-m", "fleetlight.cli")
BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())


@dataclass
class NovaCell:
    """A cell of Nova in a process of its own, which announces its changes."""

    cell: Cell
    process: "subprocess.Popen[str]"

    def play(self, seed: int) -> str:
        """One round; returns the uuid of the server whose change was announced last."""
        answer = self._say(f"{seed}\n").split()
        assert answer[0] == "done"
        return answer[1]

    def records(self) -> dict[str, Any]:
        """Every row of the database, as it is at this moment."""
        with closing(open_adapter(self.cell)) as adapter:
            rows = adapter.read_page(PageRequest(EVERYTHING, BY_UUID, 10_000))
        return {row.uuid: row.record for row in rows}

    def _say(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return next_line(self.process.stdout)


def next_line(output: IO[str] | None) -> str:
    assert output is not None
    line = output.readline()
    assert line, "Nova has ended; what it said is above"
    return line


@contextmanager
def running_nova_cell(
    server: NovaServer, tmp_path: Path, amqp_url: str, cell_uuid: str, nova_environment: str
) -> Iterator[NovaCell]:
    """server: that its databases are on. cell_uuid: of the cell here."""
    name = f"fleetlight-test-{uuid4().hex}"
    topics = [f"{name}-versioned", f"{name}-legacy"]
    said = {
        "database": create_database(server, tmp_path),
        "api": create_database(server, tmp_path),
        "folder": str(tmp_path),
        "amqp_url": amqp_url.replace("amqp://", "rabbit://"),
        "exchange": name,
        "topic": topics[0],
        "legacy_topic": topics[1],
    }
    (tmp_path / "cell.json").write_text(json.dumps(said))
    address = f"{said['amqp_url']}?exchange={name}&topics={','.join(topics)}"
    cell = Cell(cell_uuid, "nova", CellKind.NOVA_DB, said["database"], address, api_database_url=said["api"])
    python = Path(nova_environment).parent / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    process = subprocess.Popen(
        [python, "-W", "ignore", SCRIPT, tmp_path / "cell.json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert next_line(process.stdout) == "ready\n"
        yield NovaCell(cell, process)
    finally:
        process.communicate(timeout=60)
        drop_databases(server, (said["database"], said["api"]))
        with kombu.Connection(amqp_url) as connection, connection.channel() as channel:
            for topic in topics:
                for priority in ("info", "error"):
                    channel.queue_delete(f"{topic}.{priority}")
            channel.exchange_delete(name)


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def nova_cell(
    request: pytest.FixtureRequest, tmp_path: Path, amqp_url: str, amqp_cell: str, nova_environment: str
) -> Iterator[NovaCell]:
    with running_nova_cell(request.param, tmp_path, amqp_url, amqp_cell, nova_environment) as made:
        yield made


@dataclass
class Followed:
    """A cell that is followed into an index. progress: that of now."""

    follower: ExternalFollower
    index: IndexWriter
    failures: MemoryFailures
    registry: CollectorRegistry

    def records(self, uuids: Any) -> dict[str, Any]:
        return records(self.index, uuids)

    def handled(self, outcome: str) -> float:
        labels = {"cell": self.follower.cell.uuid, "outcome": outcome}
        return self.registry.get_sample_value("fleetlight_indexer_messages_total", labels) or 0


@contextmanager
def followed(cell: Cell, folder: Path) -> Iterator[Followed]:
    """An indexer of that cell that has compared it once, and will not do so again."""
    settings = IndexerSettings(retry_wait_max_s=0.1, comparison_interval_s=36_000)
    registry, failures = CollectorRegistry(), MemoryFailures()
    _, binding = split_address(cell.transport_url)
    with closing(open_writer(IndexSettings(path=folder / "index.db"))) as index:
        index.prepare()
        parts = follower_parts(
            index,
            settings,
            lambda cell: Receiver(cell.transport_url, cell.uuid, settings.prefetch, binding=binding),
            registry,
            failures=failures,
        )
        with following(cell, parts, open_adapter) as follower:
            wait_until(lambda: follower.progress.is_complete)
            yield Followed(follower, index, failures, registry)


def test_index_ends_up_as_the_database_of_the_cell_whatever_the_order_and_repetition(
    nova_cell: NovaCell, tmp_path: Path
) -> None:
    with followed(nova_cell.cell, tmp_path) as follows:
        compared_at = follows.follower.progress.fresh_as_of
        for number, seed in enumerate((0, 1, 2)):
            marker = nova_cell.play(seed)
            # It was sent last, and there is one queue: everything else has been dealt with before it is seen.
            wait_until(lambda: follows.records([marker])[marker]["display_name"] == f"marker-{number}")  # noqa: B023
            expected = nova_cell.records()
            wait_until(lambda: follows.records(expected) == expected)  # noqa: B023
            names = {record["display_name"] for record in expected.values() if not record["deleted"]}
            assert {f"renamed-{number}", f"built-{number}", f"future-{number}"} <= names
        [future] = [uuid for uuid, record in expected.items() if record["display_name"] == "future-2"]
        extra = follows.index.read([future])[future].extra
        assert extra is not None
        assert extra.values == {"rack": "r7"}, "a newer minor version has brought it"
        assert follows.follower.progress.fresh_as_of == compared_at, "nothing but notifications has told it"
        assert {reason for _, reason, _ in follows.failures.found} == {"unsupported_version"}
        assert follows.handled("other") > 0, "keypairs, and unversioned notifications"
        wait_until(lambda: follows.follower.progress.is_complete)


@pytest.fixture
def postgresql_cell(
    tmp_path: Path, amqp_url: str, amqp_cell: str, nova_environment: str, postgresql_url: str
) -> Iterator[NovaCell]:
    with running_nova_cell("postgresql", tmp_path, amqp_url, amqp_cell, nova_environment) as made:
        yield made


def test_indexer_process_follows_a_cell_on_postgresql_into_elasticsearch(
    postgresql_cell: NovaCell, tmp_path: Path, elasticsearch_url: str, elasticsearch_prefix: str
) -> None:
    fleet_url = f"sqlite:///{tmp_path}/fleet.db"
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    config = tmp_path / "fleetlight.toml"
    config.write_text(
        f'[fleet]\ndatabase_url = "{fleet_url}"\n'
        f'[index]\nbackend = "{settings.backend}"\nurls = ["{elasticsearch_url}"]\nprefix = "{elasticsearch_prefix}"\n'
        "[indexer]\ncomparison_interval_s = 36000\n"
    )
    add_to_fleet(fleet_url, postgresql_cell.cell)
    with fleetlight(config, "indexer"), closing(open_writer(settings)) as index:
        wait_until(lambda: is_complete(index, postgresql_cell.cell), 120)
        for seed in (0, 1):
            marker = postgresql_cell.play(seed)
            wait_until(lambda: index.read([marker])[marker].record["display_name"] == f"marker-{seed}")  # noqa: B023
            expected = postgresql_cell.records()
            wait_until(lambda: records(index, expected) == expected)  # noqa: B023
    verified = subprocess.run(
        [*FLEETLIGHT, "index", "verify", "--config", config], capture_output=True, text=True, check=False
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def add_to_fleet(fleet_url: str, cell: Cell) -> None:
    engine = create_database_engine(fleet_url)
    upgrade_fleet(engine)
    with closing(Fleet(engine)) as fleet:
        urls = (cell.database_url, cell.transport_url)
        fleet.add_cell(cell.name, cell.kind, *urls, uuid=cell.uuid, api_database_url=cell.api_database_url)


def records(index: IndexWriter, uuids: Any) -> dict[str, Any]:
    return {uuid: dict(document.record) for uuid, document in index.read(uuids).items()}


def is_complete(index: IndexWriter, cell: Cell) -> bool:
    try:
        progress = index.load_progress().get(cell.uuid)
    except IndexerError:
        # The process makes the index first.
        return False
    return progress is not None and progress.is_complete


@contextmanager
def fleetlight(config: Path, process: str) -> Iterator[None]:
    """A process of Fleetlight, as it is run in production."""
    log = config.with_name(f"{process}.log")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLIGHT_")}
    with log.open("wb") as output:
        child = subprocess.Popen(
            [*FLEETLIGHT, process, "--config", config], env=environment, stdout=output, stderr=output
        )
    try:
        yield
        assert child.poll() is None, log.read_text()
    finally:
        child.terminate()
        child.wait(timeout=60)
