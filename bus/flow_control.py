"""Flow control of a receiver: what it holds in memory, and what it lets go of; no I/O.

The broker has all of it until it is acknowledged. What is let go of was read from the connection, since a broker ends
one that takes nothing, and comes again when it is given back (docs/decisions/0016).
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from itertools import takewhile
from time import monotonic

import msgspec

# A broker waits for longer until something is taken, and most often something is acknowledged before.
_LONGEST_PAUSE_S = 5.0

Tag = int | str


class LetGo(msgspec.Struct, frozen=True, gc=False):
    """What is left of a message of which nothing is kept in memory."""

    tag: Tag
    size: int
    sequence: object

    def is_like(self, other: "LetGo") -> bool:
        """Whether it may be the same, which comes with another tag. Where it is not, messages change their order."""
        return self.size == other.size and self.sequence == other.sequence


class FlowControl:
    """The messages of one connection; sizes are in bytes. Tags are what the broker knows messages by.

    max_bytes: of what is held; then nothing more is read for some seconds, and what is read after that is let go of.
    heartbeat_s: of the connection, which bounds those seconds, and how long something may take to come again.
    """

    def __init__(self, max_bytes: int, heartbeat_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._max_bytes = max_bytes
        self._pause_s = min(_LONGEST_PAUSE_S, heartbeat_s / 2)
        self._deadline_s = 2 * heartbeat_s
        self._clock = clock
        # What was handed out and waits for its acknowledgement.
        self._outstanding: dict[Tag, int] = {}
        self._held_bytes = 0
        # What was let go of, and what of that was asked for and has not come again; in the order of the queue.
        self._let_go: deque[LetGo] = deque()
        self._asked_for: list[LetGo] = []
        self._asked_for_bytes = 0
        self._asked_at_s = 0.0
        # Since when as much is held as may be, and nothing was acknowledged; and how much it was then.
        self._full_at_s = 0.0
        self._full_bytes = 0

    @property
    def is_full(self) -> bool:
        return self._held_bytes >= self._max_bytes

    @property
    def is_in_pause(self) -> bool:
        """Whether it has become full, or something was acknowledged, a moment ago."""
        return self._clock() < self._full_at_s + self._pause_s

    @property
    def is_behind(self) -> bool:
        """Whether what comes now has to come again.

        What was read together with the last that could be held, or while an answer was awaited, is held as well.
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
        """Whether what was given back should have come again long ago."""
        return bool(self._asked_for) and self._clock() > self._asked_at_s + self._deadline_s

    def add(self, size: int) -> None:
        """A message that has come is held."""
        was_full = self.is_full
        self._held_bytes += size
        if self.is_full and not was_full:
            self._full_at_s, self._full_bytes = self._clock(), self._held_bytes

    def lets_go_of(self, message: LetGo, *, redelivered: bool) -> bool:
        """Whether a message that comes while `is_behind` is to come again: what was sent before it has to be first."""
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
        """As much of what was let go of as there is room for now: given back it comes again, before anything else."""
        while self._let_go and self._held_bytes + self._asked_for_bytes < self._max_bytes:
            one = self._let_go.popleft()
            yield one.tag
            self._asked_for.append(one)
            self._asked_for_bytes += one.size
            self._asked_at_s = self._clock()

    def hand_out(self, sizes: Iterable[tuple[Tag, int]]) -> None:
        """Messages that are held, by their tags, are given to the caller that acknowledges them."""
        self._outstanding.update(sizes)

    @property
    def outstanding(self) -> Set[Tag]:
        """What was handed out, in that order."""
        return self._outstanding.keys()

    def leading(self, tags: Collection[Tag]) -> list[Tag]:
        """Those of `tags` before which nothing else is outstanding."""
        return list(takewhile(tags.__contains__, self._outstanding))

    def settle(self, tags: Iterable[Tag]) -> None:
        """They were acknowledged or given back, and are held no more."""
        for tag in tags:
            self._held_bytes -= self._outstanding.pop(tag, 0)
        self._full_at_s = self._clock()
