"""One watch: the events for one caller, in a bounded buffer.

Events: `ready` (the stream follows the cells from here), changes, which the watched list names, `incomplete` and
`complete` (whether the feed follows every cell), `reset` (changes were missed: list again), `overrun` (the reader is
too slow and is dropped), `ended` (the reader has lost its rights); an event without a name is a heartbeat.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import CellUnreachableError, UnknownCellError, UnreadableRowError
from fleetlight.listing.errors import RightsLostError
from fleetlight.listing.watches.changelogs import ChangedItem, ResetReason
from fleetlight.listing.watches.feed import ChangeFeed
from fleetlight.listing.watches.positions import PositionCodec, Positions
from fleetlight.listing.watches.watched_list import ChangeKind, CoveredCell, Effect, WatchedList, effect_of

RIGHTS_INTERVAL_S = 5.0
"""Interval at which a stream checks the rights of its reader; it also does so before each batch of events."""

_BUFFERED_EVENTS = 1000
# So many removed servers are remembered, so that a watch does not report their removal again.
_REMEMBERED_REMOVALS = 10_000
_HEARTBEAT_S = RIGHTS_INTERVAL_S
_RETRY_S = 1.0
_BEGINNING = Position(None, 0)
_KINDS = {
    Effect.ENTERS: ChangeKind.ENTER,
    Effect.CHANGES: ChangeKind.CHANGE,
    Effect.LEAVES: ChangeKind.LEAVE,
    Effect.LEAVES_PERHAPS: ChangeKind.LEAVE,
}


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event. name: None for a heartbeat. cursor: the reader's position after the last event of a batch.

    reset: why changes were missed; None for other events.
    """

    name: str | None
    data: bytes = b""
    cursor: str | None = None
    reset: ResetReason | None = None


class ConfirmsRights(Protocol):
    """The part of fleetlight.api.identity.rights.Rights that a watch uses; `confirm` raises RightsLostError."""

    @property
    def are_old(self) -> bool: ...
    def confirm(self) -> Awaitable[None]: ...


