"""`fleetlight api`: runs the API by itself, for production; a fleet may have several."""

from contextlib import nullcontext
from functools import partial
from socket import socket
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from fleetlight.api.http.listening import address_of
from fleetlight.api.identity import refuse_open_listening
from fleetlight.cli.fleet import LoadedSettings, open_fleet
from fleetlight.cli.logging import configure_logging
from fleetlight.cli.options import (
    AuthOption,
    HostOption,
    InsecureOption,
    PortOption,
    examples,
)
from fleetlight.cli.processes.listening import listen_as_configured
from fleetlight.cli.processes.newer_tables import telling_of_newer_tables
from fleetlight.cli.processes.starting import looking_for
from fleetlight.cli.processes.supervising import ChildContext, supervise
from fleetlight.cli.settings import with_api_options

if TYPE_CHECKING:
    from fleetlight.cli.processes.serving import SharedApiState

app = typer.Typer()

_log = structlog.get_logger(__name__)


@app.command(
    epilog=examples(
        "fleetlight api --config /etc/fleetlight.toml --port 8774", "fleetlight api --processes 4 --port 8774"
    )
)
def api(
    *,
    host: HostOption = None,
    port: PortOption = None,
    auth: AuthOption = None,
    insecure: InsecureOption = False,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Processes that serve at the one address; api.processes by default, else as many as "
            "there are processors.",
        ),
    ] = None,
    settings: LoadedSettings,
) -> None:
    """Serve the API, without an indexer, relays or workers."""
    settings = with_api_options(settings, host, port, auth, processes)
    if settings.api.auth == "none":
        refuse_open_listening(settings.api.host, insecure=insecure)
    configure_logging(settings.log)
    from fleetlight.cli.processes.serving import SharedApiState, api_children  # noqa: PLC0415 -- other commands would start a quarter later

    shared = SharedApiState.of(settings)
    listeners = listen_as_configured(settings.api)
    children = api_children(listeners, partial(_serve, shared), settings.api)

    def on_ready() -> None:
        address = address_of(listeners[0])
        _log.info("api.ready", address=address, search=settings.search.enabled, processes=len(children))

    supervise([children], settings.monitoring, on_ready)
    _log.info("stopped")


def _serve(shared: "SharedApiState", listener: socket, number: int, context: ChildContext) -> None:
    with (
        open_fleet(shared.settings.fleet) as fleet,
        looking_for(fleet) as look_on,
        # Only the first process reports newer tables, on behalf of all.
        telling_of_newer_tables(fleet) if number == 1 else nullcontext(),
    ):
        shared.serve(fleet, listener, number, context, on_ready=look_on)
