"""`fleetlight index work`, and the records that the commands of the index leave of what they do themselves."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import text

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.index_work import WorkKind, WorkState
from fleetlight.cells.model import Cell
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.index import verification
from fleetlight.cli.index.orders import OrderedWork
from fleetlight.cli.index.recorded_work import CommandWork, recorded
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.waiting import wait_until
from tests.unit.cli.conftest import Run

_INTERRUPTED = 130
_GOES_ON = "stopped; the same command goes on from here\n"


@pytest.fixture(autouse=True)
def nobody_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_CATCH_UP_TIMEOUT_S", 0)


@pytest.fixture
def cells(empty_place: Path) -> Sequence[Cell]:
    """Two cells with three instances each, none of them in the index."""
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        embedded = set_up_cells(folder, fleet, 2)
        for cell in embedded:
            InstanceOperations(cell.engine, fleet, cell.cell).create_many([{}, {}, {}])
            cell.engine.dispose()
    return [cell.cell for cell in embedded]


@pytest.fixture
def fleet(cells: Sequence[Cell]) -> Iterator[Fleet]:
    with open_fleet(load_settings(None, None).fleet) as fleet:
        yield fleet


@pytest.fixture
def work(run: Run) -> Callable[[], list[Any]]:
    """What `index work list` shows."""

    def read() -> list[Any]:
        result = run("index", "work", "list", "--output", "json")
        assert result.exit_code == 0, result.stderr
        found: list[Any] = json.loads(result.stdout)
        return found

    return read


def test_commands_leave_a_record_of_what_they_do(
    run: Run, cells: Sequence[Cell], work: Callable[[], list[Any]]
) -> None:
    calls = (("sync",), ("verify", "--cell", "cell1"), ("verify", "--repair"), ("rebuild",), ("purge",))
    for call in calls:
        assert run("index", *call).exit_code == 0
    shown = [(each["kind"], each["state"], each["cells"], each["done"], each["result"]) for each in work()[::-1]]
    both = ["cell1", "cell2"]
    assert shown == [
        ("sync", "done", both, 6, "6 instances of 2 cells synced"),
        ("verify", "done", ["cell1"], 3, "1 of 1 cell agree with the index"),
        ("repair", "done", both, 6, "2 of 2 cells agree with the index"),
        ("rebuild", "done", both, 6, "the new index is the current one; the old one is kept"),
        ("purge", "done", both, 0, "0 deleted instances removed from the index"),
    ]
    assert all(each["by"].endswith(", by a command") and each["ended_at"] for each in work())


@pytest.mark.parametrize(("call", "said"), [("sync", _GOES_ON), ("rebuild", _GOES_ON), ("verify", "stopped\n")])
def test_command_ends_as_by_ctrl_c_when_its_work_is_stopped_elsewhere(
    run: Run, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, call: str, said: str
) -> None:
    run("index", "sync", "--cell", "cell1")
    step = CommandWork.step

    def stopped_meanwhile(progress: CommandWork) -> None:
        [running] = fleet.index_work.open()
        fleet.index_work.stop(running.id, 1)
        step(progress)

    monkeypatch.setattr(CommandWork, "step", stopped_meanwhile)
    result = run("index", call)
    assert (result.exit_code, result.stderr.endswith(said)) == (_INTERRUPTED, True), result.stderr
    last = fleet.index_work.all()[0]
    assert (last.state, last.result) == (WorkState.STOPPED, "stopped")


def test_ctrl_c_is_recorded_as_a_stop(
    run: Run, cells: Sequence[Cell], work: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_progress: CommandWork, _cell: str, _done: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CommandWork, "show", interrupted)
    assert run("index", "verify").exit_code == _INTERRUPTED
    assert [each["state"] for each in work()] == ["stopped"]


def test_what_a_command_could_not_do_is_in_its_record(
    run: Run, cells: Sequence[Cell], fleet: Fleet, work: Callable[[], list[Any]]
) -> None:
    with closing(CellLeases(fleet.open_leases("another sync"))) as leases, leases.bulk(cells[0]):
        for call in ("sync", "verify"):
            assert run("index", call).exit_code == 1
    for each in work():
        [finding] = each["findings"]
        assert (each["state"], finding["cell"], finding["uuid"]) == ("failed", "cell1", None)
        assert "another sync" in finding["problem"]


def test_record_of_a_killed_command_is_ended_by_the_next_or_by_an_indexer(
    run: Run, fleet: Fleet, work: Callable[[], list[Any]]
) -> None:
    fleet.index_work.begin_command(WorkKind.SYNC, [], "ada", 1)
    assert run("index", "sync").exit_code == 0
    fleet.index_work.begin_command(WorkKind.VERIFY, [], "ada", 2)
    with in_thread(OrderedWork(load_settings(None, None), fleet).run):
        wait_until(lambda: not fleet.index_work.open())
    assert {(each["kind"], each["state"], each["result"]) for each in work() if each["by"] == "ada"} == {
        ("sync", "failed", "the command ended without saying how"),
        ("verify", "failed", "the command ended without saying how"),
    }


def test_record_of_a_command_that_runs_is_left_alone(run: Run, fleet: Fleet) -> None:
    with recorded(fleet, WorkKind.SYNC, [], None, Event()):
        assert run("index", "sync").exit_code == 0
        [running] = fleet.index_work.open()
        stopped = run("index", "work", "stop", running.id)
        assert stopped.stdout == f"{running.id}: stops after its batch\n"
        # An indexer that has looked at it takes what was ordered after it.
        fleet.index_work.order(WorkKind.PURGE, [], "ada", 2**60)
        with in_thread(OrderedWork(load_settings(None, None), fleet).run):
            wait_until(lambda: [each.id for each in fleet.index_work.open()] == [running.id])


def test_commands_work_without_a_place_for_their_records(run: Run, fleet: Fleet) -> None:
    with fleet.database.writing() as connection:
        connection.execute(text("ALTER TABLE index_work RENAME TO hidden"))
    result = run("index", "sync")
    assert result.exit_code == 0
    assert "consoles do not see this work: the fleet database cannot be used" in result.stderr


def test_work_of_a_console_is_followed_shown_and_stopped(run: Run, fleet: Fleet) -> None:
    assert "there is no work" in run("index", "work", "list").stderr
    cell = fleet.cells()[0]
    order = fleet.index_work.order(WorkKind.SYNC, [cell.uuid], "ada", 1)
    with in_thread(OrderedWork(load_settings(None, None), fleet).run):
        followed = run("index", "work", "show", order.id, "--follow")
    assert (followed.exit_code, "3 instances of 1 cell synced" in followed.stdout) == (0, True)
    waiting = fleet.index_work.order(WorkKind.VERIFY, [cell.uuid], "ada", 2)
    assert run("index", "work", "stop", waiting.id).stdout == f"{waiting.id}: stopped\n"
    shown = run("index", "work", "show", waiting.id)
    assert (shown.exit_code, "stopped before it began" in shown.stdout) == (1, True)
    found = fleet.index_work.find(waiting.id)
    assert found is not None
    assert found.state is WorkState.STOPPED


def test_rows_beyond_what_was_expected_raise_the_total(fleet: Fleet) -> None:
    """Instances that were deleted are kept for a while, and compared too."""
    work_id = fleet.index_work.begin_command(WorkKind.VERIFY, ["all"], "ada", 1)
    totals = []
    for done in (2, 5):
        fleet.index_work.record(work_id, done, 3, None)
        found = fleet.index_work.find(work_id)
        assert found is not None
        totals.append(found.total)
    assert totals == [3, 5]


@pytest.mark.parametrize("command", ["show", "stop"])
def test_unknown_work_is_wrong_usage(run: Run, cells: Sequence[Cell], command: str) -> None:
    result = run("index", "work", command, "nothing")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: there is no work nothing: see `fleetlight index work list`\n",
    )
