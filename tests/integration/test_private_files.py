"""What is made on disk is for its owner alone: buses have passwords, and cells have keys."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.manager.agents.database import AgentDatabase


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def rights_in(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.usefixtures("migrated_each_time")
def test_databases_are_private_with_their_logs(tmp_path: Path) -> None:
    for name, upgrade in (("fleet.db", upgrade_fleet), ("cell.db", upgrade_cell)):
        engine = create_database_engine(f"sqlite:///{tmp_path / name}")
        upgrade(engine)
        with engine.connect():
            assert rights_in(tmp_path).keys() >= {name, f"{name}-wal"}
            assert set(rights_in(tmp_path).values()) == {0o600}
        engine.dispose()


def test_index_and_its_folder_are_private(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    writer = open_writer(IndexSettings(backend="sqlite", path=folder / "index.db"))
    writer.prepare()
    assert (stat.S_IMODE(folder.stat().st_mode), set(rights_in(folder).values())) == (0o700, {0o600})
    writer.close()


def test_database_of_an_agent_is_private_in_a_folder_that_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "known"
    folder.mkdir(mode=0o755)
    AgentDatabase(folder)
    assert rights_in(folder)["agent.db"] == 0o600


@pytest.mark.usefixtures("migrated_each_time")
def test_file_that_is_there_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    path.touch(mode=0o640)
    engine = create_database_engine(f"sqlite:///{path}")
    upgrade_fleet(engine)
    engine.dispose()
    assert rights_in(tmp_path)["fleet.db"] == 0o640
