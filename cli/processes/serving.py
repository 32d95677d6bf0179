"""The API inside a process: its parts made from the settings, and served until a signal or another part says stop."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from api.http.listening import listen
from api.identity import Identity
from api.settings import ApiSettings
from cells.fan_out.cell_pool import CellPool
from cells.fleet.clock_metrics import measure_clock
from cells.fleet.fleet import Fleet
from cells.kinds.opening import open_adapter
from cells.model import Cell
from cli.errors import CommandError
from cli.processes.collector import keep_collector_out_of_the_way
from cli.settings import Settings
from indexer.backends.opening import open_searcher
from indexer.stream.liveness import Probes
from operations.native_cells import NativeCells

if TYPE_CHECKING:
    from fastapi import FastAPI

    from api.app import ApiParts
    from operations.nodes.opening import NodeRpcs

_log = structlog.get_logger(__name__)

Stop = Callable[[], None]


def listen_as_told(api: ApiSettings) -> socket.socket:
    """The socket to serve at. Raises CommandError when the address cannot be had."""
    try:
        return listen(api.host, api.port)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {api.host}:{api.port}: {(error.strerror or str(error)).lower()}; "
            "choose another address with --host or --port"
        ) from error


def serve_until_stopped(
    settings: Settings,
    fleet: Fleet,
    identity: Identity,
    listener: socket.socket,
    on_ready: Callable[[Stop], None],
    *,
    other_metrics: Sequence[CollectorRegistry] = (),
    indexer: Probes | None = None,
    nodes: "NodeRpcs | None" = None,
) -> None:
    """Serve the API in this thread, the main one; returns when it has ended cleanly.

    on_ready: called once requests are answered, with a function that any thread may call to stop.
    other_metrics, indexer, nodes: of what else runs in this process; see `open_parts`.
    """
    keep_collector_out_of_the_way()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        parts = open_parts(settings, fleet, identity, other_metrics=other_metrics, indexer=indexer, nodes=nodes)
        runner.run(_serve(settings, parts, listener, on_ready))


async def _serve(
    settings: Settings,
    opening: AbstractAsyncContextManager["ApiParts"],
    listener: socket.socket,
    on_ready: Callable[[Stop], None],
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop_on_signal, number, stop)

    # Only here, for every command imports this module, and those that serve nothing would start a quarter later; and
    # only now, for Ctrl-C while this is imported would cancel the server in the middle of its start.
    from api.app import create_app  # noqa: PLC0415
    from api.http.request_deadlines import RequestDeadlines  # noqa: PLC0415
    from api.http.server import serve  # noqa: PLC0415
    from cli.processes.api_monitoring import monitored_api  # noqa: PLC0415

    def stop_from_any_thread() -> None:
        loop.call_soon_threadsafe(stop.set)

    async with opening as parts:
        app = create_app(parts)
        async with _luxi(settings, app):
            with monitored_api(settings.monitoring, app.state.health):
                await serve(
                    app,
                    listener,
                    stop,
                    deadlines=RequestDeadlines(settings.api.header_timeout_s, settings.api.body_timeout_s),
                    on_ready=lambda: on_ready(stop_from_any_thread),
                    on_stop=app.state.feed.close,
                    logs_requests=settings.api.access_log,
                )


@asynccontextmanager
async def _luxi(settings: Settings, app: "FastAPI") -> AsyncIterator[None]:
    """Serves the socket that is configured, if one is."""
    if settings.api.luxi_socket is None:
        yield
        return
    async with serving_socket(settings.api.luxi_socket, settings, app):
        yield


@asynccontextmanager
async def serving_socket(path: Path, settings: Settings, app: "FastAPI") -> AsyncIterator[None]:
    """Answer Ganeti's local queries at `path` by the parts of `app`. Raises CommandError."""
    from api.luxi.calls import LuxiCalls  # noqa: PLC0415
    from api.luxi.server import LuxiSocketError, serving_luxi  # noqa: PLC0415

    calls = LuxiCalls(app.state.answerer, app.state.writes, cell_timeout_s=settings.search.cell_timeout_s)
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
    other_metrics: Sequence[CollectorRegistry] = (),
    indexer: Probes | None = None,
    nodes: "NodeRpcs | None" = None,
) -> "AsyncIterator[ApiParts]":
    """What the application is made of, as the settings say; closed at the end.

    other_metrics, indexer: of what else runs in this process; see api.app.ApiParts. nodes: what calls agents, and is
        counted among them, in a process that calls them for other ends too, which closes it.
    """
    from api.app import ApiParts  # noqa: PLC0415
    from operations.nodes.opening import opened_nodes  # noqa: PLC0415

    def cells() -> Sequence[Cell]:
        # All that lists say of how fresh the index is they say by this clock.
        fleet.clock.look()
        return fleet.cells()

    pool = CellPool(
        cells,
        partial(open_adapter, statement_timeout_s=settings.search.cell_timeout_s),
        # An answer that is complete must not lack the servers of a cell that joined longer ago than this.
        refresh_interval_s=min(settings.fleet.cells_refresh_interval_s, settings.search.staleness_limit_s),
        deadline_s=settings.search.cell_timeout_s,
    )
    searcher = open_searcher(settings.index) if settings.search.enabled else None
    counted = CollectorRegistry()
    measure_clock(counted, fleet.clock)
    try:
        with nullcontext(nodes) if nodes is not None else opened_nodes(settings.nodes, counted) as node_rpcs:
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
                other_metrics=(*other_metrics, counted),
                indexer=indexer,
                nodes=node_rpcs,
            )
    finally:
        await pool.close()
        if searcher is not None:
            await searcher.close()


def _stop_on_signal(number: signal.Signals, stop: asyncio.Event) -> None:
    _log.info("stopping", signal=number.name)
    stop.set()
