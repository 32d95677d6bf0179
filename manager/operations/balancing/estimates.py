"""Scores of many moves at once, from sums that each move changes a little: as the score itself but for the last digits.

A spread is found from the sum and the sum of squares of its figure. Both are kept with figures from which the mean at
the beginning is taken off, for the difference of two large numbers would have no digits left.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from operator import add, sub
from typing import NamedTuple

from fleetlight.manager.operations.balancing.node_state import NodeState
from fleetlight.manager.operations.balancing.score import (
    KEPT_MEMORY_WEIGHT,
    SPREADS,
    Spread,
    conflicts,
    failing_instances,
    surplus,
)


class Share(NamedTuple):
    """What a node adds to the score, or what a change of it does.

    linear: of the components that are sums. sums, squares: of those that are spreads, divided by the number of nodes.
    """

    linear: float
    sums: tuple[float, ...]
    squares: tuple[float, ...]

    def plus(self, other: "Share") -> "Share":
        return Share(
            self.linear + other.linear,
            tuple(map(add, self.sums, other.sums)),
            tuple(map(add, self.squares, other.squares)),
        )

    def minus(self, other: "Share") -> "Share":
        return Share(
            self.linear - other.linear,
            tuple(map(sub, self.sums, other.sums)),
            tuple(map(sub, self.squares, other.squares)),
        )

    def score(self) -> float:
        """The score of all nodes whose shares these are together."""
        total = self.linear
        for of_sums, of_squares in zip(self.sums, self.squares, strict=True):
            variance = of_squares - of_sums * of_sums
            # A spread of nothing may come out a little below 0.
            if variance > 0:
                total += sqrt(variance)
        return total

    def score_with(self, other: "Share") -> float:
        """The score with another share; what `plus` and `score` give, in fewer steps."""
        total = self.linear + other.linear
        # A plain loop takes half the time of a chain of maps, and it is run for each move; so is the check of lengths.
        for mine, of_other, my_squares, squares in zip(  # noqa: B905
            self.sums, other.sums, self.squares, other.squares
        ):
            of_sums = mine + of_other
            variance = my_squares + squares - of_sums * of_sums
            if variance > 0:
                total += sqrt(variance)
        return total


class Estimates:
    """The shares of the nodes of a group as they are now.

    has_reservations: without any, figures with and without them change by the same.
    """

    def __init__(self, states: Mapping[int, NodeState], *, has_reservations: bool) -> None:
        online = [state for state in states.values() if not state.limits.node.is_offline]
        self._count = len(online)
        self._spreads = [
            (spread.weight, spread.of, sum(map(spread.of, online)) / max(1, self._count))
            for spread in _merged(has_reservations=has_reservations)
        ]
        self._shares = {index: self.share(state) for index, state in states.items()}
        self._pairs = Counter[tuple[str, str]]()
        for state in online:
            self._pairs.update(state.location_pairs)
        zeros = (0.0,) * len(self._spreads)
        self.total = Share(float(surplus(self._pairs.items())), zeros, zeros)
        for share in self._shares.values():
            self.total = self.total.plus(share)

    def share(self, state: NodeState) -> Share:
        """What a node adds to the score; locations and exclusions, which several nodes make together, left out."""
        if state.limits.node.is_offline:
            zeros = (0.0,) * len(self._spreads)
            return Share(4.0 * (state.primaries + state.secondaries) + 16.0 * state.primaries, zeros, zeros)
        kept = state.memory_kept / state.limits.node.total_memory_mib
        linear = failing_instances(state) + 2.0 * conflicts(state) + state.location_score + KEPT_MEMORY_WEIGHT * kept
        values = [weight * (figure(state) - mean) for weight, figure, mean in self._spreads]
        return Share(
            linear,
            tuple(value / self._count for value in values),
            tuple(value * value / self._count for value in values),
        )

    def change(self, state: NodeState) -> Share:
        """What it changes if a node has this state."""
        return self.share(state).minus(self._shares[state.limits.index])

    def settle(self, changes: Mapping[int, NodeState], before: Mapping[int, NodeState]) -> None:
        """Take changes as what is now."""
        for index, state in changes.items():
            share = self.share(state)
            self.total = self.total.plus(share.minus(self._shares[index]))
            self._shares[index] = share
        old = surplus(self._pairs.items())
        for index, state in changes.items():
            if not state.limits.node.is_offline and state.location_pairs != before[index].location_pairs:
                self._pairs.subtract(before[index].location_pairs)
                self._pairs.update(state.location_pairs)
        self._pairs = +self._pairs
        self.total = self.total._replace(linear=self.total.linear + surplus(self._pairs.items()) - old)

    def shared_exclusions(self, tags: Sequence[str], source: NodeState, target: NodeState) -> int:
        """What it adds to the score that an instance with exclusion tags goes from one node to another."""
        here, there = _pairs(tags, source), _pairs(tags, target)
        lost = sum(self._pairs[pair] > 1 for pair in here - there)
        return sum(self._pairs[pair] > 0 for pair in there - here) - lost


def _merged(*, has_reservations: bool) -> Iterator[Spread]:
    """The spreads, those of the same figure as one."""
    weights = dict[str, float]()
    figures = {spread.name: spread for spread in SPREADS}
    same: dict[object, str] = {}
    for spread in SPREADS:
        plain = spread.name.removesuffix("_forth")
        figure: object = spread.of
        if not has_reservations and plain not in (spread.name, "free_mem_cv"):
            figure = figures[plain].of
        name = same.setdefault(figure, spread.name)
        weights[name] = weights.get(name, 0.0) + spread.weight
    return (Spread(name, weight, figures[name].of) for name, weight in weights.items())


def _pairs(tags: Sequence[str], state: NodeState) -> set[tuple[str, str]]:
    if state.limits.node.is_offline:
        return set()
    return {(location, tag) for location in state.limits.locations for tag in tags}
