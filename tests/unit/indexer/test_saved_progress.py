"""What of the progress of followers is saved, where several indexers follow the same cell."""

from dataclasses import replace

import pytest

from fleetlight.cells.epochs import EpochHistory
from fleetlight.indexer.backends.base import BEING_RECONCILED, COMMIT_LOGS, EPOCHS, CellProgress, LogState
from fleetlight.indexer.stream.saved_progress import ReachedProgress, SavedProgress, saved_log
from tests.support.memory.memory_cell import CELL_UUID, NOW
from tests.support.memory.memory_index import MemoryIndex

KNOWN = EpochHistory([("first", 0), ("second", 7)])


def reached(
    watermark: int, *, is_complete: bool = True, started_over: int = 0, epoch_history: EpochHistory | None = None
) -> ReachedProgress:
    return ReachedProgress(
        CellProgress(CELL_UUID, watermark, watermark, is_complete=is_complete), started_over, epoch_history
    )


@pytest.fixture
def index() -> MemoryIndex:
    return MemoryIndex()


def indexer(index: MemoryIndex) -> SavedProgress:
    saved = SavedProgress(index, lambda: NOW)
    saved.learn({CELL_UUID})
    return saved


def test_indexer_that_has_started_over_saves_no_lower_progress_when_it_has_promised_again(index: MemoryIndex) -> None:
    one, other = indexer(index), indexer(index)
    other.save([reached(10)])
    one.save([reached(0, is_complete=False, started_over=1)])
    assert index.saved[CELL_UUID].watermark == 0, "what was promised is not true any more"
    one.save([reached(5, started_over=1)])
    other.save([reached(12)])
    one.save([reached(6, started_over=1)])
    assert index.saved[CELL_UUID].watermark == 12
    one.save([reached(0, is_complete=False, started_over=2)])
    assert index.saved[CELL_UUID].watermark == 0


def test_progress_from_before_a_start_does_not_count_as_the_promise_after_it(index: MemoryIndex) -> None:
    one, other = indexer(index), indexer(index)
    one.save([reached(4, started_over=0)])
    other.save([reached(12)])
    one.save([reached(0, is_complete=False, started_over=1)])
    one.save([reached(1, is_complete=False, started_over=1)])
    assert index.saved[CELL_UUID].watermark == 1


@pytest.mark.parametrize(
    ("epoch", "is_saved"),
    [("first", True), ("second", True), (None, True), ("third", False), (BEING_RECONCILED, False)],
)
def test_indexer_that_does_not_know_the_epoch_of_the_index_saves_nothing(
    index: MemoryIndex, epoch: str | None, is_saved: bool
) -> None:
    """The cell may have been restored, and its watermark be that of a lost future."""
    one = indexer(index)
    index.save_state(EPOCHS, {CELL_UUID: epoch})
    one.save([reached(10, epoch_history=KNOWN)])
    assert (CELL_UUID in index.saved) is is_saved
    if not is_saved:
        one.save([reached(10, epoch_history=EpochHistory([*KNOWN.epochs, ("third", 10)]))])
        assert (CELL_UUID in index.saved) is (epoch == "third"), "it was not forgotten"


def test_indexer_that_repairs_takes_back_what_was_promised_also_of_the_index_that_is_being_repaired(
    index: MemoryIndex,
) -> None:
    other, one = indexer(index), indexer(index)
    other.save([reached(10)])
    index.save_state(EPOCHS, {CELL_UUID: BEING_RECONCILED})
    one.save([reached(0, is_complete=False, started_over=1, epoch_history=KNOWN)])
    assert not index.saved[CELL_UUID].is_complete


@pytest.fixture(params=[(0, False), (5, True)], ids=["while it repairs", "after it has repaired"])
def one_whose_promise_was_taken_back(index: MemoryIndex, request: pytest.FixtureRequest) -> SavedProgress:
    """Another indexer repairs the cell, which is still called by the epoch from before its restore."""
    watermark, is_complete = request.param
    one = indexer(index)
    index.save_state(EPOCHS, {CELL_UUID: "second"})
    one.save([reached(13, epoch_history=KNOWN)])
    index.save_progress([CellProgress(CELL_UUID, watermark, 0, is_complete=is_complete)])
    return one


