"""A database hangs: what is asked of it ends, and who follows something else as well goes on with that."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from bench.faults.proxy import TcpProxy
from fleetlight.bus.bus import Publisher
from fleetlight.cells.database import silent_servers as answering
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.kinds.native.relay_metrics import RelayMetrics
from fleetlight.cells.kinds.nova_db.databases import open_nova_database
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cli.processes import processes
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.settings import IndexSettings
from tests.support.fleets.indexer_worlds import RELAY, World, in_thread, indexing, new_world
from tests.support.memory.memory_cell import CELL_UUID
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.postgresql, pytest.mark.timeout(300)]


@pytest.fixture
def fleet(postgresql_database: str, proxy: TcpProxy) -> Iterator[Fleet]:
    """Without a cell, behind the proxy."""
    engine = create_database_engine(postgresql_database)
    upgrade_fleet(engine)
    engine.dispose()
    address = make_url(postgresql_database).set(host="127.0.0.1", port=proxy.port)
    with closing(
        Fleet(create_database_engine(address.render_as_string(hide_password=False), answer_timeout_s=1))
    ) as fleet:
        yield fleet


@pytest.fixture
def address(postgresql_database: str, proxy: TcpProxy) -> str:
    """Of an empty database behind the proxy."""
    return make_url(postgresql_database).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked soon whether a silent server is there."""
    monkeypatch.setattr(answering, "SILENT_AFTER_S", 0.5)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with new_world(tmp_path, "memory://", CELL_UUID, IndexSettings(path=tmp_path / "index.db")) as world:
        yield world


def test_answer_that_takes_too_long_is_not_waited_for_and_the_next_question_is_answered(fleet: Fleet) -> None:
    with pytest.raises(FleetUnreachableError, match="it has not answered for 1 s"), fleet.database.reading() as asked:
        asked.execute(text("SELECT pg_sleep(60)"))
    with fleet.database.reading() as asked:
        assert asked.execute(text("SELECT 1")).scalar_one() == 1


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("create", [create_database_engine, open_nova_database])
def test_server_that_is_silent_is_given_up_and_asked_again_when_it_answers(
    address: str, proxy: TcpProxy, create: Callable[[str], Engine]
) -> None:
    engine = create(address)
    with engine.connect() as asked:
        proxy.hold()
        with pytest.raises(OperationalError, match=r"silent for 0\.5 s and accepts no other connection"):
            asked.execute(text("SELECT 1"))
    proxy.restore()
    with engine.connect() as asked:
        assert asked.execute(text("SELECT 1")).scalar_one() == 1
    engine.dispose()


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("create", [create_database_engine, open_nova_database])
def test_server_that_is_busy_with_a_long_statement_is_waited_for(address: str, create: Callable[[str], Engine]) -> None:
    engine = create(address)
    with engine.connect() as asked:
        assert asked.execute(text("SELECT 1 FROM pg_sleep(3)")).scalar_one() == 1
    engine.dispose()