class Watch:
    """A Watcher of the feed.

    rights: the reader's rights, confirmed before each batch of events, and every few seconds.
    since: where an earlier stream ended, so that the changes since then come first; None: begin now.
    lost: why the watch cannot resume where an earlier stream ended, so that the reader has to list again.
    deadline: monotonic seconds; afterwards the watch does not wait for events, but sends heartbeats at once.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        codec: PositionCodec,
        watched: WatchedList,
        rights: ConfirmsRights,
        since: Positions | None = None,
        *,
        lost: ResetReason | None = None,
        deadline: float = math.inf,
    ) -> None:
        self._feed = feed
        self._codec = codec
        self.watched = watched
        self._rights = rights
        self._since = since
        self._lost = lost
        self._deadline = deadline
        self._positions: dict[str, Position] = dict(since or {})
        # Cells that did not answer when the watch read their missed changes, with the reason; it retries later.
        self._behind: dict[str, str] = {}
        self._read_behind_at = 0.0
        self._is_replaying = False
        self._was_missing: frozenset[str] = frozenset()
        self._buffer: deque[_Buffered] = deque()
        self._removed: OrderedDict[str, None] = OrderedDict()
        self._news = asyncio.Event()
        self._is_overrun = False
        self._has_ended = False

    def offer(self, change: ChangedItem, effect: Effect) -> None:
        """See Watcher."""
        if change.cell_uuid not in self._behind:
            self._put(_Changed(change, effect))

    def report(self) -> None:
        """See Watcher."""
        if self._missing() != self._was_missing:
            self._was_missing = self._missing()
            name = "incomplete" if self._was_missing else "complete"
            self._put(WatchEvent(name, self.watched.coverage(self.coverage(), None)))

    def reset(self, reason: ResetReason, cell_uuid: str, position: Position | None) -> None:
        """See Watcher."""
        if position is None:
            self._behind.pop(cell_uuid, None)
        self._put(_Reset(reason, cell_uuid, position))

    def end(self) -> None:
        """See Watcher."""
        self._has_ended = True
        self._news.set()

    def coverage(self) -> Sequence[CoveredCell]:
        """Return the reader's position in each cell that the list covers."""
        cells = self.watched.condition.cells
        return [
            CoveredCell(each.cell, self._positions.get(uuid), each.why_not or self._behind.get(uuid))
            for each in self._feed.followed()
            for uuid in [each.cell.uuid]
            if cells is None or uuid in cells
        ]

    @property
    def has_more(self) -> bool:
        """Whether changes wait that the reader has not been sent."""
        return bool(self._buffer) or self._is_replaying

    def cursor(self) -> str:
        """Encode the reader's position: that of the feed, unless changes still wait to be sent.

        The position never goes back: another process may have sent the reader more than this one has read.
        """
        if not (self.has_more or self._is_overrun):
            for cell_uuid, position in self._feed.positions.items():
                known = self._known(cell_uuid)
                if known is None or _is_at_least(position, known):
                    self._set(cell_uuid, position)
        return self._codec.encode(self._positions)

    async def events(self) -> AsyncGenerator[WatchEvent]:
        """Stream the events until the process ends, or `overrun` or `ended`. Raises FleetUnreachableError."""
        try:
            newest = dict(await self._feed.join(self, (self._since or {}).keys()))
            if self._has_ended:
                return
            left = self._begin(newest)
            self._was_missing = self._missing()
            yield WatchEvent("ready", self.watched.coverage(self.coverage(), cursor := self.cursor()), cursor)
            if self._lost is not None:
                yield lost(self._lost)
            elif left:
                yield lost(ResetReason.CELL_LEFT)
            for cell_uuid, until in newest.items():
                async for missed in self._missed(cell_uuid, until):
                    yield missed
            async for event in self._live():
                yield event
        except RightsLostError as error:
            yield ended(error.reason)
        finally:
            self._feed.leave(self)

    def _missing(self) -> frozenset[str]:
        """Return the uuids of the cells whose changes the watch cannot follow now."""
        return frozenset(each.cell.uuid for each in self.coverage() if each.why_not is not None)

    def _begin(self, newest: Positions) -> bool:
        """Set the reader's positions; returns whether a cell of the earlier stream has left the fleet."""
        cells = {each.cell.uuid for each in self._feed.followed()}
        since = newest if self._since is None else self._since
        # A cell that does not answer keeps its last position; a cell without one is read from the beginning.
        self._positions = {uuid: since.get(uuid, _BEGINNING) for uuid in cells if uuid in newest or uuid in since}
        self._is_replaying = True
        return not since.keys() <= cells

    async def _live(self) -> AsyncIterator[WatchEvent]:
        self._is_replaying = False
        is_quiet = True
        while not self._has_ended:
            await self._rights.confirm()
            async for missed in self._read_behind():
                yield missed
            if is_quiet:
                async for missed in self._read_other_histories():
                    yield missed
                # The heartbeat keeps the connection, and its cursor skips changes that do not concern the reader.
                yield WatchEvent(None, cursor=self.cursor())
            batch = len(self._buffer)
            has_cursor = not batch
            # A slow reader may lose its rights within a batch.
            while batch and self._buffer and not self._is_overrun and not self._rights.are_old:
                batch -= 1
                async for event in self._taken(self._buffer.popleft()):
                    has_cursor = not (batch and self._buffer)
                    yield replace(event, cursor=self.cursor() if has_cursor else None)
            if self._is_overrun:
                yield WatchEvent("overrun", _reason("this reader is too slow"), self.cursor())
                return
            if self._buffer or not has_cursor:
                # Changes that do not concern the reader may have followed the last event.
                is_quiet = not self._buffer
                continue
            self._news.clear()
            is_quiet = not await self._is_news()

    async def _taken(self, buffered: "_Buffered") -> AsyncIterator[WatchEvent]:
        """Yield the events for one entry of the buffer."""
        match buffered:
            case WatchEvent():
                yield buffered
            case _Reset(_, cell_uuid, Position() as position) if cell_uuid in self._positions:
                # Only the watch knows the reader's position, so it reads the missed changes itself.
                async for missed in self._missed(cell_uuid, position):
                    yield missed
            case _Reset(reason, cell_uuid, position):
                self._set(cell_uuid, position)
                yield lost(reason)
            case _Changed(change, effect):
                async for event in self._changed(change, effect):
                    yield event

    async def _changed(self, change: ChangedItem, effect: Effect) -> AsyncIterator[WatchEvent]:
        """Yield the event of a change, unless the reader has it already."""
        cell_uuid, at = change.cell_uuid, self._feed.current_name(change.cell_uuid, change.position)
        known = self._known(cell_uuid)
        if cell_uuid in self._behind or (known is not None and _is_at_least(known, at)):
            return
        if known is not None and known.epoch != at.epoch:
            # The numbers may belong to two histories: only the cell's changelog can tell what follows.
            async for missed in self._missed(cell_uuid, at):
                yield missed
            return
        self._positions[cell_uuid] = at
        # Only here, since changes dropped above are reported when the changelog is read again.
        if (event := self._event_of(change, effect)) is not None:
            yield event

    async def _is_news(self) -> bool:
        try:
            async with asyncio.timeout(min(_HEARTBEAT_S, self._deadline - time.monotonic())):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def _read_behind(self) -> AsyncIterator[WatchEvent]:
        """Yield the missed changes of cells that did not answer, if they answer now."""
        if not self._behind or time.monotonic() < self._read_behind_at:
            return
        self._read_behind_at = time.monotonic() + _RETRY_S
        for cell_uuid in tuple(self._behind):
            until = self._feed.positions.get(cell_uuid)
            if until is not None:
                async for missed in self._missed(cell_uuid, until):
                    yield missed
        self.report()

    async def _read_other_histories(self) -> AsyncIterator[WatchEvent]:
        """Yield the changes of cells that the feed follows in another epoch than the reader's position has.

        The feed may lag behind the reader, or the reader's epoch may be part of no history any more.
        """
        for cell_uuid, until in tuple(self._feed.positions.items()):
            known = self._known(cell_uuid)
            if known is not None and known.epoch != until.epoch and cell_uuid not in self._behind:
                async for missed in self._missed(cell_uuid, until):
                    yield missed

    async def _missed(self, cell_uuid: str, until: Position) -> AsyncIterator[WatchEvent]:
        """Yield a cell's changes after the reader's position, from its changelog, up to `until` or a later change.

        until: the feed's position in the cell; the feed offers all later changes. A reader that another process has
        sent more is past it: the changelog, which all processes read, has what follows, or does not know the position.
        """
        self._behind.pop(cell_uuid, None)
        was_replaying, self._is_replaying = self._is_replaying, True
        has_more = self._positions[cell_uuid] != until
        while has_more and not self._has_ended and not self._is_overrun:
            try:
                reading = await self._feed.replay(cell_uuid, self._positions[cell_uuid])
            except (CellUnreachableError, UnknownCellError) as error:
                self._behind[cell_uuid] = str(error)
                self.report()
                break
            if isinstance(reading, ResetReason):
                self._positions[cell_uuid] = until
                yield lost(reading)
                break
            await self._rights.confirm()
            for change in reading.changes:
                if self._rights.are_old:
                    await self._rights.confirm()
                self._positions[cell_uuid] = change.position
                if (event := self._event_of(change, effect_of(change, self.watched))) is not None:
                    yield event
            self._positions[cell_uuid] = reading.reached
            has_more = reading.has_more and not _is_at_least(reading.reached, until)
        self._is_replaying = was_replaying

    def _event_of(self, change: ChangedItem, effect: Effect) -> WatchEvent | None:
        """Make the event of a change; None if the change does not concern the reader."""
        if effect is Effect.NOTHING or change.row is None:
            return None
        if effect is Effect.UNKNOWN:
            return lost(ResetReason.UNREADABLE_ROW)
        uuid, kind = change.row.uuid, _KINDS[effect]
        if kind is not ChangeKind.LEAVE:
            self._removed.pop(uuid, None)
        elif effect is Effect.LEAVES_PERHAPS and uuid in self._removed:
            return None
        else:
            self._removed[uuid] = None
            if len(self._removed) > _REMEMBERED_REMOVALS:
                self._removed.popitem(last=False)
        try:
            return WatchEvent(*self.watched.event(kind, change, change.row))
        except UnreadableRowError:
            return lost(ResetReason.UNREADABLE_ROW)

    def _put(self, event: "_Buffered") -> None:
        if len(self._buffer) == _BUFFERED_EVENTS:
            # The buffered events are old by now; the reader resumes from its last cursor, or lists again.
            self._is_overrun = True
            self._buffer.clear()
        if not self._is_overrun:
            self._buffer.append(event)
        self._news.set()

    def _known(self, cell_uuid: str) -> Position | None:
        """Return the reader's position in a cell, in the epoch that the feed follows where that is possible."""
        known = self._positions.get(cell_uuid)
        return None if known is None else self._feed.current_name(cell_uuid, known)

    def _set(self, cell_uuid: str, position: Position | None) -> None:
        if position is None:
            self._positions.pop(cell_uuid, None)
        elif cell_uuid not in self._behind:
            self._positions[cell_uuid] = position


@dataclass(frozen=True, slots=True)
class _Changed:
    """A change and its effect on the list."""

    change: ChangedItem
    effect: Effect


@dataclass(frozen=True, slots=True)
class _Reset:
    """The feed missed changes of a cell. position: where it resumes; None if it does not."""

    reason: ResetReason
    cell_uuid: str
    position: Position | None


_Buffered = WatchEvent | _Changed | _Reset


def _is_at_least(position: Position, other: Position) -> bool:
    """Whether `position` includes every change up to `other`; False if the epochs differ."""
    return position.epoch == other.epoch and position.sequence >= other.sequence


def lost(reason: ResetReason) -> WatchEvent:
    """Make the event that tells the reader to list again."""
    return WatchEvent("reset", _reason(reason.text), reset=reason)


def ended(reason: str) -> WatchEvent:
    """Make the last event of a reader that may not read on."""
    return WatchEvent("ended", _reason(reason))


def _reason(text: str) -> bytes:
    return msgspec.json.encode({"reason": text})
