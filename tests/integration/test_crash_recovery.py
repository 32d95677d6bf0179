"""Relay and indexer are killed at random points under load; afterwards the index equals the cells.

Everything is real: two cells and a fleet in PostgreSQL, RabbitMQ, Elasticsearch, and production's own processes.
"""

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cells.adapters import open_adapter, open_changelog_adapter
from cells.database import create_database_engine
from cells.errors import InvalidTransitionError
from cells.fleet import Fleet
from cells.migrations import upgrade_cell, upgrade_fleet
from cells.model import Cell, CellKind, InstanceRow
from cells.operations import InstanceOperations
from indexer.backends import open_writer
from indexer.backends.base import IndexWriter
from indexer.backends.settings import IndexSettings
from indexer.documents import to_document
from indexer.errors import IndexUnavailableError
from query.filters import EVERYTHING
from query.instances import INSTANCE_FIELDS
from query.page import PageRequest
from query.sort import SortOrder
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.elasticsearch, pytest.mark.rabbitmq, pytest.mark.postgresql, pytest.mark.timeout(300)]

_KILLS = 6
_PAUSE_S = 0.01  # between two operations: a load that leaves the processes time to follow


@dataclass(frozen=True)
class World:
    """A fleet of two cells on real servers, and the configuration file of its processes."""

    fleet: Fleet
    cells: tuple[Cell, ...]
    index: IndexSettings
    config: Path


@pytest.fixture
def index(elasticsearch_url: str, elasticsearch_prefix: str) -> IndexSettings:
    return IndexSettings(backend="elasticsearch", urls=(elasticsearch_url,), prefix=elasticsearch_prefix.rstrip("-"))


@pytest.fixture
def world(
    tmp_path: Path,
    new_postgresql_database: Callable[[], str],
    amqp_url: str,
    new_amqp_cell: Callable[[], str],
    index: IndexSettings,
) -> Iterator[World]:
    fleet_url = new_postgresql_database()
    fleet_engine = create_database_engine(fleet_url)
    upgrade_fleet(fleet_engine)
    fleet = Fleet(fleet_engine)
    cells = []
    for name in ("east", "west"):
        database_url = new_postgresql_database()
        engine = create_database_engine(database_url)
        upgrade_cell(engine)
        engine.dispose()
        cells.append(fleet.add_cell(name, CellKind.NATIVE, database_url, amqp_url, uuid=new_amqp_cell()))
    config = tmp_path / "fleetlight.toml"
    config.write_text(
        f'[fleet]\ndatabase_url = "{fleet_url}"\n'
        f'[index]\nbackend = "elasticsearch"\nurls = ["{index.urls[0]}"]\nprefix = "{index.prefix}"\n'
        "[indexer]\nhole_timeout_s = 1.0\n"
    )
    yield World(fleet, tuple(cells), index, config)
    fleet.close()


