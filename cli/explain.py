"""`fleetlight explain`: shows how a list or query is answered, by running it with the parts that the API uses."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fleetlight.cli.operator_api import OpenApi
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_paragraph, print_result, print_rows, print_table

app = typer.Typer()

_NEWEST = "latest"
_EVERYTHING = ["and"]
_CELL_COLUMNS = ("CELL", "ROUTE", "COMPLETE", "WATERMARK", "MATCHING", "WHY")
# How many of the cells that get the same request are named.
_NAMED = 4
_PARTS_OF_FILTER = {
    "cells": "which cells are meant",
    "pushed": "asked of databases, indexes and clusters",
    "tried": "tried on the rows that they give",
}


@app.command(
    epilog=examples(
        "fleetlight explain 'GET /v2.1/servers?all_tenants=1&status=ERROR'",
        "fleetlight explain 'GET /v2.1/servers/detail?deleted=1' --consistency strong --output json",
        "fleetlight explain 'GET /fleetlight/query?what=node&fields=name,role&filter=role == \"C\"'",
    )
)
def explain(
    request: Annotated[
        str,
        typer.Argument(
            metavar="REQUEST", help="The list or query: GET, and an address with parameters.", show_default=False
        ),
    ],
    *,
    consistency: Annotated[
        str, typer.Option(metavar="WORD", help="The consistency: any, bounded, strong, or 'at-least TOKEN'.")
    ] = "bounded",
    microversion: Annotated[str, typer.Option(metavar="2.N", help="The microversion of the request.")] = _NEWEST,
    api: OpenApi,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show which sources answer a list or a query, why, by which requests, and how long they take.

    For a query (/fleetlight/query, of any type of items) it also shows which part of the filter databases, indexes and
    clusters evaluate, and which part Fleetlight applies to the rows that they return.

    This process runs the list as an administrator, with the accounts of the configuration. What a running API knows of
    hanging cells or a failed index is not seen here, but at /readyz of its monitoring.
    """
    headers = {"Fleetlight-Consistency": consistency, "OpenStack-API-Version": f"compute {microversion}"}
    # Raises the cause if the fleet database is down; the list below would only say that it failed.
    api.fleet.cells()
    options = {"header Fleetlight-Consistency": "--consistency"}
    found, _ = api.get("/fleetlight/explain", {"request": request}, options, headers)
    if output is Output.TABLE:
        _print(found)
    else:
        print_rows(output, found, _CELL_COLUMNS, _cell_rows(found))


def _print(found: Any) -> None:
    whole = "complete" if found["complete"] else "NOT complete"
    print_paragraph(
        f"{found['request']}: {found['rows']} rows, {whole}, {found['duration_ms']:.1f} ms; "
        f"{found['rows_read']} rows read"
    )
    for remark in found["remarks"]:
        print_paragraph(remark)
    for name, node in (found["filter"] or {}).items():
        print_paragraph(f"{_PARTS_OF_FILTER[name]}: {'nothing' if node == _EVERYTHING else _as_json(node)}")
    print_result("")
    print_table(_CELL_COLUMNS, _cell_rows(found), right_aligned=("WATERMARK", "MATCHING"))
    for number, attempt in enumerate(found["attempts"], 1):
        print_result("")
        if attempt["failure"] is not None:
            print_paragraph(f"attempt {number}, given up: {attempt['failure']}")
        print_table(
            ("SOURCE", "BATCHES", "ROWS READ", "MS"),
            [
                [source["source"], str(source["batches"]), str(source["rows"]), f"{source['duration_ms']:.1f}"]
                for source in attempt["sources"]
            ],
            right_aligned=("BATCHES", "ROWS READ", "MS"),
        )
        alike: dict[str, list[Any]] = {}
        for source in attempt["sources"]:
            alike.setdefault(_as_json(source["query"]), []).append(source)
        for sources in alike.values():
            _print_query([source["source"] for source in sources], sources[0]["query"])


def _cell_rows(found: Any) -> Sequence[Sequence[str]]:
    return [
        [
            cell["cell"],
            cell["route"],
            "yes" if cell["complete"] else "no",
            "-" if cell["watermark"] is None else str(cell["watermark"]),
            "-" if cell["matching"] is None else str(cell["matching"]),
            cell["why"] or "-",
        ]
        for cell in found["cells"]
    ]


def _print_query(sources: Sequence[str], query: Any) -> None:
    """sources: all sources that get the same request."""
    print_result("")
    more = len(sources) - _NAMED
    named = ", ".join(sources[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    if query is None:
        print_paragraph(f"{named}: the request cannot be shown")
        return
    print_paragraph(f"{named}:")
    for statement in query.get("statements", [query] if "sql" in query else []):
        print_paragraph(statement["sql"])
        print_paragraph(f"with {_as_json(statement['values'])}")
    for request in query.get("requests", ()):
        print_paragraph(request if isinstance(request, str) else _as_json(request))
    if "dsl" in query:
        print_paragraph(_as_json(query["dsl"]))
    if query.get("filtered_in_python"):
        print_result("and the rest of the filter in Python")


def _as_json(value: Any) -> str:
    """JSON with blanks, at which a line can be wrapped."""
    return json.dumps(value, ensure_ascii=False)
