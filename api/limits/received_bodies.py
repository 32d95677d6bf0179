"""Bodies of requests that are under way: how many bytes of them a process keeps, of one caller and in all.

A body is kept from when it begins to come until its request is answered, however slowly it comes. What is too much is
refused where the face reads it, before anything is made of it. The caller is a user as soon as that is known, and the
network that the request comes from before.

An answer that is given before its body has come ends the connection, unless little of the body is missing: the server
would read the rest only to throw it away, and others would wait meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Hashable
from math import inf

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetlight.api.http.client import address_of_client
from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import TooManyBodiesError
from fleetlight.api.limits.admission import HeldBytes, admission_of
from fleetlight.api.limits.fair_queue import QueueRefusal

# What a client sends that has not looked for an answer yet, without harm to others.
_MOST_UNREAD_BYTES = 256 * 1024
_CLOSE = (b"connection", b"close")


class ReceivedBodies:
    """Passes on every request. held: the bytes of all bodies that are under way."""

    def __init__(self, app: ASGIApp, held: HeldBytes) -> None:
        self._app = app
        self._held = held
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive, self._held, self._turn)

        async def send_and_close(message: Message) -> None:
            if message["type"] == "http.response.start" and body.missing > _MOST_UNREAD_BYTES:
                message = {**message, "headers": [*message.get("headers", ()), _CLOSE]}
            await send(message)

        try:
            await self._app(scope, body, send_and_close)
        finally:
            body.close()


class _Body:
    """The `receive` of one request. turn: who has it reads on in this round of the event loop.

    missing: how many bytes of the body are still to come.
    """

    def __init__(self, scope: Scope, receive: Receive, held: HeldBytes, turn: asyncio.Lock) -> None:
        self._scope = scope
        self._receive: Receive = receive
        self._held = held
        self._turn = turn
        self._counted = Counter[Hashable]()
        headers = Headers(scope=scope)
        # Of a body in chunks nobody knows how long it is.
        self.missing = inf if "transfer-encoding" in headers else int(headers.get("content-length", "0"))

    async def __call__(self) -> Message:
        """Raises TooManyBodiesError."""
        admission = admission_of(self._scope)
        flow = admission.flow if admission else ClientConnection(address_of_client(self._scope) or "").network
        if (why := self._held.refusal_of(flow)) is not None:
            raise TooManyBodiesError(is_own=why is QueueRefusal.OWN)
        if self._counted:
            # The server reads of a connection when more is asked for. Of many bodies at once it reads one piece in a
            # round, so that other requests, and new connections, of which a round takes one, wait for one piece each.
            async with self._turn:
                await asyncio.sleep(0)
        message = await self._receive()
        size = len(message.get("body", b""))
        self.missing = self.missing - size if message.get("more_body", False) else 0
        if size:
            self._counted[flow] += size
            self._held.add(flow, size)
        return message

    def close(self) -> None:
        """The request is answered; who still has this gets nothing more, and keeps nothing of the connection."""
        for flow, size in self._counted.items():
            self._held.add(flow, -size)
        self._counted.clear()
        self._receive, self._scope = _disconnected, {}


async def _disconnected() -> Message:
    return {"type": "http.disconnect"}
