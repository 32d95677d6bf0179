"""The clients of `scripts/bench load`, a process of their own: `python -m bench.load_clients`, a plan as JSON at stdin.

They read each answer to its end and look only at its head, so that they take as little of the processors as can be.
What came of it is written to stdout.
"""

import asyncio
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import uvloop

ANSWER_TIMEOUT_S = 30.0
_HEAD_END = b"\r\n\r\n"
_OK = 200


class LoadPlan(msgspec.Struct, frozen=True):
    """What to ask for.

    host, port: of the API. paths: a file with a path in each line, which are asked for one after the other.
    seconds: how long requests are sent; those under way are still waited for.
    clients: so many send the next request when they have the answer. rate: so many requests a second are sent instead,
        whatever becomes of those before.
    """

    host: str
    port: int
    paths: str
    seconds: float
    clients: int = 0
    rate: float = 0.0


class LoadOutcome(msgspec.Struct, frozen=True):
    """Of all answers: how long each took, in seconds, from when it was to be sent to its last byte, in order.

    served: those with a page. refused: with 503. late, failed: how many were not there within ANSWER_TIMEOUT_S, or were
    something else. live: how many pages some cell has answered itself. size: bytes of all pages.
    """

    served: list[float]
    refused: list[float]
    late: int
    failed: int
    live: int
    size: int
    seconds: float

    @property
    def rate(self) -> float:
        """Pages a second."""
        return len(self.served) / self.seconds


def quantile(sorted_values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed; 0 of none."""
    return sorted_values[math.ceil(share * len(sorted_values)) - 1] if sorted_values else 0.0


class _Connection(asyncio.Protocol):
    """One request after the other. answered: a future of the status and whether it came from the index alone."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answered: asyncio.Future[tuple[int, bool, int]] | None = None
        self._head = b""
        self._lacking = -1
        self._status, self._is_live, self._length = 0, False, 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvloop's
        self.transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        self.transport = None
        if self.answered is not None and not self.answered.done():
            self.answered.set_exception(ConnectionError("the connection ended"))

    def data_received(self, data: bytes) -> None:
        if self._lacking < 0:
            self._head += data
            head, end, data = self._head.partition(_HEAD_END)
            if not end:
                return
            self._head = b""
            self._read_head(head.lower())
        self._lacking -= len(data)
        if self._lacking <= 0 and self.answered is not None and not self.answered.done():
            self._lacking = -1
            self.answered.set_result((self._status, self._is_live, self._length))

    def _read_head(self, head: bytes) -> None:
        self._status = int(head[9:12])
        self._lacking = self._length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        route = head.partition(b"fleetlight-route:")[2].partition(b"\r\n")[0]
        self._is_live = b"=live" in route or b"=skipped" in route or b"=index-while" in route

    async def ask(self, request: bytes) -> tuple[int, bool, int]:
        assert self.transport is not None
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.answered


class _Load:
    def __init__(self, plan: LoadPlan) -> None:
        self._plan = plan
        self._requests = _requests(plan)
        self._idle: list[_Connection] = []
        self._outcomes: list[tuple[float, int, bool, int]] = []
        self._late = self._failed = 0

    async def run(self) -> LoadOutcome:
        plan, began = self._plan, time.perf_counter()
        if plan.clients:
            await asyncio.gather(*(self._client(began + plan.seconds) for _ in range(plan.clients)))
        else:
            await self._open_loop(began)
        seconds = time.perf_counter() - began  # what had waited at the end is served then
        pages = [each for each in self._outcomes if each[1] == _OK]
        refused = [each[0] for each in self._outcomes if each[1] != _OK]
        return LoadOutcome(
            sorted(took for took, _, _, _ in pages),
            sorted(refused),
            self._late,
            self._failed,
            sum(is_live for _, _, is_live, _ in pages),
            sum(size for _, _, _, size in pages),
            seconds,
        )

    async def _client(self, until: float) -> None:
        while time.perf_counter() < until:
            await self._ask(time.perf_counter())

    async def _open_loop(self, began: float) -> None:
        asking = set[asyncio.Task[None]]()
        for number in itertools.count():
            at = began + number / self._plan.rate
            if at > began + self._plan.seconds:
                break
            if (wait_s := at - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            asking.add(task := asyncio.create_task(self._ask(at)))
            task.add_done_callback(asking.discard)
        await asyncio.gather(*asking)

    async def _ask(self, began: float) -> None:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                connection = await self._connection()
                status, is_live, size = await connection.ask(next(self._requests))
        except TimeoutError:
            self._late += 1
        except (OSError, ConnectionError):
            self._failed += 1
        else:
            self._idle.append(connection)
            self._outcomes.append((time.perf_counter() - began, status, is_live, size))

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.transport is not None and not connection.transport.is_closing():
                return connection
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, self._plan.host, self._plan.port)
        return connection


def _requests(plan: LoadPlan) -> Iterator[bytes]:
    paths = Path(plan.paths).read_bytes().splitlines()
    head = f"Host: {plan.host}:{plan.port}\r\nOpenStack-API-Version: compute latest\r\n\r\n".encode()
    return (b"GET %b HTTP/1.1\r\n%b" % (path, head) for path in itertools.cycle(paths))


def main(read: Callable[[], bytes] = sys.stdin.buffer.read) -> None:
    plan = msgspec.json.decode(read(), type=LoadPlan)
    outcome = uvloop.run(_Load(plan).run())
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
