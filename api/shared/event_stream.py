"""Answers that stream the events of a watch as server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack
from typing import Protocol

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from fleetlight.listing.watches.watch import WatchEvent

LAST_ID_HEADER = "Last-Event-ID"
# A reader that takes nothing for so long is disconnected.
_SEND_TIMEOUT_S = 30


class Streams(Protocol):
    """A watch of any kind."""

    def events(self) -> AsyncGenerator[WatchEvent]: ...


class EventStream(EventSourceResponse):
    """A stream of events. held: resources to close at the end of the stream."""

    def __init__(self, watch: Streams, held: ExitStack) -> None:
        # No pings, since the watch has a heartbeat of its own, with a cursor.
        super().__init__(_sent(watch), ping=0, send_timeout=_SEND_TIMEOUT_S)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)


async def _sent(watch: Streams) -> AsyncIterator[ServerSentEvent]:
    async for event in watch.events():
        if event.name is None:
            yield ServerSentEvent(id=event.cursor, comment="alive")
        else:
            yield ServerSentEvent(event.data.decode(), event=event.name, id=event.cursor)
