"""Requests between the processes of a command: probes, metrics and orders.

Each process has a Unix socket in a folder that the parent created. The parent keeps the sockets open, so that a request
to a process that has just died is answered by its successor. A request is one word, an answer one value in MessagePack.
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
"""How long the combined metrics wait for one process: Prometheus gives up after ten seconds by default."""
_LONGEST_REQUEST = 100
_DOWN, _STARTING, _READY = range(3)
_OK = "ok"
_STATES = ("down", "starting", _OK)


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One value of a metric. name: the metric's, with the suffix of its type."""

    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True):
    """A metric family as in prometheus_client, without attributes that we never set."""

    name: str
    documentation: str
    type: str
    samples: list[Sample]


class Measured(msgspec.Struct, frozen=True, array_like=True):
    """The metrics of a process. process: its id, by which a successor can be told apart."""

    process: int
    families: list[Family]


class _Answered(msgspec.Struct, frozen=True, array_like=True):
    is_well: bool
    body: dict[str, Any]


_decode_probe = msgspec.msgpack.Decoder(_Answered).decode
_decode_measured = msgspec.msgpack.Decoder(Measured).decode


def listen_for_requests(path: Path) -> socket.socket:
    """Open the socket at which a process takes requests. Raises OSError."""
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
    """Answer the requests at `listener`, from threads, during the block.

    registry: of this process; metrics of its use of the machine are added. orders: functions that other processes can
    call, by name.
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
    daemon_threads = True  # so that a sibling that does not read its answer does not hold up the end

    def __init__(self, listener: socket.socket, handler: type[StreamRequestHandler]) -> None:
        super().__init__(listener.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: the sibling that sent the request has ended."""


class States:
    """The states of `count` processes, in shared memory that the parent writes and all read.

    In the other direction each process gives signs of life.
    """

    def __init__(self, count: int) -> None:
        self._shared = mmap(-1, count)
        self._signs = mmap(-1, count)

    def give_sign(self, number: int) -> None:
        """Give a sign of life; called by the process of that number."""
        self._signs[number] = (self._signs[number] + 1) % 256

    def sign(self, number: int) -> int:
        """A value that changes whenever the process gives a sign of life."""
        return self._signs[number]

    def set_down(self, number: int) -> None:
        self._shared[number] = _DOWN

    def set_starting(self, number: int) -> None:
        self._shared[number] = _STARTING

    def set_ready(self, number: int) -> None:
        self._shared[number] = _READY

    def of(self, number: int) -> str:
        """The state: `down`, `starting` or `ok`."""
        return _STATES[self._shared[number]]


class SiblingProcess:
    """A process of the command, as its siblings see it. path: of its socket."""

    def __init__(self, name: str, path: Path, number: int, states: States) -> None:
        self.name = name
        self._path = path
        self._number = number
        self._states = states

    def healthz(self) -> Probe:
        """Unwell only if it runs and does not answer; the parent handles processes that are down or starting."""
        return self._probe("healthz", is_alive=True)

    def readyz(self) -> Probe:
        """Unwell also while it is down or starting."""
        return self._probe("readyz", is_alive=False)

    def measured(self) -> Measured | None:
        """Its metrics; None if it does not answer."""
        try:
            return _decode_measured(self._ask("metrics", METRICS_TIMEOUT_S)) if self._state == _OK else None
        except (OSError, msgspec.MsgspecError):
            return None

    def order(self, word: str) -> None:
        """Let the process carry out an order; without effect if it does not run. Raises OSError."""
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
                # Either its queue of requests is full, or it was restarted meanwhile.
                if self._state == _OK:
                    return Probe(False, {"status": "stuck"})
            except (OSError, msgspec.MsgspecError):
                return Probe(is_alive, {"status": _STATES[_DOWN]})
            else:
                return Probe(answered.is_well, answered.body)
        return Probe(is_alive, {"status": self._state})

    def _ask(self, word: str, timeout_s: float = ANSWER_TIMEOUT_S) -> bytes:
        """Send a request. Raises OSError; TimeoutError or BlockingIOError mean that it runs but does not answer."""
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
    """Call `ask` for each sibling at once; returns results by name. Stuck siblings cost the time of one."""
    # Daemon threads, so that the end of this process does not wait for answers of siblings that end at the same time.
    threads = DaemonThreads(max(1, len(siblings)), "sibling")
    answers = {sibling.name: threads.submit(partial(ask, sibling)) for sibling in siblings}
    threads.shutdown(wait=False)
    return {name: answer.result() for name, answer in answers.items()}
