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
    """Parse the folder of an option; refuses an empty text, which a script's unset variable would give."""
    if not text:
        raise typer.BadParameter("names no folder")
    return Path(text)


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="FLEETLIGHT_CONFIG",
        help="TOML file with the settings; by default ./fleetlight.toml if it exists.",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        parser=named_folder,
        envvar="FLEETLIGHT_DATA_DIR",
        help="Data folder of `fleetlight up`; by default ./fleetlight-data, unless a fleet database is configured.",
    ),
]


def cell_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete names of cells; returns none if the fleet does not answer."""
    # Imported only here, since these imports are slow and every command imports this module.
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
    """The cell named by argument or by --cell. Raises typer.BadParameter if both are given."""
    if None not in (argument, option):
        raise typer.BadParameter(f"name one cell: '{argument}' or --cell {option}")
    return option if argument is None else argument


class Output(StrEnum):
    """The output format of a command: for people, or for programs."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


OutputOption = Annotated[Output, typer.Option("--output", metavar="FORM", help="The format: table, json or csv.")]


# How many cells a sync or rebuild reads at once by default.
CELLS_AT_ONCE = 4
RateOption = Annotated[
    float | None, typer.Option(min=0.1, metavar="ROWS", help="Read at most this many rows a second, of all cells.")
]
ParallelOption = Annotated[int, typer.Option(min=1, max=64, metavar="CELLS", help="Cells to read at once.")]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        metavar="NUMBER",
        help="Processes that read cells, each at least one cell; indexer.sync_processes by default.",
    ),
]

HostOption = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on; api.host by default.")]
PortOption = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port to listen on, 0 for any free one; api.port by default.")
]
AuthOption = Annotated[str | None, typer.Option(metavar="STRATEGY", help="How callers log in; api.auth by default.")]
InsecureOption = Annotated[
    bool,
    typer.Option("--insecure", help="Allow addresses other than loopback with --auth none, which checks no login."),
]


def examples(*commands: str) -> str:
    """Format the examples below the options of a command, one per line."""
    return "\n\n".join(("Examples:", *(f"$ {command}" for command in commands)))


def program() -> str:
    """This program as one can call it from the working directory, for commands that people paste."""
    called = Path(sys.argv[0]).absolute()
    if called.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m fleetlight.cli"
    found = shutil.which(called.name)
    if found is not None and Path(found).absolute() == called:
        return called.name
    here = Path.cwd()
    return shlex.quote(str(called.relative_to(here) if called.is_relative_to(here) else called))