def test_indexer_does_not_repeat_a_promise_that_another_has_taken_back(
    index: MemoryIndex, one_whose_promise_was_taken_back: SavedProgress
) -> None:
    promised = index.saved[CELL_UUID]
    assert one_whose_promise_was_taken_back.save([reached(14, epoch_history=KNOWN)]) == {CELL_UUID}
    assert index.saved[CELL_UUID] == promised


def test_promise_that_is_taken_back_while_another_is_being_saved_stays_taken_back(index: MemoryIndex) -> None:
    one, other = indexer(index), indexer(index)
    other.save([reached(10, epoch_history=KNOWN)])
    one.learn({CELL_UUID})
    index.overtaken_by = lambda: one.save([reached(0, is_complete=False, started_over=1, epoch_history=KNOWN)])
    assert other.save([reached(12, epoch_history=KNOWN)]) == frozenset()
    assert not index.saved[CELL_UUID].is_complete
    assert other.save([reached(13, epoch_history=KNOWN)]) == {CELL_UUID}, "it has to learn what is there"
    assert not index.saved[CELL_UUID].is_complete


def test_promise_after_a_start_is_not_saved_over_one_that_was_taken_back_meanwhile(index: MemoryIndex) -> None:
    one, other = indexer(index), indexer(index)
    other.save([reached(10, epoch_history=KNOWN)])
    other.save([reached(0, is_complete=False, started_over=1, epoch_history=KNOWN)])
    one.learn({CELL_UUID})
    index.overtaken_by = lambda: one.save([reached(1, is_complete=False, started_over=1, epoch_history=KNOWN)])
    other.save([reached(12, started_over=1, epoch_history=KNOWN)])
    assert not index.saved[CELL_UUID].is_complete


def test_indexer_that_has_saved_nothing_yet_does_not_complete_what_another_has_begun(index: MemoryIndex) -> None:
    one = indexer(index)
    index.save_state(EPOCHS, {CELL_UUID: "second"})
    index.save_progress([CellProgress(CELL_UUID, 0, 0, is_complete=False)])
    assert one.save([reached(13, epoch_history=KNOWN)]) == {CELL_UUID}
    assert not index.saved[CELL_UUID].is_complete


def test_indexer_promises_again_when_it_has_learnt_what_was_taken_back(
    index: MemoryIndex, one_whose_promise_was_taken_back: SavedProgress
) -> None:
    one_whose_promise_was_taken_back.learn({CELL_UUID})
    assert not one_whose_promise_was_taken_back.save([reached(14, epoch_history=KNOWN)])
    assert index.saved[CELL_UUID].is_complete


def test_indexer_promises_again_when_it_has_started_over_itself(
    index: MemoryIndex, one_whose_promise_was_taken_back: SavedProgress
) -> None:
    assert not one_whose_promise_was_taken_back.save([reached(14, started_over=1, epoch_history=KNOWN)])
    assert index.saved[CELL_UUID].is_complete


def test_cell_without_epochs_is_completed_by_whoever_has_compared_it(index: MemoryIndex) -> None:
    one = indexer(index)
    one.save([reached(0)])
    index.save_progress([CellProgress(CELL_UUID, 0, 0, is_complete=False)])
    assert not one.save([reached(1)])
    assert index.saved[CELL_UUID].is_complete


def test_reason_for_comparing_a_cell_is_saved_before_there_is_progress_and_stays_while_another_follows(
    index: MemoryIndex,
) -> None:
    one, other = indexer(index), indexer(index)
    nothing = reached(0, is_complete=False)
    one.save([replace(nothing, log=LogState(problem="it keeps no log"))])
    other.save([nothing])
    assert index.load_state(COMMIT_LOGS) == {CELL_UUID: {"positions": {}, "problem": "it keeps no log"}}
    one.save([replace(nothing, log=LogState())])
    assert index.load_state(COMMIT_LOGS)[CELL_UUID]["problem"] is None


def test_positions_that_another_version_has_saved_are_none(index: MemoryIndex) -> None:
    index.save_state(COMMIT_LOGS, {CELL_UUID: {"positions": {"db:3306": {"file": "log.000001"}}}})
    assert saved_log(index, CELL_UUID) == LogState()
    facts = {(COMMIT_LOGS, CELL_UUID): index.load_state(COMMIT_LOGS)[CELL_UUID]}
    assert reached(1).progress.with_facts(facts).log is None
