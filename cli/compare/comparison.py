"""Runs a comparison: sends new requests, and repeats those whose differences have yet to settle."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fleetlight.cli.compare.cases import Case, Round
from fleetlight.cli.compare.differences import Answer, Difference, Kind, is_unanswered
from fleetlight.cli.compare.explained import placed_in, waiting_in
from fleetlight.cli.compare.questions import Question
from fleetlight.cli.compare.tally import Tally

# After this many failures in a row an API counts as down, and more requests would show nothing.
_MOST_UNANSWERED = 5
_MOST_UNSETTLED = 100
# The most requests spent on finding a smaller one that shows the same difference.
_MOST_SMALLER = 12
# The most servers remembered as build requests, and likewise as former build requests.
_MOST_WAITING = 10_000
_BY_WHOLE = (Kind.STATUS, Kind.NO_ANSWER, Kind.ERROR)


class Asked(Protocol):
    """Anything that answers requests, as fleetlight.cli.compare.sites.Site does."""

    def ask(self, question: Question) -> Answer: ...


def _show_nothing(_asked: int) -> None: ...


@dataclass(slots=True)
class Comparison:
    """settle_s: how long a difference must last. pace: blocks until Nova may get the next request.

    show: receives the number of requests so far. clock: monotonic. pause: sleeps for some seconds.
    """

    nova: Asked
    ours: Asked
    tally: Tally
    settle_s: float
    pace: Callable[[], object]
    show: Callable[[int], object] = _show_nothing
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], object] = time.sleep
    _unsettled: list[Case] = field(default_factory=list)
    _unanswered: dict[str, int] = field(default_factory=dict)
    _waiting: dict[str, None] = field(default_factory=dict)
    _placed: dict[str, None] = field(default_factory=dict)

    def run(self, questions: Iterator[Question | None], *, most: int | None, for_s: float | None) -> None:
        """Send requests until there are no more, or `most` were sent, or `for_s` is over, or an API is down.

        questions: yields None while there is no request yet.
        """
        ends_s = None if for_s is None else self.clock() + for_s
        further = list[Question]()
        asked, is_open = 0, True
        while (is_open or self._unsettled) and self.away is None:
            now_s = self.clock()
            is_open = is_open and (most is None or asked < most) and (ends_s is None or now_s < ends_s)
            case = min(self._unsettled, key=_due_s, default=None)
            if case is not None and _due_s(case) <= now_s:
                self._look(case)
            elif is_open and len(self._unsettled) < _MOST_UNSETTLED:
                try:
                    question = further.pop() if further else next(questions)
                except StopIteration:
                    is_open = False
                    continue
                if question is not None:
                    asked += 1
                    self.show(asked)
                    further += self._look(Case(question, self.settle_s, self._waiting.keys()))
            elif case is not None:
                self.pause(_due_s(case) - now_s)

    @property
    def away(self) -> str | None:
        """The API that failed to answer several times in a row; None if neither did."""
        return next((name for name, count in self._unanswered.items() if count >= _MOST_UNANSWERED), None)

    def _look(self, case: Case) -> list[Question]:
        """Run one round. Returns the next page as a request of its own, if the case wants more pages."""
        nova, ours = self._ask(self.nova, "nova", case.question), self._ask(self.ours, "fleetlight", case.question)
        again = None
        is_answered = not is_unanswered(nova, ours)
        if is_answered and self._unexplained(case, nova, ours):
            again = self._ask(self.nova, "nova", case.question)
        if not is_answered or (again is not None and again.is_none):
            self._forget(case)
            self.tally.add_unanswered()
            return []
        is_first = case.first is None
        case.judge(Round(nova, ours, again), self.clock())
        if case.due_s is None:
            self._forget(case)
            self._end(case)
        elif is_first:
            self._unsettled.append(case)
        self.tally.unsettled = len(self._unsettled)
        if is_first and case.question.pages > 0 and nova.next_link is not None and nova.servers:
            return [case.question.next_page(str(nova.servers[-1].get("id")))]
        return []

    def _unexplained(self, case: Case, nova: Answer, ours: Answer) -> Sequence[Difference]:
        """The differences that no rule explains, even by the marker's values, which Nova is asked for."""
        found = case.unexplained(nova, ours)
        if found and not case.marker and (question := case.question.of_marker()) is not None:
            case.marker = next(iter(self._ask(self.nova, "nova", question).shown), {})
            found = case.unexplained(nova, ours)
        return found

    def _forget(self, case: Case) -> None:
        """Take the case off the list of those to ask again."""
        self._unsettled = [each for each in self._unsettled if each is not case]

    def _end(self, case: Case) -> None:
        smallest: dict[str, Question] = {}
        for difference in case.differing:
            if difference.class_ not in self.tally.differing.keys() | smallest.keys():
                smallest[difference.class_] = self._smallest(case, difference)
        self.tally.add(case, smallest)

    def _smallest(self, case: Case, difference: Difference) -> Question:
        """The smallest request found that shows the same difference."""
        question, left = case.question, _MOST_SMALLER
        candidates = question.smaller(difference.server)
        while left > 0 and (candidate := next(candidates, None)) is not None:
            left -= 1
            nova, ours = self._ask(self.nova, "nova", candidate), self._ask(self.ours, "fleetlight", candidate)
            if is_unanswered(nova, ours):
                break
            found = self._unexplained(Case(candidate, self.settle_s, self._waiting.keys()), nova, ours)
            if any(_is_same(each, difference) for each in found):
                question = candidate
                candidates = question.smaller(difference.server)
        return question

    def _ask(self, api: Asked, name: str, question: Question) -> Answer:
        if name == "nova":
            self.pace()
        answer = api.ask(question)
        self._remember(answer, is_of_nova=name == "nova")
        is_none = answer.is_none if name == "nova" else answer.status == 0
        self._unanswered[name] = self._unanswered.get(name, 0) + 1 if is_none else 0
        return answer

    def _remember(self, answer: Answer, *, is_of_nova: bool) -> None:
        """Remember which servers wait for a cell.

        A server stops waiting when Nova shows it in a cell, until Nova shows it as waiting again. For a moment Nova has
        a new server both as build request and in its cell, where lists with a filter find it.
        """
        for server in placed_in(answer) if is_of_nova else ():
            if server in self._waiting:
                del self._waiting[server]
                self._placed[server] = None
        for server in waiting_in(answer):
            if is_of_nova:
                self._placed.pop(server, None)
            if server not in self._placed:
                self._waiting[server] = None
        for remembered in (self._waiting, self._placed):
            while len(remembered) > _MOST_WAITING:
                del remembered[next(iter(remembered))]


def _due_s(case: Case) -> float:
    return case.due_s or 0.0


def _is_same(one: Difference, other: Difference) -> bool:
    return one == other if other.kind in _BY_WHOLE else one.subject == other.subject
