"""Fair shares of cells: an indexer that has more than its share gives some to the others.

A broker sends the messages of a cell to its first consumer, and to the next one when that is gone. So the indexer that
started first has all cells. From leases it knows how many indexers follow each cell, and nothing else of them: it gives
up the cells above its share, and an indexer that thereby gets more than its share does the same.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.writing.leases import CellLeases

# A cell that came back has no other indexer that can reach its bus, and each hand-over costs a new connection.
_REST_S = 60.0
_INTERVAL_S = 3.0


@dataclass(slots=True)
class CellAssignment:
    """Whether one indexer gets the messages of one cell.

    is_active: this indexer gets them. indexers: number of indexers that follow the cell, including this one. is_to_end:
    the consumer must finish what it received, then hand the cell over. rests_until_s: no hand-over before this time, on
    the monotonic clock.
    """

    is_active: bool = False
    indexers: int = 1
    is_to_end: bool = False
    rests_until_s: float = 0.0

    def end(self, now_s: float) -> None:
        """Note that the consumer has handed the cell over."""
        self.is_active = self.is_to_end = False
        self.rests_until_s = now_s + _REST_S


def surplus(
    assignments: Sequence[CellAssignment],
    now_s: float,
    choose: Callable[[Sequence[CellAssignment], int], list[CellAssignment]],
) -> list[CellAssignment]:
    """The assignments that must end, so that this indexer keeps no more than its share of all cells, rounded up.

    assignments: of all cells that it follows. choose: picks so many of them; at random, so that two indexers do not
    hand the same cells to each other for ever.
    """
    share = ceil(sum(Fraction(1, assignment.indexers) for assignment in assignments))
    kept = [assignment for assignment in assignments if assignment.is_active and not assignment.is_to_end]
    can_end = [assignment for assignment in kept if assignment.indexers > 1 and assignment.rests_until_s <= now_s]
    return choose(can_end, min(len(can_end), max(0, len(kept) - share)))


class FairShares:
    """Hands cells above the share of this indexer over to others."""

    def __init__(self, leases: CellLeases, metrics: IndexerMetrics) -> None:
        self._leases = leases
        self._metrics = metrics
        self._due_s = 0.0

    def update(self, assignments: Mapping[str, CellAssignment], *, knows_fleet: bool) -> None:
        """End assignments above the share, every few seconds. assignments: of all followed cells, by uuid."""
        for uuid, assignment in assignments.items():
            self._metrics.is_active.labels(uuid).set(assignment.is_active)
        now_s = time.monotonic()
        # While the fleet database is down, a query may take long to fail.
        if now_s < self._due_s or not knows_fleet:
            return
        self._due_s = now_s + _INTERVAL_S
        try:
            counts = self._leases.followers(assignments.keys())
        except FleetUnreachableError:
            return
        for uuid, assignment in assignments.items():
            assignment.indexers = max(1, counts.get(uuid, 0))
        for assignment in surplus(list(assignments.values()), now_s, random.sample):
            assignment.is_to_end = True
