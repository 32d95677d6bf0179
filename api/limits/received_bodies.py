"""Bodies of requests that are under way: how many bytes of them a process keeps, of one caller and in all.

A body is kept from when it begins to come until its request is answered, however slowly it comes. What is too much is
refused where the face reads it, before anything is made of it. The caller is a user as soon as that is known, and the
network that the request comes from before.
"""

from collections import Counter
from collections.abc import Hashable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetlight.api.http.client import address_of_client
from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import TooManyBodiesError
from fleetlight.api.limits.admission import HeldBytes, admission_of
from fleetlight.api.limits.fair_queue import QueueRefusal


class ReceivedBodies:
    """Passes on every request. held: the bytes of all bodies that are under way."""

    def __init__(self, app: ASGIApp, held: HeldBytes) -> None:
        self._app = app
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(scope, receive, self._held)
        try:
            await self._app(scope, body, send)
        finally:
            body.close()


class _Body:
    """The `receive` of one request."""

    def __init__(self, scope: Scope, receive: Receive, held: HeldBytes) -> None:
        self._scope = scope
        self._receive: Receive = receive
        self._held = held
        self._counted = Counter[Hashable]()

    async def __call__(self) -> Message:
        """Raises TooManyBodiesError."""
        flow = self._flow()
        if (why := self._held.refusal_of(flow)) is not None:
            raise TooManyBodiesError(is_own=why is QueueRefusal.OWN)
        message = await self._receive()
        if size := len(message.get("body", b"")):
            self._counted[flow] += size
            self._held.add(flow, size)
        return message

    def close(self) -> None:
        """The request is answered; who still has this gets nothing more, and keeps nothing of the connection."""
        for flow, size in self._counted.items():
            self._held.add(flow, -size)
        self._counted.clear()
        self._receive, self._scope = _disconnected, {}

    def _flow(self) -> Hashable:
        admission = admission_of(self._scope)
        if admission is not None:
            return admission.flow
        return ClientConnection(address_of_client(self._scope) or "").network


async def _disconnected() -> Message:
    return {"type": "http.disconnect"}
