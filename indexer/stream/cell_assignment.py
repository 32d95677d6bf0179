"""How indexers share the cells: who has more than is fair lets others have some.

A broker gives the messages of a cell to one receiver, the first that came, and to the next in the line when that one is
gone. So the indexer that was started first has all cells. It knows how many others follow each cell, by their leases,
and nothing else of them: it stands back in as many cells as are too many, and whoever has got too many by that does the
same in turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

# A cell that came back has nobody else who can reach its bus; and each turn that ends costs a new connection.
_REST_S = 60.0


@dataclass(slots=True)
class CellAssignment:
    """What one indexer knows of the messages of one cell.

    is_active: they come to this indexer. indexers: how many follow the cell, this one included. is_to_end: this one is
    to finish what it has received, and let another one have the rest. rests_until_s: it is not asked to before then, on
    the monotonic clock.
    """

    is_active: bool = False
    indexers: int = 1
    is_to_end: bool = False
    rests_until_s: float = 0.0

    def end(self, now_s: float) -> None:
        """It is another one's turn now."""
        self.is_active = self.is_to_end = False
        self.rests_until_s = now_s + _REST_S


def surplus(
    assignments: Sequence[CellAssignment],
    now_s: float,
    choose: Callable[[Sequence[CellAssignment], int], list[CellAssignment]],
) -> list[CellAssignment]:
    """Those that are to end, so that this indexer keeps no more than its share of all cells, rounded up.

    turns: of all cells that it follows. choose: some of several; at random, so that those who pass cells on to each
    other do not go on like that for ever.
    """
    share = ceil(sum(Fraction(1, assignment.indexers) for assignment in assignments))
    kept = [assignment for assignment in assignments if assignment.is_active and not assignment.is_to_end]
    can_end = [assignment for assignment in kept if assignment.indexers > 1 and assignment.rests_until_s <= now_s]
    return choose(can_end, min(len(can_end), max(0, len(kept) - share)))
