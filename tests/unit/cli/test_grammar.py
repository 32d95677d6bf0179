"""One grammar: what is meant by an option, and how it is typed, is the same in every command."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from fleetlight.cli.app import app
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.options import Output
from fleetlight.cli.sizes import disk_gib, size_from_zero_mib, size_mib, size_text
from tests.unit.cli.conftest import Run

CREATED = Path(__file__).parents[3] / "notifications" / "samples" / "instance.create.end.json"
PRINTING_DATA = {
    "accounts producers",
    "balance",
    "capacity",
    "cell add-nova",
    "cell list",
    "changes",
    "compare",
    "doctor",
    "explain",
    "findings",
    "history",
    "host list",
    "identity credential list",
    "identity project list",
    "identity role list",
    "identity user list",
    "index failures list",
    "index failures show",
    "index fields",
    "index find",
    "index status",
    "index verify",
    "index work list",
    "index work show",
    "list",
    "list-fields",
    "notifications check",
    "reserve list",
    "reserve show",
    "status",
    "subscribe failures",
    "subscribe list",
    "subscribe show",
    "usage",
}
_BROKER = ("--management-url", "http://[::1]:9", "--administrator", "a", "--password-file", CREATED)
# A call of each command that takes a cell, which is put at the end.
OF_ONE_CELL = {
    "accounts cell-keys": ("--cell",),
    "accounts producer": ("rack-agent", "--cell"),
    "accounts rabbitmq": (
        "--management-url",
        "http://[::1]:9",
        *("--administrator", "a", "--password-file", CREATED, "--cell"),
    ),
    "accounts revoke-producer": ("rack-agent", "--cell"),
    "balance": ("--cell",),
    "capacity": ("--cell",),
    "findings": ("--cell",),
    "cell acknowledge": (),
    "cell disable": (),
    "cell enable": (),
    "cell remove": ("--yes",),
    "cell set": ("--announcements",),
    "host add": ("--vcpus", "1", "--memory", "1G", "--disk", "1G", "--zone", "a", "CELL", "compute1"),
    "host agent": ("CELL", "compute1", "address"),
    "host list": (),
    "host set": ("CELL", "compute1"),
    "index failures drop": ("--all", "--yes", "--cell"),
    "index failures list": ("--cell",),
    "index failures retry": ("--all", "--cell"),
    "index purge": ("--cell",),
    "index sync": ("--type", "OS::Nova::Server", "--cell"),
    "index verify": ("--cell",),
    "list": ("instances", "--cell"),
    "node refresh": ("--cell",),
    "notifications emit": (CREATED, "--cell"),
    "relay": ("--cell",),
    "reserve cancel": ("web1", "--cell"),
    "reserve complete": ("web1", "--cell"),
    "reserve create": ("--cell",),
    "reserve list": ("--cell",),
    "reserve show": ("web1", "--cell"),
    "worker": ("--cell",),
}
MAKES_FILES_ONLY = {"cell certs"}
"""Its cell need not be one of a fleet that can be asked: it runs where the keys are kept."""


def commands(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
    loaded = command.loaded() if hasattr(command, "loaded") else command
    if not hasattr(loaded, "commands"):
        yield " ".join(names), loaded
        return
    for name, each in loaded.commands.items():
        yield from commands(each, *names, name)


ALL = dict(commands(typer.main.get_command(app)))


def options(command: Any) -> dict[str, Any]:
    return {name: each for each in command.params for name in each.opts if name.startswith("--")}


def test_what_prints_data_does_so_in_the_same_three_forms() -> None:
    assert {name for name, command in ALL.items() if "--output" in options(command)} == PRINTING_DATA
    for name in PRINTING_DATA:
        output = options(ALL[name])["--output"]
        assert output.type_descriptor.annotation is Output, name
        assert output.default is Output.TABLE, name


@pytest.mark.parametrize("name", sorted(PRINTING_DATA))
def test_json_of_a_command_is_documented(name: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "command-line.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert any(f"`{name}`" in row for row in rows)


@pytest.mark.parametrize("name", sorted(PRINTING_DATA))
def test_json_flag_is_refused_by_what_to_type(run: Run, name: str) -> None:
    refused = run(*name.split(), "--json")
    assert refused.exit_code == 2
    assert "type --output json" in refused.stderr


def test_each_size_is_typed_in_one_form() -> None:
    parsers = {size_mib, size_from_zero_mib, disk_gib}
    sizes = [
        (name, option, each)
        for name, command in ALL.items()
        for option, each in options(command).items()
        if option.removeprefix("--reserve-") in {"memory", "disk", "--memory", "--disk"} or each.metavar == "SIZE"
    ]
    assert len(sizes) > 8
    for name, option, each in sizes:
        assert each.metavar == "SIZE", (name, option)
        assert each.type_descriptor.parameter_info.parser in parsers, (name, option)
    assert not [option for command in ALL.values() for option in options(command) if option.endswith(("-gib", "-mib"))]


@pytest.mark.parametrize(
    ("text", "mebibytes"), [("512M", 512), ("4G", 4096), ("2T", 2 * 1024 * 1024), ("4g", 4096), ("2047T", 2146435072)]
)
def test_size_is_read_and_written_in_the_same_form(text: str, mebibytes: int) -> None:
    assert size_mib(text) == mebibytes
    assert size_text(mebibytes) == text.upper()


@pytest.mark.parametrize("text", ["", "4", "G", "-1G", "1.5G", "4GB", "²G", "2048T", "9" * 5000 + "G", "0M"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        size_mib(text)


def test_disks_of_hosts_are_whole_gibibytes() -> None:
    assert (disk_gib("0G"), disk_gib("2048M")) == (0, 2)
    with pytest.raises(typer.BadParameter, match="'512M' is no whole number of G"):
        disk_gib("512M")


@pytest.fixture
def two_cells(fleet_of_two_cells: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory is where the data folder of a fleet with two cells is, which stays as it is."""
    monkeypatch.chdir(fleet_of_two_cells.path.parent)


