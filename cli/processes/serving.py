"""An API process: it opens the parts of the API, and serves until a signal stops it."""

import asyncio
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import uvloop
from pydantic import SecretStr

from fleetlight.api.app import Application, create_app
from fleetlight.api.identity.browser import BrowserIdentity
from fleetlight.api.identity.opening import open_identity
from fleetlight.api.limits.request_deadlines import RequestDeadlines
from fleetlight.api.limits.shared_limits import SharedLimits
from fleetlight.api.parts import ApiParts
from fleetlight.api.server import serve
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.interpreter import keep_collector_out_of_the_way
from fleetlight.cli.processes.api_monitoring import answering_of_api
from fleetlight.cli.processes.api_parts import open_parts
from fleetlight.cli.processes.luxi_serving import serving_socket
from fleetlight.cli.processes.supervising import Child, ChildContext
from fleetlight.cli.processes.tracing import opened_traces
from fleetlight.cli.settings import Settings
from fleetlight.indexer.stream.liveness import Probes

Stop = Callable[[], None]


_GIVE_WAY_S = 0.001
# Time to close parts after the pending requests were answered.
_CLOSING_S = 10.0


@dataclass(frozen=True, slots=True)
class SharedApiState:
    """State that the processes of an API share, made before they are forked.

    settings: with a key that lets a client continue its watch at any of the processes, even if none is configured.
    """

    settings: Settings
    identity: BrowserIdentity
    limits: SharedLimits

    @classmethod
    def of(cls, settings: Settings, new_key: Callable[[], str] = secrets.token_urlsafe) -> "SharedApiState":
        """Make the state as configured; if no watch key is, `new_key` makes one. Raises IdentityConfigurationError."""
        api = settings.api
        if api.watch_key is None:
            api = api.model_copy(update={"watch_key": SecretStr(new_key())})
        identity = open_identity(api, settings.identity, settings.keystone, settings.openid)
        return cls(settings.model_copy(update={"api": api}), identity, SharedLimits.of(api))

    def settings_of(self, number: int) -> Settings:
        """The settings of one process: only the first serves the socket of local queries."""
        if number == 1:
            return self.settings
        return self.settings.model_copy(update={"api": self.settings.api.model_copy(update={"luxi_socket": None})})

    def serve(
        self,
        fleet: Fleet,
        listener: socket.socket,
        number: int,
        context: ChildContext,
        *,
        indexer: Probes | None = None,
        on_ready: Callable[[Stop], None] = lambda _: None,
    ) -> None:
        """Serve the API in the main thread of a child; returns after a clean end on SIGTERM.

        number, context: of the child. indexer: see `open_parts`. on_ready: called once the API serves requests, with a
        function by which any thread can stop it.
        """
        keep_collector_out_of_the_way()
        # Other threads yield to the event loop after this time, instead of after 5 ms each time it has waited.
        sys.setswitchinterval(_GIVE_WAY_S)
        self.limits.begin(number)
        settings = self.settings_of(number)
        with opened_traces(settings.traces) as traces, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            parts = open_parts(
                settings,
                fleet,
                self.identity,
                indexer=indexer,
                command=context.command_probes,
                limits=self.limits,
                traces=traces,
            )
            runner.run(_serve(settings, parts, listener, context, on_ready))


def api_children(
    listeners: Sequence[socket.socket], serve: Callable[[socket.socket, int, ChildContext], None], api: ApiSettings
) -> Sequence[Child]:
    """One child for each socket of the API. serve: runs in the child; takes its number, counted from 1."""
    ends_within_s = api.shutdown_timeout_s + _CLOSING_S
    return [
        Child(f"api-{number}", partial(serve, listener, number), listener, ends_within_s, answers_lists=True)
        for number, listener in enumerate(listeners, 1)
    ]


async def _serve(
    settings: Settings,
    opening: AbstractAsyncContextManager[ApiParts],
    listener: socket.socket,
    context: ChildContext,
    on_ready: Callable[[Stop], None],
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)

    def stop_from_any_thread() -> None:
        # The loop of a process that is ending may be closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    def is_ready() -> None:
        context.is_ready()
        on_ready(stop_from_any_thread)

    async with opening as parts:
        app = create_app(parts)
        async with _luxi(settings, app):
            with answering_of_api(context, app.health, app.services.index.safe_connect):
                await serve(
                    app.web,
                    listener,
                    stop,
                    deadlines=RequestDeadlines(
                        settings.api.header_timeout_s, settings.api.body_timeout_s, settings.api.response_timeout_s
                    ),
                    shutdown_timeout_s=settings.api.shutdown_timeout_s,
                    on_ready=is_ready,
                    on_stop=app.services.feed.close,
                    logs_requests=settings.api.access_log,
                    trusted_proxies=settings.api.trusted_proxies,
                    hosts=settings.api.served_hosts,
                )


@asynccontextmanager
async def _luxi(settings: Settings, app: Application) -> AsyncIterator[None]:
    """Serve the configured socket of local queries, if there is one, during the block."""
    if settings.api.luxi_socket is None:
        yield
        return
    async with serving_socket(settings.api.luxi_socket, app):
        yield
