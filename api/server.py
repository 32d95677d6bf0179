"""Serving an application over HTTP until told to stop."""

import asyncio
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from fleetlight.api.http.access_log import AccessLog
from fleetlight.api.http.ending import Ending
from fleetlight.api.http.faults import fault
from fleetlight.api.http.host_names import ANY_HOST, ServedHosts
from fleetlight.api.limits.request_deadlines import RequestDeadlines, TimedProtocol, protocol_with

# After all answers and disconnections, uvicorn waits so long for tasks to end.
_TASKS_TIMEOUT_S = 5
_LOOK_INTERVAL_S = 0.05
_ACCEPTING_TIMEOUT_S = 1.0
# For requests that are refused before their body was read.
_CLOSE = {"Connection": "close"}
_LENGTHS = {b"content-length", b"transfer-encoding"}


async def serve(
    app: Starlette,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    deadlines: RequestDeadlines,
    shutdown_timeout_s: float,
    on_ready: Callable[[], None] | None = None,
    on_stop: Callable[[], None] = lambda: None,
    logs_requests: bool = False,
    trusted_proxies: Sequence[str] = (),
    hosts: ServedHosts = ANY_HOST,
) -> None:
    """Answer requests at `listener` until `stop` is set, then close it.

    After that, each new request gets 503 and its connection is closed; running requests are still answered.
    deadlines: time limits for clients.
    shutdown_timeout_s: time limit of running requests then; later they get 503, and clients that have not taken their
        whole answer are disconnected.
    on_ready: called once connections are accepted. on_stop: called first at the stop, to end streams.
    logs_requests: whether to log each request. trusted_proxies: addresses or networks of proxies whose X-Forwarded-For
        and X-Forwarded-Proto are believed. hosts: names in the header Host that are served.
    The caller handles signals, and may run this in any thread and loop; uvloop's is the fastest.
    """
    ending = Ending(_OneLength(_OriginForm(_KnownHost(app, hosts))))
    config = uvicorn.Config(
        AccessLog(ending) if logs_requests else ending,
        http=protocol_with(deadlines),
        # The API has no websockets, which would have no deadlines.
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        timeout_graceful_shutdown=_TASKS_TIMEOUT_S,
    )
    server = _Server(config, on_ready, ending, shutdown_timeout_s)

    async def stop_when_told() -> None:
        await stop.wait()
        ending.begin()
        on_stop()
        server.should_exit = True

    async with asyncio.TaskGroup() as tasks:
        stopping = tasks.create_task(stop_when_told())
        await server.serve(sockets=[listener])
        stopping.cancel()


class _OneLength:
    """Refuses a request with two, possibly different, lengths (RFC 9112, 6.1), and closes its connection.

    A proxy that uses the other length would take the rest for the next request, of another caller.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and {name for name, _ in scope["headers"]} >= _LENGTHS:
            refusal = fault(400, "A request has Content-Length or Transfer-Encoding, not both.", _CLOSE)
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _KnownHost:
    """Refuses a request for a host name that is not served (RFC 9110, 15.5.20)."""

    def __init__(self, app: ASGIApp, hosts: ServedHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Headers(scope=scope).getlist("host") if scope["type"] == "http" else []
        app = self._app if self._hosts.serves(asked) else fault(421, self._hosts.refusal(asked, "api.hosts"), _CLOSE)
        await app(scope, receive, send)


class _OriginForm:
    """Passes on a request for a full URL, as proxies send it, as a request for its path (RFC 9112, 3.2.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].lower().startswith(("http://", "https://")):
            try:
                scope = _in_origin_form(scope)
            except ValueError as error:
                await fault(400, f"The address of the request is no URL: {error}", _CLOSE)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _in_origin_form(scope: Scope) -> Scope:
    """Convert a request for a URL, whose host overrides the header. Raises ValueError for a malformed URL."""
    raw_path: bytes = scope["raw_path"]
    url = urlsplit(raw_path)
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    return {
        **scope,
        "path": unquote(url.path.decode("ascii")) or "/",
        "raw_path": url.path or b"/",
        "headers": [(b"host", url.netloc), *headers],
    }


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers; it reports when it accepts, and ends when clients have their answers.

    uvicorn would close its listener first, and with it connections that wait to be accepted.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[], None] | None,
        ending: Ending,
        shutdown_timeout_s: float,
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._ending = ending
        self._shutdown_timeout_s = shutdown_timeout_s

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_ready is not None:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        deadline = time.monotonic() + self._shutdown_timeout_s
        # Wait at least once, for requests that have arrived and not begun.
        await asyncio.sleep(_LOOK_INTERVAL_S)
        while self._under_way() and time.monotonic() < deadline:  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(_LOOK_INTERVAL_S)
        late = self._under_way()
        self._ending.give_up()
        await self._stop_accepting(sockets or ())
        for connection in late:
            if connection.is_under_way:
                # The answer was sent in part, or the client does not take it.
                connection.transport.abort()
        await super().shutdown(sockets)

    async def _stop_accepting(self, listeners: Sequence[socket.socket]) -> None:
        waiting = select.poll()
        for listener in listeners:
            waiting.register(listener, select.POLLIN)
        # Accept waiting connections, which the kernel would reset, but only for a limited time.
        until = time.monotonic() + _ACCEPTING_TIMEOUT_S
        while waiting.poll(0) and time.monotonic() < until:  # noqa: ASYNC110  # uvloop accepts one in a round
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        for listener in listeners:
            listener.close()
        # Let the last accepted requests be refused before uvicorn closes idle connections.
        await asyncio.sleep(_LOOK_INTERVAL_S)

    def _under_way(self) -> Sequence[TimedProtocol]:
        """Return the connections whose clients have not received, or not taken, their whole answer."""
        connections = (each for each in self.server_state.connections if isinstance(each, TimedProtocol))
        return [connection for connection in connections if connection.is_under_way]
