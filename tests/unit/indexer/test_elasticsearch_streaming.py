"""Answers are read while they arrive, and one that breaks off is asked for again, at another node."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from indexer.backends.elasticsearch.client import open_client, read, send
from indexer.backends.settings import IndexSettings
from indexer.errors import IndexRequestError, IndexUnavailableError

_LIMIT_S = 60
Write = Callable[[bytes], None]


@contextmanager
def node(answer: Callable[[Write], None], status: int = 200) -> Iterator[tuple[str, list[None]]]:
    """A node that answers with the parts that `answer` writes; what it raises breaks the answer off.

    Yields its address, and a list that gets longer with each connection.
    """
    connections: list[None] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Elastic-Product", "Elasticsearch")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                answer(self._write)
            except ConnectionAbortedError:
                self.close_connection = True
                return
            self._write(b"")

        def _write(self, part: bytes) -> None:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))

        def log_message(self, *_args: object) -> None:
            """Nothing is logged."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def verify_request(self, *_request: object) -> bool:
            connections.append(None)
            return True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", connections
        finally:
            server.shutdown()
            thread.join()


def whole(write: Write) -> None:
    for part in (b'{"a":', b"1}"):
        write(part)


def broken(write: Write) -> None:
    write(b'{"a":')
    raise ConnectionAbortedError


def read_from(urls: Sequence[str], reader: Callable[[Iterator[bytes]], list[bytes]]) -> list[bytes]:
    settings = IndexSettings(backend="elasticsearch", urls=tuple(urls))
    with open_client(settings, timeout_s=_LIMIT_S, connections=1) as client:
        return read(client, "POST", "/index/_search", {}, reader)


def test_part_is_read_while_the_node_still_writes() -> None:
    was_read = threading.Event()

    def answer(write: Write) -> None:
        write(b'{"a":')
        assert was_read.wait(_LIMIT_S)
        write(b"1}")

    def reader(parts: Iterator[bytes]) -> list[bytes]:
        read_parts = [next(parts)]
        was_read.set()
        return [*read_parts, *parts]

    with node(answer) as (url, _):
        assert read_from([url], reader) == [b'{"a":', b"1}"]


def test_connection_is_used_again_and_what_is_sent_otherwise_is_read_as_ever() -> None:
    with node(whole) as (url, connections):
        settings = IndexSettings(backend="elasticsearch", urls=(url,))
        with open_client(settings, timeout_s=_LIMIT_S) as client:
            for _ in range(3):
                assert read(client, "POST", "/index/_search", {}, list) == [b'{"a":', b"1}"]
                assert send(client, "POST", "/index/_search", {}) == b'{"a":1}'
        assert len(connections) == 1


def test_answer_that_breaks_off_is_an_index_that_is_away() -> None:
    with node(broken) as (url, _), pytest.raises(IndexUnavailableError):
        read_from([url], list)


def test_answer_that_breaks_off_is_asked_for_at_the_next_node() -> None:
    with ExitStack() as nodes:
        urls = [nodes.enter_context(node(answer))[0] for answer in (broken, whole)]
        for _ in range(4):  # a client begins at any of its nodes
            assert read_from(urls, list) == [b'{"a":', b"1}"]


def test_what_the_reader_raises_is_raised_as_it_is_and_leaves_the_connections_free() -> None:
    def reader(parts: Iterator[bytes]) -> list[bytes]:
        next(parts)
        raise IndexRequestError("not what it must be")

    with node(whole) as (url, _):
        settings = IndexSettings(backend="elasticsearch", urls=(url,))
        with open_client(settings, timeout_s=_LIMIT_S, connections=1) as client:
            for _ in range(3):
                with pytest.raises(IndexRequestError, match="not what it must be"):
                    read(client, "POST", "/index/_search", {}, reader)


def test_refusal_is_not_given_to_the_reader() -> None:
    def refusal(write: Write) -> None:
        write(b'{"error":{"type":"security_exception","reason":"no"}}')

    def reader(_parts: Iterator[bytes]) -> list[bytes]:
        raise AssertionError

    with (
        node(refusal, status=403) as (url, _),
        pytest.raises(IndexRequestError, match="status 403, security_exception: no"),
    ):
        read_from([url], reader)
