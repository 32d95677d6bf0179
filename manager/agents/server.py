"""The agent over HTTPS; the TLS handshake refuses clients without a certificate of a worker of the cell."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from fleetlight.manager.agents.agent import Agent
from fleetlight.manager.agents.calls import CALLS
from fleetlight.manager.agents.errors import CallRefusedError, CallUnderWayError, CertificateError
from fleetlight.manager.agents.rpcs import Effect, rpc
from fleetlight.manager.agents.tls import RenewedContext
from fleetlight.manager.agents.wire import CALLS as CALLS_PATH
from fleetlight.manager.agents.wire import ROOT, UNDER_WAY, VERSION, CallRequest, failed

_log = structlog.get_logger(__name__)

_LARGEST_REQUEST = 1024 * 1024
_SHUTDOWN_TIMEOUT_S = 10
_LOOK_INTERVAL_S = 1.0
# Longer than the interval of snapshots, so that connections are reused.
_KEEP_ALIVE_S = 900
# A worker sends a call at once; a slower client would occupy a connection that others need.
_REQUEST_TIMEOUT_S = 30
# Half of the threads, so that slow changes do not delay reports of the host's state.
_MOST_CHANGES = 20


def application(agent: Agent) -> Starlette:
    """Make the application of an agent."""
    changes = asyncio.Semaphore(_MOST_CHANGES)

    async def about(_request: Request) -> JSONResponse:
        return JSONResponse({"node": agent.name, "version": VERSION, "calls": sorted(CALLS)})

    async def call(request: Request) -> JSONResponse:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LARGEST_REQUEST:
                return JSONResponse(failed(f"a call has at most {_LARGEST_REQUEST} bytes"), 413)
        try:
            asked = CallRequest.model_validate_json(body)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"])) or "the body"
            return JSONResponse(failed(f"{where}: {problem['msg']}"), 400)
        return await answer(request.path_params["name"], asked)

    async def answer(name: str, asked: CallRequest) -> JSONResponse:
        if rpc(name).effect is Effect.READS:
            return await carry_out(name, asked)
        if changes.locked():
            return JSONResponse(failed(f"{_MOST_CHANGES} calls are under way, and this one has to wait"), UNDER_WAY)
        async with changes:
            return await carry_out(name, asked)

    async def carry_out(name: str, asked: CallRequest) -> JSONResponse:
        try:
            return JSONResponse(await run_in_threadpool(agent.call, name, asked))
        except CallRefusedError as error:
            return JSONResponse(failed(str(error)), 400)
        except CallUnderWayError as error:
            return JSONResponse(failed(str(error)), UNDER_WAY)

    async def unknown(request: Request, _error: Exception) -> JSONResponse:
        text = f"{request.method} {request.url.path} is nothing that this agent knows: it speaks version {VERSION}"
        return JSONResponse(failed(text), 404)

    return Starlette(
        routes=[Route(ROOT, about), Route(CALLS_PATH + "{name}", call, methods=["POST"])],
        exception_handlers={404: unknown, 405: unknown},
    )


async def serve_agent(
    agent: Agent,
    listener: socket.socket,
    tls: RenewedContext,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer calls at `listener` until `stop` is set, and then finish running ones for some seconds."""
    config = uvicorn.Config(
        application(agent),
        http=_Connection,
        ssl_context_factory=lambda _config, _default: tls.context,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
    )
    server = _Server(config, on_ready)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(_follow_files(tls))
        stopping = tasks.create_task(_stop_when_told(server, stop))
        await server.serve(sockets=[listener])
        watching.cancel()
        stopping.cancel()


class _Connection(H11Protocol):
    """A connection that is aborted if a request does not arrive in time, and at once when the agent ends.

    A clean end would need the other side, which does not read from connections that it keeps for later.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._has_part_of_a_request():
            self._wait_for_request()
        else:
            self._wait_no_more()

    def _has_part_of_a_request(self) -> bool:
        if self.cycle is None or self.cycle.response_complete:
            return bool(self.conn.trailing_data[0])
        return bool(self.cycle.more_body)

    def _wait_for_request(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(_REQUEST_TIMEOUT_S, self.transport.abort)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def shutdown(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
        else:
            super().shutdown()


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers, which reports when it accepts connections."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


async def _stop_when_told(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


async def _follow_files(tls: RenewedContext) -> None:
    """Use new certificates as soon as they are written; logs each fault of the files once."""
    told = None
    while True:
        await asyncio.sleep(_LOOK_INTERVAL_S)
        reason = None
        try:
            if tls.renew():
                _log.info("agent.certificate_renewed")
        except CertificateError as error:
            # Only one of both files may be written yet.
            reason = str(error)
            if reason != told:
                _log.warning("agent.certificate_unusable", reason=reason)
        told = reason
