"""`fleetlight index sync` as a process that is stopped or killed in the middle; the next one goes on from there."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleetlight.cli.app import app
from fleetlight.cli.data_folder import DataFolder
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_rerun

_INSTANCES = 300


@dataclass(frozen=True)
class World:
    """A fleet of one cell with some instances, none of them in the index."""

    folder: DataFolder
    cell_uuid: str


@pytest.fixture
def world(tmp_path: Path) -> World:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        [cell] = set_up_cells(folder, fleet, 1)
        InstanceOperations(cell.engine, fleet, cell.cell).create_many([{} for _ in range(_INSTANCES)])
        cell.engine.dispose()
    return World(folder, cell.cell.uuid)


def command(world: World) -> list[str]:
    return ["index", "sync", "--type", "OS::Nova::Server", "--data-dir", str(world.folder.path)]


def start_slow_sync(world: World) -> subprocess.Popen[str]:
    """A page a second, so that it is certainly not done when it ends."""
    return subprocess.Popen(
        [sys.executable, "-m", "fleetlight.cli", *command(world), "--rate", "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FLEETLIGHT_INDEXER_SYNC_BATCH_SIZE": "20"},
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_sync_goes_on_where_it_was_stopped_or_killed(world: World, number: signal.Signals) -> None:
    with closing(open_writer(IndexSettings(path=world.folder.index_database))) as index:
        index.prepare()

        def indexed() -> int:
            return len(index.revisions(world.cell_uuid, [""]))

        def rows_behind() -> int:
            return sum(checkpoint["rows"] for checkpoint in index.load_state("sync").values())

        slow = start_slow_sync(world)
        # Who can say goodbye saves where it is; who is killed has saved it some time before.
        wait_until(rows_behind if number is signal.SIGKILL else indexed, 60)
        slow.send_signal(number)
        _, errors = slow.communicate(timeout=60)
        if number is not signal.SIGKILL:
            assert slow.returncode == 130
            assert "the same command goes on from here" in errors
        assert 0 < rows_behind() < _INSTANCES
        again = CliRunner().invoke(app, command(world))
        assert again.stdout == f"cell1: {_INSTANCES} instances synced, complete up to sequence 0\n"
        assert indexed() == _INSTANCES
        assert rows_behind() == 0
