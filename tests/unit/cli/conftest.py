"""A place of its own for each test of the command line, with nothing configured."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetlight.cli.app import app
from fleetlight.cli.data_folder import DataFolder
from fleetlight.manager.commands.embedded import set_up_fleet
from tests.support.fleets.cell_databases import closed_cells

Run = Callable[..., Result]


def work_in(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make `folder` the working directory, and let no FLEETLIGHT_ variable be set, until `patch` is undone."""
    patch.chdir(folder)
    for name in os.environ:
        if name.startswith("FLEETLIGHT_"):
            patch.delenv(name)


def run_command(*arguments: str | Path) -> Result:
    """Runs `fleetlight` with arguments inside this process."""
    texts: Sequence[str] = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, texts, catch_exceptions=False)


def fleet_of_commands(place: Path) -> str:
    """Add the native cells `one` and `two` by commands, in the working directory `place`; returns the fleet's URL."""
    url = f"sqlite:///{place}/fleet.db"
    (place / "fleetlight.toml").write_text(f'[fleet]\ndatabase_url = "{url}"\n')
    assert run_command("database", "upgrade").exit_code == 0
    for name in ("one", "two"):
        cell = f"sqlite:///{place}/{name}.db"
        result = run_command(
            "cell", "add", "native", name, "--database-url", cell, "--transport-url", "amqp://127.0.0.1:9//"
        )
        assert result.exit_code == 0, result.stderr
    return url


@pytest.fixture(autouse=True)
def empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, empty; no FLEETLIGHT_ variable is set."""
    work_in(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def run() -> Run:
    """See `run_command`."""
    return run_command


@pytest.fixture(scope="session")
def fleet_of_two_cells(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """The data folder of a fleet with the cells cell1 and cell2, for tests that only read it."""
    folder = DataFolder(tmp_path_factory.mktemp("two-cells") / "fleetlight-data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        closed_cells(folder, fleet, 2)
    return folder
