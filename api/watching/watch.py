"""One watch: what one caller is told, in a bounded buffer.

Events: `ready` (the stream follows the cells from here), `changed` (a server after a change), `removed` (a server that
the list does not have, or not any more), `incomplete` and `complete` (whether every cell is followed), `reset` (changes
were missed: list again), `overrun` (the reader is too slow and is dropped).
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import msgspec
from sse_starlette import ServerSentEvent

from api.watching.feed import ChangedInstance, ChangeFeed
from api.watching.positions import PositionCodec, Positions
from cells.errors import CellUnreachableError, UnknownCellError
from cells.model import InstanceRow
from query.evaluate import Matcher

_BUFFERED_EVENTS = 1000
# Removals of this many servers are told once and not again while they stay away; of older ones they may be told again.
_REMEMBERED_REMOVALS = 10_000
_RETRY_INTERVAL_S = 1.0
_HEARTBEAT_S = 15.0


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """visible: whether the caller may see a record at all. matches: whether the list has it. render: its item."""

    visible: Matcher
    matches: Matcher
    render: Callable[[InstanceRow], bytes]


class Watch:
    """A Watcher of the feed.

    since: where an earlier stream ended, so that what happened meanwhile comes first; None: from now on.
    is_lost: an earlier stream ended where nobody knows any more; the reader is told to list again.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        codec: PositionCodec,
        request: WatchRequest,
        since: Positions | None = None,
        *,
        is_lost: bool = False,
    ) -> None:
        self._feed = feed
        self._codec = codec
        self._request = request
        self._since = since
        self._is_lost = is_lost
        self._positions: dict[str, int] = {}
        self._looked_at: dict[str, int] = {}
        self._buffer: deque[_Event] = deque()
        self._removed: OrderedDict[str, None] = OrderedDict()
        self._news = asyncio.Event()
        self._is_overrun = False
        self._has_ended = False

    def offer(self, change: ChangedInstance) -> None:
        self._looked_at[change.cell_uuid] = change.sequence
        told = self._told_of(change)
        if told is not None:
            self._put(_Event(*told, change.cell_uuid, change.sequence))

    def tell(self, *, is_complete: bool) -> None:
        self._put(_Event("complete" if is_complete else "incomplete", b"{}"))

    def reset(self, reason: str) -> None:
        self._put(_Event("reset", _reason(reason)))

    def end(self) -> None:
        self._has_ended = True
        self._news.set()

    async def events(self) -> AsyncIterator[ServerSentEvent]:
        """The stream; it ends when the process does, or with `overrun`. Raises FleetUnreachableError."""
        try:
            self._positions = dict(await self._feed.join(self))
            until = dict(self._positions)
            if self._since is not None:
                self._positions |= {uuid: self._since.get(uuid, 0) for uuid in until}
            yield self._sent(_Event("ready", msgspec.json.encode({"complete": self._feed.is_complete})), with_id=True)
            if self._is_lost:
                yield self._sent(_Event("reset", _reason("the last id is not known here")), with_id=True)
            for cell_uuid, sequence in until.items():
                async for missed in self._missed(cell_uuid, sequence):
                    yield self._sent(missed, with_id=False)
            async for event in self._live():
                yield event
        finally:
            self._feed.leave(self)

    async def _live(self) -> AsyncIterator[ServerSentEvent]:
        while not self._has_ended:
            while self._buffer and not self._is_overrun:
                event = self._buffer.popleft()
                if event.cell_uuid is not None:
                    if event.sequence <= self._positions.get(event.cell_uuid, 0):
                        continue  # it was among the missed ones
                    self._positions[event.cell_uuid] = event.sequence
                yield self._sent(event, with_id=not self._buffer)
            if self._is_overrun:
                yield self._sent(_Event("overrun", _reason("this reader is too slow")), with_id=True)
                return
            self._news.clear()
            if not await self._is_news():
                # It keeps the connection, and moves the reader on over changes that are nothing to it.
                yield ServerSentEvent(id=self._id(), comment="alive")

    async def _is_news(self) -> bool:
        try:
            async with asyncio.timeout(_HEARTBEAT_S):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def _missed(self, cell_uuid: str, until: int) -> "AsyncIterator[_Event]":
        """What happened in a cell between the earlier stream and this one, from its changelog."""
        while self._positions[cell_uuid] != until and not self._has_ended and not self._is_overrun:
            try:
                changes = await self._feed.replay(cell_uuid, self._positions[cell_uuid])
            except (CellUnreachableError, UnknownCellError):
                await asyncio.sleep(_RETRY_INTERVAL_S)
                continue
            if not changes:
                self._positions[cell_uuid] = until
                yield _Event("reset", _reason("not all changes since the last id are known any more"))
                return
            for change in changes:
                if change.sequence <= until:
                    self._positions[cell_uuid] = change.sequence
                    if (told := self._told_of(change)) is not None:
                        yield _Event(*told)

    def _told_of(self, change: ChangedInstance) -> tuple[str, bytes] | None:
        """Name and data of the event; None for what is nothing to this caller."""
        row = change.row
        if row is None or not self._request.visible(row.record):
            return None
        if self._request.matches(row.record):
            self._removed.pop(row.uuid, None)
            return "changed", b'{"server":' + self._request.render(row) + b"}"
        if row.uuid in self._removed:
            return None
        self._removed[row.uuid] = None
        if len(self._removed) > _REMEMBERED_REMOVALS:
            self._removed.popitem(last=False)
        return "removed", msgspec.json.encode({"server": {"id": row.uuid}})

    def _put(self, event: "_Event") -> None:
        if len(self._buffer) == _BUFFERED_EVENTS:
            # What it would still get is old; it goes on from the last id, or lists again.
            self._is_overrun = True
            self._buffer.clear()
        if not self._is_overrun:
            self._buffer.append(event)
        self._news.set()

    def _id(self) -> str:
        """Where the reader is: behind all that was looked at, unless some of it still waits to be told."""
        if not self._buffer and not self._is_overrun:
            for cell_uuid, sequence in self._looked_at.items():
                self._positions[cell_uuid] = max(sequence, self._positions.get(cell_uuid, 0))
        return self._codec.encode(self._positions)

    def _sent(self, event: "_Event", *, with_id: bool) -> ServerSentEvent:
        return ServerSentEvent(event.data.decode(), event=event.name, id=self._id() if with_id else None)


@dataclass(frozen=True, slots=True)
class _Event:
    """cell_uuid, sequence: the change that it is about, if it is about one."""

    name: str
    data: bytes
    cell_uuid: str | None = None
    sequence: int = 0


def _reason(text: str) -> bytes:
    return msgspec.json.encode({"reason": text})
