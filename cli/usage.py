"""`fleetlight usage`: how many hours instances ran and were reserved for."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.options import ConfigOption, DataDirOption, Output, OutputOption, examples
from fleetlight.cli.output import print_csv, print_json, print_notice, print_table
from fleetlight.cli.settings import Settings, load_settings

app = typer.Typer()

_COLUMNS = {
    "INSTANCES": "instances",
    "HOURS": "instance_hours",
    "VCPU H": "vcpu_hours",
    "MEMORY GiB H": "memory_gib_hours",
    "DISK GiB H": "disk_gib_hours",
    "RESERVED H": "reserved_instance_hours",
}
_OPTIONS = {name: f"--{name}" for name in ("from", "to", "by")}


@app.command(
    "usage",
    epilog=examples(
        "fleetlight usage --from 2026-11-01T00:00:00Z",
        "fleetlight usage --from 2026-10-01T00:00:00Z --to 2026-11-01T00:00:00Z --by project,flavor --output csv",
        "fleetlight usage --from 2026-11-25T00:00:00+01:00 --by cell --output json",
    ),
)
def usage(
    *,
    begin: Annotated[str, typer.Option("--from", metavar="TIME", help="Begin, as in 2026-11-01T00:00:00Z.")],
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="End; now unless given.")] = None,
    by: Annotated[
        str, typer.Option(metavar="GROUPS", help="What the sums are apart by: project, flavor, cell.")
    ] = "project",
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show how many hours instances ran and were reserved for in a period, deleted ones too.

    An instance runs from its launch until it is deleted, stopped or not, as Nova counts it. Times its vCPUs, memory and
    disk, by each change of its size as far back as its cell keeps changes (relay.changelog_retention_h); a notice says
    of which cells not every change is known.
    """
    asked = {"from": begin, "by": by} | ({} if end is None else {"to": end})
    settings = load_settings(config, data_dir)
    with open_fleet(settings.fleet) as fleet:
        found = asyncio.run(_ask(settings, fleet, asked))
    _show(output, found)
    for cell in found["cells"]:
        if cell["why"] is not None:
            print_notice(f"Not exact: cell {cell['cell']}: {cell['why']}")


async def _ask(settings: Settings, fleet: Fleet, asked: Mapping[str, str]) -> dict[str, Any]:
    """The answer of `GET /fleetlight/usage`, and whether it is complete. Raises CommandError, ConfigurationError."""
    from fleetlight.cli.in_process import document_of, opened_api  # noqa: PLC0415 -- other commands would start a quarter later

    async with opened_api(settings, fleet) as api:
        answer = await api.call("GET", "/fleetlight/usage", query=urlencode(asked))
    return {**document_of(answer, _OPTIONS), "complete": answer.headers["fleetlight-complete"] == "true"}


def _show(output: Output, found: Mapping[str, Any]) -> None:
    match output:
        case Output.JSON:
            print_json(found)
        case Output.CSV:
            names = [*found["by"], *found["total"]]
            print_csv(names, ([row[name] for name in names] for row in found["usage"]))
        case Output.TABLE:
            _print_table(found)


def _print_table(found: Mapping[str, Any]) -> None:
    """A row for each group, and one of all."""
    by = found["by"]
    total = {**dict.fromkeys(by, ""), **found["total"]} | ({by[0]: "total"} if by else {})
    rows = [
        (*(str(row[name] or "-") for name in by), *(_number(row[name]) for name in _COLUMNS.values()))
        for row in (*found["usage"], total)[0 if by else 1 :]
    ]
    print_table((*(name.upper() for name in by), *_COLUMNS), rows, right_aligned=tuple(_COLUMNS))


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
