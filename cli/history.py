"""`fleetlight history`: the changes of an instance; `fleetlight changes`: the newest of all instances."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import msgspec
import typer

from fleetlight.cli.operator_api import OpenApi, OperatorApi
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_notice, print_result, print_rows

app = typer.Typer()

_LONGEST_VALUE = 60
# The most that the API gives at once.
_PAGE = 200
# The parameters of the API, by which its errors name what is wrong, and the options that set them.
_OPTIONS = {"filter": "--filter", "user_id": "--by", "changed_since": "--since", "changed_before": "--before"}


@app.command(
    epilog=examples(
        "fleetlight history web1.example.org",
        "fleetlight history 8a02cae4-35a0-431a-ac44-7d07a29b5ead --limit 5 --output json",
    )
)
def history(
    name: Annotated[str, typer.Argument(metavar="INSTANCE", help="The instance, by name or uuid.", show_default=False)],
    *,
    limit: Annotated[int, typer.Option(min=1, max=200, metavar="N", help="Show at most this many changes.")] = 20,
    api: OpenApi,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the changes of an instance: the time of each, its user, and what it changed.

    The newest comes first. Native cells keep changes for relay.changelog_retention_h; cells of Nova keep none.
    """
    from fleetlight.cli.item_answers import instance_uuid  # noqa: PLC0415 -- other commands would start a quarter later

    uuid = asyncio.run(instance_uuid(api, name))
    found, _ = api.get(f"/fleetlight/servers/{quote(uuid, safe='')}/history", {"limit": limit})
    if output is Output.TABLE:
        for entry in found["history"]:
            _print(entry)
    else:
        rows = [row for entry in found["history"] for row in _as_rows(entry)]
        print_rows(output, found, ("AT", "REVISION", "EVENT", "BY", "FIELD", "BEFORE", "AFTER"), rows)
    if found["before"] is not None:
        print_notice("There are older ones.")


@app.command(
    epilog=examples(
        "fleetlight changes",
        "fleetlight changes --since '10m ago'",
        "fleetlight changes -F 'host == \"compute-07\"' --by ada --output csv",
    )
)
def changes(
    *,
    expression: Annotated[
        str | None, typer.Option("-F", "--filter", metavar="FILTER", help="Only of instances that it lets pass.")
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="USER", help="Only those that the user with this id made.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only those made at this time or later.")] = None,
    before: Annotated[str | None, typer.Option(metavar="TIME", help="Only those made before this time.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="Show at most this many.")] = 20,
    api: OpenApi,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the newest changes of the instances of all cells: when, who, and what.

    A TIME is like 2026-11-28T18:00Z, or how long ago: '10m ago'. A notice names cells of which changes are missing.
    """
    given = {"filter": expression, "user_id": by, "changed_since": since, "changed_before": before}
    asked = {name: value for name, value in given.items() if value is not None}
    found, is_cut = asyncio.run(_recent(api, asked, limit))
    if output is Output.TABLE:
        for change in found["changes"]:
            # Nothing is known of a new instance, and of what cells of Nova and Ganeti had before.
            known = {**change, "changed": change["changed"] or {}}
            _print(known, f"{change['instance']['name']} in {change['instance']['cell']}  ")
    else:
        columns = ("AT", "INSTANCE", "UUID", "CELL", "REVISION", "EVENT", "BY", "FIELD", "BEFORE", "AFTER")
        rows = [
            (at, *(change["instance"][name] for name in ("name", "id", "cell")), *rest)
            for change in found["changes"]
            for at, *rest in _as_rows(change)
        ]
        print_rows(output, found, columns, rows)
    if is_cut:
        print_notice("There are older ones.")
    for cell in found["missing"]:
        print_notice(f"Not complete: cell {cell['cell']}: {cell['reason']}")
    if not (found["complete"] or found["missing"]):
        print_notice("Not complete: there may be more cells than these.")


async def _recent(api: OperatorApi, asked: Mapping[str, str], limit: int) -> tuple[dict[str, Any], bool]:
    """Read changes page by page; return them as the API does, and whether there are older ones.

    A filter that lets few changes pass makes a page shorter than its limit.
    """
    from fleetlight.cli.in_process import document_of  # noqa: PLC0415 -- other commands would start a quarter later

    found: list[Any] = []
    missing: dict[str, Any] = {}
    marker: Mapping[str, str] = {}
    is_complete = True
    # One application for all pages: another one may not know its markers.
    async with api.opened() as opened:
        while True:
            page = {**asked, **marker, "all_projects": "true", "limit": min(limit - len(found), _PAGE)}
            response = await opened.call("GET", "/fleetlight/changes/recent", query=urlencode(page))
            answer = document_of(response, _OPTIONS)
            found += answer["changes"]
            is_complete &= answer["complete"]
            missing |= {each["cell"]: each for each in answer["missing"]}
            if answer["marker"] is None or len(found) >= limit:
                document = {"changes": found, "complete": is_complete, "missing": list(missing.values())}
                return document, answer["marker"] is not None
            marker = {"marker": answer["marker"]}


def _as_rows(entry: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    """One row for each changed field; one row in all if a change has no known fields."""
    change = (entry["at"], str(entry["revision"]), entry["event"], entry["user_id"] or entry["publisher"])
    if not entry["changed"]:
        return [(*change, "-", "-", "-")]
    return [
        (*change, name, *(msgspec.json.encode(value).decode() for value in values))
        for name, values in entry["changed"].items()
    ]


def _print(entry: Mapping[str, Any], of: str = "") -> None:
    """of: the instance, where they differ."""
    by = entry["user_id"] or entry["publisher"]
    event = f"{entry['event']}  by {by}" if entry["event"] else "changed"
    print_result(f"{entry['at']}  {of}revision {entry['revision']}  {event}")
    if entry["changed"] is None:
        print_result("    what it changed is not known: the change before is not kept any more")
        return
    for name, (before, after) in entry["changed"].items():
        print_result(f"    {name}: {_text(before)} -> {_text(after)}")


def _text(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
