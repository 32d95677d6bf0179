"""How a compute API is asked over HTTP."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cells.kinds.nova_api.http import Connection, PassingError

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def served(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """The address of a server, and the paths that it was asked for, one by one."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            answer(self)

        def log_message(self, *_args: object) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v2.1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def whole(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("X-Name", "value")
    handler.send_header("Content-Length", "2")
    handler.end_headers()
    handler.wfile.write(b"{}")


def test_answer_is_handed_over_as_it_came() -> None:
    with served(whole) as (url, asked), closing(Connection(url, timeout_s=60)) as connection:
        for _ in range(2):
            answer = connection.get("/servers?limit=1", {"X-Auth-Token": "t"})
            assert (answer.status, answer.headers.get("x-name"), answer.body) == (200, "value", b"{}")
        assert asked == ["/v2.1/servers?limit=1"] * 2


def test_redirect_is_not_followed() -> None:
    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(301)
        handler.send_header("Location", "/v2.1/other")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with served(elsewhere) as (url, asked), closing(Connection(url, timeout_s=60)) as connection:
        assert connection.get("/servers", {}).status == 301
        assert len(asked) == 1


def test_connection_that_ended_while_it_was_idle_is_replaced() -> None:
    ended = threading.Semaphore(0)

    def last(handler: BaseHTTPRequestHandler) -> None:
        whole(handler)
        handler.close_connection = True  # which the answer does not say
        handler.connection.shutdown(socket.SHUT_WR)
        ended.release()

    with served(last) as (url, asked), closing(Connection(url, timeout_s=60)) as connection:
        for _ in range(3):
            assert connection.get("/servers", {}).status == 200
            assert ended.acquire(timeout=60)
        assert len(asked) == 3


@pytest.mark.parametrize("part", [b"", b"x"])
def test_server_that_says_nothing_or_trickles_is_given_up_at_the_deadline(part: bytes) -> None:
    is_over = threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        while not is_over.wait(0.01):
            handler.wfile.write(part)

    with served(slow) as (url, asked), closing(Connection(url, timeout_s=60)) as connection:
        try:
            with pytest.raises(PassingError, match="no answer in time"):
                connection.get("/servers", {}, deadline_s=time.monotonic() + 0.2)
        finally:
            is_over.set()
        assert len(asked) == 1


def test_answer_that_breaks_off_is_no_answer_and_is_asked_for_once() -> None:
    def broken(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        handler.wfile.write(b"{")
        handler.close_connection = True

    with served(broken) as (url, asked), closing(Connection(url, timeout_s=60)) as connection:
        with pytest.raises(PassingError, match="cannot be reached"):
            connection.get("/servers", {})
        assert len(asked) == 1
