"""`fleetlight findings`: what is not as it should be, with evidence, age, and the remedy."""

from typing import Annotated

import typer

from fleetlight.cells.findings import FindingKind
from fleetlight.cli.fleet import named_cell
from fleetlight.cli.operator_api import OpenApi
from fleetlight.cli.options import CellOption, Output, OutputOption, examples
from fleetlight.cli.output import counted, print_notice, print_rows, print_summary

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
            help="Report an instance whose transition takes longer; an hour by default.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    api: OpenApi,
) -> None:
    """Show what is not as it should be, with evidence and age, and what to do about it.

    It compares instances with their hosts, allocations with instances and nodes, mappings with rows, and the index with
    cells. What could not be compared is named.

    Exit code 0 if nothing is wrong and everything was compared, else 1.
    """
    asked = {"kind": kind, "transition_s": longer_than, "cell": named_cell(api.fleet, cell)}
    answer, _ = api.get("/fleetlight/findings", {name: each for name, each in asked.items() if each is not None})
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


def _age(seconds: float | None) -> str:
    """Format an age as a whole number of the largest unit that fits."""
    if seconds is None:
        return "-"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{int(seconds // size)} {unit}"
