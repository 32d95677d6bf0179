"""One request over time: a difference counts only if it is still there after repeated requests; pure.

In a round we ask Nova, then Fleetlight, and Nova again if the two differ. A difference stands if it is the same to both
answers of Nova. If it still stands after `settle_s`, it is reported. If it goes away before, it was late: Fleetlight
shows a change some seconds after Nova, as its headers say. A request whose differences never stand is about servers
that change all the time.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from fleetlight.cli.compare.differences import Answer, Difference, Kind, differences
from fleetlight.cli.compare.explained import Compared, explanation
from fleetlight.cli.compare.questions import Question

_MOST_MOVING_ROUNDS = 5
# When a standing difference is checked again, as fractions of `settle_s`.
_LOOKS = (0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class Round:
    """again: Nova's second answer, if it was asked twice."""

    nova: Answer
    ours: Answer
    again: Answer | None = None


@dataclass(slots=True)
class Case:
    """settle_s: see the module. waiting, marker: see fleetlight.cli.compare.explained.Compared.

    differing: the differences to report, once the case is over. late: differences that went away, with the longest time
    in seconds that they lasted. explained: pairs of a rule and the difference it explains. due_s: when to ask again, on
    the clock of `judge`; None once the case is over.
    """

    question: Question
    settle_s: float
    waiting: Set[str] = frozenset()
    marker: Mapping[str, Any] = field(default_factory=dict)
    first: Round | None = None
    last: Round | None = None
    differing: Sequence[Difference] = ()
    late: dict[Difference, float] = field(default_factory=dict)
    explained: Sequence[tuple[str, Difference]] = ()
    is_moving: bool = False
    due_s: float | None = None
    _rounds: int = 0
    _since_s: float = 0.0
    _standing: Mapping[tuple[Kind, str, str], Difference] = field(default_factory=dict)

    def unexplained(self, nova: Answer, ours: Answer) -> Sequence[Difference]:
        """The differences that no rule explains; the explained ones of the first round are kept in `explained`."""
        compared = Compared(self.question, nova, ours, self.waiting, self.marker)
        named = [(explanation(compared, each), each) for each in differences(self.question, nova, ours)]
        if self.first is None:
            self.explained = [(name, each) for name, each in named if name is not None]
        return [each for name, each in named if name is None]

    def judge(self, round_: Round, now_s: float) -> None:
        """Add a round, received at `now_s` on a monotonic clock."""
        found = self.unexplained(round_.nova, round_.ours)
        is_found_again = set[Difference]() if round_.again is None else {*self.unexplained(round_.again, round_.ours)}
        standing = {each.subject: each for each in found if each in is_found_again}
        self.first, self.last, self._rounds = self.first or round_, round_, self._rounds + 1
        if self._standing:
            self._settle(standing, now_s)
        elif standing:
            self._standing, self._since_s = standing, now_s
        self.is_moving = bool(found) and not self._standing and not self.late
        self.due_s = self._next_look(now_s)

    def _settle(self, standing: Mapping[tuple[Kind, str, str], Difference], now_s: float) -> None:
        """Record differences that went away as late, and those that outlast `settle_s` as differing."""
        waited_s = now_s - self._since_s
        self.late |= {each: waited_s for subject, each in self._standing.items() if subject not in standing}
        self._standing = {subject: standing[subject] for subject in self._standing if subject in standing}
        if waited_s >= self.settle_s:
            self.differing = list(self._standing.values())

    def _next_look(self, now_s: float) -> float | None:
        if self.is_moving and self._rounds < _MOST_MOVING_ROUNDS:
            return now_s + _LOOKS[0] * self.settle_s
        if not self._standing or self.differing:
            return None
        return next(
            (look_s for part in _LOOKS if (look_s := self._since_s + part * self.settle_s) > now_s),
            now_s,
        )
