"""`fleetlight list-fields`: lists the fields that queries can show and filter by."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fleetlight.cli.list_forms import ItemWord
from fleetlight.cli.options import ConfigOption, DataDirOption, Output, OutputOption, examples
from fleetlight.cli.output import print_notice, print_result, print_rows
from fleetlight.cli.query_table import TableStyle, table
from fleetlight.query.fields_query import definitions
from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.suggestions import did_you_mean

app = typer.Typer()

UNKNOWN_FIELD = 14
"""The exit code for unknown fields, as of Ganeti's commands."""


_KIND_NAMES = {
    Kind.UNKNOWN: "Unknown",
    Kind.TEXT: "Text",
    Kind.BOOL: "Boolean",
    Kind.NUMBER: "Number",
    Kind.FLOAT: "Floating-point number",
    Kind.UNIT: "Storage size",
    Kind.TIMESTAMP: "Timestamp",
    Kind.OTHER: "Custom",
}
_COLUMNS = ("Name", "Type", "Title", "Description")


@app.command(
    "list-fields",
    epilog=examples(
        "fleetlight list-fields instances",
        "fleetlight list-fields nodes name mfree",
        "fleetlight list-fields jobs --output json",
    ),
)
def list_fields(
    word: Annotated[ItemWord, typer.Argument(metavar="TYPE", help=", ".join(ItemWord), show_default=False)],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[FIELD]...", help="Show only these, in order.", show_default=False)
    ] = None,
    *,
    separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Put this between columns, instead of aligning them by blanks.")
    ] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Omit the line of titles.")] = False,
    output: OutputOption = Output.TABLE,
    _config: ConfigOption = None,
    _data_dir: DataDirOption = None,
) -> None:
    """Show the fields of instances, nodes, jobs and the like that `fleetlight list` can show and filter by.

    Each is shown with its name, its type, the title of its column, and its meaning. All fleets have the same fields:
    --config and --data-dir are accepted, so that a script can pass them to every command, but not read.
    The exit code is 14 if one of the given fields does not exist.
    """
    found = definitions(ITEM_TYPES[word.item_type], names or None)
    if output is Output.TABLE:
        style = TableStyle(separator=separator, has_header=not no_headers)
        for line in table([_column(title) for title in _COLUMNS], map(_row, found), style):
            print_result(line)
    else:
        print_rows(output, {"fields": found}, _COLUMNS, [[value for _, value in _row(each)] for each in found])
    unknown = [definition["name"] for definition in found if definition["kind"] == Kind.UNKNOWN]
    if unknown:
        warn_of_unknown(word, unknown)
        raise typer.Exit(UNKNOWN_FIELD)


def warn_of_unknown(word: ItemWord, names: Sequence[str]) -> None:
    """Warn about unknown fields, and suggest a similar one for each."""
    for name in names:
        hint = did_you_mean(name, ITEM_TYPES[word.item_type])
        print_notice(f"Warning: there is no field '{name}'{hint or f'; see `fleetlight list-fields {word}`'}")


def _column(title: str) -> dict[str, Any]:
    return {"name": title, "title": title, "kind": Kind.TEXT.value, "doc": title}


def _row(definition: dict[str, Any]) -> list[tuple[ResultStatus, str]]:
    kind = _KIND_NAMES[Kind(definition["kind"])]
    values = (definition["name"], kind, definition["title"], definition["doc"])
    return [(ResultStatus.NORMAL, value) for value in values]
