"""The search for moves: a greedy descent that makes the best move until none is worth it.

Two descents run, and the one with the better score wins. One prefers reservations, which move for free; the other makes
the moves of htools, so that no result is worse than that of hbal. The second one runs only if their moves differ.
Source: contracts/ganeti-htools, 5.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fleetlight.manager.operations.balancing.cluster import NodeGroup
from fleetlight.manager.operations.balancing.estimates import Estimates
from fleetlight.manager.operations.balancing.known_shares import KnownShares
from fleetlight.manager.operations.balancing.limits import Obstacle, PlacedInstance
from fleetlight.manager.operations.balancing.move_candidates import (
    MoveCandidate,
    moves_with_estimates,
    placements_with_estimates,
)
from fleetlight.manager.operations.balancing.moves import Changes, Move, changes_of, changes_of_placing, is_movable
from fleetlight.manager.operations.balancing.node_state import NodeState
from fleetlight.manager.operations.balancing.score import least_score, score
from fleetlight.manager.operations.balancing.situation import NO_NODE, NodePair, Situation
from fleetlight.query.sort import nice_key

MIN_GAIN: Final = 1e-2
"""The least gain of a move once the score is at most GAIN_LIMIT."""
GAIN_LIMIT: Final = 1e-1
_MIN_EXCESS: Final = 1e-9
_SAME_SCORE: Final = 1e-9
# Largest error of estimates, relative to the score.
_ESTIMATE_ERROR: Final = 1e-7
# If more moves are about equally good, the cluster is so even that any of them will do.
_MOST_EQUALS: Final = 500
_BETTER_BY: Final = 1e-7


@dataclass(frozen=True, slots=True)
class MadeMove:
    """A move of the search. before: previous nodes of the instance. score: after the move. gain: of the score."""

    move: Move
    before: NodePair
    score: float
    gain: float


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The moves of a search in order, with the scores at its begin and end."""

    score_before: float
    score_after: float
    moves: Sequence[MadeMove]


def balance(situation: Situation, group: NodeGroup, *, most_moves: int | None = None) -> SearchResult:
    """Return moves inside of a group that balance its nodes. most_moves: largest number; None: no limit."""
    preferring = _Descent(situation, group)
    before = preferring.score
    preferring.run(preferring.best_preferring_reservations, most_moves)
    if not preferring.is_of_htools:
        as_htools = _Descent(situation, group)
        as_htools.run(as_htools.best_as_htools, most_moves)
        if as_htools.score < preferring.score - _BETTER_BY:
            return SearchResult(before, as_htools.score, as_htools.made)
    return SearchResult(before, preferring.score, preferring.made)


class _Exact(NamedTuple):
    score: float
    placed: PlacedInstance
    move: Move
    changes: Changes


_Found = tuple[PlacedInstance, MoveCandidate]
_ChangesOf = Callable[[Sequence[NodeState], PlacedInstance, NodePair, Move], Changes | Obstacle]


