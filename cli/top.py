"""`fleetlight top`: a live view of the fleet in a terminal."""

import asyncio
import sys

import typer

from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.operator_api import OpenApi, OperatorApi
from fleetlight.cli.options import examples
from fleetlight.cli.output import is_terminal

app = typer.Typer()


@app.command(epilog=examples("fleetlight top", "fleetlight top --config /etc/fleetlight/api.toml"))
def top(api: OpenApi) -> None:
    """Show cells, jobs and changes as they come, in the terminal, until q or Ctrl-C.

    Unhealthy cells come first; the line below them says why the selected cell is unhealthy, or why lists ask it. Works
    in terminals of 80 columns and 24 lines, also over ssh.
    """
    if not (is_terminal() and sys.stdout.isatty()):
        raise ConfigurationError("top needs a terminal; `fleetlight status` says the same once")
    api.fleet.cells()  # fails before the screen opens if the fleet cannot be reached
    asyncio.run(_show(api))


async def _show(api: OperatorApi) -> None:
    from fleetlight.cli.live_view import LiveView  # noqa: PLC0415 -- Textual takes as long as all the rest
    from fleetlight.cli.watched_fleet import WatchedFleet  # noqa: PLC0415 -- other commands would start a quarter later

    async with api.opened() as app:
        await LiveView(WatchedFleet(app)).run_async()
