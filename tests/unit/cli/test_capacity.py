"""`fleetlight capacity`."""

import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from fleetlight.cli.app import app
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_balance import crowded_cell, file
from tests.unit.cli.test_output import Terminal

__all__ = ["crowded_cell", "file"]


@pytest.mark.usefixtures("crowded_cell")
def test_each_cell_shows_what_it_has_and_what_is_left(run: Run) -> None:
    shown = run("capacity")
    assert shown.exit_code == 0, shown.stderr
    header, _, *lines = shown.stdout.splitlines()
    assert header.split() == ["CELL", "RESOURCE", "TOTAL", "USED", "RESERVED", "FREE", "TAKEN", "%"]
    assert [line.split() for line in lines] == [
        ["one", "processors", "32", "8", "0", "24", "25"],
        ["one", "memory", "GiB", "128", "8", "0", "120", "6"],
        ["one", "disk", "GiB", "800", "40", "0", "760", "5"],
    ]
    *_, part = [line.split() for line in run("capacity", "one", "--parts").stdout.splitlines() if "processors" in line]
    assert part == ["one", "nova", "default", "processors", "32", "8", "0", "24", "25", "16", "2", "of", "2"]
    document = json.loads(run("capacity", "--cell", "one", "--output", "json").stdout)
    assert document["complete"] is True
    assert document["cells"][0]["total"] == {"vcpus": 32, "memory_mib": 131072, "disk_mib": 819200}


@pytest.mark.usefixtures("crowded_cell")
def test_terminal_of_80_columns_has_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    with redirect_stdout(Terminal()) as shown:
        app(["capacity"], standalone_mode=False)
    _, _, processors, *_ = lines = shown.getvalue().splitlines()
    assert processors.endswith("██░░░░░░ 25")
    assert max(map(len, lines)) <= 80


@pytest.mark.usefixtures("crowded_cell")
def test_instances_of_a_size_are_counted_by_cell_and_in_all(run: Run) -> None:
    shown = run("capacity", "--memory", "16G", "--disk", "10G", "--vcpus", "2", "--no-capacity-checks")
    assert shown.stdout.splitlines()[2].split()[:3] == ["one", "6", "6"]
    assert shown.stdout.splitlines()[-1] == "In all 6 more"
    # Either host could take over what the other one has.
    redundant = run("capacity", "--memory", "16G", "--disk", "10G", "--vcpus", "2")
    assert redundant.stdout.splitlines()[-1] == "In all 3 more"


def test_room_in_a_file_is_told_with_and_without_reservations(run: Run, file: Path) -> None:
    options = ("--memory", "60000M", "--disk", "10G", "--vcpus", "2", "--text-data", file, "--output", "json")
    document = json.loads(run("capacity", *options).stdout)
    assert document["count"] <= document["count_without_reservations"]
    [cell] = document["cells"]
    assert (cell["cell"], set(cell["tiers"][0])) == ("cluster.data", {"memory_mib", "disk_mib", "vcpus", "count"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--memory", "1G", "--disk", "2G"), "a size needs --memory, --disk and --vcpus"),
        (("--memory", "0G"), "'0G' is nothing"),
        (("--size", "1,2,3"), "there is no --size: type --memory 4G --disk 20G --vcpus 2"),
        (("--text-data", "x"), "give --memory, --disk and --vcpus as well"),
    ],
)
def test_wrong_arguments_are_named(run: Run, arguments: tuple[str, ...], said: str) -> None:
    shown = run("capacity", *arguments)
    assert (shown.exit_code, said in shown.stderr) == (2, True), shown.stderr
