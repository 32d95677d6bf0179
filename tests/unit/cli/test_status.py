"""`fleetlight status` says in one screen whether everything is all right, and if not, what to do."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fleetlight.cells.findings import Finding, ok, unknown, wrong
from fleetlight.cells.model import Cell
from fleetlight.cli.board import CellLine
from fleetlight.cli.doctor.examination import Examination, suspected
from fleetlight.cli.settings import load_settings
from fleetlight.cli.status import screen
from fleetlight.listing.answer import Route
from fleetlight.listing.cell_board import CellHealth
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_doctor import cell, fleet_of_folder

__all__ = ["cell"]

LINE = CellLine(
    "cell1",
    CellHealth.OK,
    None,
    Route.INDEX,
    lag=0,
    age_s=0.5,
    log_problem=None,
    instances=1000,
    nodes=10,
    dead_letters=0,
    jobs_waiting=2,
    jobs_running=1,
)
_LONG_NAME = f"cell-{'x' * 50}"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the fixture has indexed is fresh for as long as a test takes on a busy machine."""
    monkeypatch.setenv("FLEETLIGHT_SEARCH_STALENESS_LIMIT_S", "600")


def shown(findings: Sequence[Finding], board: Sequence[CellLine] | None) -> Sequence[str]:
    lines = screen(Examination(list(findings), board))
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    return lines


def test_fleet_that_is_well_is_a_few_lines() -> None:
    slower = replace(LINE, name="cell2", age_s=1.25)
    foreign = replace(LINE, name="nova", route=Route.LIVE, nodes=None, jobs_waiting=None, jobs_running=None)
    assert shown([ok("index", "there"), unknown("bus", "not seen")], [LINE, slower, foreign]) == [
        "Everything is well.",
        "",
        "cells       3 of 3 well",
        "instances   3,000 in the index",
        "nodes       20 of native cells",
        "lists       2 cells from the index, at most 1.2 s old; 1 asked itself",
        "jobs        4 waiting, 2 running",
        "messages    0 could not be indexed",
        "checks      1 ok, 1 unknown",
    ]


def test_thousand_cells_that_are_down_are_one_thing_to_do() -> None:
    down = [replace(LINE, name=f"{_LONG_NAME}{n}", health=CellHealth.DOWN) for n in range(1000)]
    faults = [wrong(f"cell {each.name}", f"{each.name} does not answer", "start its database") for each in down]
    lines = shown([*faults, wrong("disk of /var", "95 % full", "make room")], down)
    assert lines[0] == "Not everything is well: 2 things to do."
    assert "cells       0 of 1000 well: 1000 down" in lines
    whole = " ".join(" ".join(lines).split())
    assert f"cell {_LONG_NAME}2 and 997 more {_LONG_NAME}0 does not answer > start its database" in whole
    assert whole.endswith("disk of /var 95 % full > make room")


def test_what_has_no_room_is_counted() -> None:
    faults = [wrong(f"thing {n}", "is broken " * 100, f"repair {n} {'with care ' * 5}") for n in range(100)]
    lines = shown(faults, [LINE])
    assert "thing 0" in lines
    assert lines[-1].startswith("And 9")
    assert lines[-1].endswith(" things more to do: see `fleetlight doctor`.")


def test_board_that_could_not_be_looked_at_is_not_well() -> None:
    lines = shown([unknown("board of cells", "refused")], None)
    assert lines[0] == "Not everything is well: 0 things to do."
    assert "cells       not known: the cells could not be looked at" in lines


@pytest.mark.usefixtures("cell")
def test_fleet_that_is_followed_is_well(run: Run) -> None:
    result = run("status")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "Everything is well."), result.stdout
    document = json.loads(run("status", "--output", "json").stdout)
    assert (document["well"], document["cells"], document["routes"]) == (True, {"ok": 1}, {"index": 1})
    assert document["wrong"] == []
    assert "cells,1 of 1 well," in run("status", "--output", "csv").stdout.splitlines()


def test_cell_that_is_away_is_named_with_what_to_do(run: Run, cell: Cell) -> None:
    Path(cell.database_url.removeprefix("sqlite:///")).unlink()
    result = run("status")
    assert result.exit_code == 1
    assert "cells       0 of 1 well: 1 down" in result.stdout
    assert "see that the server runs" in result.stdout
    assert len(result.stdout.splitlines()) < 24
    document = json.loads(run("status", "--output", "json").stdout)
    assert {"cell cell1"} <= {each["about"] for each in document["wrong"]}


@pytest.mark.parametrize("arguments", [("list", "instances"), ("capacity",), ("doctor",), ("status",)])
@pytest.mark.usefixtures("cell")
def test_index_that_is_gone_leaves_the_output_json(run: Run, arguments: Sequence[str]) -> None:
    load_settings(None, None).index.path.unlink()
    assert json.loads(run(*arguments, "--output", "json").stdout)


def test_cell_that_the_board_does_not_find_well_is_a_fault_though_its_checks_pass() -> None:
    slow = replace(LINE, health=CellHealth.DOWN, reason="it has not answered within 2.5 s")
    well, away = replace(LINE, name="cell2"), replace(slow, name="cell3")
    found = Examination([ok("cell cell1", "answers"), wrong("cell cell3", "refused", "start it")], [slow, well, away])
    [fault] = suspected(found)
    assert (fault.about, fault.evidence) == ("lists of cell1", "down: it has not answered within 2.5 s")


def test_disabled_cell_is_no_fault(run: Run, cell: Cell) -> None:
    with closing(fleet_of_folder()) as fleet:
        fleet.set_disabled(cell.uuid, True)
    result = run("status")
    assert (result.exit_code, "0 of 1 well: 1 disabled" in result.stdout) == (0, True)


def test_configuration_that_makes_no_sense_has_exit_code_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", "paper")
    assert run("status").exit_code == 2


def test_fleet_that_is_not_there_is_not_well(run: Run) -> None:
    result = run("status", "--data-dir", "nowhere")
    assert result.exit_code in {1, 2}
    assert "Everything is well" not in result.stdout
