"""Fair shares of cells: an indexer that has more than its share leaves some to the others.

A broker gives the messages of a cell to one receiver, the first that came, and to the next in the line when that one is
gone. So the indexer that was started first has all cells. It knows how many others follow each cell, by their leases,
and nothing else of them: it gives up as many cells as are too many, and an indexer that gets too many by that does the
same.
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

# A cell that came back has no other indexer that can reach its bus; and each cell that is given up costs a new
# connection.
_REST_S = 60.0
_INTERVAL_S = 3.0


@dataclass(slots=True)
class CellAssignment:
    """What one indexer knows of the messages of one cell.

    is_active: they come to this indexer. indexers: how many follow the cell, this one included. is_to_end: this one is
    to finish what it has received, and let another one have the rest. rests_until_s: it does not have to before then,
    on the monotonic clock.
    """

    is_active: bool = False
    indexers: int = 1
    is_to_end: bool = False
    rests_until_s: float = 0.0

    def end(self, now_s: float) -> None:
        """Another indexer gets the messages now."""
        self.is_active = self.is_to_end = False
        self.rests_until_s = now_s + _REST_S


def surplus(
    assignments: Sequence[CellAssignment],
    now_s: float,
    choose: Callable[[Sequence[CellAssignment], int], list[CellAssignment]],
) -> list[CellAssignment]:
    """Those that are to end, so that this indexer keeps no more than its share of all cells, rounded up.

    assignments: of all cells that it follows. choose: some of several; at random, so that two indexers do not pass the
    same cells to each other for ever.
    """
    share = ceil(sum(Fraction(1, assignment.indexers) for assignment in assignments))
    kept = [assignment for assignment in assignments if assignment.is_active and not assignment.is_to_end]
    can_end = [assignment for assignment in kept if assignment.indexers > 1 and assignment.rests_until_s <= now_s]
    return choose(can_end, min(len(can_end), max(0, len(kept) - share)))


class FairShares:
    """Lets other indexers have what this one has more of than is fair."""

    def __init__(self, leases: CellLeases, metrics: IndexerMetrics) -> None:
        self._leases = leases
        self._metrics = metrics
        self._due_s = 0.0

    def update(self, assignments: Mapping[str, CellAssignment], *, knows_fleet: bool) -> None:
        """End what is too much. assignments: by uuid, of all cells that this indexer follows."""
        for uuid, assignment in assignments.items():
            self._metrics.is_active.labels(uuid).set(assignment.is_active)
        now_s = time.monotonic()
        # While the fleet database is away, no more queries are made that may take their time to fail.
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
