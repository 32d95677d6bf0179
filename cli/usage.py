"""`fleetlight usage`: shows for how many hours instances ran or were reserved."""

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
        "fleetlight usage",
        "fleetlight usage --from 2026-10-01T00:00:00Z --to 2026-11-01T00:00:00Z --by project,flavor --output csv",
        "fleetlight usage --from 2026-11-25T00:00:00+01:00 --by cell --output json",
    ),
)
def usage(
    *,
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="The begin; four weeks before the end by default."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The end; now by default.")] = None,
    by: Annotated[
        str, typer.Option(metavar="GROUPS", help="Group the sums by these: project, flavor, cell.")
    ] = "project",
    output: OutputOption = Output.TABLE,
    api: OpenApi,
) -> None:
    """Show for how many hours instances ran or were reserved in a period; deleted instances are included.

    An instance runs from its launch until it is deleted, even while it is stopped, as Nova counts it. Its hours are
    multiplied by its vCPUs, memory and disk, which may change; each cell keeps such changes for
    relay.changelog_retention_h. A notice names cells of which not all changes are known.
    """
    period = {name: time for name, time in (("from", begin), ("to", end)) if time is not None}
    found, is_complete = api.get("/fleetlight/usage", {**period, "by": by}, _OPTIONS)
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
    """Print a row for each group, and one for the total."""
    by = found["by"]
    total = {**dict.fromkeys(by, ""), **found["total"]} | ({by[0]: "total"} if by else {})
    rows = [
        (*(str(row[name] or "-") for name in by), *(_number(row[name]) for name in _COLUMNS.values()))
        for row in (*found["usage"], total)[0 if by else 1 :]
    ]
    print_table((*(name.upper() for name in by), *_COLUMNS), rows, right_aligned=tuple(_COLUMNS))


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
