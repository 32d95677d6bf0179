"""What requests leave in the memory of a process: nothing of their bodies, even where no garbage is looked for."""

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from fleetlight.api.limits.request_deadlines import RequestDeadlines
from fleetlight.api.luxi.calls import LuxiCalls
from fleetlight.api.luxi.server import serving_luxi
from fleetlight.api.server import serve
from tests.contract.compute_fleet import Api, ComputeFleet

_TIMES = 8
_LARGE = 3_000_000
_SMALL = 110_000
_WARM = 3
# Of the bodies, together; the server has the rest of a connection for a moment.
_KEPT = 0.25

Send = Callable[[int], Coroutine[Any, Any, bytes]]


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    """No request here changes it."""
    fleet.add_hosts(1)
    return fleet


@pytest.fixture
def api(fleet: ComputeFleet) -> Api:
    """One that has not seen a request yet."""
    return fleet.api()


@asynccontextmanager
async def served(api: Api) -> AsyncIterator[int]:
    """The port of a server."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = asyncio.Event()
    deadlines = RequestDeadlines(60, 60, 60)
    serving = asyncio.create_task(serve(api.app, listener, stop, deadlines=deadlines, shutdown_timeout_s=5))
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        await serving


async def send(port: int, method: str, path: str, body: bytes, *, is_whole: bool = True) -> bytes:
    """The answer to a request; of one that is not whole nothing is awaited but that the server has read what came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = len(body) if is_whole else len(body) + 1
    writer.write(
        f"{method} {path} HTTP/1.1\r\nHost: api\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n".encode()
    )
    writer.write(body)
    with suppress(ConnectionError):
        await writer.drain()
    if not is_whole and not writer.is_closing():
        writer.write_eof()
    answer = b""
    with suppress(ConnectionError):
        answer = await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return answer


async def growth(ask: Callable[[], Coroutine[Any, Any, object]]) -> int:
    """By how many bytes what is allocated grows while the same is asked again, and no garbage is looked for."""
    for _ in range(_WARM):
        await ask()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(_TIMES):
            await ask()
        # The server ends its tasks.
        for _ in range(20):
            await asyncio.sleep(0.01)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
        gc.enable()


def malformed(size: int) -> bytes:
    return b'{"what": "' + b"x" * (size - 10)


def well_formed(size: int) -> bytes:
    empty = {"what": "instance", "fields": ["name"], "qfilter": None, "more": ""}
    return msgspec.json.encode({**empty, "more": "x" * (size - len(msgspec.json.encode(empty)))})


def quiet(size: int) -> bytes:
    """A question with an answer."""
    return msgspec.json.encode({"fields": ["name"], "qfilter": ["=", "name", "x" * (size - 60)]})


_REQUESTS = {
    "rapi": ("PUT", "/2/query/instance", _LARGE),
    "rapi of a cell": ("PUT", "/cells/north/2/query/instance", _LARGE),
    "rapi change": ("POST", "/2/instances-multi-alloc", _LARGE),
    "rapi without a route": ("POST", "/2/nothing", _SMALL),
    "compute": ("POST", "/v2.1/servers", _SMALL),
    "legacy compute": ("POST", "/v2/servers", _SMALL),
    "compute too large": ("POST", "/v2.1/servers", 2 * _SMALL),
    "query": ("POST", "/fleetlight/query", _SMALL),
    "bulk": ("POST", "/fleetlight/bulk", _SMALL),
    "subscriptions": ("POST", "/fleetlight/subscriptions", _SMALL),
    "views": ("POST", "/fleetlight/views", _SMALL),
    "destinations": ("POST", "/fleetlight/select-destinations", _SMALL),
    "console": ("POST", "/console/session", _SMALL),
}


@pytest.mark.parametrize(
    "body", [malformed, *(pytest.param(each, marks=pytest.mark.night) for each in (well_formed, quiet))]
)
@pytest.mark.parametrize("name", _REQUESTS)
def test_nothing_is_kept_of_bodies(api: Api, name: str, body: Callable[[int], bytes]) -> None:
    method, path, size = _REQUESTS[name]
    text = body(size)

    async def scenario() -> int:
        async with served(api) as port:
            return await growth(lambda: send(port, method, path, text))

    assert api.run(scenario()) < _TIMES * size * _KEPT


@pytest.mark.parametrize("name", _REQUESTS)
def test_nothing_is_kept_of_bodies_whose_sender_has_gone(api: Api, name: str) -> None:
    method, path, size = _REQUESTS[name]
    text = malformed(size)

    async def scenario() -> int:
        async with served(api) as port:
            return await growth(lambda: send(port, method, path, text, is_whole=False))

    assert api.run(scenario()) < _TIMES * size * _KEPT


async def answer_to_beginning(port: int, method: str, path: str, length: int, headers: str = "") -> bytes:
    """All that the server says to a request of whose body nothing comes; without an end of the connection it waits."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"{method} {path} HTTP/1.1\r\nHost: api\r\n{headers}Content-Length: {length}\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("PUT", "/2/nothing", "", 404),
        ("PUT", "/2/query/instance", "", 413),
        ("POST", "/v2.1/nothing", "", 404),
        ("POST", "/fleetlight/nothing", "", 300),
        ("POST", "/v2.1/servers", "Origin: https://elsewhere.example.com\r\nSec-Fetch-Site: cross-site\r\n", 403),
        ("PUT", "/console/session", "", 404),
    ],
)
def test_answer_before_a_large_body_has_come_ends_the_connection(
    api: Api, method: str, path: str, headers: str, status: int
) -> None:
    async def scenario() -> bytes:
        async with served(api) as port:
            return await answer_to_beginning(port, method, path, 20_000_000, headers)

    answer = api.run(scenario())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"connection: close" in answer.lower()


def test_connection_goes_on_after_a_small_body_that_nobody_has_read(api: Api) -> None:
    async def scenario() -> bytes:
        async with served(api) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for path in ("/v2.1/nothing", "/2/nothing"):
                writer.write(f"POST {path} HTTP/1.1\r\nHost: api\r\nContent-Length: 1000\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 404 ")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
                writer.write(b"x" * 1000)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer

    assert b"HTTP/1.1 200 OK" in api.run(scenario())


@pytest.mark.parametrize("end", [b"\3", b""])
@pytest.mark.parametrize("body", [malformed, well_formed, quiet])
def test_nothing_is_kept_of_local_messages(
    api: Api, body: Callable[[int], bytes], end: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("s") / "s"
    services = api.services
    calls = LuxiCalls(api.application.query_engine, services.writes, services.admission)
    text = b'{"method": "Query", "args": ' + body(_LARGE) + end

    async def ask() -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(text)
        with suppress(ConnectionError):
            await writer.drain()
            writer.write_eof()
            await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def scenario() -> int:
        async with serving_luxi(path, calls):
            return await growth(ask)

    assert api.run(scenario()) < _TIMES * _LARGE * _KEPT
