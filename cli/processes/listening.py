"""Opens the sockets of an API's processes."""

import os
import socket
from collections.abc import Sequence

from fleetlight.api.http.listening import listen_together
from fleetlight.api.settings import ApiSettings
from fleetlight.cli.errors import CommandError


def listen_as_configured(api: ApiSettings) -> Sequence[socket.socket]:
    """Open one socket for each API process. Raises CommandError if the address is not available."""
    try:
        return listen_together(api.host, api.port, processes_of(api))
    except OSError as error:
        raise CommandError(
            f"cannot listen on {api.host}:{api.port}: {(error.strerror or str(error)).lower()}; "
            "choose another address with --host or --port"
        ) from error


def processes_of(api: ApiSettings) -> int:
    """The number of API processes: as configured, else the number of processors that this one may use."""
    return len(os.sched_getaffinity(0)) if api.processes is None else api.processes
