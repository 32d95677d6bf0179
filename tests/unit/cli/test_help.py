"""Every command explains itself."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fleetlight.cli.app import COMMANDS, LaterCommand, app
from fleetlight.cli.data_folder import DataFolder
from tests.unit.cli.conftest import Run


def later_commands() -> Mapping[str, LaterCommand]:
    found: Any = typer.main.get_command(app)
    return dict(found.commands)


def commands(command: Any, *names: str) -> Iterator[tuple[str, ...]]:
    if not hasattr(command, "commands"):
        yield names
        return
    for name, each in command.commands.items():
        yield from commands(each, *names, name)


ALL_COMMANDS = [names for name, later in later_commands().items() for names in commands(later.loaded(), name)]


def test_the_commands_are_known() -> None:
    assert {" ".join(names) for names in ALL_COMMANDS} == {
        "up",
        "api",
        "indexer",
        "relay",
        "reserve cancel",
        "reserve complete",
        "reserve create",
        "reserve list",
        "reserve show",
        "worker",
        "deliverer",
        "subscribe add",
        "subscribe list",
        "subscribe show",
        "subscribe pause",
        "subscribe resume",
        "subscribe remove",
        "subscribe failures",
        "subscribe replay",
        "subscribe skip",
        "subscribe test",
        "index sync",
        "mcp",
        "index rebuild",
        "index drop-old",
        "index fields",
        "index find",
        "list",
        "history",
        "changes",
        "export",
        "list-fields",
        "balance",
        "capacity",
        "usage",
        "index status",
        "doctor",
        "findings",
        "status",
        "top",
        "compare",
        "explain",
        "index verify",
        "index purge",
        "index failures list",
        "index failures show",
        "index failures retry",
        "index failures drop",
        "index work list",
        "index work show",
        "index work stop",
        "notifications check",
        "notifications emit",
        "notifications schemas",
        "cell list",
        "cell certs",
        "node refresh",
        "node-agent",
        "cell add native",
        "cell add nova-db",
        "cell add nova-api",
        "cell add ganeti",
        "cell add-nova",
        "cell acknowledge",
        "cell disable",
        "cell enable",
        "cell remove",
        "cell set",
        "host add",
        "host agent",
        "host list",
        "host set",
        "database upgrade",
        "accounts elasticsearch",
        "luxi",
        "accounts rabbitmq",
        "accounts postgresql",
        "accounts cell-keys",
        "accounts producer",
        "accounts producers",
        "accounts revoke-producer",
        "identity user add",
        "identity user list",
        "identity user remove",
        "identity user set-password",
        "identity user disable",
        "identity user enable",
        "identity project add",
        "identity project list",
        "identity project remove",
        "identity role add",
        "identity role list",
        "identity role remove",
        "identity credential add",
        "identity credential list",
        "identity credential remove",
        "identity token",
    }


@pytest.mark.parametrize("names", sorted({names[:-1] for names in ALL_COMMANDS if len(names) > 1}), ids=" ".join)
def test_help_of_a_group_has_examples_of_its_commands(run: Run, names: tuple[str, ...]) -> None:
    shown = run(*names, "--help").stdout
    found = [line.split()[2:] for line in shown.splitlines() if "$ fleetlight" in line]
    assert found
    for words in found:
        assert any(tuple(words[: len(command)]) == command for command in ALL_COMMANDS), words


@pytest.mark.parametrize("names", [(), ("cell",), ("cell", "list"), ("up",), ("index", "failures")], ids=" ".join)
def test_flag_shows_no_type(run: Run, names: tuple[str, ...]) -> None:
    shown = run(*names, "--help").stdout
    assert "<bool>" not in shown
    assert "Show this message and exit." in shown


def asked_by_a_shell(fleet: DataFolder, words: str) -> Mapping[str, str]:
    """The variables by which bash asks what `words` may end with, behind the name of the program."""
    typed = f"fleetlight {words}"
    return {
        "_FLEETLIGHT_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
        "FLEETLIGHT_DATA_DIR": str(fleet.path),
    }


def test_completion_is_answered_by_the_program(fleet_of_two_cells: DataFolder) -> None:
    environment = os.environ | asked_by_a_shell(fleet_of_two_cells, "cell disable c")
    completed = subprocess.run(
        [Path(sys.executable).with_name("fleetlight")], env=environment, capture_output=True, text=True, check=False
    )
    assert (completed.stdout.split(), completed.stderr) == (["cell1", "cell2"], "")


@pytest.mark.parametrize("words", ["host list c", "relay --cell c", "index failures list --cell c"])
def test_completion_knows_the_cells(fleet_of_two_cells: DataFolder, words: str) -> None:
    asked = asked_by_a_shell(fleet_of_two_cells, words)
    completed = CliRunner().invoke(app, env=asked, prog_name="fleetlight")
    assert (completed.stdout.split(), completed.stderr) == (["cell1", "cell2"], "")


@pytest.mark.parametrize("names", ALL_COMMANDS, ids=" ".join)
def test_help_has_an_example(run: Run, names: tuple[str, ...]) -> None:
    result = run(*names, "--help")
    assert result.exit_code == 0
    assert f"$ fleetlight {' '.join(names)}" in result.stdout
    assert "\x1b[" not in result.stdout


def test_paragraphs_of_help_break_where_the_terminal_ends(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 72)
    lines = [line.strip() for line in run("explain", "--help").stdout.splitlines()]
    began = next(number for number, line in enumerate(lines) if line.startswith("This process runs"))
    paragraph = lines[began : lines.index("", began)]
    assert len(paragraph) > 2
    for line, following in pairwise(paragraph):
        assert len(f" {line} {following.split()[0]} ") > 72, f"{line!r} had room for more"


def test_rate_of_the_simulator_is_not_called_that_of_the_changes(run: Run) -> None:
    """Of those there are several times as many, as `fleetlight index status` shows."""
    words = run("up", "--help").stdout.replace("│", " ").split()
    assert "operations per second, of which each is several changes" in " ".join(words)


def test_version_is_that_of_the_package(run: Run) -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"fleetlight {version('fleetlight')}\n"


def test_without_arguments_the_commands_are_listed(run: Run) -> None:
    result = run()
    assert result.exit_code == 2
    assert "notifications" in result.output


@pytest.mark.parametrize(
    "arguments",
    [("upp",), ("up", "--cells", "0"), ("up", "--cells", "many"), ("index", "sync"), ("notifications", "check")],
    ids=" ".join,
)
def test_wrong_usage_has_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_choice_that_is_not_there_is_said_in_our_words(run: Run) -> None:
    refused = run("index", "sync", "--source", "foo")
    assert refused.exit_code == 2
    assert "'foo' is not one of 'cells', 'api'." in " ".join(refused.stderr.split())
    assert "Value error" not in refused.stderr


@pytest.mark.parametrize("names", [("up",), ("index", "status")], ids=" ".join)
def test_empty_folder_is_not_the_working_directory(run: Run, empty_place: Path, names: tuple[str, ...]) -> None:
    """As a script gives it whose variable is not set."""
    refused = run(*names, "--data-dir", "")
    assert refused.exit_code == 2
    assert "--data-dir" in refused.stderr
    assert not list(empty_place.iterdir())


@pytest.mark.parametrize("name", COMMANDS)
def test_list_of_commands_says_what_each_says_itself(name: str) -> None:
    later = later_commands()[name]
    assert later.loaded().help.split("\n\n")[0] == later.help


@pytest.mark.parametrize("library", ["elasticsearch", "fleetlight.api.app", "uvicorn", "alembic", "psycopg", "textual"])
def test_commands_start_without_libraries_that_few_of_them_use(library: str, loaded_by_the_commands: set[str]) -> None:
    """People wait for what is imported, whichever command they give: together these take as long as all the rest."""
    assert library not in loaded_by_the_commands


@pytest.fixture(scope="module")
def loaded_by_the_commands() -> set[str]:
    return loaded_by(f"import {', '.join(module for module, _ in COMMANDS.values())}")


@pytest.mark.parametrize(
    ("code", "needless"),
    [
        (
            "import fleetlight.cli.app",
            {
                "sqlalchemy",
                "pydantic",
                "structlog",
                "rich",
                "fleetlight.cells",
                "fleetlight.indexer",
                "fleetlight.api",
                "fleetlight.notifications",
            },
        ),
        (
            "import fleetlight.cli.settings",
            {"sqlalchemy", "kombu", "prometheus_client", "fleetlight.cells.model", "fleetlight.indexer.backends.base"},
        ),
        (
            "import fleetlight.cli.processes.processes",
            {
                "fleetlight.api.identity",
                "fleetlight.cells.fan_out.cell_pool",
                "fleetlight.manager.operations.native_cells",
            },
        ),
        ("import fleetlight.cli.cells.cell", {"cryptography.x509"}),
        (
            "import fleetlight.manager.commands.agent, fleetlight.manager.agents.server",
            {
                "sqlalchemy",
                "psycopg",
                "kombu",
                "elasticsearch",
                "fleetlight.cells",
                "fleetlight.manager.operations",
                "fleetlight.indexer",
                "fleetlight.api",
            },
        ),
    ],
)
def test_little_is_imported_for(code: str, needless: set[str]) -> None:
    """Help, completion and each process: what an `__init__` imports, everybody imports who needs one of its modules."""
    assert not needless & loaded_by(code)


def loaded_by(code: str) -> set[str]:
    printing = f"{code}; import sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", printing], capture_output=True, text=True, check=True)
    return set(found.stdout.split())
