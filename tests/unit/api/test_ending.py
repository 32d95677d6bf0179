"""The end of a server under load: whoever has asked gets an answer, and nothing is logged as an error."""

import asyncio
import logging
import socket
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from fleetlight.api.http.listening import listen
from fleetlight.api.limits.request_deadlines import RequestDeadlines
from fleetlight.api.server import serve
from tests.support.waiting import eventually

PATIENT = RequestDeadlines(headers_s=60, body_s=60, taking_s=60)
SHORT_S = 0.3
LARGE = b"x" * 50_000_000


@pytest.fixture(autouse=True)
def nothing_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


class Server:
    """A server in this loop. release: lets the slow page be answered. asked: how often it was asked for."""

    def __init__(self) -> None:
        self.stop, self.release = asyncio.Event(), asyncio.Event()
        self.asked = 0
        self.streams_end = asyncio.Event()
        self.app = Starlette()
        self.app.add_route("/slow", self.slow, methods=["GET", "POST"])
        self.app.add_route("/stream", self.stream)
        self.app.add_route("/large", self.large)
        self.listener = listen("127.0.0.1", 0)
        self.address = self.listener.getsockname()

    async def slow(self, _request: Request) -> Response:
        self.asked += 1
        await self.release.wait()
        return PlainTextResponse("here it is")

    async def large(self, _request: Request) -> Response:
        return Response(LARGE)

    async def stream(self, _request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            yield b"first"
            await self.streams_end.wait()
            yield b"last"

        return StreamingResponse(parts())


class Client:
    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    def ask(self, path: str, method: str = "GET") -> None:
        self._writer.write(f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())

    async def answer(self) -> bytes:
        """All that comes until the server closes the connection."""
        async with asyncio.timeout(10):
            return await self.reader.read()

    def close(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def running(
    shutdown_timeout_s: float, *, ends_streams: bool = True
) -> AsyncIterator[tuple[Server, Callable[[], Awaitable[Client]]]]:
    """A server, which is told to stop at the end at last, and what connects to it."""
    server = Server()
    is_ready = asyncio.Event()
    async with AsyncExitStack() as clients, asyncio.TaskGroup() as tasks:
        tasks.create_task(
            serve(
                server.app,
                server.listener,
                server.stop,
                deadlines=PATIENT,
                shutdown_timeout_s=shutdown_timeout_s,
                on_ready=is_ready.set,
                on_stop=server.streams_end.set if ends_streams else lambda: None,
            )
        )

        async def connect() -> Client:
            client = Client(*await asyncio.open_connection(*server.address))
            clients.callback(client.close)
            return client

        await is_ready.wait()
        try:
            yield server, connect
        finally:
            server.stop.set()


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """A loop as that of an API."""
    return "asyncio", {"use_uvloop": True}


def is_refusal(answer: bytes) -> bool:
    head = answer.lower()
    return head.startswith(b"http/1.1 503 ") and b"\r\nconnection: close\r\n" in head and b"\r\nretry-after: " in head


async def test_requests_under_way_are_answered_and_later_ones_refused() -> None:
    async with running(60) as (server, connect):
        under_way, kept_alive = [await connect() for _ in range(60)], await connect()
        for client in under_way:
            client.ask("/slow")
        kept_alive.ask("/none")
        await kept_alive.reader.readuntil(b"404")
        await eventually(lambda: server.asked == 60)
        server.stop.set()
        await asyncio.sleep(0)
        new = await connect()
        for client in (new, kept_alive):
            client.ask("/slow")
        assert is_refusal(await new.answer())
        assert b"HTTP/1.1 503" in await kept_alive.answer()
        server.release.set()
        for client in under_way:
            answer = await client.answer()
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.endswith(b"here it is")
            assert b"\r\nconnection: close\r\n" in answer
        assert server.asked == 60


async def test_requests_that_wait_to_be_accepted_are_answered() -> None:
    """Their connections are in the hands of the kernel when the server is told to stop."""
    async with running(60) as (server, _):
        waiting = [socket.create_connection(server.address) for _ in range(100)]
        for each in waiting:
            each.sendall(b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n")
        server.stop.set()
        for each in waiting:
            client = Client(*await asyncio.open_connection(sock=each))
            assert is_refusal(await client.answer())
            client.close()


async def test_request_that_is_late_is_refused() -> None:
    async with running(SHORT_S) as (server, connect):
        client = await connect()
        client.ask("/slow")
        await eventually(lambda: server.asked == 1)
        server.stop.set()
        assert is_refusal(await client.answer())


async def test_client_is_not_asked_to_try_a_late_change_again() -> None:
    """It goes on in its thread, so a second try could make a second server."""
    async with running(SHORT_S) as (server, connect):
        client = await connect()
        client.ask("/slow", "POST")
        await eventually(lambda: server.asked == 1)
        server.stop.set()
        answer = await client.answer()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"may have been made all the same" in answer
        assert b"retry-after" not in answer.lower()


async def test_stream_ends_at_once_and_whole() -> None:
    began = time.monotonic()
    async with running(60) as (server, connect):
        client = await connect()
        client.ask("/stream")
        await client.reader.readuntil(b"first")
        server.stop.set()
        assert (await client.answer()).endswith(b"last\r\n0\r\n\r\n")
    assert time.monotonic() - began < 10


async def test_stream_that_does_not_end_is_cut_off() -> None:
    async with running(SHORT_S, ends_streams=False) as (server, connect):
        client = await connect()
        client.ask("/stream")
        await client.reader.readuntil(b"first")
        server.stop.set()
        assert not (await client.answer()).endswith(b"0\r\n\r\n")


async def test_client_that_does_not_take_its_answer_does_not_keep_the_server() -> None:
    began = time.monotonic()
    async with running(SHORT_S) as (server, connect):
        client = await connect()
        client.ask("/large")
        await client.reader.readuntil(b"200 OK")
        server.stop.set()
    assert time.monotonic() - began < 5