class _Descent:
    """One descent from a situation. is_of_htools: whether htools would have made the same moves so far."""

    def __init__(self, situation: Situation, group: NodeGroup) -> None:
        self._members = situation.group_members(group)
        members = {index: situation.states[index] for index in self._members}
        self._online = [index for index, state in members.items() if not state.limits.node.is_offline]
        self._places = list(situation.places)
        movable = [
            placed
            for placed, place in zip(situation.instances, situation.places, strict=True)
            if is_movable(placed.instance) and place.primary in members and place.secondary in (NO_NODE, *members)
        ]
        self._movable = movable if self._online else []
        self._reservations = [placed for placed in self._movable if placed.instance.is_forthcoming]
        self._real = [placed for placed in self._movable if not placed.instance.is_forthcoming]
        has_reservations = any(placed.instance.is_forthcoming for placed in situation.instances)
        self._known = KnownShares(situation.states, Estimates(members, has_reservations=has_reservations))
        self._with_agent = [index for index in self._online if self._has_agent(index)]
        self._without_agent = [index for index in self._online if not self._has_agent(index)]
        self._least = least_score(list(members.values()))
        self.score = score(list(members.values()))
        self.made: list[MadeMove] = []
        self.is_of_htools = not self._reservations

    def run(self, best: Callable[[], _Exact | None], most_moves: int | None) -> None:
        """Make the moves that `best` finds, until there is none, or the score cannot get better."""
        while (most_moves is None or len(self.made) < most_moves) and self.score > self._least + _MIN_EXCESS:
            found = best()
            if found is None:
                return
            self._make(found)

    def _make(self, found: _Exact) -> None:
        index = found.move.instance
        self.made.append(MadeMove(found.move, self._places[index], found.score, self.score - found.score))
        self._places[index] = found.move.place
        self._known.settle(found.changes)
        self.score = found.score

    def best_as_htools(self) -> _Exact | None:
        """Return the first of the moves with the least score, if it is worth it."""
        found = self._exact(self._near(self._moves(self._movable)), changes_of)
        return self._worth_it(min(found, key=lambda exact: exact.score, default=None))

    def best_preferring_reservations(self) -> _Exact | None:
        """Return the best move of a reservation if it gains enough, else of an instance, else of a reservation."""
        reserved = _first(self._exact(self._near(self._placements()), _placing))
        if reserved is not None and self.score - reserved.score >= MIN_GAIN:
            return reserved
        found = self._exact(self._near(self._moves(self._real)), changes_of)
        real = self._worth_it(_first(found))
        if real is not None:
            of_htools = min(found, key=lambda exact: exact.score)
            self.is_of_htools = self.is_of_htools and of_htools.move == real.move
            return real
        return self._worth_it(reserved)

    def _moves(self, instances: Iterable[PlacedInstance]) -> Iterator[_Found]:
        for placed in instances:
            place = self._places[placed.index]
            for candidate in moves_with_estimates(self._known, placed, place, self._targets(place)):
                yield placed, candidate

    def _targets(self, place: NodePair) -> Sequence[int]:
        """Return the possible targets, since real instances do not move between hosts with and without agents."""
        return self._with_agent if self._has_agent(place.primary) else self._without_agent

    def _has_agent(self, index: int) -> bool:
        return self._known.states[index].limits.node.has_agent

    def _placements(self) -> Iterator[_Found]:
        for placed in self._reservations:
            for candidate in placements_with_estimates(self._known, placed, self._places[placed.index], self._online):
                yield placed, candidate

    def _near(self, candidates: Iterable[_Found]) -> list[_Found]:
        """Return the candidates of which one is the best within the error of estimates, in their order."""
        error = _ESTIMATE_ERROR * (1 + self.score)
        limit = self.score + error
        near: list[_Found] = []
        for found in candidates:
            estimate = found[1].estimate
            if estimate <= limit:
                near.append(found)
                limit = min(limit, estimate + 2 * error)
        return [found for found in near if found[1].estimate <= limit][:_MOST_EQUALS]

    def _exact(self, near: Iterable[_Found], changes: _ChangesOf) -> list[_Exact]:
        """Compute the exact scores; returns the moves that improve the current one."""
        states, exact = self._known.states, list[_Exact]()
        for placed, candidate in near:
            move = candidate.move_of(placed.index)
            changed = changes(states, placed, self._places[placed.index], move)
            if isinstance(changed, Obstacle):
                # Candidates are allowed moves only; this is a safeguard.
                continue
            after = score([changed.get(index, states[index]) for index in self._members])
            if after < self.score:
                exact.append(_Exact(after, placed, move, changed))
        return exact

    def _worth_it(self, found: _Exact | None) -> _Exact | None:
        if found is None or (self.score <= GAIN_LIMIT and self.score - found.score < MIN_GAIN):
            return None
        return found


def _placing(states: Sequence[NodeState], placed: PlacedInstance, before: NodePair, move: Move) -> Changes | Obstacle:
    return changes_of_placing(states, placed, before, move.place)


def _first(found: Sequence[_Exact]) -> _Exact | None:
    """Return the best move; of equal ones the one with the fewest steps, then the first by name in nice order."""
    if not found:
        return None
    least = min(exact.score for exact in found)
    equal = [exact for exact in found if exact.score <= least + _SAME_SCORE]
    return min(equal, key=lambda exact: (exact.move.kind.steps, nice_key(exact.placed.instance.name)))
