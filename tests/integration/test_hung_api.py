"""An API that hangs in the middle of a change keeps no other one from making it."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection, Engine, select, text
from structlog.testing import capture_logs

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.fleet import advisory_locks
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.settings import FleetSettings
from fleetlight.cells.tables import instances
from fleetlight.cli.fleet import open_fleet
from tests.integration.test_start_without_fleet import started
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.postgresql, pytest.mark.timeout(120)]

_WAITERS = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")


@pytest.fixture
def fleet_url(new_postgresql_database: Callable[[], str]) -> str:
    url = new_postgresql_database()
    engine = create_database_engine(url)
    upgrade_fleet(engine)
    engine.dispose()
    return url


@pytest.fixture
def engine(new_postgresql_database: Callable[[], str]) -> Iterator[Engine]:
    engine = create_database_engine(new_postgresql_database())
    upgrade_cell(engine)
    yield engine
    engine.dispose()


@contextmanager
def halted(parent: int) -> Iterator[None]:
    """A process and its children, in the block; then they are killed. The parent first, or it would replace them."""
    processes = [parent, *children(parent)]
    try:
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGKILL)


def children(parent: int) -> Sequence[int]:
    return list(map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()))


def waiters(connection: Connection) -> int:
    """How many wait for a lock now. A transaction sees only sessions that there were when it first asked."""
    with connection.begin():
        return int(connection.scalar(_WAITERS) or 0)


def test_instance_that_an_api_has_locked_when_it_hangs_can_be_changed_soon(
    fleet_url: str, engine: Engine, tmp_path: Path
) -> None:
    url = engine.url.render_as_string(hide_password=False)
    with closing(Fleet(create_database_engine(fleet_url))) as fleet:
        cell = fleet.add_cell("one", CellKind.NATIVE, url, "amqp://127.0.0.1:9//")
        uuid = InstanceOperations(engine, fleet, cell).create({"project_id": "demo"}).uuid
    locked = select(instances.c.uuid).where(instances.c.uuid == uuid).with_for_update()

    def rename(port: int) -> None:
        body = {"server": {"name": "renamed"}}
        with pytest.raises(httpx.TransportError):
            httpx.put(f"http://127.0.0.1:{port}/v2.1/servers/{uuid}", json=body, timeout=60)

    with engine.connect() as watching:
        assert waiters(watching) == 0
        with started("api", tmp_path, fleet_url) as api, ThreadPoolExecutor() as threads:
            wait_until(lambda: api.probe("/readyz") == 200)
            with engine.connect() as other:
                other.execute(locked)
                renaming = threads.submit(rename, api.port)
                wait_until(lambda: waiters(watching) == 1)
                with halted(api.process.pid):
                    other.rollback()  # so that it is the API that has locked the row
                    began = time.monotonic()
                    with writing(engine) as connection:
                        connection.execute(text("SET LOCAL lock_timeout = '30s'"))
                        connection.execute(locked)
                    assert time.monotonic() - began > 1, "it was locked"
            renaming.result()


def test_process_that_hangs_in_a_transaction_of_the_fleet_keeps_nothing_locked(
    fleet_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advisory_locks, "_LONGEST_WAIT_S", 2)
    settings = FleetSettings.model_validate({"database_url": fleet_url, "takeover_after_s": 1})
    table_locked = text("LOCK TABLE recent_changes IN EXCLUSIVE MODE")
    with open_fleet(settings) as hangs, open_fleet(settings) as other:
        with hangs.database.engine.connect() as connection:
            connection.execute(table_locked)
            with other.database.writing() as waiting:
                waiting.execute(table_locked)
            connection.invalidate()
        with capture_logs() as logs, hangs.lock("quota"), ThreadPoolExecutor() as threads:
            monkeypatch.setattr(advisory_locks, "_LONGEST_WAIT_S", 15)
            assert threads.submit(take, other).result(20) > 1
    assert [(each["event"], each["locks"]) for each in logs] == [("fleet.locks_lost", ("quota",))]


def take(fleet: Fleet) -> float:
    """How long it took."""
    began = time.monotonic()
    with fleet.lock("quota"):
        return time.monotonic() - began
