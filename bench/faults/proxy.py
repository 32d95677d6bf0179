"""A TCP proxy: it cuts off and slows down a server that others use too, without touching the server."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK = 65536


class TcpProxy:
    """Passes bytes on between its own `port` of the loopback address and a server; `tcp_proxy` makes one."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._turn = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_cut = False
        self._delay_s = 0.0
        self._flowing = threading.Event()
        self._flowing.set()
        self._closing = threading.Event()
        self.answered_bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections; clients that connect from now on are refused."""
        with self._turn:
            self._is_cut = True
            self._hang_up(self._open)

    def hold(self) -> None:
        """Keep all connections open, and let no answer through until `restore`."""
        self._flowing.clear()

    def restore(self) -> None:
        """End what `cut`, `hold` and `slow_down` began."""
        self._is_cut = False
        self._delay_s = 0.0
        self._flowing.set()

    def slow_down(self, delay_s: float) -> None:
        """From now on each piece of an answer arrives this much later."""
        self._delay_s = delay_s

    def close(self) -> None:
        self._closing.set()
        self._flowing.set()
        self.cut()
        # A thread that waits in `accept` does not notice that the socket is closed.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        if self._is_cut:
            client.close()
            return
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._turn:
            self._open |= {client, server}
            if self._is_cut:
                self._hang_up({client, server})
        threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """Pass on both ways until either end hangs up; then this thread closes both, and no other one does."""
        questions = threading.Thread(target=self._pump, args=(client, server, False), daemon=True)
        questions.start()
        self._pump(server, client, True)
        questions.join()
        with self._turn:
            self._open -= {client, server}
        client.close()
        server.close()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if is_answer:
                    self._flowing.wait()
                    self._closing.wait(self._delay_s)
                    self.answered_bytes += len(data)
                sink.sendall(data)
        # The other way still waits for something to read, and is woken by this alone.
        self._hang_up({source, sink})

    @staticmethod
    def _hang_up(ends: set[socket.socket]) -> None:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def tcp_proxy(host: str, port: int) -> Iterator[TcpProxy]:
    proxy = TcpProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
