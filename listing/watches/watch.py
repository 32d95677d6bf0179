"""One watch: the events for one caller, in a bounded buffer.

Events: `ready` (the stream follows the cells from here), those of changes, which the watched list names, `incomplete`
and `complete` (whether every cell is followed), `reset` (changes were missed: list again), `overrun` (the reader is too
slow and is dropped), `ended` (the reader may not go on); one without a name when there is nothing new.
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
"""The rights of a stream's reader are looked at this often, and before each batch of events."""

_BUFFERED_EVENTS = 1000
# Removals of this many servers are reported once while they stay away; of older ones they may be reported again.
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
    """name: None where there is nothing new. cursor: where the reader is after it, for the last event of a batch.

    reset: why changes are missed, if they are.
    """

    name: str | None
    data: bytes = b""
    cursor: str | None = None
    reset: ResetReason | None = None


class ConfirmsRights(Protocol):
    """What is needed of fleetlight.api.identity.rights.Rights."""

    @property
    def are_old(self) -> bool: ...
    def confirm(self) -> Awaitable[None]: ...


class Watch:
    """A Watcher of the feed.

    rights: of the reader, which are confirmed before each batch of events, and every few seconds.
    since: where an earlier stream ended, so that what happened meanwhile comes first; None: from now on.
    lost: why the place where an earlier stream ended is none to go on from, so that the reader has to list again.
    deadline: of the monotonic clock; from then on it does not wait for news, but says at once that there is none.
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
        # Cells that did not answer while it was read what had been missed of them; read on later.
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
        if change.cell_uuid not in self._behind:
            self._put(_Changed(change, effect))

    def report(self) -> None:
        if self._missing() != self._was_missing:
            self._was_missing = self._missing()
            name = "incomplete" if self._was_missing else "complete"
            self._put(WatchEvent(name, self.watched.coverage(self.coverage(), None)))

    def reset(self, reason: ResetReason, cell_uuid: str, position: Position | None) -> None:
        if position is None:
            self._behind.pop(cell_uuid, None)
        self._put(_Reset(reason, cell_uuid, position))

    def end(self) -> None:
        self._has_ended = True
        self._news.set()

    def coverage(self) -> Sequence[CoveredCell]:
        """What the reader has of each cell that the list may have items of."""
        cells = self.watched.condition.cells
        return [
            CoveredCell(each.cell, self._positions.get(uuid), each.why_not or self._behind.get(uuid))
            for each in self._feed.followed()
            for uuid in [each.cell.uuid]
            if cells is None or uuid in cells
        ]

    @property
    def has_more(self) -> bool:
        """Whether there is more already than was told."""
        return bool(self._buffer) or self._is_replaying

    def cursor(self) -> str:
        """Where the reader is: behind all that was looked at, unless some of it still waits to be sent.

        It is never set back: another process may have told the reader more than this one knows.
        """
        if not (self.has_more or self._is_overrun):
            for cell_uuid, position in self._feed.positions.items():
                known = self._known(cell_uuid)
                if known is None or _is_at_least(position, known):
                    self._set(cell_uuid, position)
        return self._codec.encode(self._positions)

    async def events(self) -> AsyncGenerator[WatchEvent]:
        """The stream; it ends when the process does, or with `overrun` or `ended`. Raises FleetUnreachableError."""
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
        """The cells of which nothing comes at the moment."""
        return frozenset(each.cell.uuid for each in self.coverage() if each.why_not is not None)

    def _begin(self, newest: Positions) -> bool:
        """Find where to read on; whether a cell of the last id has left the fleet."""
        cells = {each.cell.uuid for each in self._feed.followed()}
        since = newest if self._since is None else self._since
        # Where a cell that does not answer was left is kept; what one without a number has, it has from the beginning.
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
                # It keeps the connection, and moves the reader on over changes that are nothing to it.
                yield WatchEvent(None, cursor=self.cursor())
            batch = len(self._buffer)
            has_cursor = not batch
            # A reader that takes its time may lose its rights within a batch.
            while batch and self._buffer and not self._is_overrun and not self._rights.are_old:
                batch -= 1
                async for event in self._taken(self._buffer.popleft()):
                    has_cursor = not (batch and self._buffer)
                    yield replace(event, cursor=self.cursor() if has_cursor else None)
            if self._is_overrun:
                yield WatchEvent("overrun", _reason("this reader is too slow"), self.cursor())
                return
            if self._buffer or not has_cursor:
                # What was told last may have been followed by what is nothing to this reader.
                is_quiet = not self._buffer
                continue
            self._news.clear()
            is_quiet = not await self._is_news()

    async def _taken(self, buffered: "_Buffered") -> AsyncIterator[WatchEvent]:
        """What the reader gets of what waits in the buffer."""
        match buffered:
            case WatchEvent():
                yield buffered
            case _Reset(_, cell_uuid, Position() as position) if cell_uuid in self._positions:
                # The feed does not know what this reader has.
                async for missed in self._missed(cell_uuid, position):
                    yield missed
            case _Reset(reason, cell_uuid, position):
                self._set(cell_uuid, position)
                yield lost(reason)
            case _Changed(change, effect):
                async for event in self._changed(change, effect):
                    yield event

    async def _changed(self, change: ChangedItem, effect: Effect) -> AsyncIterator[WatchEvent]:
        """What the reader is told of a change; what it has already is not told again."""
        cell_uuid, at = change.cell_uuid, self._feed.current_name(change.cell_uuid, change.position)
        known = self._known(cell_uuid)
        if cell_uuid in self._behind or (known is not None and _is_at_least(known, at)):
            return
        if known is not None and known.epoch != at.epoch:
            # They may be numbers of two histories: only the cell knows what follows in it.
            async for missed in self._missed(cell_uuid, at):
                yield missed
            return
        self._positions[cell_uuid] = at
        # Not before it is told: what is dropped here is told when it is read again.
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
        """What was missed of cells that did not answer, if they do now."""
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
        """What follows, by the changelog, where this process follows a cell in an epoch that the reader is not in.

        It may lag behind the reader's, or the reader may be where no history leads any more.
        """
        for cell_uuid, until in tuple(self._feed.positions.items()):
            known = self._known(cell_uuid)
            if known is not None and known.epoch != until.epoch and cell_uuid not in self._behind:
                async for missed in self._missed(cell_uuid, until):
                    yield missed

    async def _missed(self, cell_uuid: str, until: Position) -> AsyncIterator[WatchEvent]:
        """What follows the position of the reader in a cell, from its changelog, up to `until` or a later change.

        until: up to where this process has followed the cell, so that all after it comes among what is new. A reader
        that another process has told more is past it: the changelog, which all of them read, says what follows then, or
        that there was never such a change.
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
        """None for what is nothing to this reader."""
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
            self._remember_removal(uuid)
        try:
            return WatchEvent(*self.watched.event(kind, change, change.row))
        except UnreadableRowError:
            return lost(ResetReason.UNREADABLE_ROW)

    def _remember_removal(self, uuid: str) -> None:
        self._removed[uuid] = None
        if len(self._removed) > _REMEMBERED_REMOVALS:
            self._removed.popitem(last=False)

    def _put(self, event: "_Buffered") -> None:
        if len(self._buffer) == _BUFFERED_EVENTS:
            # What it would still get is old; it goes on from the last id, or lists again.
            self._is_overrun = True
            self._buffer.clear()
        if not self._is_overrun:
            self._buffer.append(event)
        self._news.set()

    def _known(self, cell_uuid: str) -> Position | None:
        """Where the reader is, by the epoch that the feed follows if it can be told."""
        known = self._positions.get(cell_uuid)
        return None if known is None else self._feed.current_name(cell_uuid, known)

    def _set(self, cell_uuid: str, position: Position | None) -> None:
        if position is None:
            self._positions.pop(cell_uuid, None)
        elif cell_uuid not in self._behind:
            self._positions[cell_uuid] = position


@dataclass(frozen=True, slots=True)
class _Changed:
    """A change, which is told by its effect."""

    change: ChangedItem
    effect: Effect


@dataclass(frozen=True, slots=True)
class _Reset:
    """Changes of a cell were missed by the feed, which follows it from `position` on, if at all."""

    reason: ResetReason
    cell_uuid: str
    position: Position | None


_Buffered = WatchEvent | _Changed | _Reset


def _is_at_least(position: Position, other: Position) -> bool:
    """Whether what is known up to `position` is known to have all up to `other`; False where epochs differ."""
    return position.epoch == other.epoch and position.sequence >= other.sequence


def lost(reason: ResetReason) -> WatchEvent:
    """The event of a reader that has to list again."""
    return WatchEvent("reset", _reason(reason.text), reset=reason)


def ended(reason: str) -> WatchEvent:
    """The event of a reader that gets nothing more."""
    return WatchEvent("ended", _reason(reason))


def _reason(text: str) -> bytes:
    return msgspec.json.encode({"reason": text})
