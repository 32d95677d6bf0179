"""The result of a comparison: counts, and one example for each class, so that its size does not grow over time."""

import math
import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetlight.cli.compare.cases import Case
from fleetlight.cli.compare.differences import Answer, Difference
from fleetlight.cli.compare.explained import RULES
from fleetlight.cli.compare.questions import Question

_SHOWN = 200
# Members in which users write passwords.
_NOT_SHOWN = {"metadata", "OS-EXT-SRV-ATTR:user_data"}
_COMPLETE, _ROUTE = "Fleetlight-Complete", "Fleetlight-Route"
_ROUTES = re.compile(r"\b(index-while-down|index|live|changelog|skipped)\b")
_MS = 1000


@dataclass(slots=True)
class Found:
    """A class of differences. requests, count: how many requests show it, and how many differences they show.

    waited_s: if it was late, the longest time until it went away. complete: what our answer said of its completeness.
    """

    question: Question
    difference: Difference
    complete: str
    requests: int = 0
    count: int = 0
    waited_s: float = 0.0

    def add(self, differences: int) -> None:
        self.requests += 1
        self.count += differences


@dataclass(slots=True)
class Latencies:
    """Response times of both APIs for one kind of request, in seconds."""

    nova: "array[float]" = field(default_factory=lambda: array("d"))
    ours: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class Tally:
    """asked: number of requests; one that was repeated counts once."""

    asked: int = 0
    same: int = 0
    differing_requests: int = 0
    late_requests: int = 0
    moving_requests: int = 0
    unanswered: int = 0
    unsettled: int = 0
    differing: dict[str, Found] = field(default_factory=dict)
    late: dict[str, Found] = field(default_factory=dict)
    explained: dict[str, Found] = field(default_factory=dict)
    moving: Question | None = None
    latencies: dict[str, Latencies] = field(default_factory=dict)
    said_complete: Counter[str] = field(default_factory=Counter)
    routes: Counter[str] = field(default_factory=Counter)

    def add_unanswered(self) -> None:
        """Count a request for which Nova gave no comparable answer."""
        self.asked += 1
        self.unanswered += 1

    def add(self, case: Case, smallest: Mapping[str, Question]) -> None:
        """Count a finished case. smallest: the smallest request for each class of differences that is new."""
        if case.first is None or case.last is None:
            return
        self.asked += 1
        self._add_answers(case.question, case.first.nova, case.first.ours)
        complete = case.last.ours.headers.get(_COMPLETE, "")
        by_class = _by(case.differing)
        for name, differences in by_class.items():
            question = smallest.get(name, case.question)
            self._count(self.differing, name, question, differences, complete)
        for name, differences in _by(list(case.late)).items():
            found = self._count(self.late, name, case.question, differences, complete)
            found.waited_s = max(found.waited_s, *(case.late[each] for each in differences))
        for rule in {rule for rule, _ in case.explained}:
            differences = [each for name, each in case.explained if name == rule]
            self._count(self.explained, rule, case.question, differences, complete)
        if case.is_moving:
            self.moving_requests += 1
            self.moving = case.question
        elif case.differing:
            self.differing_requests += 1
        elif case.late:
            self.late_requests += 1
        else:
            self.same += 1

    def _count(
        self,
        into: dict[str, Found],
        name: str,
        question: Question,
        differences: Sequence[Difference],
        complete: str,
    ) -> Found:
        found = into.get(name)
        if found is None:
            found = into[name] = Found(question, differences[0], complete)
        elif _size(question) < _size(found.question):
            found.question, found.difference, found.complete = question, differences[0], complete
        found.add(len(differences))
        return found

    def _add_answers(self, question: Question, nova: Answer, ours: Answer) -> None:
        if ours.status == 0:
            return
        latencies = self.latencies.setdefault(question.kind, Latencies())
        latencies.nova.append(nova.duration_s)
        latencies.ours.append(ours.duration_s)
        if _COMPLETE in ours.headers:
            self.said_complete[ours.headers[_COMPLETE]] += 1
            self.routes.update(set(_ROUTES.findall(ours.headers.get(_ROUTE, ""))))

    def document(self, nova_url: str, our_url: str) -> dict[str, Any]:
        """The whole report as JSON; the URLs are those of the two APIs."""
        urls = (nova_url, our_url)
        return {
            "nova": nova_url,
            "fleetlight": our_url,
            "requests": self.asked,
            "same": self.same,
            "differing": self.differing_requests,
            "late": self.late_requests,
            "moving": self.moving_requests,
            "unanswered": self.unanswered,
            "unsettled": self.unsettled,
            "differences": [_shown(name, found, urls) for name, found in _most_first(self.differing)],
            "were_late": [
                {**_shown(name, found, urls), "seconds": round(found.waited_s, 1)}
                for name, found in _most_first(self.late)
            ],
            "explained": [
                {**_shown(rule.name, self.explained[rule.name], urls), "meaning": rule.meaning}
                for rule in RULES
                if rule.name in self.explained
            ],
            "moving_example": None if self.moving is None else [self.moving.curl(url) for url in urls],
            "latencies": [
                _of_latencies(kind, latencies)
                for kind, latencies in [("all", self._all()), *sorted(self.latencies.items())]
                if latencies.nova
            ],
            "complete": self.said_complete["true"],
            "not_complete": self.said_complete["false"],
            "routes": dict(sorted(self.routes.items())),
        }

    def _all(self) -> Latencies:
        whole = Latencies()
        for each in self.latencies.values():
            whole.nova.extend(each.nova)
            whole.ours.extend(each.ours)
        return whole


