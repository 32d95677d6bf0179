"""What is said under an incarnation that the cell never had is left out, however much of it comes."""

import tracemalloc

import pytest

from cells.lineage import Lineage
from indexer.writing.history import History
from notifications.topology import INCARNATION_HEADER, SEQUENCE_HEADER
from tests.support.indexing import MemoryCell, MemoryIndex

_CURRENT = "00000000-0000-4000-8000-000000000001"
_MANY = 20_000


class NumberedCell(MemoryCell):
    """Says what it is called, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def lineage(self) -> Lineage:
        self.asked += 1
        return Lineage([(_CURRENT, 0)])


@pytest.fixture
def cell() -> NumberedCell:
    return NumberedCell()


@pytest.fixture
def history(cell: NumberedCell) -> History:
    history = History(cell, MemoryIndex(), lambda: 0)
    assert not history.was_restored()
    return history


def accepts(history: History, incarnation: str) -> bool:
    return history.accepts({INCARNATION_HEADER: incarnation, SEQUENCE_HEADER: 1})


def test_cell_is_asked_once_about_an_incarnation_that_is_none_of_its_own(cell: NumberedCell, history: History) -> None:
    asked = cell.asked
    assert not any(accepts(history, "a stranger") for _ in range(10))
    assert cell.asked == asked + 1
    assert accepts(history, _CURRENT)


def test_incarnations_that_are_none_of_the_cell_take_no_more_memory_however_many_come(history: History) -> None:
    tracemalloc.start()
    try:
        for number in range(_MANY):
            assert not accepts(history, f"stranger {number}")
        few = tracemalloc.get_traced_memory()[0]
        for number in range(_MANY, 2 * _MANY):
            assert not accepts(history, f"stranger {number}")
        assert tracemalloc.get_traced_memory()[0] < few + 20_000
    finally:
        tracemalloc.stop()
    assert accepts(history, _CURRENT)


def test_name_that_no_incarnation_can_have_is_not_even_asked_about(cell: NumberedCell, history: History) -> None:
    asked = cell.asked
    assert not accepts(history, "x" * 100_000)
    assert cell.asked == asked
