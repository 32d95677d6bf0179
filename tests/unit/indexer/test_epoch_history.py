"""What is said under an epoch that the cell never had is left out, however much of it comes."""

import tracemalloc
from collections.abc import Mapping

import pytest

from fleetlight.bus.topology import EPOCH_HEADER, SEQUENCE_HEADER
from fleetlight.cells.epochs import EpochHistory
from fleetlight.indexer.backends.base import BEING_RECONCILED, EPOCHS, RECONCILIATIONS
from fleetlight.indexer.errors import CellRestoredError
from fleetlight.indexer.writing.epoch_history import History
from tests.support.memory.memory_cell import MemoryCell
from tests.support.memory.memory_index import MemoryIndex

_CURRENT = "00000000-0000-4000-8000-000000000001"
_MANY = 20_000


class NumberedCell(MemoryCell):
    """Says what it is called, and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs.append((_CURRENT, 0))
        self.asked = 0

    def epoch_history(self) -> EpochHistory:
        self.asked += 1
        return super().epoch_history()


@pytest.fixture
def cell() -> NumberedCell:
    return NumberedCell()


@pytest.fixture
def history(cell: NumberedCell) -> History:
    history = History(cell, MemoryIndex(), lambda: 0)
    assert not history.was_restored()
    return history


def accepts(history: History, epoch: str) -> bool:
    return history.accepts({EPOCH_HEADER: epoch, SEQUENCE_HEADER: 1})


def test_cell_is_asked_once_about_an_epoch_that_is_none_of_its_own(cell: NumberedCell, history: History) -> None:
    asked = cell.asked
    assert not any(accepts(history, "a stranger") for _ in range(10))
    assert cell.asked == asked + 1
    assert accepts(history, _CURRENT)


def test_epochs_that_are_none_of_the_cell_take_no_more_memory_however_many_come(history: History) -> None:
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


def test_name_that_no_epoch_can_have_is_not_even_asked_about(cell: NumberedCell, history: History) -> None:
    asked = cell.asked
    assert not accepts(history, "x" * 100_000)
    assert cell.asked == asked


def test_watermark_of_a_lost_future_is_noticed_after_somebody_else_has_repaired_the_index() -> None:
    cell, index = MemoryCell(), MemoryIndex()
    cell.epochs = [("lost", 0)]
    cell.last_sequence = watermark = 20
    mine = History(cell, index, lambda: watermark)
    assert not mine.was_restored()
    cell.epochs = [("lost", 0), ("present", 10)]
    cell.last_sequence = 30
    index.save_state(EPOCHS, {cell.cell.uuid: "present"})
    assert History(cell, index, lambda: watermark, mine.followed_as).was_restored()
    assert not History(cell, index, lambda: 10, mine.followed_as).was_restored(), "only what came later was lost"


def test_changelog_that_another_epoch_goes_on_with_is_no_restore() -> None:
    cell, index = MemoryCell(), MemoryIndex()
    cell.epochs = [("lost", 0)]
    watermark = cell.last_sequence = 10
    history = History(cell, index, lambda: watermark)
    assert not history.was_restored()
    cell.epochs = [("lost", 0), ("present", 15)]
    watermark = cell.last_sequence = 20
    history.has_read_on()
    assert index.load_state(EPOCHS) == {cell.cell.uuid: "present"}
    assert history.accepts({EPOCH_HEADER: "present", SEQUENCE_HEADER: 21})
    cell.epochs = [("lost", 0), ("present", 15), ("newest", 18)]
    with pytest.raises(CellRestoredError):
        history.has_read_on()


def test_watermark_that_somebody_saved_in_a_lost_future_is_none_to_go_on_from() -> None:
    cell, index = MemoryCell(), MemoryIndex()
    cell.epochs = [("lost", 0), ("present", 10)]
    history = History(cell, index, lambda: 5)
    for known, is_covered in (("lost", False), ("present", True), (BEING_RECONCILED, False)):
        index.save_state(EPOCHS, {cell.cell.uuid: known})
        assert history.covers(11) is is_covered


def test_indexer_that_begins_while_another_repairs_sees_that_it_was_repaired(cell: NumberedCell) -> None:
    """It repaired everything once more when it got the lease just after the other one had ended."""
    index = MemoryIndex()
    other = History(cell, index, lambda: 0)
    assert not other.was_restored()
    other.begin_reconcile()
    history = History(cell, index, lambda: 0)
    assert history.was_restored()
    assert not history.was_reconciled_by_another()
    other.end_reconcile()
    assert history.was_reconciled_by_another()


def test_indexer_that_looks_between_the_last_two_writes_of_a_repair_sees_that_it_was_repaired(
    cell: NumberedCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, looks = MemoryIndex(), list[bool]()
    other, history = History(cell, index, lambda: 0), History(cell, index, lambda: 0)
    assert not other.was_restored()
    other.begin_reconcile()
    save = index.save_state

    def save_and_be_looked_at(kind: str, states: Mapping[str, object]) -> None:
        save(kind, states)
        if kind == RECONCILIATIONS:
            looks.append(history.was_restored())

    monkeypatch.setattr(index, "save_state", save_and_be_looked_at)
    other.end_reconcile()
    assert looks == [True]
    assert history.was_reconciled_by_another()
