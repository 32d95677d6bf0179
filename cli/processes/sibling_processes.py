"""Requests of the processes of one command to each other: for probes, for metrics, and orders.

Each has a Unix socket in a folder that the parent has made. The parent keeps it open, so that a request to a process
that has just died is answered by the one that is started after it. A request is one word, its answer one value as
MessagePack.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from mmap import mmap
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cli.monitoring import add_process_metrics
from fleetlight.indexer.stream.liveness import Probe, Probes

T = TypeVar("T")

ANSWER_TIMEOUT_S = 30.0
"""How long a process may take to answer before it counts as stuck."""
METRICS_TIMEOUT_S = 5.0
"""How long the metrics of all wait for those of one: Prometheus gives up after ten seconds by default."""
_LONGEST_REQUEST = 100
_DOWN, _STARTING, _READY = range(3)
_OK = "ok"
_STATES = ("down", "starting", _OK)


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One value of a metric. name: of the metric, with what its type adds."""

    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True):
    """A metric: what prometheus_client calls one, without what is never set here."""

    name: str
    documentation: str
    type: str
    samples: list[Sample]


class Measured(msgspec.Struct, frozen=True, array_like=True):
    """What a process has counted. process: its id, which a process that is started after it does not have."""

    process: int
    families: list[Family]


class _Answered(msgspec.Struct, frozen=True, array_like=True):
    is_well: bool
    body: dict[str, Any]


_decode_probe = msgspec.msgpack.Decoder(_Answered).decode
_decode_measured = msgspec.msgpack.Decoder(Measured).decode


def listen_for_requests(path: Path) -> socket.socket:
    """The socket at which a process takes requests. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


@contextmanager
def answering(
    listener: socket.socket,
    registry: CollectorRegistry,
    probes: Probes,
    orders: Mapping[str, Callable[[], object]],
) -> Iterator[None]:
    """Answer the requests at `listener` while the block lasts, from threads.

    registry: of this process; how much of the machine the process uses is put there. orders: what is done at
    the request of another process, by its name.
    """
    add_process_metrics(registry)

    def answer(word: str) -> object:
        match word:
            case "healthz" | "readyz":
                probe = probes.healthz() if word == "healthz" else probes.readyz()
                return _Answered(probe.is_well, dict(probe.body))
            case "metrics":
                return Measured(os.getpid(), families_of(registry))
            case _:
                orders[word]()
                return None

    class Handler(StreamRequestHandler):
        timeout = ANSWER_TIMEOUT_S

        def handle(self) -> None:
            word = self.rfile.readline(_LONGEST_REQUEST).decode().strip()
            self.wfile.write(msgspec.msgpack.encode(answer(word)))

    with _Server(listener, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="siblings")
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingUnixStreamServer):
    daemon_threads = True  # a sibling that does not read its answer does not keep the process

    def __init__(self, listener: socket.socket, handler: type[StreamRequestHandler]) -> None:
        super().__init__(listener.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The sibling that sent the request has ended."""


class States:
    """Which of `count` processes run, as the parent knows it; all of them see it, since the memory is shared.

    In the other direction each of them gives signs of life.
    """

    def __init__(self, count: int) -> None:
        self._shared = mmap(-1, count)
        self._signs = mmap(-1, count)

    def give_sign(self, number: int) -> None:
        """To be called by the process of that number."""
        self._signs[number] = (self._signs[number] + 1) % 256

    def sign(self, number: int) -> int:
        """Another value than before, once the process has given a sign of life."""
        return self._signs[number]

    def set_down(self, number: int) -> None:
        self._shared[number] = _DOWN

    def set_starting(self, number: int) -> None:
        self._shared[number] = _STARTING

    def set_ready(self, number: int) -> None:
        self._shared[number] = _READY

    def of(self, number: int) -> str:
        """`down`, `starting` or `ok`."""
        return _STATES[self._shared[number]]


class SiblingProcess:
    """A process of the command, as any of them sees it. path: of its socket."""

    def __init__(self, name: str, path: Path, number: int, states: States) -> None:
        self.name = name
        self._path = path
        self._number = number
        self._states = states

    def healthz(self) -> Probe:
        """Not well when it runs and does not answer; one that is down or starts is seen to by the parent."""
        return self._probe("healthz", is_alive=True)

    def readyz(self) -> Probe:
        """Not well either while it is down or starts."""
        return self._probe("readyz", is_alive=False)

    def measured(self) -> Measured | None:
        """None when it does not answer."""
        try:
            return _decode_measured(self._ask("metrics", METRICS_TIMEOUT_S)) if self._state == _OK else None
        except (OSError, msgspec.MsgspecError):
            return None

    def order(self, word: str) -> None:
        """Have it carry out an order; one that does not run has nothing to do. Raises OSError."""
        if self._state == _OK:
            self._ask(word)

    @property
    def _state(self) -> str:
        return self._states.of(self._number)

    def _probe(self, word: str, *, is_alive: bool) -> Probe:
        if self._state == _OK:
            try:
                answered = _decode_probe(self._ask(word))
            except (TimeoutError, BlockingIOError):
                # So many requests wait there that it takes no more; or it may have been started meanwhile.
                if self._state == _OK:
                    return Probe(False, {"status": "stuck"})
            except (OSError, msgspec.MsgspecError):
                return Probe(is_alive, {"status": _STATES[_DOWN]})
            else:
                return Probe(answered.is_well, answered.body)
        return Probe(is_alive, {"status": self._state})

    def _ask(self, word: str, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
        """Raises OSError; when it runs and does not answer TimeoutError, or BlockingIOError if many requests wait."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(self._path))
            connection.sendall(word.encode() + b"\n")
            parts = []
            while part := connection.recv(1 << 16):
                parts.append(part)
        return b"".join(parts)


def families_of(registry: CollectorRegistry) -> list[Family]:
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [Sample(sample.name, dict(sample.labels), sample.value) for sample in metric.samples],
        )
        for metric in registry.collect()
    ]


def all_of(siblings: Sequence[SiblingProcess], ask: Callable[[SiblingProcess], T]) -> Mapping[str, T]:
    """What `ask` returns of each, by name; at once, so that those that are stuck cost the time of one."""
    # No process waits for their answers when this one is to end, as others do at the same time.
    threads = DaemonThreads(max(1, len(siblings)), "sibling")
    answers = {sibling.name: threads.submit(partial(ask, sibling)) for sibling in siblings}
    threads.shutdown(wait=False)
    return {name: answer.result() for name, answer in answers.items()}
