"""A cell of Nova in memory whose database keeps a log, as a follower is told of it."""

from collections import deque
from dataclasses import replace
from threading import Condition

from fleetlight.cells.errors import CommitLogError
from fleetlight.cells.model import CommitHints, Hints, LogPosition, Positions
from tests.support.played.nova_cell import MemoryNovaCell

ADDRESS = "db:3306"


class PlayedHints:
    """CommitHints (fleetlight.cells.model) that a test puts there."""

    def __init__(self, cell: "LoggedCell", *, is_continued: bool) -> None:
        self.is_continued = is_continued
        self._cell = cell
        self._changed = Condition()
        self._waiting: deque[Hints] = deque()
        self._last: Hints | None = None
        self.failure: CommitLogError | None = None

    def put(self, hints: Hints) -> None:
        with self._changed:
            self._waiting.append(hints)
            self._changed.notify_all()

    def fail(self, failure: CommitLogError) -> None:
        with self._changed:
            self.failure = failure
            self._changed.notify_all()

    def wait(self, longest_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.failure, min(longest_s, 0.05))

    def take(self) -> Hints | None:
        with self._changed:
            if self.failure is not None:
                raise self.failure
            if self._waiting:
                self._last = self._waiting.popleft()
            elif self._last is not None:
                # A server at rest says so again and again.
                self._last = replace(self._last, uuids=frozenset(), at=self._cell.now)
            return self._last

    def close(self) -> None:
        self._cell.hints = None


class LoggedCell(MemoryNovaCell):
    """hints: what the follower is told at the moment. asked: the positions that it wanted to go on from.

    refusal: why the log cannot be read. has_kept: whether it still has what was asked for.
    """

    log_name = ADDRESS

    def __init__(self) -> None:
        super().__init__()
        self.hints: PlayedHints | None = None
        self.asked: list[Positions] = []
        self.refusal: CommitLogError | None = None
        self.has_kept = True
        self.number = 100

    def follow_commits(self, after: Positions) -> CommitHints:
        self.asked.append(after)
        if self.refusal is not None:
            raise self.refusal
        self.hints = PlayedHints(self, is_continued=bool(after) and self.has_kept)
        return self.hints

    def commit(self, *uuids: str, is_said: bool = True) -> int:
        """The log tells of one more commit, which touched these; returns its number. is_said: whether it names them."""
        assert self.hints is not None
        self.number += 1
        position = LogPosition("log.000001", self.number, f"0-1-{self.number}", self.number, 0)
        self.hints.put(Hints(frozenset(uuids) if is_said else None, self.now, {ADDRESS: position}, self.number))
        return self.number
