"""The sockets of the processes of an API."""

import os
import socket
from collections.abc import Sequence

from fleetlight.api.http.listening import listen_together
from fleetlight.api.settings import ApiSettings
from fleetlight.cli.errors import CommandError


def listen_as_configured(api: ApiSettings) -> Sequence[socket.socket]:
    """The sockets to serve at, one for each process. Raises CommandError when the address cannot be had."""
    try:
        return listen_together(api.host, api.port, processes_of(api))
    except OSError as error:
        raise CommandError(
            f"cannot listen on {api.host}:{api.port}: {(error.strerror or str(error)).lower()}; "
            "choose another address with --host or --port"
        ) from error


def processes_of(api: ApiSettings) -> int:
    """How many processes serve the API: as many as processors that they may use, unless that is configured."""
    return len(os.sched_getaffinity(0)) if api.processes is None else api.processes
