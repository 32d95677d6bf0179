"""`fleetlight list`: lists items with chosen fields, in the format of Ganeti's list commands."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fleetlight.cli.errors import CommandError
from fleetlight.cli.fleet import named_cell
from fleetlight.cli.list_fields import UNKNOWN_FIELD, warn_of_unknown
from fleetlight.cli.list_forms import LIST_FORMS, ItemWord, first_fields, in_cell
from fleetlight.cli.operator_api import OpenApi
from fleetlight.cli.options import CellOption, Output, OutputOption, examples
from fleetlight.cli.output import print_csv, print_json, print_notice, print_result
from fleetlight.cli.query_table import TableOutcome, TableStyle, Unit, outcome, table
from fleetlight.query.errors import FilterTextError
from fleetlight.query.filter_text import from_arguments, of_named
from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.catalog import ITEM_TYPES

app = typer.Typer()


@app.command(
    "list",
    epilog=examples(
        "fleetlight list instances",
        "fleetlight list instances 'web*' -o +tags,ctime",
        "fleetlight list instances --group-by cell,status",
        "fleetlight list instances --as-of 2026-11-24T10:00:00Z -F 'host == \"compute-07\"'",
        "fleetlight list nodes --cell cell1 -o +group,role",
        "fleetlight list jobs -F 'status == \"running\"'",
        "fleetlight list jobs --order=-received_ts --limit 20",
        "fleetlight list jobs --group-by status",
        "fleetlight list instances -F 'status == \"running\" and be/memory > 2048' --output csv",
    ),
)
def list_items(
    word: Annotated[ItemWord, typer.Argument(metavar="TYPE", help=", ".join(ItemWord), show_default=False)],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Show only these; * and ? are wildcards.", show_default=False),
    ] = None,
    *,
    fields: Annotated[
        str | None,
        typer.Option("-o", metavar="FIELDS", help="Comma-separated fields; a leading + adds to the default ones."),
    ] = None,
    is_filter: Annotated[bool, typer.Option("-F", "--filter", help="Read the argument as a filter.")] = False,
    group_by: Annotated[
        str | None,
        typer.Option(metavar="FIELDS", help="Count items by the values of these fields, instead of listing them."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="FIELDS", help="Fields to sort by, the name by default; -FIELD sorts from high to low."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Show only the first N items.")] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Show instances as they were at this time, like 2026-11-24T10:00:00Z."),
    ] = None,
    cell: CellOption = None,
    separator: Annotated[str | None, typer.Option(metavar="TEXT", help="Put this between columns, not blanks.")] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Omit the line of titles.")] = False,
    units: Annotated[Unit | None, typer.Option(metavar="h|m|g|t", help="The unit of sizes.")] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show in words why values are missing.")] = False,
    output: OutputOption = Output.TABLE,
    api: OpenApi,
) -> None:
    """List instances, nodes, jobs and the like of all cells, with fields that you choose.

    `fleetlight list-fields TYPE` lists the fields. The exit code is 14 if a given field does not exist, and 0 if only
    values are missing. How far back --as-of reaches depends on each cell; the error says so if it is too far.
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
        "filter": expression,
        "order": [] if order is None else order.split(","),
        "all_projects": True,
        "as_of": as_of,
    }
    from fleetlight.api.query.named_items import names_in, uuids_in  # noqa: PLC0415 -- other commands would start a quarter later
    from fleetlight.cli.item_answers import count, look_up  # noqa: PLC0415 -- other commands would start a quarter later

    # Raises the cause if the fleet database is down; the list below would only say that it failed.
    api.fleet.cells()
    cell = named_cell(api.fleet, cell)
    wanted = names_in(expression, known)
    if expression is not None and wanted is not None and not is_numeric:
        by_uuid = (["==", "uuid", uuid] for uuid in uuids_in(known, wanted))
        expression = ["|", of_named(known.name_field, expression), *by_uuid]
    asked["filter"] = in_cell(expression, cell)
    if group_by is None:
        answer = asyncio.run(look_up(api, known, wanted, asked, limit=limit))
    else:
        answer = asyncio.run(count(api, group_by.split(","), asked))
    rows = answer["data"][:limit]
    shown = {**answer, "data": rows, "has_more": answer["has_more"] or len(rows) < len(answer["data"])}
    _show(word, shown, output, TableStyle(units, separator, not no_headers, verbose, LIST_FORMS[word].formats))


def _show(word: ItemWord, answer: Mapping[str, Any], output: Output, style: TableStyle) -> None:
    fields, rows = answer["fields"], answer["data"]
    if output is Output.JSON:
        print_json(answer)
    elif output is Output.CSV:
        print_csv([field["name"] for field in fields], ([value for _, value in row] for row in rows))
    warn_of_unknown(word, [field["name"] for field in fields if field["kind"] == Kind.UNKNOWN])
    if output is Output.TABLE:
        for line in table(fields, rows, style):
            print_result(line)
    if answer["has_more"]:
        print_notice(f"These are the first {len(rows)}; there are more")
    if not answer["complete"]:
        print_notice(
            "Not complete: not all cells could answer, or there are too many groups; `fleetlight explain` tells which"
        )
    if outcome(fields, rows) is TableOutcome.UNKNOWN_FIELDS:
        raise typer.Exit(UNKNOWN_FIELD)
