"""Estimates of the score after many moves, from sums that each move updates; exact but for the last digits.

A spread is computed from the sum and the sum of squares of its figure. Both are of figures minus their mean at the
beginning, since the difference of two large numbers would lose all digits.
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
    """The contribution of a node, or of its change, to the score.

    linear: of components that are sums. sums, squares: of components that are spreads, divided by the number of nodes.
    """

    linear: float
    sums: tuple[float, ...]
    squares: tuple[float, ...]

    def plus(self, other: "Share") -> "Share":
        """Return the sum of both shares."""
        return Share(
            self.linear + other.linear,
            tuple(map(add, self.sums, other.sums)),
            tuple(map(add, self.squares, other.squares)),
        )

    def minus(self, other: "Share") -> "Share":
        """Return the difference of both shares."""
        return Share(
            self.linear - other.linear,
            tuple(map(sub, self.sums, other.sums)),
            tuple(map(sub, self.squares, other.squares)),
        )

    def score(self) -> float:
        """Return the score, if this is the total share of all nodes."""
        total = self.linear
        for of_sums, of_squares in zip(self.sums, self.squares, strict=True):
            variance = of_squares - of_sums * of_sums
            # The variance of equal figures may be slightly negative.
            if variance > 0:
                total += sqrt(variance)
        return total

    def score_with(self, other: "Share") -> float:
        """Return the score after adding a share, like `plus` and `score`, but faster."""
        total = self.linear + other.linear
        # This runs for each move: a plain loop takes half the time of maps, and `strict` would cost time, too.
        for mine, of_other, my_squares, squares in zip(  # noqa: B905
            self.sums, other.sums, self.squares, other.squares
        ):
            of_sums = mine + of_other
            variance = my_squares + squares - of_sums * of_sums
            if variance > 0:
                total += sqrt(variance)
        return total


class Estimates:
    """The current shares of the nodes of a group.

    has_reservations: False merges the figures with and without reservations, which then change equally.
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
        """Return the share of a node, without the shared locations and exclusions of several nodes."""
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
        """Return the change of the total share if a node gets this state."""
        return self.share(state).minus(self._shares[state.limits.index])

    def settle(self, changes: Mapping[int, NodeState], before: Mapping[int, NodeState]) -> None:
        """Make changed nodes the current ones. before: their previous states."""
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
        """Return the change of the score by the exclusion tags of an instance that moves from source to target."""
        here, there = _pairs(tags, source), _pairs(tags, target)
        lost = sum(self._pairs[pair] > 1 for pair in here - there)
        return sum(self._pairs[pair] > 0 for pair in there - here) - lost


def _merged(*, has_reservations: bool) -> Iterator[Spread]:
    """Yield the spreads, those of equal figures merged to one."""
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
