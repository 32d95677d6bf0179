"""`fleetlight api`: the API as a process of its own, for production; it may be one of many."""

import structlog
import typer

from api.http.listening import address_of
from api.identity import refuse_open_listening
from api.identity.opening import open_identity
from cli.fleet import open_fleet
from cli.logging import configure_logging
from cli.options import AuthOption, ConfigOption, DataDirOption, HostOption, InsecureOption, PortOption, examples
from cli.processes.newer_tables import telling_of_newer_tables
from cli.processes.serving import Stop, listen_as_told, serve_until_stopped
from cli.processes.starting import looking_for
from cli.settings import load_settings, with_api_options

app = typer.Typer()

_log = structlog.get_logger(__name__)


@app.command(epilog=examples("fleetlight api --config /etc/fleetlight.toml --port 8774"))
def api(
    *,
    host: HostOption = None,
    port: PortOption = None,
    auth: AuthOption = None,
    insecure: InsecureOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Serve the API, and nothing else."""
    settings = with_api_options(load_settings(config, data_dir), host, port, auth)
    if settings.api.auth == "none":
        refuse_open_listening(settings.api.host, insecure=insecure)
    configure_logging(settings.log)
    identity = open_identity(settings.api, settings.identity, settings.keystone)

    def on_ready(stop: Stop) -> None:
        _log.info("api.ready", address=address_of(listener), search=settings.search.enabled)
        look_on(stop)

    with open_fleet(settings.fleet) as fleet, looking_for(fleet) as look_on:
        listener = listen_as_told(settings.api)
        with telling_of_newer_tables(fleet):
            serve_until_stopped(settings, fleet, identity, listener, on_ready)
    _log.info("stopped")