class Daemon:
    """One process of `fleetlight`, which can be killed and started again."""

    def __init__(self, config: Path, log: Path, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "cli", *arguments, "--config", str(config)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"it ended by itself: {self._log.read_text()[-2000:]}"
        self._process.kill()
        self._process.wait(timeout=10)

    def terminate(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout=30)


@contextmanager
def running_load(world: World, seed: int) -> Iterator[None]:
    """Random operations on both cells, from a thread, for as long as the block takes."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        operated = threads.submit(_operate, world, random.Random(seed), stop)
        try:
            yield
        finally:
            stop.set()
        assert operated.result(timeout=60) > _KILLS


def _operate(world: World, generator: random.Random, stop: threading.Event) -> int:
    """Operate until `stop`; returns how many operations there were."""
    engines = [create_database_engine(cell.database_url) for cell in world.cells]
    cells = [InstanceOperations(engine, world.fleet, cell) for engine, cell in zip(engines, world.cells, strict=True)]
    alive: list[tuple[InstanceOperations, str]] = []
    number = 0
    while not stop.wait(_PAUSE_S):
        number += 1
        if len(alive) < 20 or generator.random() < 0.3:
            operations = generator.choice(cells)
            alive.append((operations, operations.create({"display_name": f"instance {number}", "host": "host1"}).uuid))
            continue
        position = generator.randrange(len(alive))
        operations, uuid = alive[position]
        try:
            match generator.randrange(4):
                case 0:
                    operations.update(uuid, {"display_name": f"renamed {number}"})
                case 1:
                    operations.stop(uuid)
                case 2:
                    operations.start(uuid)
                case _:
                    operations.delete(uuid)
                    del alive[position]
        except InvalidTransitionError:
            continue
    # The last changes come when everything runs again, so whoever shows them in the index is alive.
    for operations in cells:
        operations.create({"display_name": "the last one"})
    for engine in engines:
        engine.dispose()
    return number


def kept(row: InstanceRow) -> dict[str, object]:
    """What the index keeps of a row."""
    return dict(to_document(row.cell_uuid, row.revision, row.record).kept_record)


def indexed_and_true(world: World, writer: IndexWriter) -> tuple[dict[str, object], dict[str, object]]:
    """Per instance its revision and record, as the index has it and as its cell has it."""
    indexed: dict[str, object] = {}
    true: dict[str, object] = {}
    order = SortOrder.of(INSTANCE_FIELDS, ())
    for cell in world.cells:
        adapter = open_adapter(cell)
        rows = adapter.read_page(PageRequest(EVERYTHING, order, limit=10_000))
        adapter.close()
        true |= {row.uuid: (row.revision, kept(row)) for row in rows}
    for uuid, document in writer.read(true.keys()).items():
        indexed[uuid] = (document.version, dict(document.record))
    return indexed, true


@pytest.mark.parametrize("seed", [1, 2])
def test_index_equals_cells_after_relay_and_indexer_were_killed_at_random(
    world: World, tmp_path: Path, seed: int
) -> None:
    generator = random.Random(seed)
    daemons = [
        Daemon(world.config, tmp_path / "relay.log", "relay"),
        Daemon(world.config, tmp_path / "indexer.log", "indexer"),
    ]
    for daemon in daemons:
        daemon.start()
    pause = threading.Event()
    writer = open_writer(world.index)
    with running_load(world, seed):
        # A process takes seconds to start on a busy machine: without this, all that is killed may be beginnings.
        wait_until(lambda: _is_followed(world, writer), timeout_s=90)
        for _ in range(_KILLS):
            # The point of the kill is what is random here; nothing is waited for.
            pause.wait(generator.uniform(0.5, 4))
            daemon = generator.choice(daemons)
            daemon.kill()
            daemon.start()

    def index_equals_cells() -> bool:
        indexed, true = indexed_and_true(world, writer)
        return indexed == true

    wait_until(index_equals_cells, timeout_s=90)
    writer.make_searchable()
    wait_until(lambda: _watermarks(writer) == _published(world), timeout_s=30)
    assert [daemon.terminate() for daemon in daemons] == [0, 0]
    writer.close()


def test_second_indexer_follows_on_when_the_first_one_is_killed(world: World, tmp_path: Path) -> None:
    log = tmp_path / "second.log"
    relay = Daemon(world.config, tmp_path / "relay.log", "relay")
    first = Daemon(world.config, tmp_path / "first.log", "indexer")
    second = Daemon(world.config, log, "indexer")
    relay.start()
    first.start()
    writer = open_writer(world.index)
    with running_load(world, seed=3):
        wait_until(lambda: _is_followed(world, writer), timeout_s=90)
        second.start()
        wait_until(lambda: log.read_text().count("indexer.cell_started") >= len(world.cells), timeout_s=90)
        first.kill()
        killed_at = _published(world)
        wait_until(lambda: _is_followed_beyond(world, writer, killed_at), timeout_s=90)

    def index_equals_cells() -> bool:
        indexed, true = indexed_and_true(world, writer)
        return indexed == true

    wait_until(index_equals_cells, timeout_s=90)
    wait_until(lambda: _watermarks(writer) == _published(world), timeout_s=90)
    assert [daemon.terminate() for daemon in (relay, second)] == [0, 0]
    writer.close()


def _is_followed(world: World, writer: IndexWriter) -> bool:
    """Whether changes of every cell have come into the index."""
    return _is_followed_beyond(world, writer, {})


def _is_followed_beyond(world: World, writer: IndexWriter, sequences: Mapping[str, int]) -> bool:
    """Whether later changes than these of every cell have come into the index."""
    try:
        watermarks = _watermarks(writer)
        return all(watermarks.get(cell.uuid, 0) > sequences.get(cell.uuid, 0) for cell in world.cells)
    except IndexUnavailableError:
        return False  # it is not prepared yet


def _watermarks(writer: IndexWriter) -> dict[str, int]:
    return {uuid: progress.watermark for uuid, progress in writer.load_progress().items()}


def _published(world: World) -> dict[str, int]:
    published = {}
    for cell in world.cells:
        adapter = open_changelog_adapter(cell)
        published[cell.uuid] = adapter.published_sequence()
        adapter.close()
    return published
