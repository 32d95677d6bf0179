"""One watch: the events for one caller, in a bounded buffer.

Events: `ready` (the stream follows the cells from here), `changed` (a server after a change), `removed` (a server that
the list does not have, or not any more), `incomplete` and `complete` (whether every cell is followed), `reset` (changes
were missed: list again), `overrun` (the reader is too slow and is dropped), `ended` (the reader may not go on).
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec
from sse_starlette import ServerSentEvent

from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import CellUnreachableError, UnknownCellError, UnreadableRowError
from fleetlight.cells.model import InstanceRow
from fleetlight.listing.errors import RightsLostError
from fleetlight.listing.watches.changelogs import ChangedInstance
from fleetlight.listing.watches.feed import ChangeFeed
from fleetlight.listing.watches.positions import PositionCodec, Positions
from fleetlight.query.tree import Matcher

RIGHTS_INTERVAL_S = 5.0
"""The rights of a stream's reader are looked at this often, and before each batch of events."""

_BUFFERED_EVENTS = 1000
# Removals of this many servers are reported once while they stay away; of older ones they may be reported again.
_REMEMBERED_REMOVALS = 10_000
_HEARTBEAT_S = RIGHTS_INTERVAL_S
_BEGINNING = Position(None, 0)


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """visible: whether the caller may see a record at all. matches: whether the list has it. render: its item."""

    visible: Matcher
    matches: Matcher
    render: Callable[[InstanceRow], bytes]


class ConfirmsRights(Protocol):
    """What is needed of fleetlight.api.identity.rights.Rights."""

    @property
    def are_old(self) -> bool: ...
    def confirm(self) -> Awaitable[None]: ...


