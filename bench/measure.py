"""Measuring two ways of doing one thing, interleaved, and saying what came out."""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure must reach: at most, or at least, `bound`."""

    relation: str
    bound: float

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g}"

    def is_met_by(self, value: float) -> bool:
        return value <= self.bound if self.relation == "<=" else value >= self.bound


def at_most(bound: float) -> Goal:
    return Goal("<=", bound)


def at_least(bound: float) -> Goal:
    return Goal(">=", bound)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure. goal and met are None for a figure that is only reported.

    is_valid: whether what was to be measured could be caused; met is None if not.

    runs: how often it was measured; `value` is the median of them unless `what` says otherwise.
    """

    name: str
    value: float
    unit: str
    goal: str | None
    met: bool | None
    what: str
    runs: int
    is_valid: bool = True

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def figure(
    name: str, value: float, unit: str, what: str, *, runs: int, goal: Goal | None = None, is_valid: bool = True
) -> Figure:
    met = goal.is_met_by(value) if goal is not None and is_valid else None
    return Figure(name, round(value, 4), unit, None if goal is None else str(goal), met, what, runs, is_valid)


def seconds(action: Callable[[], object]) -> float:
    """Wall seconds of one call, with the collector kept out of it."""
    gc.collect()
    gc.disable()
    try:
        begin = time.perf_counter()
        action()
        return time.perf_counter() - begin
    finally:
        gc.enable()


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Medians of two interleaved measurements, and of their ratio pair by pair."""

    ours_s: float
    bare_s: float
    ratio: float
    runs: int


def interleaved(
    ours: Callable[[], object], bare: Callable[[], object], runs: int, *, rest: Callable[[], object] = lambda: None
) -> MeasuredPair:
    """Time `ours` and `bare` in turn, `runs` times each after one warm-up of both, the first one alternating.

    rest: what is done between two runs, and not timed.
    """
    ours()
    bare()
    ours_s: list[float] = []
    bare_s: list[float] = []
    for run in range(runs):
        rest()
        if run % 2:
            ours_s.append(seconds(ours))
            bare_s.append(seconds(bare))
        else:
            bare_s.append(seconds(bare))
            ours_s.append(seconds(ours))
    ratios = [one / other for one, other in zip(ours_s, bare_s, strict=True)]
    return MeasuredPair(statistics.median(ours_s), statistics.median(bare_s), statistics.median(ratios), runs)
