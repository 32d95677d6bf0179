"""`GET /servers/detail` as a stream, opened in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tests.contract.compute_fleet import Api

STREAM = {"Accept": "text/event-stream"}
PATIENCE_S = 60


@dataclass
class Event:
    name: str
    data: Any
    id: str | None


class Stream:
    """An open stream. last_id: what a browser would send when it connects again."""

    def __init__(self) -> None:
        self.status = 0
        self.last_id: str | None = None
        self.ended = asyncio.Event()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._text = ""

    def take(self, body: bytes) -> None:
        self._text += body.decode()
        *blocks, self._text = self._text.split("\r\n\r\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\r\n") if not line.startswith(":"))
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                self._events.put_nowait(Event(fields["event"], json.loads(fields["data"]), fields.get("id")))

    @property
    def is_silent(self) -> bool:
        """Whether nothing was told since the last event that was asked for."""
        return self._events.empty()

    async def next(self) -> Event:
        async with asyncio.timeout(PATIENCE_S):
            return await self._events.get()

    async def told(self) -> tuple[str, str]:
        """Name and server of the next event, which is about one."""
        event = await self.next()
        assert "server" in event.data, event
        return event.name, event.data["server"]["id"]

    async def told_of(self, uuid: str) -> str:
        """Name of the next event, which is about that server."""
        name, told = await self.told()
        assert told == uuid
        return name

    async def names(self, count: int) -> list[str]:
        """The names of the next events."""
        return [(await self.next()).name for _ in range(count)]

    async def skip_to(self, name: str) -> Event:
        """The next event of that name."""
        while (event := await self.next()).name != name:
            pass
        return event


@asynccontextmanager
async def stream(
    api: Api,
    query: str = "",
    *headers: Mapping[str, str],
    last_id: str | None = None,
    path: str = "/v2.1/servers/detail",
) -> AsyncIterator[Stream]:
    opened = Stream()
    sent = {**STREAM, **({"Last-Event-ID": last_id} if last_id else {})}
    for group in headers:
        sent |= group
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"api.test"), *((name.lower().encode(), value.encode()) for name, value in sent.items())],
        "server": ("api.test", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }
    gone = asyncio.Event()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await gone.wait()
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            opened.status = message["status"]
        else:
            opened.take(message.get("body", b""))
            if not message.get("more_body", False):
                opened.ended.set()

    answering = asyncio.ensure_future(api.app(scope, receive, send))
    try:
        yield opened
    finally:
        gone.set()
        with suppress(asyncio.CancelledError):
            async with asyncio.timeout(PATIENCE_S):
                await answering
