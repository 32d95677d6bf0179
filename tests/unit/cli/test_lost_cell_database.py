"""A registered cell whose database is lost is down, and stays what it was: nothing makes an empty one in its place."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.tables import cell_state
from fleetlight.cli.data_folder import DataFolder
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from tests.support.fleets.cell_databases import closed_cells
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_rerun


def remove(path: Path, _other: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def empty(path: Path, other: Path) -> None:
    remove(path, other)
    path.touch()


def take_tables(path: Path, other: Path) -> None:
    remove(path, other)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE something (id INTEGER)")


def exchange(path: Path, other: Path) -> None:
    remove(path, other)
    path.write_bytes(other.read_bytes())


LOSSES = {
    remove: "the file of its database is not there",
    empty: "the file of its database is empty",
    take_tables: "its database has no tables of a cell: restore it from a backup",
    exchange: "its database is that of another cell, ",
}


@pytest.mark.parametrize(("lose", "reason"), LOSSES.items(), ids=[each.__name__ for each in LOSSES])
def test_cell_whose_database_is_lost_is_down_until_it_is_restored(
    tmp_path: Path, lose: Callable[[Path, Path], None], reason: str
) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        before = closed_cells(folder, fleet, 2)
        lost, other = (folder.cell_database(name) for name in ("cell2", "cell1"))
        kept = lost.read_bytes()
        lose(lost, other)
        left = lost.read_bytes() if lost.exists() else None
        for _ in range(2):
            first, second = closed_cells(folder, fleet, 2)
            assert (first.is_down, second.is_down) == (False, True)
            assert [each.cell.uuid for each in (first, second)] == [each.cell.uuid for each in before]
            with closing(open_adapter(second.cell)) as adapter, pytest.raises(CellUnreachableError, match=reason):
                adapter.find(second.cell.uuid)
            assert (lost.read_bytes() if lost.exists() else None) == left, "nothing was made of it"
        remove(lost, other)
        lost.write_bytes(kept)
        assert not any(each.is_down for each in closed_cells(folder, fleet, 2))
        with closing(open_adapter(second.cell)) as adapter:
            assert adapter.find(second.cell.uuid) is None


def test_cell_whose_database_is_taken_away_while_it_is_open_is_down(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        [embedded] = closed_cells(folder, fleet, 1)
        database = folder.cell_database("cell1")
        with closing(open_adapter(embedded.cell)) as adapter:
            assert adapter.find(embedded.cell.uuid) is None
            away = database.rename(tmp_path / "away.db")
            for _ in range(2):
                with pytest.raises(CellUnreachableError, match="the file of its database is not there"):
                    adapter.find(embedded.cell.uuid)
            away.rename(database)
            assert adapter.find(embedded.cell.uuid) is None


def test_cell_whose_database_is_exchanged_in_its_file_while_it_is_open_is_down(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        first, second = set_up_cells(folder, fleet, 2)
        with closing(open_adapter(first.cell)) as adapter:
            assert adapter.find(first.cell.uuid) is None
            with writing(first.engine) as connection:
                connection.execute(update(cell_state).values(uuid=second.cell.uuid))

            def reason() -> str:
                try:
                    adapter.find(first.cell.uuid)
                except CellUnreachableError as error:
                    return str(error)
                return ""

            wait_until(lambda: f"that of another cell, {second.cell.uuid}" in reason())
        for each in (first, second):
            each.engine.dispose()


def test_lost_fleet_database_gets_back_every_cell_of_the_folder(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        before = {each.cell.name: each.cell.uuid for each in closed_cells(folder, fleet, 4)}
    for each in folder.path.glob("fleet.db*"):
        each.unlink()
    with closing(set_up_fleet(folder)) as fleet:
        assert {each.cell.name: each.cell.uuid for each in closed_cells(folder, fleet, 3)} == before
