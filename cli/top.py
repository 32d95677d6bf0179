"""`fleetlight top`: a live view of the fleet in a terminal."""

import asyncio
import sys

import typer

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.options import ConfigOption, DataDirOption, examples
from fleetlight.cli.output import is_terminal
from fleetlight.cli.settings import Settings, load_settings

app = typer.Typer()


@app.command(epilog=examples("fleetlight top", "fleetlight top --config /etc/fleetlight/api.toml"))
def top(config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Show cells, jobs and changes as they come, in the terminal, until q or Ctrl-C.

    Cells that are not well come first; the line below them says why the chosen one is not, or why lists ask it. Works
    in terminals of 80 columns and 24 lines, also over ssh.
    """
    settings = load_settings(config, data_dir)
    if not (is_terminal() and sys.stdout.isatty()):
        raise ConfigurationError("top needs a terminal; `fleetlight status` says the same once")
    with open_fleet(settings.fleet) as fleet:
        fleet.cells()  # A fleet that is not there is said before the screen is taken.
        asyncio.run(_show(settings, fleet))


async def _show(settings: Settings, fleet: Fleet) -> None:
    from fleetlight.cli.in_process import opened_api  # noqa: PLC0415 -- other commands would start a quarter later
    from fleetlight.cli.live_view import LiveView  # noqa: PLC0415 -- Textual takes as long as all the rest
    from fleetlight.cli.watched_fleet import WatchedFleet  # noqa: PLC0415 -- for the same reason

    async with opened_api(settings, fleet) as api:
        await LiveView(WatchedFleet(api)).run_async()
