"""An API process: it makes the parts of the API from the settings, and serves until a signal stops it."""

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from fleetlight.api.http.listening import listen_together
from fleetlight.api.identity import Identity
from fleetlight.api.identity.opening import open_identity
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fleet.clock_metrics import measure_clock
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import CommandError
from fleetlight.cli.processes.collector import keep_collector_out_of_the_way
from fleetlight.cli.settings import Settings
from fleetlight.indexer.backends.opening import open_searcher
from fleetlight.indexer.stream.liveness import Probes
from fleetlight.operations.native_cells import NativeCells

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from fleetlight.api.app import ApiParts
    from fleetlight.api.command import Command
    from fleetlight.api.shared_limits import SharedLimits
    from fleetlight.cli.processes.supervising import Child, ChildContext

Stop = Callable[[], None]


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


_GIVE_WAY_S = 0.001


@dataclass(frozen=True, slots=True)
class SharedApiState:
    """What the processes of an API share, made before they are forked.

    settings: with a key by which a watch goes on in each of them, also if none is configured.
    """

    settings: Settings
    identity: Identity
    limits: "SharedLimits"

    @classmethod
    def of(cls, settings: Settings) -> "SharedApiState":
        """As configured. Raises IdentityConfigurationError."""
        from fleetlight.api.shared_limits import SharedLimits  # noqa: PLC0415  # as in import_api

        api = settings.api
        if api.watch_key is None:
            api = api.model_copy(update={"watch_key": SecretStr(secrets.token_urlsafe())})
        identity = open_identity(api, settings.identity, settings.keystone)
        return cls(settings.model_copy(update={"api": api}), identity, SharedLimits.of(api))

    def settings_of(self, number: int) -> Settings:
        """Those of one process: the first one alone serves the socket of local queries."""
        if number == 1:
            return self.settings
        return self.settings.model_copy(update={"api": self.settings.api.model_copy(update={"luxi_socket": None})})


def api_children(
    listeners: Sequence[socket.socket], serve: "Callable[[socket.socket, int, ChildContext], None]"
) -> "Sequence[Child]":
    """Processes that serve the API, one for each socket. serve: in the child; its number, from 1 on."""
    from fleetlight.cli.processes.supervising import Child  # noqa: PLC0415  # as in import_api

    return [
        Child(f"api-{number}", partial(serve, listener, number), listener, answers_lists=True)
        for number, listener in enumerate(listeners, 1)
    ]


def serve_until_stopped(
    shared: SharedApiState,
    fleet: Fleet,
    listener: socket.socket,
    number: int,
    context: "ChildContext",
    *,
    indexer: Probes | None = None,
    on_ready: Callable[[Stop], None] = lambda _: None,
) -> None:
    """Serve the API in this thread, the main one of a child; returns when it has ended cleanly after SIGTERM.

    number, context: of the child. indexer: see `open_parts`.
    on_ready: called once requests are answered, with a function that any thread may call to stop.
    """
    keep_collector_out_of_the_way()
    # What is made beside the event loop gives way to it after so long, and not after 5 ms each time that it has waited.
    sys.setswitchinterval(_GIVE_WAY_S)
    shared.limits.begin(number)
    settings = shared.settings_of(number)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        parts = open_parts(
            settings, fleet, shared.identity, indexer=indexer, command=context.command_probes, limits=shared.limits
        )
        runner.run(_serve(settings, parts, listener, context, on_ready))


def import_api() -> None:
    """Import what serving takes, before children are forked that would each have to."""
    # Only here: every command imports this module, and would start a quarter later.
    for module in ("fleetlight.api.app", "fleetlight.api.http.server", "fleetlight.cli.processes.api_monitoring"):
        import_module(module)


