"""The end of a server: it answers running requests, refuses later ones, and closes the connections of both."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetlight.api.http.faults import fault

_READS = {"GET", "HEAD", "OPTIONS"}
_CLOSE = (b"connection", b"close")
_REFUSAL = fault(503, "This server ends. Try again.", {"Retry-After": "1", "Connection": "close"})
# A change goes on in its thread, so clients must not repeat it automatically.
_LATE_CHANGE = fault(503, "This server ends. The change may have been made all the same.", {"Connection": "close"})


class Ending:
    """Passes on requests until the server ends. Use it in one event loop."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._has_begun = False
        self._limits: set[asyncio.Timeout] = set()

    def begin(self) -> None:
        """Refuse new requests with 503 from now on; running ones go on."""
        self._has_begun = True

    def give_up(self) -> None:
        """Refuse the running requests. The caller closes connections whose response was sent in part."""
        now = asyncio.get_running_loop().time()
        for limit in self._limits:
            limit.reschedule(now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._has_begun:
            await _REFUSAL(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_answered = False

        async def send_and_look(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                if self._has_begun:
                    message = {**message, "headers": [*message.get("headers", ()), _CLOSE]}
            await send(message)

        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._limits.add(limit)
                await self._app(scope, receive, send_and_look)
        except TimeoutError:
            if not limit.expired():
                raise
            late = _REFUSAL if scope["method"] in _READS else _LATE_CHANGE
            # A half-sent answer cannot be replaced by another.
            await (_disconnected(receive) if is_answered else late(scope, receive, send))
        finally:
            self._limits.discard(limit)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
