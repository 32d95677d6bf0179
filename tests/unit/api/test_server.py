"""The server listens where it was told, says when it is ready, and ends when it is told to."""

import asyncio
import re
import socket
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from structlog.testing import capture_logs

from fleetlight.api.http.connection import address_of_client
from fleetlight.api.http.errors import InsecureListeningError
from fleetlight.api.http.host_names import ANY_HOST, ServedHosts
from fleetlight.api.http.listening import address_of, listen
from fleetlight.api.identity import refuse_open_listening
from fleetlight.api.limits.request_deadlines import RequestDeadlines
from fleetlight.api.server import serve


async def hello(_request: Request) -> Response:
    return PlainTextResponse("hello")


PATIENT = RequestDeadlines(headers_s=60, body_s=60, taking_s=60)


@contextmanager
def running(
    app: Starlette,
    listener: socket.socket,
    deadlines: RequestDeadlines = PATIENT,
    *,
    logs_requests: bool = False,
    trusted_proxies: Sequence[str] = (),
    hosts: ServedHosts = ANY_HOST,
) -> Iterator[None]:
    """A server in a thread, which is told to stop at the end."""
    ready = threading.Event()
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        stop = asyncio.Event()
        started.append((asyncio.get_running_loop(), stop))
        await serve(
            app,
            listener,
            stop,
            deadlines=deadlines,
            shutdown_timeout_s=60,
            on_ready=ready.set,
            logs_requests=logs_requests,
            trusted_proxies=trusted_proxies,
            hosts=hosts,
        )

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        loop, stop = started[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
    assert not thread.is_alive()


def test_server_in_a_thread_answers_until_it_is_told_to_stop() -> None:
    app = Starlette()
    app.add_route("/", hello)
    listener = listen("127.0.0.1", 0)
    address = address_of(listener)
    with running(app, listener), urllib.request.urlopen(address) as response:  # noqa: S310  # our own address
        assert response.read() == b"hello"
    assert listener.fileno() == -1


@pytest.mark.parametrize(("trusted", "said"), [((), "127.0.0.1 http"), (("127.0.0.1",), "192.0.2.7 https")])
def test_only_a_trusted_proxy_says_from_where_a_request_comes(trusted: Sequence[str], said: str) -> None:
    app = Starlette()

    async def caller(request: Request) -> Response:
        return PlainTextResponse(f"{address_of_client(request.scope)} {request.url.scheme}")

    app.add_route("/", caller)
    listener = listen("127.0.0.1", 0)
    forwarded = {"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
    request = urllib.request.Request(address_of(listener), headers=forwarded)  # noqa: S310  # our own address
    with running(app, listener, trusted_proxies=trusted), urllib.request.urlopen(request) as response:  # noqa: S310
        assert response.read().decode() == said


def test_request_for_a_whole_url_is_one_for_its_path() -> None:
    """As a proxy may send it (RFC 9112, 3.2.2)."""
    app = Starlette()

    async def echo(request: Request) -> Response:
        return PlainTextResponse(f"{request.headers['host']} {request.path_params['name']} {request.url.query}")

    app.add_route("/a/{name}", echo)
    with running(app, listener := listen("127.0.0.1", 0)):
        for scheme in (b"http", b"HTTP", b"Https"):
            assert answer_to(listener, scheme + b"://api.org/a/b%23c?d=e").endswith(b"api.org b#c d=e")
        for wrong in (b"http://[::1/a/b", b"http://[x]/a/b", b"http://a\xe2\x84\x80b/a/b"):
            assert answer_to(listener, wrong).startswith(b"HTTP/1.1 400 ")


def test_host_that_is_not_served_gets_nothing() -> None:
    app = Starlette()
    app.add_route("/", hello)
    with running(app, listener := listen("127.0.0.1", 0), hosts=ServedHosts(frozenset({"api.org"}))):
        assert answer_to(listener, b"http://api.org/").endswith(b"hello")
        for target in (b"http://evil.example/", b"http://api.org.evil.example/nothing"):
            refused = answer_to(listener, target)
            assert refused.startswith(b"HTTP/1.1 421 ")
            assert b"is not served here, only addresses, localhost, api.org; api.hosts can name more hosts" in refused


def answer_to(listener: socket.socket, target: bytes) -> bytes:
    """All that a server says to a GET of `target`, whatever that is."""
    return said_to(listener, b"GET " + target + b" HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n")


def said_to(listener: socket.socket, sent: bytes) -> bytes:
    """All that a server says to these bytes until it closes the connection."""
    with socket.create_connection(listener.getsockname(), timeout=60) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        b"Content-Length: 5\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    ],
)
def test_request_that_says_twice_where_it_ends_is_refused_and_nothing_after_it_is_read(headers: bytes) -> None:
    """What one reads as a body, another one reads as the next request (RFC 9112, 6.1)."""
    app = Starlette()
    app.add_route("/", hello, methods=["GET", "POST"])
    smuggled = b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"
    with running(app, listener := listen("127.0.0.1", 0)):
        answer = said_to(listener, b"POST / HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n0\r\n\r\n" + smuggled)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in answer.lower()
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"hello" not in answer
        one_length = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        assert said_to(listener, one_length).endswith(b"hello")


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_folded_header_and_line_without_cr_are_refused_also_behind_another_request(
    head: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """What reads them otherwise sees another request (RFC 9112, 2.2 and 5.2)."""
    app = Starlette()
    app.add_route("/", hello, methods=["GET", "POST"])
    body = b"a\n b\n\n"  # a body has its own lines
    good = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with running(app, listener := listen("127.0.0.1", 0)):
        for before in (b"", good, good + good):
            answer = said_to(listener, before + head + good)
            said = re.findall(rb"HTTP/1\.1 (\d+)", answer)
            assert said == [b"200"] * before.count(b"POST") + [b"400"], answer
            assert b"CR LF, and no header goes on in the next line." in answer
            assert b"connection: close" in answer.lower()
    assert "Traceback" not in caplog.text


def test_head_that_comes_in_pieces_is_taken() -> None:
    app = Starlette()
    app.add_route("/", hello)
    head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    with (
        running(app, listener := listen("127.0.0.1", 0)),
        socket.create_connection(listener.getsockname(), timeout=60) as connection,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(head)):
            connection.sendall(head[place : place + 1])
        assert b"".join(iter(lambda: connection.recv(4096), b"")).endswith(b"hello")


def test_each_request_is_logged_where_that_is_switched_on() -> None:
    app = Starlette()

    async def answer(_request: Request) -> Response:
        return PlainTextResponse("hello", 418, {"X-Openstack-Request-Id": "req-1"})

    app.add_route("/a/{name}", answer)
    with capture_logs() as events, running(app, listener := listen("127.0.0.1", 0), logs_requests=True):
        answer_to(listener, b"/a/b%1b%5b2J?name=c")
        answer_to(listener, b"/" + b"x" * 300)
    first, second = (event for event in events if event["event"] == "request")
    assert first.pop("duration_ms") >= 0
    assert first == {
        "event": "request",
        "log_level": "info",
        "address": "127.0.0.1",
        "method": "GET",
        "path": "/a/b\N{REPLACEMENT CHARACTER}[2J",
        "query": "name=c",
        "status": 418,
        "request_id": "req-1",
    }
    assert (second["status"], second["request_id"], len(second["path"])) == (404, None, 256)


def test_no_request_is_logged_unless_that_is_switched_on() -> None:
    with capture_logs() as events, running(Starlette(), listener := listen("127.0.0.1", 0)):
        assert answer_to(listener, b"/").startswith(b"HTTP/1.1 404 ")
    assert events == []


def test_address_that_is_taken_raises() -> None:
    listener = listen("127.0.0.1", 0)
    with listener:
        listener.listen()
        with pytest.raises(OSError, match="in use"):
            listen("127.0.0.1", listener.getsockname()[1])


def test_ipv6_address_is_written_in_brackets() -> None:
    with listen("::1", 0) as listener:
        assert address_of(listener).startswith("http://[::1]:")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_not_refused(host: str) -> None:
    refuse_open_listening(host, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])  # noqa: S104  # what is refused
def test_other_addresses_are_refused_unless_told(host: str) -> None:
    with pytest.raises(InsecureListeningError, match="--insecure"):
        refuse_open_listening(host, insecure=False)
    refuse_open_listening(host, insecure=True)
