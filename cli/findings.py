"""`fleetlight findings`: what is not as it should be, with evidence, age, and the remedy."""

import asyncio
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from fleetlight.cells.findings import FindingKind
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.fleet import named_cell, open_fleet
from fleetlight.cli.options import CellOption, ConfigOption, DataDirOption, Output, OutputOption, examples
from fleetlight.cli.output import counted, print_notice, print_rows, print_summary
from fleetlight.cli.settings import Settings, load_settings

app = typer.Typer()

_COLUMNS = ("KIND", "CELL", "SUBJECT", "AGE", "EVIDENCE", "WHAT TO DO")
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


@app.command(
    epilog=examples(
        "fleetlight findings",
        "fleetlight findings --kind long-transition --longer-than 600",
        "fleetlight findings --cell cell1 --output json",
    )
)
def findings(
    *,
    kind: Annotated[
        FindingKind | None,
        typer.Option(metavar="KIND", help=f"Only this kind: {', '.join(FindingKind)}.", show_default=False),
    ] = None,
    cell: CellOption = None,
    longer_than: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=999_999_999,
            help="How long something may be done to an instance; an hour unless given.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show what is not as it should be, with evidence and age, and what to do about it.

    It compares instances with their hosts, allocations with instances and nodes, mappings with rows, and the index with
    cells. What could not be compared is named.

    Exit code 0 if nothing is wrong and everything was compared, else 1.
    """
    settings = load_settings(config, data_dir)
    asked: dict[str, object] = {"kind": kind, "transition_s": longer_than}
    with open_fleet(settings.fleet) as fleet:
        asked["cell"] = named_cell(fleet, cell)
        answer = asyncio.run(_ask(settings, fleet, {name: each for name, each in asked.items() if each is not None}))
    found, missing = answer["findings"], answer["missing"]
    if output is Output.TABLE:
        print_summary(f"{counted(len(found), 'finding')}." if found else "Nothing is wrong.")
    rows = [
        (each["kind"], each["cell"], each["subject"], _age(each["age_s"]), each["evidence"], each["remedy"])
        for each in found
    ]
    if rows or output is not Output.TABLE:
        print_rows(output, answer, _COLUMNS, rows, right_aligned=("AGE",))
    for each in missing:
        where = "" if each["cell"] is None else f"cell {each['cell']}: "
        print_notice(f"Not complete: {where}{each['source']}: {each['reason']}")
    if found or missing:
        raise typer.Exit(1)


async def _ask(settings: Settings, fleet: Fleet, query: dict[str, Any]) -> Any:
    """Raises CommandError, ConfigurationError, CellError."""
    from fleetlight.cli.in_process import document_of, opened_api  # noqa: PLC0415 -- other commands would start a quarter later

    async with opened_api(settings, fleet) as api:
        return document_of(await api.call("GET", "/fleetlight/findings", query=urlencode(query)))


def _age(seconds: float | None) -> str:
    """In whole numbers of the largest unit that there is one of."""
    if seconds is None:
        return "-"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{int(seconds // size)} {unit}"
