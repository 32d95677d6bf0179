"""Answers Ganeti's local queries at a Unix socket, beside an API or in a process of its own."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from fleetlight.api.app import Application, create_app
from fleetlight.api.identity import NoIdentity
from fleetlight.api.luxi.calls import LuxiCalls
from fleetlight.api.luxi.server import LuxiSocketError, serving_luxi
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.errors import CommandError
from fleetlight.cli.processes.api_parts import open_parts
from fleetlight.cli.settings import Settings


async def serve_luxi(path: Path, settings: Settings, fleet: Fleet) -> None:
    """Answer at `path` until SIGINT or SIGTERM. Raises CommandError if the socket cannot be opened."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with open_parts(settings, fleet, NoIdentity()) as parts:
        with closing(create_app(parts)) as app:
            async with serving_socket(path, app):
                await stop.wait()


@asynccontextmanager
async def serving_socket(path: Path, app: Application) -> AsyncIterator[None]:
    """Answer Ganeti's local queries at `path`, with the parts of `app`. Raises CommandError."""
    services = app.services
    calls = LuxiCalls(app.query_engine, services.writes, services.admission)
    try:
        async with serving_luxi(path, calls):
            yield
    except LuxiSocketError as error:
        raise CommandError(str(error)) from error