class Watch:
    """A Watcher of the feed.

    rights: of the reader, which are confirmed before each batch of events, and every few seconds.
    since: where an earlier stream ended, so that what happened meanwhile comes first; None: from now on.
    is_lost: an earlier stream ended at a place that is not known any more; the reader has to list again.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        codec: PositionCodec,
        request: WatchRequest,
        rights: ConfirmsRights,
        since: Positions | None = None,
        *,
        is_lost: bool = False,
    ) -> None:
        self._feed = feed
        self._codec = codec
        self._request = request
        self._rights = rights
        self._since = since
        self._is_lost = is_lost
        self._positions: dict[str, Position] = {}
        self._looked_at: dict[str, Position | None] = {}
        self._buffer: deque[_Event] = deque()
        self._removed: OrderedDict[str, None] = OrderedDict()
        self._news = asyncio.Event()
        self._is_overrun = False
        self._has_ended = False

    def offer(self, change: ChangedInstance) -> None:
        self._looked_at[change.cell_uuid] = change.position
        event = self._event_of(change)
        if event is not None:
            self._put(_Event(*event, change.cell_uuid, change.position))

    def report(self, *, is_complete: bool) -> None:
        self._put(_Event("complete" if is_complete else "incomplete", b"{}"))

    def reset(self, reason: str, cell_uuid: str, position: Position | None) -> None:
        self._looked_at[cell_uuid] = position
        self._put(_Event("reset", _reason(reason), cell_uuid, position))

    def end(self) -> None:
        self._has_ended = True
        self._news.set()

    async def events(self) -> AsyncIterator[ServerSentEvent]:
        """The stream; it ends when the process does, or with `overrun` or `ended`. Raises FleetUnreachableError."""
        try:
            newest = dict(await self._feed.join(self))
            if self._has_ended:
                return
            since = newest if self._since is None else self._since
            # What a cell without a number had, it has had from the beginning.
            self._positions = {uuid: since.get(uuid, _BEGINNING) for uuid in newest}
            has_left = not since.keys() <= newest.keys()
            ready = _Event("ready", msgspec.json.encode({"complete": self._feed.is_complete}))
            yield self._sent(ready, self._codec.encode(self._positions))
            if self._is_lost:
                yield self._lost("the last id is not known here")
            elif has_left:
                yield self._lost("a cell of the last id has left the fleet, or cannot be asked")
            for cell_uuid, until in newest.items():
                async for missed in self._missed(cell_uuid, until):
                    yield missed
            async for event in self._live():
                yield event
        except RightsLostError as error:
            yield self._sent(_Event("ended", _reason(error.reason)))
        finally:
            self._feed.leave(self)

    async def _live(self) -> AsyncIterator[ServerSentEvent]:
        is_quiet = False
        while not self._has_ended:
            await self._rights.confirm()
            if is_quiet:
                # It keeps the connection, and moves the reader on over changes that are nothing to it.
                yield ServerSentEvent(id=self._id(), comment="alive")
            batch = len(self._buffer)
            # A reader that takes its time may lose its rights within a batch.
            while batch and self._buffer and not self._is_overrun and not self._rights.are_old:
                batch -= 1
                event = self._buffer.popleft()
                if event.cell_uuid is not None:
                    self._set(event.cell_uuid, event.position)
                yield self._sent(event, None if self._buffer else self._id())
            if self._is_overrun:
                yield self._sent(_Event("overrun", _reason("this reader is too slow")), self._id())
                return
            if self._buffer:
                continue
            self._news.clear()
            is_quiet = not await self._is_news()

    async def _is_news(self) -> bool:
        try:
            async with asyncio.timeout(_HEARTBEAT_S):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def _missed(self, cell_uuid: str, until: Position) -> AsyncIterator[ServerSentEvent]:
        """What happened in a cell between the earlier stream and this one, from its changelog."""
        while self._positions[cell_uuid] != until and not self._has_ended and not self._is_overrun:
            try:
                reading = await self._feed.replay(cell_uuid, self._positions[cell_uuid])
            except (CellUnreachableError, UnknownCellError):
                reading = None
            if reading is None:
                self._positions[cell_uuid] = until
                yield self._lost("not all changes since the last id are known any more")
                return
            await self._rights.confirm()
            for change in reading.changes:
                if self._rights.are_old:
                    await self._rights.confirm()
                if change.position.sequence > until.sequence:
                    # It comes among what is new.
                    self._positions[cell_uuid] = until
                    return
                self._positions[cell_uuid] = change.position
                if (event := self._event_of(change)) is not None:
                    yield self._sent(_Event(*event))
            if not reading.has_more:
                self._positions[cell_uuid] = until

    def _event_of(self, change: ChangedInstance) -> tuple[str, bytes] | None:
        """Name and data of the event; None for what is nothing to this caller."""
        try:
            return self._event_of_row(change)
        except UnreadableRowError:
            return "reset", _reason("a row that has changed cannot be read")

    def _event_of_row(self, change: ChangedInstance) -> tuple[str, bytes] | None:
        """Raises UnreadableRowError when it is not known whether this caller may see it."""
        row = change.row
        if row is None or not self._request.visible(row.record):
            return None
        if not change.is_gone and self._request.matches(row.record):
            self._removed.pop(row.uuid, None)
            return "changed", b'{"server":' + self._request.render(row) + b"}"
        if row.uuid in self._removed or not self._may_be_listed(change):
            return None
        self._removed[row.uuid] = None
        if len(self._removed) > _REMEMBERED_REMOVALS:
            self._removed.popitem(last=False)
        return "removed", msgspec.json.encode({"server": {"id": row.uuid}})

    def _may_be_listed(self, change: ChangedInstance) -> bool:
        """Whether the list had the instance before the change; if that is not known, whether it may have had it."""
        if change.is_new or change.before is None:
            return not change.is_new
        return self._request.visible(change.before) and self._request.matches(change.before)

    def _put(self, event: "_Event") -> None:
        if len(self._buffer) == _BUFFERED_EVENTS:
            # What it would still get is old; it goes on from the last id, or lists again.
            self._is_overrun = True
            self._buffer.clear()
        if not self._is_overrun:
            self._buffer.append(event)
        self._news.set()

    def _id(self) -> str:
        """Where the reader is: behind all that was looked at, unless some of it still waits to be sent."""
        if not self._buffer and not self._is_overrun:
            for cell_uuid, position in self._looked_at.items():
                self._set(cell_uuid, position)
        return self._codec.encode(self._positions)

    def _set(self, cell_uuid: str, position: Position | None) -> None:
        if position is None:
            self._positions.pop(cell_uuid, None)
        else:
            self._positions[cell_uuid] = position

    def _lost(self, reason: str) -> ServerSentEvent:
        return self._sent(_Event("reset", _reason(reason)))

    def _sent(self, event: "_Event", position: str | None = None) -> ServerSentEvent:
        return ServerSentEvent(event.data.decode(), event=event.name, id=position)


@dataclass(frozen=True, slots=True)
class _Event:
    """cell_uuid: of the cell that it is about, if it is about one; position: up to where that is followed then."""

    name: str
    data: bytes
    cell_uuid: str | None = None
    position: Position | None = None


def _reason(text: str) -> bytes:
    return msgspec.json.encode({"reason": text})