def takes_cell(command: Any) -> bool:
    return any(each.metavar in {"CELL", "[CELL]"} or "--cell" in each.opts for each in command.params)


def test_each_command_that_takes_a_cell_is_held_to_that() -> None:
    by_name = {name for name in ALL if name.startswith("cell ") and ALL[name].params[0].opts == ["name"]}
    made = {name for name in by_name if name.startswith("cell add")}
    taking = {name for name, command in ALL.items() if takes_cell(command)} | (by_name - made)
    assert taking - MAKES_FILES_ONLY == OF_ONE_CELL.keys()


@pytest.mark.usefixtures("two_cells")
@pytest.mark.parametrize("name", OF_ONE_CELL)
def test_unknown_cell_is_refused_with_those_that_there_are(run: Run, name: str) -> None:
    given = OF_ONE_CELL[name]
    arguments = ["cell9" if each == "CELL" else each for each in given] if "CELL" in given else [*given, "cell9"]
    refused = run(*name.split(), *arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == "error: no cell is called 'cell9'; did you mean 'cell2'? known: cell1, cell2\n"


@pytest.mark.usefixtures("two_cells")
def test_cell_stands_behind_the_command_too(run: Run) -> None:
    for command in ("balance", "capacity"):
        assert run(command, "cell1").stdout == run(command, "--cell", "cell1").stdout
        refused = run(command, "cell1", "--cell", "cell2")
        assert refused.exit_code == 2
        assert "name one cell: 'cell1' or --cell cell2" in refused.stderr


@pytest.mark.usefixtures("two_cells")
@pytest.mark.parametrize(
    "command", [("cell", "list"), ("capacity",), ("host", "list", "cell1"), ("list-fields", "nodes"), ("doctor",)]
)
def test_csv_has_the_columns_of_the_table_as_its_first_line(run: Run, command: Sequence[str]) -> None:
    title = run(*command).stdout.splitlines()[0]
    first, *rows = csv.reader(io.StringIO(run(*command, "--output", "csv").stdout))
    assert " ".join(title.split()) == " ".join(first)
    assert rows
    assert {len(row) for row in rows} == {len(first)}
    assert json.loads(run(*command, "--output", "json").stdout)


@pytest.mark.parametrize("name", ALL)
def test_help_has_an_example_of_the_command(name: str) -> None:
    assert f"$ fleetlight {name}" in ALL[name].epilog


@pytest.mark.usefixtures("two_cells")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "instances", "--order", "nmae"), "--order: 'nmae' is no field to sort by"),
        (("list", "instances", "--as-of", "yesterday"), "--as-of: 'yesterday' is no time"),
        (("explain", "GET /v2.1/servers", "--consistency", "weak"), "--consistency: 'weak' is not one of"),
        (("reserve", "create", "--disk-template", "paper"), "--disk-template: must be 'diskless', "),
        (("reserve", "create", "--memory", "4096"), "'4096' is no size such as 512M, 4G or 2T"),
        (("reserve", "create", "--template", "plain"), "type --disk-template plain"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_command(run: Run, arguments: Sequence[str], said: str) -> None:
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert said in " ".join(refused.stderr.replace("│", " ").split())
    for word in ("Value error", "body", "Input should"):
        assert word not in refused.stderr
