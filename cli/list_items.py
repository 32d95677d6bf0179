"""`fleetlight list`: items with chosen fields, as Ganeti's list commands print them."""

import asyncio
import csv
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from fleetlight.api.identity import NoIdentity
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.errors import CommandError
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.in_process import document_of
from fleetlight.cli.list_fields import UNKNOWN_FIELD
from fleetlight.cli.list_forms import LIST_FORMS, ItemWord, first_fields, in_cell
from fleetlight.cli.options import ConfigOption, DataDirOption, examples
from fleetlight.cli.output import print_json, print_notice, print_result
from fleetlight.cli.processes.serving import open_parts
from fleetlight.cli.query_table import TableOutcome, TableStyle, Unit, outcome, table
from fleetlight.cli.settings import Settings, load_settings
from fleetlight.query.errors import FilterTextError
from fleetlight.query.filter_text import from_arguments, of_named
from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.definitions import CellStatus, QueryFields

app = typer.Typer()

_COUNT = {"name": "count", "title": "Count", "kind": Kind.NUMBER.value, "doc": "How many there are"}

_BEGINNINGS_OF_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


class ListOutput(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@app.command(
    "list",
    epilog=examples(
        "fleetlight list instances",
        "fleetlight list instances 'web*' -o +tags,ctime",
        "fleetlight list instances --group-by cell,status",
        "fleetlight list instances --as-of 2026-11-24T10:00:00Z -F 'host == \"compute-07\"'",
        "fleetlight list nodes --cell cell1 -o +group,role",
        "fleetlight list jobs -F 'status == \"running\"'",
        "fleetlight list jobs --group-by status",
        "fleetlight list instances -F 'status == \"running\" and be/memory > 2048' --output csv",
    ),
)
def list_items(
    word: Annotated[ItemWord, typer.Argument(metavar="TYPE", help=", ".join(ItemWord), show_default=False)],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Only these, which may have * and ?.", show_default=False),
    ] = None,
    *,
    fields: Annotated[
        str | None,
        typer.Option("-o", metavar="FIELDS", help="Fields, with commas between them; after a + beside the usual ones."),
    ] = None,
    is_filter: Annotated[bool, typer.Option("-F", "--filter", help="The argument is a filter.")] = False,
    group_by: Annotated[
        str | None,
        typer.Option(metavar="FIELDS", help="Count, by the values of these fields, instead of listing each."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="FIELDS", help="Fields to sort by, by name unless given; -FIELD from high to low."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Instances as they were at this time, as in 2026-11-24T10:00:00Z."),
    ] = None,
    cell: Annotated[str | None, typer.Option(metavar="NAME", help="Only items of this cell.")] = None,
    separator: Annotated[str | None, typer.Option(metavar="TEXT", help="Between columns, instead of blanks.")] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Leave the line of titles out.")] = False,
    units: Annotated[Unit | None, typer.Option(metavar="h|m|g|t", help="The unit of sizes.")] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show in words why values are missing.")] = False,
    output: Annotated[ListOutput, typer.Option(metavar="FORM", help=", ".join(ListOutput))] = ListOutput.TABLE,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """List instances, nodes, jobs and the like of all cells, with fields that you choose.

    `fleetlight list-fields TYPE` tells which fields there are. The exit code is 14 when one that was asked for
    does not exist, and 0 where values are missing. How far back --as-of goes depends on each cell: an answer says so.
    """
    known = ITEM_TYPES[word.item_type]
    is_numeric = known[known.name_field].kind is Kind.NUMBER
    try:
        expression = from_arguments(
            names or (),
            is_filter=is_filter,
            name_field=known.name_field,
            is_numeric=is_numeric,
        )
    except FilterTextError as error:
        raise CommandError("\n".join((str(error), *error.details))) from None
    asked = {
        "what": word.item_type,
        "fields": first_fields(word, fields),
        "filter": in_cell(expression, cell),
        "order": [] if order is None else order.split(","),
        "all_projects": True,
        "as_of": as_of,
    }
    settings = load_settings(config, data_dir)
    with open_fleet(settings.fleet) as fleet:
        # The list would only say that it failed.
        fleet.cells()
        wanted = _names(known, expression)
        if expression is not None and wanted is not None and not is_numeric:
            asked["filter"] = in_cell(of_named(known.name_field, expression), cell)
        if group_by is None:
            answer = asyncio.run(_look_up(settings, fleet, known, wanted, asked))
        else:
            answer = asyncio.run(_count(settings, fleet, group_by.split(","), asked))
    _show(answer, output, TableStyle(units, separator, not no_headers, verbose, LIST_FORMS[word].formats))


def _names(known: QueryFields, expression: Any) -> Sequence[str | int] | None:
    """The names of an expression that looks items up."""
    from fleetlight.api.query.named_items import names_in  # noqa: PLC0415  # other commands would start a quarter later

    return names_in(expression, known)


async def _look_up(
    settings: Settings,
    fleet: Fleet,
    known: QueryFields,
    wanted: Sequence[str | int] | None,
    asked: Mapping[str, Any],
) -> Mapping[str, Any]:
    """The whole answer; of names alone what they name, in their order unless another one is asked for.

    wanted: those names. Raises CommandError, also for a name of nothing.
    """
    from fleetlight.api.query.named_items import (  # noqa: PLC0415
        ItemLookupError,
        columns_of,
        found_of,
        looked_up,
        lost_job,
    )

    if wanted is None or asked["order"]:
        return await _ask(settings, fleet, asked)
    before = columns_of(known, ())
    answer = await _ask(settings, fleet, {**asked, "fields": [*before, *asked["fields"]]})
    found = [found_of(known, row, row[len(before) :]) for row in answer["data"]]

    def lost(number: str | int) -> Sequence[tuple[int, Any]]:
        return lost_job(known, asked["fields"], number, is_certain=answer["complete"])

    try:
        rows = looked_up(known, wanted, found, lost, is_certain=answer["complete"])
    except ItemLookupError as error:
        raise CommandError(str(error)) from error
    return {**answer, "fields": answer["fields"][len(before) :], "data": rows}


async def _ask(settings: Settings, fleet: Fleet, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The whole answer, from all its pages. Raises CommandError."""
    from fleetlight.api.app import create_app  # noqa: PLC0415  # other commands would start a quarter later
    from fleetlight.api.http.in_process import call  # noqa: PLC0415

    whole: dict[str, Any] = {"fields": [], "data": [], "complete": True}
    async with open_parts(settings, fleet, NoIdentity()) as parts:
        app = create_app(parts)
        marker: str | None = None
        while True:
            body = msgspec.json.encode({**asked, "marker": marker})
            answer = await call(app, "POST", "/fleetlight/query", body=body)
            page = document_of(answer)
            whole["fields"] = page["fields"]
            whole["data"] += page["data"]
            whole["complete"] &= answer.headers["fleetlight-complete"] == "true"
            marker = page["marker"]
            if marker is None:
                break
        app.state.index.close()
    return whole


async def _count(settings: Settings, fleet: Fleet, by: Sequence[str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Groups as rows: the values of the fields in `by`, then how many there are. Raises CommandError."""
    from fleetlight.api.app import create_app  # noqa: PLC0415  # other commands would start a quarter later
    from fleetlight.api.http.in_process import call  # noqa: PLC0415

    async with open_parts(settings, fleet, NoIdentity()) as parts:
        app = create_app(parts)
        body = {**{name: asked[name] for name in ("what", "filter", "all_projects", "as_of")}, "by": by}
        answer = await call(app, "POST", "/fleetlight/query/counts", body=msgspec.json.encode(body))
        counted = document_of(answer)
        app.state.index.close()
    rows = [
        [
            *((group["statuses"][name], value) for name, value in group["by"].items()),
            (CellStatus.NORMAL, group["count"]),
        ]
        for group in counted["groups"]
    ]
    is_complete = answer.headers["fleetlight-complete"] == "true" and not counted["partial"]
    return {"fields": [*counted["fields"], _COUNT], "data": rows, "complete": is_complete}


def _show(answer: Mapping[str, Any], output: ListOutput, style: TableStyle) -> None:
    fields, rows = answer["fields"], answer["data"]
    if output is ListOutput.JSON:
        print_json(answer)
    elif output is ListOutput.CSV:
        writer = csv.writer(sys.stdout)
        writer.writerow(_no_formula(field["name"]) for field in fields)
        writer.writerows([_no_formula(value) for _, value in row] for row in rows)
    unknown = [field["name"] for field in fields if field["kind"] == "unknown"]
    if unknown:
        print_notice(f"Warning: Queried for unknown fields {', '.join(unknown)}")
    if output is ListOutput.TABLE:
        for line in table(fields, rows, style):
            print_result(line)
    if not answer["complete"]:
        print_notice(
            "Not complete: not all cells could answer, or there are too many groups; `fleetlight explain` tells which"
        )
    if outcome(fields, rows) is TableOutcome.UNKNOWN_FIELDS:
        raise typer.Exit(UNKNOWN_FIELD)


def _no_formula(value: object) -> object:
    """The value for CSV. A text that a spreadsheet takes for a formula gets an apostrophe, which makes it a text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINNINGS_OF_FORMULAS) else value
