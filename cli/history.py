"""`fleetlight history`: the changes of an instance."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer

from fleetlight.cli.operator_api import OpenApi
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_notice, print_result, print_rows

app = typer.Typer()

_LONGEST_VALUE = 60


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


def _as_rows(entry: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    """One row for each changed field; one row in all if a change has no known fields."""
    change = (entry["at"], str(entry["revision"]), entry["event"], entry["user_id"] or entry["publisher"])
    if not entry["changed"]:
        return [(*change, "-", "-", "-")]
    return [
        (*change, name, *(msgspec.json.encode(value).decode() for value in values))
        for name, values in entry["changed"].items()
    ]


def _print(entry: Mapping[str, Any]) -> None:
    by = entry["user_id"] or entry["publisher"]
    print_result(f"{entry['at']}  revision {entry['revision']}  {entry['event']}  by {by}")
    if entry["changed"] is None:
        print_result("    what it changed is not known: the change before is not kept any more")
        return
    for name, (before, after) in entry["changed"].items():
        print_result(f"    {name}: {_text(before)} -> {_text(after)}")


def _text(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
