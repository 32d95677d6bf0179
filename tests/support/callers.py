"""Callers of an application in this process: from other addresses, and such as do not wait for their answer."""

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.types import Message

from fleetlight.api.limits.fair_queue import FairQueue

ELSEWHERE = "198.51.100.7"


@asynccontextmanager
async def client_at(app: Starlette, address: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client whose requests come from `address`."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(address, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as client:
        yield client


async def hang_up(
    app: Starlette,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> int:
    """Sends a request and closes the connection at once; the status that nobody reads."""
    sent: list[Message] = []
    is_sent = False

    async def receive() -> Message:
        nonlocal is_sent
        if not is_sent:
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "server": ("api.test", 80),
        "client": (ELSEWHERE, 4712),
        "root_path": "",
    }
    await app(scope, receive, send)
    status: int = sent[0]["status"]
    return status


def asked_flows(monkeypatch: pytest.MonkeyPatch) -> set[Hashable]:
    """The flows of which a request has asked a `FairQueue` for its turn from now on, those that still wait included."""
    flows = set[Hashable]()
    acquire = FairQueue.acquire

    async def noted(queue: FairQueue, flow: Hashable, *args: Any, **kwargs: Any) -> None:
        flows.add(flow)
        await acquire(queue, flow, *args, **kwargs)

    monkeypatch.setattr(FairQueue, "acquire", noted)
    return flows


class HeldChecks:
    """Takes the place of `PasswordChecks.is_password_of`, and holds each check up until `release` is called.

    checked: the passwords of the checks that were begun, in this order.
    """

    def __init__(self, right: str) -> None:
        self._right = right
        self._released = asyncio.Event()
        self.checked: list[str] = []

    async def is_password_of(self, _hashed: str | None, password: str) -> bool:
        self.checked.append(password)
        await self._released.wait()
        return password == self._right

    def release(self) -> None:
        self._released.set()
