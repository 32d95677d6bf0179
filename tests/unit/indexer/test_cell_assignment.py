"""Indexers that pass cells on to each other end with a fair share each, whoever was there first."""

import random
from collections import Counter, deque

import pytest

from fleetlight.indexer.stream.cell_assignment import CellAssignment, surplus

NOW_S = 1000.0


class Fleet:
    """Cells, each with a line of indexers as a broker keeps it: the first in the line is active."""

    def __init__(self, cells: int, indexers: int) -> None:
        self.random = random.Random(1)
        self.lines = [deque(range(indexers)) for _ in range(cells)]

    def shares(self) -> list[int]:
        """How many cells each indexer is active for, the largest share first."""
        return sorted(Counter(line[0] for line in self.lines).values(), reverse=True)

    def pass_on(self, indexer: int) -> bool:
        """Let an indexer look at its turns once; False when it keeps them all."""
        assignments = [CellAssignment(is_active=line[0] == indexer, indexers=len(line)) for line in self.lines]
        ends = {id(assignment) for assignment in surplus(assignments, NOW_S, self.random.sample)}
        for line, assignment in zip(self.lines, assignments, strict=True):
            if id(assignment) in ends:
                line.rotate(-1)
        return bool(ends)


@pytest.mark.parametrize(
    ("cells", "indexers", "shares"),
    [
        (8, 1, [8]),
        (8, 2, [4, 4]),
        (8, 3, [3, 3, 2]),
        (7, 2, [4, 3]),
        (1, 2, [1]),
        (3, 3, [1, 1, 1]),
        (64, 5, [13, 13, 13, 13, 12]),
    ],
)
def test_cells_that_the_first_indexer_had_are_shared(cells: int, indexers: int, shares: list[int]) -> None:
    fleet = Fleet(cells, indexers)
    rounds = 0
    while any(fleet.pass_on(indexer) for indexer in range(indexers)):
        rounds += 1
        assert rounds < 1000, "they pass them on to each other for ever"
    assert fleet.shares()[0] == shares[0], "nobody has more than its share"
    assert sum(fleet.shares()) == cells


def test_what_nobody_stands_by_for_is_kept() -> None:
    assignments = [
        CellAssignment(is_active=True),
        CellAssignment(is_active=True),
        CellAssignment(is_active=True, indexers=2),
    ]
    assert surplus(assignments, NOW_S, random.sample) == []
    assert surplus([*assignments, CellAssignment(indexers=2)], NOW_S, random.sample) == []


def test_what_is_about_to_end_is_not_counted_again() -> None:
    shared = [CellAssignment(is_active=True, indexers=2) for _ in range(4)]
    ends = surplus(shared, NOW_S, random.sample)
    assert len(ends) == 2
    for assignment in ends:
        assignment.is_to_end = True
    assert surplus(shared, NOW_S, random.sample) == []


def test_cell_that_comes_back_is_kept_for_a_while() -> None:
    """Somebody follows it, and does not reach its bus."""
    assignments = [CellAssignment(is_active=True, indexers=2), CellAssignment(is_active=True, indexers=2)]
    for assignment in assignments:
        assignment.end(NOW_S)
        assignment.is_active = True
    assert surplus(assignments, NOW_S + 1, random.sample) == []
    assert len(surplus(assignments, NOW_S + 3600, random.sample)) == 1
