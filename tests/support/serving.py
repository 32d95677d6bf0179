"""HTTP servers that a test plays, each in a thread of its own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from threading import Thread


class QuietHandler(BaseHTTPRequestHandler):
    """Logs nothing, and sends each part of an answer at once: a client may wait 40 ms with its note of the first."""

    disable_nagle_algorithm = True

    def log_message(self, *_arguments: object) -> None:
        """Nobody reads it."""

    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send a response with its length; headers: others, or other ones."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(server: TCPServer) -> Iterator[str]:
    """The address, host and port, of a server of this machine that answers until the block ends."""
    with server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
