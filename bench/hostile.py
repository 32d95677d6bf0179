"""`scripts/bench hostile`: how long `/healthz` takes while callers send as much as they may, and more.

A process of the API over an index of SQLite with all instances of 8 cells. Callers of one kind come at a time, several
at once and each a process; each sends its request again when it has the answer. Meanwhile `/healthz` is asked all the
time, and it is looked what the process of the API has of memory.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bench.listing_http import api_process, fill
from bench.load_slow import memory_mib
from bench.measure import Figure, at_most, figure
from fleetlight.indexer.backends.settings import IndexSettings

_CELLS = 8
_CALLERS = 4
_CONNECTIONS = 150
_UNFINISHED_BYTES = 20 * 2**20
# As long as the remote API takes one.
_BODY_BYTES = 9_990_000
_PAUSE_S = 0.01
_TIMEOUT_S = 120.0
_HEALTH_MS = at_most(100)
_GROWTH_MIB = at_most(400)
_REFUSED = 1_000
_KEPT_MIB = at_most(64)
_RAPI = "/2/query/instance"

_forks = get_context("fork")
_encode = msgspec.json.Encoder().encode


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 2,000 instances instead of 20,000, 5 s for each kind of caller instead of 20 s, 100 refused bodies."""
    count, seconds, refused = (2_000, 5.0, _REFUSED // 10) if quick else (20_000, 20.0, _REFUSED)
    path, luxi = directory / "index.db", directory / "luxi.sock"
    fill(directory, IndexSettings(backend="sqlite", path=path), count, _CELLS)
    settings = {"INDEX_BACKEND": "sqlite", "INDEX_PATH": f"{path}", "API_LUXI_SOCKET": f"{luxi}", "API_PROCESSES": "1"}
    with api_process(directory, settings) as (url, pid):
        api = _Api(urlsplit(url).netloc, luxi, pid)
        yield from _measured(api, "nobody", lambda: time.sleep(_PAUSE_S), seconds)
        for name, request in _requests(_names_of(api)).items():
            yield from _measured(api, name, partial(api.send, *request), seconds)
        for name, call in _refusals(api).items():
            yield _kept(api, name, call, refused)
        for name, message in _messages().items():
            yield from _measured(api, name, partial(api.tell, message), seconds)
        yield from _measured(api, "left", partial(api.leave, _RAPI), seconds)
        with _unfinished(api.open_luxi, b"x" * _UNFINISHED_BYTES):
            yield from _measured(api, "unfinished", lambda: time.sleep(_PAUSE_S), seconds)
        with _unfinished(partial(api.open_request, _RAPI), b"x" * _BODY_BYTES):
            yield from _measured(api, "unfinished_bodies", lambda: time.sleep(_PAUSE_S), seconds)


@dataclass(frozen=True, slots=True)
class _Api:
    """address: host and port. luxi: its socket of local queries. pid: of the process."""

    address: str
    luxi: Path
    pid: int

    def send(self, method: str, path: str, body: bytes) -> bytes:
        """The answer to a request; empty where the connection ends before."""
        connection = HTTPConnection(self.address, timeout=_TIMEOUT_S)
        with suppress(OSError, HTTPException):
            connection.request(method, path, body, {"Content-Type": "application/json"})
            return connection.getresponse().read()
        connection.close()
        return b""

    def leave(self, path: str) -> None:
        """Send nearly all of a body, and go."""
        with suppress(OSError), self.open_request(path) as client:
            client.sendall(b"x" * _BODY_BYTES)

    def open_request(self, path: str) -> socket.socket:
        """A connection with the headers of a request, whose body is a little longer than the rest of it will be."""
        host, _, port = self.address.partition(":")
        client = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        head = f"PUT {path} HTTP/1.1\r\nHost: {self.address}\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: {_BODY_BYTES + 1}\r\n\r\n".encode())
        return client

    def open_luxi(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(_TIMEOUT_S)
        client.connect(str(self.luxi))
        return client

    def tell(self, message: bytes) -> None:
        with suppress(OSError), self.open_luxi() as client:
            client.sendall(message)
            while (part := client.recv(2**16)) and not part.endswith(b"\3"):
                pass


def _names_of(api: _Api) -> list[str]:
    answer = api.send("PUT", _RAPI, _encode({"fields": ["name"], "qfilter": None}))
    return [row[0][1] for row in msgspec.json.decode(answer)["data"]]


def _requests(names: list[str]) -> Mapping[str, tuple[str, str, bytes]]:
    """A request of each kind that costs most of what is allowed, or more than that."""
    fields = ["name", "uuid", "status", "tags", "beparams", "hvparams", "nic.ips", "disk.sizes"]

    def question(expression: object) -> tuple[str, str, bytes]:
        return "PUT", _RAPI, _encode({"fields": fields, "qfilter": expression})

    text = " or ".join(f'be/memory == "{number}"' for number in range(4_000))
    return {
        "conditions": question(["|", *(["<", "be/memory", number] for number in range(150_000))]),
        "counted": question(["|", *(["<", "be/memory", number] for number in range(12_000))]),
        "names": question(["&", ["|", *(["=", "name", name] for name in (names * 10)[:12_000])]]),
        "other_names": question(["&", ["|", *(["=", "name", f"{number}.example.com"] for number in range(12_000))]]),
        "same_name": question(["|", *[["=", "name", names[0]]] * 12_000]),
        "malformed": ("PUT", _RAPI, b'{"qfilter": "' + b"x" * (_BODY_BYTES - 13)),
        "long_text": question(["=", "name", "x" * (_BODY_BYTES - 200)]),
        "change": ("POST", "/2/instances-multi-alloc", _encode({"instances": [{}] * 4_900})),
        "compute": ("POST", "/v2.1/servers", _encode({"server": [[]] * 4_900})),
        "text": ("POST", "/fleetlight/query", _encode({"what": "instance", "fields": fields, "filter": text})),
    }


def _messages() -> Mapping[str, bytes]:
    def message(method: str, *arguments: object) -> bytes:
        return _encode({"method": method, "args": arguments}) + b"\3"

    return {
        "local_names": message("QueryInstances", [f"{n}.example.com" for n in range(48_000)], ["name"], False),
        "local_fields": message("QueryFields", "instance", ["name"] * 48_000),
    }


def _refusals(api: _Api) -> Mapping[str, Callable[[], object]]:
    """A body of each face that is as long as it may be, and is refused."""
    short, long = (b'{"what": "' + b"x" * size for size in (110_000, _BODY_BYTES - 10))
    return {
        "rapi": partial(api.send, "PUT", _RAPI, long),
        "rapi_change": partial(api.send, "POST", "/2/instances-multi-alloc", long),
        "compute": partial(api.send, "POST", "/v2.1/servers", short),
        "fleetlight": partial(api.send, "POST", "/fleetlight/query", short),
        "console": partial(api.send, "POST", "/fleetlight/session", short),
        "luxi": partial(api.tell, long + b"\3"),
        "left": partial(api.leave, _RAPI),
    }


def _kept(api: _Api, name: str, call: Callable[[], object], count: int) -> Figure:
    """What memory grows by over so many refused bodies, after a tenth as many."""
    before = 0.0
    for number in range(-count // 10, count):
        before = before if number else memory_mib(api.pid)
        call()
    what = f"growth of {before:.0f} MiB by {count} refused bodies"
    return figure(f"hostile.{name}.kept", memory_mib(api.pid) - before, "MiB", what, runs=1, goal=_KEPT_MIB)


@contextmanager
def _unfinished(connect: Callable[[], socket.socket], text: bytes) -> Iterator[None]:
    """Connections of which each has sent a long message or body without its end."""
    clients = [connect() for _ in range(_CONNECTIONS)]

    def send(client: socket.socket) -> None:
        with suppress(OSError):
            client.sendall(text)

    threads = [threading.Thread(target=send, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for client in clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()
        for thread in threads:
            thread.join()


def _measured(api: _Api, name: str, call: Callable[[], object], seconds: float) -> Iterator[Figure]:
    """What `/healthz` takes, and memory grows by, while callers make that call again and again."""
    ends = time.monotonic() + seconds
    told: SimpleQueue[float] = _forks.SimpleQueue()

    def go_on() -> None:
        while (began := time.monotonic()) < ends:
            call()
            told.put(time.monotonic() - began)

    before = most = memory_mib(api.pid)
    callers = [_forks.Process(target=go_on) for _ in range(_CALLERS)]
    for caller in callers:
        caller.start()
    waits: list[float] = []
    calls: list[float] = []
    looked = 0.0
    connection = HTTPConnection(api.address, timeout=_TIMEOUT_S)
    while time.monotonic() < ends or any(caller.is_alive() for caller in callers):
        began = time.perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        waits.append((time.perf_counter() - began) * 1e3)
        if time.monotonic() - looked > 1:
            most = max(most, memory_mib(api.pid))
            looked = time.monotonic()
        time.sleep(_PAUSE_S)
        while not told.empty():
            calls.append(told.get())
    connection.close()
    waits.sort()
    said = f"{len(calls)} calls of {_CALLERS} callers, each {sum(calls) / max(len(calls), 1):.2f} s"
    median = waits[len(waits) // 2]
    what = f"the longest of {len(waits)} /healthz, median {median:.1f} ms; {said}"
    yield figure(f"hostile.{name}.health", waits[-1], "ms", what, runs=len(waits), goal=_HEALTH_MS)
    yield figure(
        f"hostile.{name}.memory", most - before, "MiB", f"growth of {before:.0f} MiB", runs=1, goal=_GROWTH_MIB
    )
