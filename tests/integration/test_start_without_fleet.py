"""Processes that are started while the fleet database is away, is none that can be used, or is of a newer version."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from sqlalchemy import column, table, update
from sqlalchemy.engine import make_url

from bench.faults.proxy import TcpProxy
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from tests.integration.test_up import free_port
from tests.support.commands import Command
from tests.support.loopback import get
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(240), pytest.mark.night]

COMMANDS = ("api", "indexer", "relay", "worker")


@dataclass(frozen=True, slots=True)
class Started:
    """A process, its log, and its probes."""

    process: Command
    log_file: Path
    port: int

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def probe(self, path: str) -> int:
        """The status of the answer; 0 while nobody answers."""
        try:
            return get(f"http://127.0.0.1:{self.port}{path}", timeout_s=20).status_code
        except httpx.TransportError:
            return 0

    def end(self) -> int:
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@contextmanager
def started(command: str, folder: Path, fleet_url: str) -> Iterator[Started]:
    """`fleetlight COMMAND` over that fleet database; killed at the end, if it still runs."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FLEETLIGHT_")}
    environment |= {
        "FLEETLIGHT_FLEET_DATABASE_URL": fleet_url,
        "FLEETLIGHT_INDEX_BACKEND": "sqlite",
        "FLEETLIGHT_INDEX_PATH": str(folder / "index.db"),
        "FLEETLIGHT_API_PORT" if command == "api" else "FLEETLIGHT_MONITORING_PORT": str(port),
    }
    log_file = folder / "log"
    process = Command(command, log=log_file, environment=environment)
    try:
        yield Started(process, log_file, port)
    finally:
        process.kill()
        process.wait(timeout=60)


def through(proxy: TcpProxy, url: str) -> str:
    return make_url(url).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)


def make_fleet(url: str, folder: Path) -> None:
    """With one native cell, whose bus is away."""
    engine = create_database_engine(url)
    upgrade_fleet(engine)
    fleet = Fleet(engine)
    cell = fleet.add_cell("one", CellKind.NATIVE, f"sqlite:///{folder}/one.db", f"amqp://127.0.0.1:{free_port()}//")
    fleet.close()
    engine = create_database_engine(cell.database_url)
    upgrade_cell(engine)
    engine.dispose()


@pytest.mark.parametrize("command", COMMANDS)
def test_process_waits_for_a_fleet_database_that_is_away_and_is_not_ready(
    command: str, proxy: TcpProxy, postgresql_database: str, tmp_path: Path
) -> None:
    make_fleet(postgresql_database, tmp_path)
    proxy.cut()
    with started(command, tmp_path, through(proxy, postgresql_database)) as it:
        wait_until(lambda: it.log.count("fleet.unreachable") >= 2)
        assert (it.probe("/healthz"), it.probe("/readyz")) == (200, 503), it.log
        proxy.restore()
        wait_until(lambda: it.probe("/readyz") == 200)
        assert it.end() == 0, it.log
    assert "Traceback" not in it.log


def test_api_that_is_started_while_the_fleet_database_is_away_says_when_to_ask_again(
    proxy: TcpProxy, postgresql_database: str, tmp_path: Path
) -> None:
    make_fleet(postgresql_database, tmp_path)
    proxy.cut()
    with started("api", tmp_path, through(proxy, postgresql_database)) as it:
        wait_until(lambda: it.probe("/healthz") == 200)
        for path in ("/v2.1/servers", "/v2.1/servers/detail", "/v2.1/flavors", "/2/instances"):
            answer = get(f"http://127.0.0.1:{it.port}{path}", timeout_s=20)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5"), path
        proxy.restore()
        wait_until(lambda: it.probe("/v2.1/servers") == 200)


@pytest.mark.parametrize("command", ["api", "relay"])
def test_process_that_waits_for_the_fleet_database_ends_when_it_is_told_to(
    command: str, proxy: TcpProxy, postgresql_database: str, tmp_path: Path
) -> None:
    proxy.cut()
    with started(command, tmp_path, through(proxy, postgresql_database)) as it:
        wait_until(lambda: it.probe("/healthz") == 200 and "fleet.unreachable" in it.log)
        assert it.end() == 0, it.log
    assert "Traceback" not in it.log


@pytest.mark.parametrize("command", ["api", "relay"])
def test_process_whose_fleet_database_turns_out_to_be_none_ends_and_says_what_would_be_right(
    command: str, proxy: TcpProxy, postgresql_database: str, tmp_path: Path
) -> None:
    proxy.cut()
    with started(command, tmp_path, through(proxy, postgresql_database)) as it:
        wait_until(lambda: it.probe("/healthz") == 200 and "fleet.unreachable" in it.log)
        proxy.restore()
        assert it.process.wait(timeout=60) == 1, it.log
    assert "Traceback" not in it.log
    assert "`fleetlight database upgrade` brings its tables to this version" in it.log.splitlines()[-1]


@pytest.mark.parametrize("command", COMMANDS)
def test_process_runs_while_the_fleet_has_no_cells_yet(tmp_path: Path, command: str) -> None:
    url = f"sqlite:///{tmp_path}/fleet.db"
    engine = create_database_engine(url)
    upgrade_fleet(engine)
    engine.dispose()
    with started(command, tmp_path, url) as process:
        wait_until(lambda: process.probe("/readyz") == 200 or process.process.poll() is not None, timeout_s=60)
        assert process.process.poll() is None, process.log
        assert process.end() == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_process_says_that_it_was_started_on_tables_of_a_newer_version_and_goes_on(
    tmp_path: Path, command: str
) -> None:
    """An upgrade goes through them one after the other, and one whose turn has not come may be started again."""
    url = f"sqlite:///{tmp_path}/fleet.db"
    make_fleet(url, tmp_path)
    for schema, database in (("fleet", url), ("cell", f"sqlite:///{tmp_path}/one.db")):
        engine = create_database_engine(database)
        with writing(engine) as connection:
            versions = table(f"fleetlight_{schema}_version", column("version_num"))
            connection.execute(update(versions).values(version_num="of-the-future"))
        engine.dispose()
    with started(command, tmp_path, url) as it:
        wait_until(lambda: it.log.count("database.newer_tables") == 2)
        for database in ("fleet", "cell one"):
            assert f'"database": "{database}"' in it.log
        assert "a newer version of Fleetlight has upgraded its tables (to of-the-future)" in it.log
        wait_until(lambda: it.probe("/readyz") == 200)
        assert it.end() == 0, it.log
    assert "Traceback" not in it.log
