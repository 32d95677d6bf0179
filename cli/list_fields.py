"""`fleetlight list-fields`: what can be asked for, and filtered by."""

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
"""The exit code for fields that do not exist, as Ganeti's commands have it."""


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
        list[str] | None, typer.Argument(metavar="[FIELD]...", help="Only these, in this order.", show_default=False)
    ] = None,
    *,
    separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Between two columns, instead of blanks that align them.")
    ] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Leave the line of titles out.")] = False,
    output: OutputOption = Output.TABLE,
    _config: ConfigOption = None,
    _data_dir: DataDirOption = None,
) -> None:
    """Show the fields of instances, nodes, jobs and the like that `fleetlight list` can show and filter by.

    Each with its name, its type, the title of its column, and what it means. Every fleet has the same ones: --config
    and --data-dir are taken, so that a script can give them to every command, and not read.

    The exit code is 14 when one of the fields that were named does not exist.
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
    """Say that there are no such fields, each with the one that may be meant."""
    for name in names:
        hint = did_you_mean(name, ITEM_TYPES[word.item_type])
        print_notice(f"Warning: there is no field '{name}'{hint or f'; see `fleetlight list-fields {word}`'}")


def _column(title: str) -> dict[str, Any]:
    return {"name": title, "title": title, "kind": Kind.TEXT.value, "doc": title}


def _row(definition: dict[str, Any]) -> list[tuple[ResultStatus, str]]:
    kind = _KIND_NAMES[Kind(definition["kind"])]
    values = (definition["name"], kind, definition["title"], definition["doc"])
    return [(ResultStatus.NORMAL, value) for value in values]
