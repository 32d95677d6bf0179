"""`fleetlight history`: the changes of an instance."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import msgspec
import typer

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.options import ConfigOption, DataDirOption, JsonOption, examples
from fleetlight.cli.output import print_json, print_notice, print_result
from fleetlight.cli.settings import Settings, load_settings

app = typer.Typer()

_LONGEST_VALUE = 60


@app.command(
    epilog=examples(
        "fleetlight history 8a02cae4-35a0-431a-ac44-7d07a29b5ead",
        "fleetlight history 8a02cae4-35a0-431a-ac44-7d07a29b5ead --limit 5 --json",
    )
)
def history(
    uuid: Annotated[str, typer.Argument(metavar="UUID", help="The instance.", show_default=False)],
    *,
    limit: Annotated[int, typer.Option(min=1, max=200, metavar="N", help="At most so many changes.")] = 20,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Show the changes of an instance: the time of each, its user, and what it changed.

    The newest comes first. Native cells keep changes for relay.changelog_retention_h; cells of Nova keep none.
    """
    settings = load_settings(config, data_dir)
    with open_fleet(settings.fleet) as fleet:
        found = asyncio.run(_ask(settings, fleet, uuid, limit))
    if json:
        print_json(found)
        return
    for entry in found["history"]:
        _print(entry)
    if found["before"] is not None:
        print_notice("There are older ones.")


async def _ask(settings: Settings, fleet: Fleet, uuid: str, limit: int) -> Any:
    """Raises CommandError."""
    from fleetlight.cli.in_process import document_of, opened_api  # noqa: PLC0415 -- other commands would start a quarter later

    async with opened_api(settings, fleet) as api:
        path = f"/fleetlight/servers/{quote(uuid, safe='')}/history"
        answer = await api.call("GET", path, query=urlencode({"limit": limit}))
    return document_of(answer)


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
