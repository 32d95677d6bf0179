"""`fleetlight usage`: how many hours instances ran and were reserved for."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fleetlight.cli.operator_api import OpenApi
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_csv, print_json, print_notice, print_table

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
    api: OpenApi,
) -> None:
    """Show how many hours instances ran and were reserved for in a period, deleted ones too.

    An instance runs from its launch until it is deleted, stopped or not, as Nova counts it. Times its vCPUs, memory and
    disk, by each change of its size as far back as its cell keeps changes (relay.changelog_retention_h); a notice says
    of which cells not every change is known.
    """
    asked = {"from": begin, "by": by} | ({} if end is None else {"to": end})
    found, is_complete = api.get("/fleetlight/usage", asked, _OPTIONS)
    _show(output, {**found, "complete": is_complete})
    for cell in found["cells"]:
        if cell["why"] is not None:
            print_notice(f"Not exact: cell {cell['cell']}: {cell['why']}")


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
