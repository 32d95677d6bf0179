"""Limits on the bytes that a process keeps of request bodies and of answers, by caller.

The bytes of a request's body count from their arrival until the request is answered. When there are too many, reading
the body fails before anything is made of it. The caller is the user once that is known, and the client's network before
that. An answer that precedes the end of its request's body ends the connection, unless little of the body is missing:
the server would read the rest only to discard it, and delay others.

A large answer is sent in pieces, each when the caller has taken the one before: a server that gets megabytes at once
keeps them until the caller has read them, and cannot tell how far it is. Each piece has a deadline
(`fleetlight.api.limits.request_deadlines`). The bytes that callers have not taken yet count: while one caller, or all
of them, have too many, no further page begins (`fleetlight.api.limits.admission`).
"""

import asyncio
from collections import Counter
from collections.abc import Hashable
from math import inf

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetlight.api.http.connection import ClientConnection, address_of_client
from fleetlight.api.http.errors import TooManyBodiesError
from fleetlight.api.limits.admission import HeldBytes, admission_of
from fleetlight.api.limits.fair_queue import QueueRefusal
from fleetlight.listing.admission import NO_LIMIT

PIECE_BYTES = 256 * 1024
# A client that has not looked for an answer yet may send so much without harm to others.
_MOST_UNREAD_BYTES = 256 * 1024
_CLOSE = (b"connection", b"close")


class BoundedBodies:
    """Passes on every request, and sends its answer in pieces of at most PIECE_BYTES.

    held: the bytes of the bodies of all running requests.
    """

    def __init__(self, app: ASGIApp, held: HeldBytes) -> None:
        self._app = app
        self._held = held
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received = _Body(scope, receive, self._held, self._turn)

        async def send_bounded(message: Message) -> None:
            if message["type"] == "http.response.start" and received.missing > _MOST_UNREAD_BYTES:
                message = {**message, "headers": [*message.get("headers", ()), _CLOSE]}
            size = len(message.get("body", b""))
            if size <= PIECE_BYTES:
                await send(message)
                return
            with (admission_of(scope) or NO_LIMIT).handing_over(size):
                await _send_pieces(message, send)

        try:
            await self._app(scope, received, send_bounded)
        finally:
            received.close()


class _Body:
    """The `receive` of one request. turn: lock by which one body at a time reads in a round of the event loop.

    missing: number of bytes of the body that have not arrived.
    """

    def __init__(self, scope: Scope, receive: Receive, held: HeldBytes, turn: asyncio.Lock) -> None:
        self._scope = scope
        self._receive: Receive = receive
        self._held = held
        self._turn = turn
        self._counted = Counter[Hashable]()
        headers = Headers(scope=scope)
        # The length of a chunked body is unknown.
        self.missing = inf if "transfer-encoding" in headers else int(headers.get("content-length", "0"))

    async def __call__(self) -> Message:
        """Receive the next message. Raises TooManyBodiesError when too many bytes are kept."""
        admission = admission_of(self._scope)
        flow = admission.flow if admission else ClientConnection(address_of_client(self._scope) or "").network
        if (why := self._held.refusal_of(flow)) is not None:
            raise TooManyBodiesError(is_own=why is QueueRefusal.OWN)
        if self._counted:
            # The server reads from a connection on demand. With many bodies at once it reads one piece in a round of
            # the event loop, so that other requests and new connections (one per round) wait for one piece each.
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
        """Release the connection after the answer; later calls receive nothing."""
        for flow, size in self._counted.items():
            self._held.add(flow, -size)
        self._counted.clear()
        self._receive, self._scope = _disconnected, {}


async def _disconnected() -> Message:
    return {"type": "http.disconnect"}


async def _send_pieces(message: Message, send: Send) -> None:
    body = memoryview(message["body"])
    last = (len(body) - 1) // PIECE_BYTES * PIECE_BYTES
    for begin in range(0, last, PIECE_BYTES):
        await send({**message, "body": body[begin : begin + PIECE_BYTES], "more_body": True})
    await send({**message, "body": body[last:]})
