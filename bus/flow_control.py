"""Flow control of a receiver: which messages it holds in memory, and which it drops; no I/O.

The broker keeps every message until it is acknowledged. A message over the limit is read from the connection, since a
broker closes one that is not read, and dropped; rejecting it later makes it come again (docs/decisions/0016).
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from itertools import takewhile
from time import monotonic

import msgspec

# A broker waits longer for a client to read, and usually some messages are acknowledged before that.
_LONGEST_PAUSE_S = 5.0

Tag = int | str


class LetGo(msgspec.Struct, frozen=True, gc=False):
    """The record of a dropped message."""

    tag: Tag
    size: int
    sequence: object

    def is_like(self, other: "LetGo") -> bool:
        """Whether the other may be the same message, redelivered under another tag. A mistake changes the order."""
        return self.size == other.size and self.sequence == other.sequence


class FlowControl:
    """The messages of one connection; sizes are in bytes. Tags identify messages to the broker.

    max_bytes: of held messages; at this size reading pauses for some seconds, and messages read after that are dropped.
    heartbeat_s: of the connection; it limits that pause, and the time that a redelivery may take.
    """

    def __init__(self, max_bytes: int, heartbeat_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._max_bytes = max_bytes
        self._pause_s = min(_LONGEST_PAUSE_S, heartbeat_s / 2)
        self._deadline_s = 2 * heartbeat_s
        self._clock = clock
        # Messages that were handed out and wait for their acknowledgement.
        self._outstanding: dict[Tag, int] = {}
        self._held_bytes = 0
        # Dropped messages, and those of them that were requested again and have not come yet; in the order of the
        # queue.
        self._let_go: deque[LetGo] = deque()
        self._asked_for: list[LetGo] = []
        self._asked_for_bytes = 0
        self._asked_at_s = 0.0
        # When the limit was reached, or a message was last acknowledged; and the size held when it was reached.
        self._full_at_s = 0.0
        self._full_bytes = 0

    @property
    def is_full(self) -> bool:
        return self._held_bytes >= self._max_bytes

    @property
    def is_in_pause(self) -> bool:
        """Whether the limit was reached, or a message acknowledged, just now."""
        return self._clock() < self._full_at_s + self._pause_s

    @property
    def is_behind(self) -> bool:
        """Whether messages that come now are dropped.

        Messages that were read along with the last one below the limit, or while an answer was awaited, are held as
        well.
        """
        if self._let_go or self._asked_for:
            return True
        is_too_much = self._held_bytes >= self._full_bytes + self._max_bytes
        return self.is_full and (is_too_much or not self.is_in_pause)

    @property
    def has_let_go(self) -> bool:
        return bool(self._let_go)

    @property
    def is_overdue(self) -> bool:
        """Whether a redelivery is long overdue."""
        return bool(self._asked_for) and self._clock() > self._asked_at_s + self._deadline_s

    def add(self, size: int) -> None:
        """Count a message that has come and is held."""
        was_full = self.is_full
        self._held_bytes += size
        if self.is_full and not was_full:
            self._full_at_s, self._full_bytes = self._clock(), self._held_bytes

    def lets_go_of(self, message: LetGo, *, redelivered: bool) -> bool:
        """Whether to drop a message that comes while `is_behind`, because messages sent before it have to be first."""
        if redelivered:
            for position, asked_for in enumerate(self._asked_for):
                if message.is_like(asked_for):
                    del self._asked_for[position]
                    self._asked_for_bytes -= message.size
                    self._asked_at_s = self._clock()
                    return False
        self._let_go.append(message)
        return True

    def to_give_back(self) -> Iterator[Tag]:
        """Yield tags of dropped messages that now fit. The broker redelivers those rejected before anything else."""
        while self._let_go and self._held_bytes + self._asked_for_bytes < self._max_bytes:
            one = self._let_go.popleft()
            yield one.tag
            self._asked_for.append(one)
            self._asked_for_bytes += one.size
            self._asked_at_s = self._clock()

    def hand_out(self, sizes: Iterable[tuple[Tag, int]]) -> None:
        """Count held messages as given to the caller, who acknowledges them."""
        self._outstanding.update(sizes)

    @property
    def outstanding(self) -> Set[Tag]:
        """Tags of messages that were handed out, in order."""
        return self._outstanding.keys()

    def leading(self, tags: Collection[Tag]) -> list[Tag]:
        """The `tags` that no other outstanding message precedes."""
        return list(takewhile(tags.__contains__, self._outstanding))

    def settle(self, tags: Iterable[Tag]) -> None:
        """Count messages as acknowledged or given back; they are no longer held."""
        for tag in tags:
            self._held_bytes -= self._outstanding.pop(tag, 0)
        self._full_at_s = self._clock()
