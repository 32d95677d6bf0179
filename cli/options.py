"""Options that many commands share, and the examples at the end of each `--help`."""

import shlex
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_COMPLETION_TIMEOUT_S = 2.0


def named_folder(text: str) -> Path:
    """The folder that an option names: not the working directory because the variable of a script was empty."""
    if not text:
        raise typer.BadParameter("names no folder")
    return Path(text)


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="FLEETLIGHT_CONFIG",
        help="TOML file with the settings; ./fleetlight.toml when there is one.",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        parser=named_folder,
        envvar="FLEETLIGHT_DATA_DIR",
        help="Folder of a fleet that `fleetlight up` runs; ./fleetlight-data unless a fleet database is configured.",
    ),
]


def cell_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of cells that begin with what was typed, for completion; none of a fleet that does not answer."""
    # Only here: they take a moment, and every command imports this module.
    from fleetlight.cells.errors import DatabaseUrlError, FleetUnreachableError  # noqa: PLC0415
    from fleetlight.cli.errors import CommandError  # noqa: PLC0415
    from fleetlight.cli.fleet import open_fleet, sorted_by_name  # noqa: PLC0415
    from fleetlight.cli.settings import load_settings  # noqa: PLC0415

    try:
        settings = load_settings(ctx.params.get("config"), ctx.params.get("data_dir"))
        with open_fleet(settings.fleet, answer_timeout_s=_COMPLETION_TIMEOUT_S) as fleet:
            return [cell.name for cell in sorted_by_name(fleet.cells()) if cell.name.startswith(incomplete)]
    except (DatabaseUrlError, FleetUnreachableError, CommandError):
        return []


CellOption = Annotated[
    str | None,
    typer.Option("--cell", metavar="CELL", help="Only this cell, by name or uuid.", autocompletion=cell_names),
]
OneCellArgument = Annotated[
    str | None,
    typer.Argument(metavar="[CELL]", help="The same as --cell.", show_default=False, autocompletion=cell_names),
]


def one_cell(argument: str | None, option: str | None) -> str | None:
    """The cell that is named behind the command, or by --cell. Raises typer.BadParameter where both are."""
    if None not in (argument, option):
        raise typer.BadParameter(f"name one cell: '{argument}' or --cell {option}")
    return option if argument is None else argument


class Output(StrEnum):
    """How a command prints what it has found: for people, or for programs."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


OutputOption = Annotated[Output, typer.Option("--output", metavar="FORM", help="How to print it: table, json or csv.")]


# Cells that a sync and a rebuild read at once unless given.
CELLS_AT_ONCE = 4
RateOption = Annotated[
    float | None, typer.Option(min=0.1, metavar="ROWS", help="Read at most so many rows a second, of all cells.")
]
ParallelOption = Annotated[int, typer.Option(min=1, max=64, metavar="CELLS", help="Cells to read at once.")]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        metavar="NUMBER",
        help="Processes to read cells in, at least a cell each; indexer.sync_processes unless given.",
    ),
]

HostOption = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on; api.host unless given.")]
PortOption = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port to listen on, 0 for any free one; api.port unless given.")
]
AuthOption = Annotated[str | None, typer.Option(metavar="STRATEGY", help="How callers log in; api.auth unless given.")]
InsecureOption = Annotated[
    bool,
    typer.Option("--insecure", help="Listen on other addresses than loopback although --auth none checks no login."),
]


def examples(*commands: str) -> str:
    """The text below the options of a command: one example a line."""
    return "\n\n".join(("Examples:", *(f"$ {command}" for command in commands)))


def program() -> str:
    """This program, as it can be called from the working directory: for commands that are there to be pasted."""
    called = Path(sys.argv[0]).absolute()
    if called.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m fleetlight.cli"
    found = shutil.which(called.name)
    if found is not None and Path(found).absolute() == called:
        return called.name
    here = Path.cwd()
    return shlex.quote(str(called.relative_to(here) if called.is_relative_to(here) else called))