def test_connection_that_is_open_when_another_is_given_up_is_not_waited_for_as_long(
    address: str, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first time would take an indexer two limits, one for its leases and one for what it asks."""
    monkeypatch.setattr(answering, "_SILENT_TOO_AFTER_S", 0.1)
    engine = create_database_engine(address, answer_timeout_s=1)
    with engine.connect() as first, engine.connect() as second:
        proxy.hold()
        with pytest.raises(OperationalError, match="it has not answered for 1 s"):
            first.execute(text("SELECT 1"))
        with pytest.raises(OperationalError, match=r"it has not answered for 0\.1 s"):
            second.execute(text("SELECT 1"))
    engine.dispose()


def test_connection_that_is_open_when_no_other_can_be_opened_is_not_waited_for_as_long(
    address: str, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "_SILENT_TOO_AFTER_S", 0.1)
    engine = create_database_engine(address, answer_timeout_s=60)
    with engine.connect() as first:
        proxy.hold()
        with pytest.raises(OperationalError, match="timeout"):
            engine.connect()
        with pytest.raises(OperationalError, match=r"it has not answered for 0\.1 s"):
            first.execute(text("SELECT 1"))
    engine.dispose()


def test_indexer_as_a_command_waits_for_no_answer_of_the_fleet_database_longer_than_its_limit(
    postgresql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the server is there: a table that somebody has locked would keep what is written from being found."""
    asked: list[Fleet] = []

    def when_reachable(begin: partial[object], _stop: Event) -> None:
        fleet: Fleet = begin.args[0]
        asked.append(fleet)
        with pytest.raises(FleetUnreachableError, match="it has not answered for 1 s"), fleet.database.reading() as one:
            one.execute(text("SELECT pg_sleep(60)"))

    assert processes._FLEET_TIMEOUT_S == 15
    monkeypatch.setattr(processes, "_FLEET_TIMEOUT_S", 1)
    monkeypatch.setattr(processes, "when_reachable", when_reachable)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", postgresql_database)
    processes.indexer(load_settings(None, None))
    assert asked


def test_lease_of_a_session_that_hangs_is_lost(fleet: Fleet, proxy: TcpProxy) -> None:
    with closing(fleet.open_leases("test")) as leases:
        assert leases.acquire("one")
        proxy.hold()
        assert not leases.holds("one")
        proxy.restore()
        wait_until(lambda: leases.acquire("one"))


def test_indexer_goes_on_whose_fleet_database_hangs(fleet: Fleet, proxy: TcpProxy, world: World) -> None:
    """What its followers write becomes searchable, and the progress is saved, by who asks the fleet database too."""
    cell = world.cell
    fleet.add_cell(cell.name, cell.kind, cell.database_url, cell.transport_url, uuid=cell.uuid)
    with world.relaying(fleet=fleet), indexing(fleet, world.index) as service:
        wait_until(world.index_equals_cell)
        proxy.hold()
        wait_until(lambda: service.problem)
        world.operations.create({"display_name": "meanwhile"})
        wait_until(lambda: world.has_published_everything() and world.index_equals_cell())
        assert service.problem
        proxy.restore()
        wait_until(lambda: service.problem is None)


@pytest.mark.usefixtures("soon")
def test_relay_says_that_the_database_of_its_cell_hangs_and_goes_on_when_it_answers(
    address: str, proxy: TcpProxy, tmp_path: Path
) -> None:
    """It waited for as long as it hung, and was called stuck."""
    with new_world(tmp_path, "memory://", CELL_UUID, IndexSettings(path=tmp_path / "index.db"), address) as world:
        counted = CollectorRegistry()
        failures = {"cell": world.cell.uuid, "kind": "CellUnreachableError"}
        publisher = Publisher(world.cell.transport_url, world.cell.uuid)
        relay = Relay(world.engine, world.cell, publisher, RELAY, metrics=RelayMetrics(counted))
        with closing(publisher), in_thread(relay.run):
            world.operations.create({"display_name": "before"})
            wait_until(world.has_published_everything)
            proxy.hold()
            wait_until(lambda: counted.get_sample_value("fleetlight_relay_failures_total", failures))
            proxy.restore()
            world.operations.create({"display_name": "after"})
            wait_until(world.has_published_everything)


@pytest.mark.usefixtures("soon")
def test_indexer_is_told_that_the_database_of_a_cell_hangs(address: str, proxy: TcpProxy, tmp_path: Path) -> None:
    with (
        new_world(tmp_path, "memory://", CELL_UUID, IndexSettings(path=tmp_path / "index.db"), address) as world,
        closing(open_changelog_adapter(world.cell)) as adapter,
    ):
        assert adapter.published_sequence() == 0
        proxy.hold()
        with pytest.raises(CellUnreachableError):
            adapter.published_sequence()
        proxy.restore()
        assert adapter.published_sequence() == 0