def _by(differences: Sequence[Difference]) -> Mapping[str, Sequence[Difference]]:
    found: dict[str, list[Difference]] = {}
    for each in differences:
        found.setdefault(each.class_, []).append(each)
    return found


def _size(question: Question) -> tuple[int, int]:
    return len(question.parameters), len(question.target)


def _most_first(found: Mapping[str, Found]) -> Sequence[tuple[str, Found]]:
    return sorted(found.items(), key=lambda each: (-each[1].requests, each[0]))


def _shown(name: str, found: Found, urls: tuple[str, str]) -> dict[str, Any]:
    nova, ours = _excerpts(found.difference)
    return {
        "class": name,
        "requests": found.requests,
        "differences": found.count,
        "server": found.difference.server or None,
        "what": found.difference.key or None,
        "nova": nova,
        "fleetlight": ours,
        "said_complete": found.complete or None,
        "curl": [found.question.curl(url) for url in urls],
    }


def _excerpts(difference: Difference) -> tuple[str, str]:
    """The values of both APIs: long ones cut to where they begin to differ, of secret ones only the length."""
    texts = difference.nova, difference.ours
    if difference.key in _NOT_SHOWN:
        return f"{len(texts[0])} characters, not shown", f"{len(texts[1])} characters, not shown"
    if max(map(len, texts)) <= _SHOWN:
        return texts
    alike = next((place for place, (one, other) in enumerate(zip(*texts, strict=False)) if one != other), 0)
    begin = max(0, alike - _SHOWN // 4)
    return _excerpt(texts[0], begin), _excerpt(texts[1], begin)


def _excerpt(text: str, begin: int) -> str:
    part = text[begin : begin + _SHOWN]
    return f"{'…' if begin else ''}{part}{'…' if begin + len(part) < len(text) else ''}"


def _of_latencies(kind: str, latencies: Latencies) -> dict[str, Any]:
    figures = {
        f"{name}_{title}_ms": round(_percentile(times, part) * _MS, 1)
        for name, times in (("nova", latencies.nova), ("fleetlight", latencies.ours))
        for title, part in (("p50", 0.5), ("p99", 0.99))
    }
    ratio = _percentile(latencies.nova, 0.5) / max(_percentile(latencies.ours, 0.5), 1e-6)
    return {"request": kind, "requests": len(latencies.nova), **figures, "times_as_fast": round(ratio, 1)}


def _percentile(times: Sequence[float], part: float) -> float:
    """The percentile by nearest rank."""
    return sorted(times)[max(0, math.ceil(part * len(times)) - 1)]
