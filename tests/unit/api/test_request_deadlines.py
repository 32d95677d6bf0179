"""A request that does not arrive in time ends with its connection, however little of it still trickles in.

So does an answer that its client does not take in time.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Event, Thread

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from fleetlight.api.http.listening import listen
from fleetlight.api.limits.request_deadlines import RequestDeadlines
from tests.unit.api.test_server import running

SOON, SHORT_S, LATE = 0.1, 1.0, 60.0
POST = b"POST %b HTTP/1.1\r\nHost: api\r\nContent-Length: 100\r\n\r\n"
TIMEOUT = b"HTTP/1.1 408 "


class App:
    """Reads a body, or does not, or answers without end; `left` is set when a reader was told that its client left."""

    def __init__(self) -> None:
        self.app = Starlette()
        self.left = Event()
        for path in ("/reads", "/refuses", "/streams", "/floods"):
            self.app.add_route(path, getattr(self, path[1:]), methods=["GET", "POST"])

    async def reads(self, request: Request) -> Response:
        try:
            return PlainTextResponse(f"read {len(await request.body())}")
        except ClientDisconnect:
            self.left.set()
            raise

    async def refuses(self, _request: Request) -> Response:
        return PlainTextResponse("refused", 401)

    async def streams(self, _request: Request) -> Response:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield b"."
                await asyncio.sleep(0.01)

        return StreamingResponse(endless())

    async def floods(self, _request: Request) -> Response:
        left = self.left

        class Flood(Response):
            async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                for _ in range(100):
                    await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
                left.set()

        return Flood()


class Client:
    """A connection."""

    def __init__(self, listener: socket.socket) -> None:
        self._socket = socket.create_connection(listener.getsockname(), timeout=60)

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def trickle(self, byte: bytes) -> None:
        """Send one byte after the other until the server has had enough."""

        def send() -> None:
            pause = Event()
            with suppress(OSError):
                while not pause.wait(0.02):
                    self._socket.sendall(byte)

        Thread(target=send, daemon=True).start()

    def until(self, text: bytes, count: int = 1) -> None:
        """Return when the server has said `text` so often."""
        said = b""
        while said.count(text) < count:
            said += (part := self._socket.recv(65_536))
            assert part, said

    def until_the_end(self) -> bytes:
        """All that the server says; returns when it has closed the connection."""
        said = b""
        with suppress(ConnectionResetError):
            while part := self._socket.recv(65_536):
                said += part
        return said


@pytest.fixture
def app() -> App:
    return App()


@contextmanager
def connected(app: App, *, headers_s: float = LATE, body_s: float = LATE, taking_s: float = LATE) -> Iterator[Client]:
    deadlines = RequestDeadlines(headers_s, body_s, taking_s)
    with running(app.app, listener := listen("127.0.0.1", 0), deadlines), closing(Client(listener)) as client:
        yield client


def test_connection_that_says_nothing_is_closed(app: App) -> None:
    with connected(app, headers_s=SOON) as client:
        assert client.until_the_end() == b""


@pytest.mark.parametrize("is_trickling", [False, True])
def test_headers_that_do_not_end_get_408(app: App, is_trickling: bool) -> None:
    with connected(app, headers_s=SHORT_S) as client:
        client.send(b"GET /reads HTTP/1.1\r\nHost: api\r\nX-Slow: ")
        if is_trickling:
            client.trickle(b"x")
        assert client.until_the_end().startswith(TIMEOUT)


@pytest.mark.parametrize("is_trickling", [False, True])
def test_body_that_does_not_end_gets_408_and_its_handler_ends(app: App, is_trickling: bool) -> None:
    with connected(app, body_s=SOON) as client:
        client.send(POST % b"/reads")
        if is_trickling:
            client.trickle(b"x")
        assert client.until_the_end().startswith(TIMEOUT)
        assert app.left.wait(60)


@pytest.mark.parametrize("path", [b"/refuses", b"/streams"])
def test_body_that_nobody_reads_holds_the_connection_no_longer(app: App, path: bytes) -> None:
    with connected(app, body_s=SHORT_S) as client:
        client.send(POST % path)
        client.trickle(b"x")
        said = client.until_the_end()
        assert said.startswith(b"HTTP/1.1 ")
        assert TIMEOUT not in said, "it was answered already"


def test_later_request_on_a_connection_has_the_same_time(app: App) -> None:
    with connected(app, headers_s=SHORT_S) as client:
        for _ in range(2):
            client.send((POST % b"/reads") + b"x" * 100)
            client.until(b"read 100")
        client.send(b"GET /rea")
        assert client.until_the_end().startswith(TIMEOUT)


def test_each_request_of_a_connection_has_time_of_its_own(app: App) -> None:
    begun = time.monotonic()
    with connected(app, body_s=SHORT_S) as client:
        while time.monotonic() - begun < 1.2 * SHORT_S:
            client.send((POST % b"/reads") + b"x" * 50)
            client.send(b"x" * 50)
            client.until(b"read 100")


def test_answer_may_take_longer_than_its_request(app: App) -> None:
    with connected(app, headers_s=SHORT_S, body_s=SOON) as client:
        client.send(b"GET /streams HTTP/1.1\r\nHost: api\r\n\r\n")
        client.until(b".\r\n", count=120)


def test_client_that_does_not_read_its_answer_does_not_hold_a_body_open(app: App) -> None:
    with connected(app, body_s=SOON) as client:
        client.send(POST % b"/floods")
        assert app.left.wait(60)


def test_client_that_does_not_take_the_next_part_in_time_is_given_up(app: App) -> None:
    with connected(app, taking_s=SOON) as client:
        client.send(b"GET /floods HTTP/1.1\r\nHost: api\r\n\r\n")
        assert app.left.wait(60)
        assert len(client.until_the_end()) < 100_000_000


def test_long_answer_may_take_longer_than_a_part_of_it(app: App) -> None:
    begun = time.monotonic()
    with connected(app, taking_s=SHORT_S) as client:
        client.send(b"GET /floods HTTP/1.1\r\nHost: api\r\n\r\n")
        while time.monotonic() - begun < 1.5 * SHORT_S:
            client.until(b"x", count=1_000_000)
            Event().wait(0.05)
        client.until(b"x", count=1_000_000)


@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"),
    reason="only Linux can give up a connection whose other side takes nothing (TCP_USER_TIMEOUT)",
)
def test_client_that_takes_nothing_of_its_answer_is_given_up(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that has vanished, of which no system tells before."""
    monkeypatch.setattr("fleetlight.api.http.listening._TAKES_NOTHING_MS", 500)
    with connected(app) as client:
        client.send(b"GET /floods HTTP/1.1\r\nHost: api\r\n\r\n")
        assert app.left.wait(60)