async def _serve(
    settings: Settings,
    opening: AbstractAsyncContextManager["ApiParts"],
    listener: socket.socket,
    context: "ChildContext",
    on_ready: Callable[[Stop], None],
) -> None:
    from fleetlight.api.app import create_app  # noqa: PLC0415  # as in import_api
    from fleetlight.api.http.request_deadlines import RequestDeadlines  # noqa: PLC0415
    from fleetlight.api.http.server import serve  # noqa: PLC0415
    from fleetlight.cli.processes.api_monitoring import answering_of_api  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    def stop_from_any_thread() -> None:
        loop.call_soon_threadsafe(stop.set)

    def is_ready() -> None:
        context.is_ready()
        on_ready(stop_from_any_thread)

    async with opening as parts:
        app = create_app(parts)
        async with _luxi(settings, app):
            with answering_of_api(context, app.state.health, app.state.index.safe_connect):
                await serve(
                    app,
                    listener,
                    stop,
                    deadlines=RequestDeadlines(
                        settings.api.header_timeout_s, settings.api.body_timeout_s, settings.api.response_timeout_s
                    ),
                    on_ready=is_ready,
                    on_stop=app.state.feed.close,
                    logs_requests=settings.api.access_log,
                )


@asynccontextmanager
async def _luxi(settings: Settings, app: "Starlette") -> AsyncIterator[None]:
    """Serves the socket that is configured, if one is."""
    if settings.api.luxi_socket is None:
        yield
        return
    async with serving_socket(settings.api.luxi_socket, settings, app):
        yield


@asynccontextmanager
async def serving_socket(path: Path, settings: Settings, app: "Starlette") -> AsyncIterator[None]:
    """Answer Ganeti's local queries at `path` by the parts of `app`. Raises CommandError."""
    from fleetlight.api.luxi.calls import LuxiCalls  # noqa: PLC0415
    from fleetlight.api.luxi.server import LuxiSocketError, serving_luxi  # noqa: PLC0415

    calls = LuxiCalls(
        app.state.answerer, app.state.writes, app.state.admission, cell_timeout_s=settings.search.cell_timeout_s
    )
    try:
        async with serving_luxi(path, calls):
            yield
    except LuxiSocketError as error:
        raise CommandError(str(error)) from error


@asynccontextmanager
async def open_parts(
    settings: Settings,
    fleet: Fleet,
    identity: Identity,
    *,
    indexer: Probes | None = None,
    command: "Command | None" = None,
    limits: "SharedLimits | None" = None,
) -> "AsyncIterator[ApiParts]":
    """What the application is made of, as the settings say; closed at the end.

    indexer, command, limits: what there is beside this process; see fleetlight.api.app.ApiParts.
    """
    from fleetlight.api.app import ApiParts  # noqa: PLC0415
    from fleetlight.operations.nodes.opening import opened_nodes  # noqa: PLC0415

    def cells() -> Sequence[Cell]:
        # All that lists say of how fresh the index is they say by this clock.
        fleet.clock.look()
        return fleet.cells()

    pool = CellPool(
        cells,
        partial(open_adapter, statement_timeout_s=settings.search.cell_timeout_s),
        # An answer that is complete must not lack the servers of a cell that joined longer ago than the limit. Twice as
        # often, so that lists need not wait for it, and are complete for a while after the fleet database has failed.
        refresh_interval_s=min(settings.fleet.cells_refresh_interval_s, settings.search.staleness_limit_s / 2),
        proves_for_s=settings.search.staleness_limit_s,
        deadline_s=settings.search.cell_timeout_s,
    )
    searcher = open_searcher(settings.index) if settings.search.enabled else None
    counted = CollectorRegistry()
    measure_clock(counted, fleet.clock)
    try:
        with opened_nodes(settings.nodes, counted) as node_rpcs:
            yield ApiParts(
                cells=pool,
                fleet=fleet,
                native=NativeCells(fleet.cells, pool, max_attempts=settings.scheduler.max_attempts),
                identity=identity,
                searcher=searcher,
                soft_deletes=settings.fleet.reclaim_instance_interval_s > 0,
                rapi_users_file=settings.identity.rapi_users_file,
                api=settings.api,
                search=settings.search,
                clock=fleet.clock,
                other_metrics=(counted,),
                indexer=indexer,
                command=command,
                limits=limits,
                nodes=node_rpcs,
            )
    finally:
        await pool.close()
        if searcher is not None:
            await searcher.close()
