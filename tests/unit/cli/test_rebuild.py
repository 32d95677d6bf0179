"""`fleetlight index rebuild` and `drop-old`: what they say, and what their exit codes say."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.opening import open_generations, open_writer
from fleetlight.indexer.backends.sqlite.generations import SqliteGenerations
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from tests.support.fleets.instance_operations import InstanceOperations
from tests.unit.cli.conftest import Run


@pytest.fixture
def cells(empty_place: Path, run: Run) -> Sequence[Cell]:
    """Two cells with three instances each, all of them in the index."""
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        embedded = set_up_cells(folder, fleet, 2)
        for cell in embedded:
            InstanceOperations(cell.engine, fleet, cell.cell).create_many([{}, {}, {}])
            cell.engine.dispose()
    assert run("index", "sync", "--type", "OS::Nova::Server").exit_code == 0
    return [cell.cell for cell in embedded]


def indexed(cell: Cell) -> int:
    with closing(open_writer(load_settings(None, None).index)) as writer:
        return len(writer.revisions(cell.uuid, [""]))


def test_rebuild_and_the_way_back(run: Run, cells: Sequence[Cell]) -> None:
    result = run("index", "rebuild")
    assert (result.exit_code, result.stdout) == (
        0,
        "the new index is the current one; `--back` returns to the old one, `fleetlight index drop-old` drops it\n",
    )
    assert result.stderr.splitlines() == [
        "filling the next index",
        "comparing it with the cells",
        "putting it in the place of the current one",
    ]
    assert [indexed(cell) for cell in cells] == [3, 3]
    assert run("index", "rebuild", "--back").exit_code == 0
    assert [indexed(cell) for cell in cells] == [3, 3]
    assert run("index", "drop-old").stdout == "old index dropped\n"
    assert run("index", "drop-old").stdout == "there is no old index\n"


def test_indexes_are_named_where_their_server_has_names_for_them(
    run: Run, cells: Sequence[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteGenerations, "names", lambda _: ("instances-2", "instances-1"))
    assert run("index", "rebuild").stdout == (
        "the new index (instances-2) is the current one; `--back` returns to the old one (instances-1), "
        "`fleetlight index drop-old` drops it\n"
    )
    result = run("index", "rebuild", "--back")
    assert result.stdout == (
        "the previous index (instances-2) is the current one again; `fleetlight index drop-old` drops the other one "
        "(instances-1)\n"
    )
    assert result.stderr.splitlines()[0] == "bringing the index that was kept up to date"
    assert "the last rebuild replaced (instances-1) is kept" in run("index", "status").stderr
    assert run("index", "drop-old").stdout == "old index (instances-1) dropped\n"


def test_status_says_what_a_rebuild_has_left_behind(run: Run, cells: Sequence[Cell]) -> None:
    def left_behind() -> list[str]:
        return [line for line in run("index", "status").stderr.splitlines() if "rebuild" in line]

    assert left_behind() == []
    with closing(open_generations(load_settings(None, None).index)) as generations:
        generations.create_next()
    [cut_off] = left_behind()
    assert "`fleetlight index rebuild` goes on with it" in cut_off
    assert run("index", "rebuild", "--abandon").stdout == "rebuild abandoned\n"
    assert left_behind() == []
    assert run("index", "rebuild").exit_code == 0
    [kept] = left_behind()
    assert "`fleetlight index drop-old` drops it" in kept


def test_way_back_from_nowhere_is_refused(run: Run, cells: Sequence[Cell]) -> None:
    result = run("index", "rebuild", "--back")
    assert result.exit_code == 1
    assert "there is no previous index to go back to" in result.stderr


@pytest.mark.parametrize("command", ["rebuild", "sync"])
def test_processes_that_would_wait_for_each_other_are_refused(run: Run, cells: Sequence[Cell], command: str) -> None:
    result = run("index", command, "--processes", "2")
    assert result.exit_code == 2
    assert "--processes 2 gains nothing with the SQLite index" in result.stderr
    assert run("index", command, "--processes", "1").exit_code == 0


def test_there_may_be_nothing_to_abandon(run: Run, cells: Sequence[Cell]) -> None:
    assert run("index", "rebuild", "--abandon").stdout == "there is no rebuild to abandon\n"
    assert run("index", "rebuild", "--abandon", "--back").exit_code == 2


@pytest.mark.parametrize("what", ["rebuild", "verify"])
def test_nobody_rebuilds_while_somebody_else_works_on_the_index(
    run: Run, cells: Sequence[Cell], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.indexer.reconcile.rebuild._LEASE_TIMEOUT_S", 0)
    engine = create_database_engine(load_settings(None, None).fleet.database_url.get_secret_value())
    with (
        closing(CellLeases(Fleet(engine).open_leases(f"fleetlight index {what}"))) as leases,
        leases.rebuild() if what == "rebuild" else leases.bulk(cells[0]),
    ):
        result = run("index", "rebuild")
    assert result.exit_code == 1
    assert f"by fleetlight index {what} (process " in result.stderr
