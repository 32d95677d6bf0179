"""`fleetlight indexer` as processes, with real servers: how several share the cells, take over and stop."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bench.faults.damage import Damage, damage, has_caught_up
from bench.faults.load import FaultLoad
from bench.faults.processes import Daemon, relays
from bench.faults.processes import indexer as indexer_in_threads
from bench.faults.proxy import tcp_proxy
from bench.faults.world import CELLS, Servers, World, new_world
from fleetlight.bus import topology
from fleetlight.bus.link import count_messages
from fleetlight.bus.settings import BusSettings
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.resources.clock import system_clock
from scripts.servers.process import free_port
from tests.support.loopback import get
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.night,
    pytest.mark.elasticsearch,
    pytest.mark.rabbitmq,
    pytest.mark.postgresql,
    pytest.mark.timeout(600),
]

_PATIENCE_S = 240
# What is cut off answers late on a busy machine, and must not be given up meanwhile.
_PATIENT = {
    "fleet": {"cells_refresh_interval_s": 1.0},
    "index": {"refresh_interval_s": 0.2, "write_timeout_s": 120.0},
    "relay": {"retry_wait_max_s": 1.0, "heartbeat_interval_s": 0.5, "poll_interval_s": 0.4},
    "indexer": {"retry_wait_max_s": 1.0, "liveness_timeout_s": 300.0},
}


@pytest.fixture
def world(tmp_path: Path, elasticsearch_url: str, amqp_url: str, postgresql_url: str) -> Iterator[World]:
    """Fleet and cells on PostgreSQL, by whose leases indexers know of each other."""
    with new_world(tmp_path, Servers(elasticsearch_url, amqp_url, postgresql_url), _PATIENT) as world:
        yield world


@contextmanager
def opened(world: World) -> Iterator[IndexWriter]:
    """Its index, past the proxy."""
    settings = world.settings.index.model_copy(update={"urls": (world.servers.elasticsearch,)})
    with closing(open_writer(settings)) as writer:
        yield writer


@pytest.fixture
def writer(world: World) -> Iterator[IndexWriter]:
    with opened(world) as writer:
        yield writer


def is_prepared(writer: IndexWriter) -> bool:
    try:
        writer.load_progress()
    except IndexUnavailableError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Indexer:
    """A process of its own, and what its metrics say."""

    process: Daemon
    port: int

    def sample(self, name: str, cell_uuid: str) -> float:
        return self._samples(name).get(cell_uuid, 0.0)

    def active(self) -> set[str]:
        """Uuids of the cells whose messages it gets."""
        return {cell for cell, value in self._samples("fleetlight_indexer_active").items() if value}

    def _samples(self, name: str) -> dict[str, float]:
        """By cell; nothing while the process does not answer yet."""
        try:
            text = get(f"http://127.0.0.1:{self.port}/metrics").text
        except httpx.TransportError:
            return {}
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {sample.labels["cell"]: sample.value for sample in samples if sample.name == name}


@contextmanager
def indexer(world: World, log: Path) -> Iterator[Indexer]:
    """It runs at least until the end of the block, unless it is stopped or killed in it."""
    port = free_port()
    process = Daemon("indexer", world.config, log, {"FLEETLIGHT_MONITORING_PORT": str(port)})
    process.start()
    try:
        yield Indexer(process, port)
    finally:
        process.end()


def test_indexers_share_the_cells_and_take_over_from_one_that_is_killed(
    world: World, writer: IndexWriter, tmp_path: Path
) -> None:
    every = {cell.uuid for cell in world.cells}
    load = FaultLoad(world.operations(system_clock), seed=1)
    with relays(world), indexer(world, tmp_path / "first.log") as first:
        load.start()
        wait_until(lambda: first.active() == every, _PATIENCE_S)
        with indexer(world, tmp_path / "second.log") as second:

            def have_half_each() -> bool:
                active = (first.active(), second.active())
                assert set.union(*active) == every
                return [len(cells) for cells in active] == [CELLS / 2, CELLS / 2]

            wait_until(have_half_each, _PATIENCE_S)
            first.process.kill()
            wait_until(lambda: second.active() == every, _PATIENCE_S)
            load.finish()
            over_at = system_clock()
            wait_until(lambda: has_caught_up(world, writer, over_at), _PATIENCE_S)
    assert damage(world, writer, load.journal) == Damage()


def test_indexers_of_a_fleet_in_sqlite_do_not_share_which_they_say_and_take_over_all_the_same(
    tmp_path: Path, elasticsearch_url: str, amqp_url: str
) -> None:
    with (
        new_world(tmp_path, Servers(elasticsearch_url, amqp_url), _PATIENT) as world,
        relays(world),
        indexer(world, tmp_path / "first.log") as first,
        opened(world) as writer,
    ):
        every = {cell.uuid for cell in world.cells}
        load = FaultLoad(world.operations(system_clock), seed=1)
        load.start()
        wait_until(lambda: first.active() == every, _PATIENCE_S)
        with indexer(world, tmp_path / "second.log") as second:
            load.wait_for(50)
            first.process.kill()
            wait_until(lambda: second.active() == every, _PATIENCE_S)
            load.finish()
            over_at = system_clock()
            wait_until(lambda: has_caught_up(world, writer, over_at), _PATIENCE_S)
        assert damage(world, writer, load.journal) == Damage()
    assert "indexer.shares_no_cells" in (tmp_path / "second.log").read_text()


def test_indexer_that_is_stopped_in_the_middle_of_a_write_finishes_and_saves_it(
    tmp_path: Path, elasticsearch_url: str, amqp_url: str
) -> None:
    # One heartbeat, at the beginning: what is received after that is a change.
    configured = {**_PATIENT, "relay": {"heartbeat_interval_s": 3600.0}}
    with (
        new_world(tmp_path, Servers(elasticsearch_url, amqp_url), configured) as world,
        relays(world),
        indexer(world, tmp_path / "indexer.log") as indexing,
    ):
        every = {cell.uuid for cell in world.cells}
        wait_until(lambda: indexing.active() == every, _PATIENCE_S)
        batches = "fleetlight_indexer_batch_messages_count"
        before = {uuid: indexing.sample(batches, uuid) for uuid in every}
        world.proxies["elasticsearch"].hold()
        for operations in world.operations(system_clock):
            operations.create({"display_name": "made while the index hangs"})
        wait_until(lambda: all(indexing.sample(batches, uuid) > before[uuid] for uuid in every))
        indexing.process.terminate()
        world.proxies["elasticsearch"].restore()
        indexing.process.stop()
        assert not world.unpublished()
        with opened(world) as writer:
            watermarks = {uuid: progress.watermark for uuid, progress in writer.load_progress().items()}
            assert watermarks == dict.fromkeys(every, 1)
            assert damage(world, writer, {}) == Damage()
        queues = [topology.work_queue_name(uuid) for uuid in every]
        assert sum(count_messages(amqp_url, queue, BusSettings()) for queue in queues) == 0, "acknowledged"


def test_cell_whose_own_bus_is_away_holds_up_no_other(world: World, writer: IndexWriter, amqp_url: str) -> None:
    first, *others = world.cells
    server = urlsplit(amqp_url)
    assert server.port is not None
    with tcp_proxy(server.hostname or "127.0.0.1", server.port) as bus:
        # The same broker for all of them here, which this cell alone reaches by this address.
        address = amqp_url.replace(f":{server.port}", f":{bus.port}")
        world.fleet.add_cell(first.name, CellKind.NATIVE, first.database_url, address)

        def change_all() -> None:
            for operations in world.operations(system_clock):
                operations.create({})

        def are_followed(cells: Sequence[Cell], sequence: int) -> bool:
            progress = writer.load_progress()
            return all(cell.uuid in progress and progress[cell.uuid].watermark == sequence for cell in cells)

        with relays(world), indexer_in_threads(world):
            change_all()
            wait_until(lambda: is_prepared(writer) and are_followed(world.cells, 1), _PATIENCE_S)
            bus.cut()
            change_all()
            wait_until(lambda: are_followed(others, 2), _PATIENCE_S)
            assert world.unpublished() == 1, "the change of the first cell waits in its outbox"
            bus.restore()
            wait_until(lambda: are_followed(world.cells, 2), _PATIENCE_S)
            wait_until(lambda: not world.unpublished())
