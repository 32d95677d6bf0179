"""Commands answer within seconds when a server takes a connection and then says nothing, and name it."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cli import opened_index as opening
from fleetlight.cli.app import app
from fleetlight.indexer import status as of_index

pytestmark = pytest.mark.night

_WITHIN_S = 15


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that never says a word, as one does that was stopped."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    url = f"sqlite:///{tmp_path}/fleet.db"
    engine = create_database_engine(url)
    upgrade_fleet(engine)
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", url)
    monkeypatch.setenv("FLEETLIGHT_INDEX_PATH", f"{tmp_path}/index.db")
    yield Fleet(engine)
    engine.dispose()


def run_in_time(*arguments: str) -> Result:
    began = time.monotonic()
    result = CliRunner().invoke(app, arguments)
    assert time.monotonic() - began < _WITHIN_S
    return result


def test_status_names_cells_buses_and_an_index_that_hang(
    fleet: Fleet, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        fleet.add_cell(
            name, CellKind.NATIVE, f"postgresql://fleetlight@{silent}/{name}", f"amqp://guest:guest@{silent}//"
        )
    monkeypatch.setattr(opening, "_ANSWERS_WITHIN_S", 0.5)
    monkeypatch.setattr(of_index, "_TIMEOUT_S", 0.5)
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", "elasticsearch")
    monkeypatch.setenv("FLEETLIGHT_INDEX_URLS", f'["http://{silent}"]')
    result = run_in_time("index", "status")
    assert result.exit_code == 1
    assert "the index cannot be read: it has not answered within" in result.stderr
    for name in ("one", "two", "three"):
        assert f"cell '{name}' has not answered within 0.5 s" in result.stderr
        assert f"the bus of cell '{name}' has not answered within 0.5 s" in result.stderr


def test_command_names_a_fleet_database_that_hangs(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", f"postgresql://fleetlight@{silent}/fleet")
    result = run_in_time("cell", "list")
    assert result.exit_code != 0
    assert "the fleet database cannot be reached" in result.stderr + str(result.exception)


@pytest.mark.parametrize("command", ["verify", "sync", "purge", "rebuild", "fields", "failures retry --all"])
@pytest.mark.usefixtures("fleet")
def test_command_names_an_index_that_hangs(command: str, silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_ANSWERS_WITHIN_S", 0.5)
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", "elasticsearch")
    monkeypatch.setenv("FLEETLIGHT_INDEX_URLS", f'["http://{silent}"]')
    result = run_in_time("index", *command.split())
    assert result.exit_code == 1
    assert f"Elasticsearch at http://{silent}" in result.stderr
