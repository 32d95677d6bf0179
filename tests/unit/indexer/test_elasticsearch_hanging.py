"""A server that hangs costs a list its time limit at most, and soon nothing at all."""

import asyncio
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fleetlight.indexer.backends.opening import open_searcher
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexUnavailableError
from tests.support.serving import serving

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
_MORE_THAN_THE_THREADS = 20


@contextmanager
def trickling_server() -> Iterator[str]:
    """An answer of which a byte arrives now and then: the connection is never silent for long, and never done."""
    stop = threading.Event()

    class Trickle(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.request.sendall(_HEAD)
            while not stop.wait(0.05):
                self.request.sendall(b" ")

    class Server(socketserver.ThreadingTCPServer):
        request_queue_size = 100
        daemon_threads = True

    with serving(Server(("127.0.0.1", 0), Trickle)) as address:
        try:
            yield f"http://{address}"
        finally:
            stop.set()


def test_answer_that_trickles_is_given_up_and_when_all_threads_wait_for_one_none_is_begun() -> None:
    async def scenario(url: str) -> None:
        searcher = open_searcher(IndexSettings(backend="elasticsearch", urls=(url,), search_timeout_s=0.5))
        reasons: list[str] = []
        async with asyncio.timeout(60):
            while "earlier searches still wait for an answer" not in reasons:
                questions = [searcher.progress() for _ in range(_MORE_THAN_THE_THREADS)]
                failures = await asyncio.gather(*questions, return_exceptions=True)
                assert all(isinstance(failure, IndexUnavailableError) for failure in failures), failures
                reasons += map(str, failures)
        assert "no answer within 0.5 s" in reasons
        await searcher.close()

    with trickling_server() as url:
        asyncio.run(scenario(url))
