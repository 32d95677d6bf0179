"""Ganeti's local queries, answered at a Unix socket: beside an API, or by a process of their own."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette

from fleetlight.api.app import create_app
from fleetlight.api.identity import NoIdentity
from fleetlight.api.luxi.calls import LuxiCalls
from fleetlight.api.luxi.server import LuxiSocketError, serving_luxi
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.errors import CommandError
from fleetlight.cli.processes.api_parts import open_parts
from fleetlight.cli.settings import Settings


async def serve_luxi(path: Path, settings: Settings, fleet: Fleet) -> None:
    """Answer at `path` until SIGINT or SIGTERM. Raises CommandError."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with open_parts(settings, fleet, NoIdentity()) as parts:
        served = create_app(parts)
        async with served.router.lifespan_context(served), serving_socket(path, settings, served):
            await stop.wait()


@asynccontextmanager
async def serving_socket(path: Path, settings: Settings, app: Starlette) -> AsyncIterator[None]:
    """Answer Ganeti's local queries at `path` by the parts of `app`. Raises CommandError."""
    calls = LuxiCalls(
        app.state.answerer, app.state.writes, app.state.admission, cell_timeout_s=settings.search.cell_timeout_s
    )
    try:
        async with serving_luxi(path, calls):
            yield
    except LuxiSocketError as error:
        raise CommandError(str(error)) from error
