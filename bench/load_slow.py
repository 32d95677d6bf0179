"""Part of `scripts/bench load`: what clients cost that take their answers slowly, or only hold a connection.

Some read pages of 1,000 a few kilobytes at a time, some open connections and say nothing, and some watch. Meanwhile it
is looked what the API has of memory; what its processes share counts once.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

_CHUNK = 16 * 1024
_PAUSE_S = 0.1
_LOOK_S = 0.5
_WATCHES_OF_USER = 10
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many there are of each, and for how long. warm_s: when all are there, and memory has to stay as it is."""

    readers: int
    idle: int
    watches: int
    warm_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The most that the API had up to `Crowd.warm_s`, and after that."""

    before_mib: float
    after_mib: float


def memory_under(crowd: Crowd, host: str, port: int, page: str, pid: int) -> Memory:
    """page: the path of one. pid: of the API; its children count too."""
    return asyncio.run(_memory_under(crowd, partial(_connect, host, port), page, pid))


_Connect = Callable[[], Awaitable[socket.socket]]


async def _memory_under(crowd: Crowd, connect: _Connect, page: str, pid: int) -> Memory:
    requests = [
        *([_request(page)] * crowd.readers),
        *([b""] * crowd.idle),
        *(_watch(number // _WATCHES_OF_USER) for number in range(crowd.watches)),
    ]
    clients = [asyncio.create_task(_go_on(connect, request)) for request in requests]
    began = time.monotonic()
    before = after = 0.0
    while (passed_s := time.monotonic() - began) < crowd.seconds:
        await asyncio.sleep(_LOOK_S)
        now = await asyncio.to_thread(memory_mib, pid)
        if passed_s < crowd.warm_s:
            before = max(before, now)
        else:
            after = max(after, now)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return Memory(before, after)


async def _go_on(connect: _Connect, request: bytes) -> None:
    """Send the request, read slowly what comes, and begin anew when the server has ended the connection."""
    loop = asyncio.get_running_loop()
    while True:
        with suppress(OSError):
            connection = await connect()
            try:
                await loop.sock_sendall(connection, request)
                while True:
                    if not await loop.sock_recv(connection, _CHUNK):
                        break
                    await asyncio.sleep(_PAUSE_S)
            finally:
                connection.close()
        await asyncio.sleep(_PAUSE_S)


async def _connect(host: str, port: int) -> socket.socket:
    connection = socket.socket()
    connection.setblocking(False)
    # Or the system would take a whole page for a client that reads nothing.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)
    await asyncio.get_running_loop().sock_connect(connection, (host, port))
    return connection


def _request(path: str, headers: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n{headers}\r\n".encode()


def _watch(user: int) -> bytes:
    headers = f"Accept: text/event-stream\r\nX-User-Id: user{user}\r\nX-Project-Id: project{user}\r\n"
    return _request("/v2.1/servers/detail", headers)


def memory_mib(pid: int) -> float:
    """What a process and its children have, in proportion to how many share it."""
    pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    total = 0
    for each in pids:
        with suppress(OSError):  # it has just ended
            total += int(Path(f"/proc/{each}/smaps_rollup").read_text().partition("Pss:")[2].split()[0])
    return total / _KIB
