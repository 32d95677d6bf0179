"""`fleetlight luxi`: serves Ganeti's local query socket by itself."""

import asyncio
from pathlib import Path
from typing import Annotated

import structlog
import typer
import uvloop

from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import LoadedSettings, OpenFleet
from fleetlight.cli.logging import configure_logging
from fleetlight.cli.options import examples
from fleetlight.cli.processes.newer_tables import telling_of_newer_tables

app = typer.Typer()

_log = structlog.get_logger(__name__)


@app.command(epilog=examples("fleetlight luxi --config /etc/fleetlight.toml --socket /run/fleetlight/luxi.sock"))
def luxi(
    *,
    socket: Annotated[
        Path | None,
        typer.Option(
            "--socket", metavar="PATH", help="The socket to listen at, instead of api.luxi_socket.", show_default=False
        ),
    ] = None,
    settings: LoadedSettings,
    fleet: OpenFleet,
) -> None:
    """Answer Ganeti's local queries at a unix socket, without the API.

    Programs that can open the socket see the whole fleet: only the user and the group of this process can.
    """
    path = socket or settings.api.luxi_socket
    if path is None:
        raise ConfigurationError("there is no socket to listen at: give --socket PATH, or configure api.luxi_socket")
    configure_logging(settings.log)
    from fleetlight.cli.processes.luxi_serving import serve_luxi  # noqa: PLC0415 -- other commands would start a quarter later

    with (
        telling_of_newer_tables(fleet),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(serve_luxi(path, settings, fleet))
    _log.info("stopped")
