import pytest

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.writing.progress import ProgressTracker


def tracker(watermark: int = 0, *, is_complete: bool = True, now: int = 10_000) -> ProgressTracker:
    return ProgressTracker(CellProgress("c0", watermark, 0, is_complete), lambda: now)


def test_watermark_stops_before_a_hole_and_jumps_when_it_closes() -> None:
    progress = tracker()
    progress.add([1, 2, 4, 5])
    assert progress.watermark == 2
    progress.add([3])
    assert progress.watermark == 5


def test_sequences_that_are_covered_already_change_nothing() -> None:
    progress = tracker(10)
    progress.add([3, 10, 1])
    assert progress.watermark == 10


def test_heartbeat_makes_fresh_once_the_watermark_has_reached_its_sequence() -> None:
    progress = tracker()
    progress.heard(2, at=500)
    assert progress.snapshot().fresh_as_of == 0
    progress.add([1])
    assert progress.snapshot().fresh_as_of == 0
    progress.add([2])
    assert progress.snapshot().fresh_as_of == 500


def test_freshness_grows_under_a_steady_lag_with_any_number_of_heartbeats() -> None:
    progress = tracker()
    for beat in range(1, 201):
        progress.heard(beat + 5, at=beat)
    progress.add(range(1, 20))
    assert progress.snapshot().fresh_as_of == 14
    progress.add(range(20, 206))
    assert progress.snapshot().fresh_as_of == 200


def test_heartbeat_that_is_delivered_again_does_not_turn_freshness_back() -> None:
    progress = tracker(watermark=3)
    for at in (100, 200, 300, 200, 100):
        progress.heard(3, at=at)
        progress.add([])
    assert progress.snapshot().fresh_as_of == 300


def test_heartbeat_from_before_a_restart_does_not_turn_freshness_back() -> None:
    progress = ProgressTracker(CellProgress("c0", 3, 500, is_complete=True), lambda: 10_000)
    progress.heard(3, at=400)
    assert progress.snapshot().fresh_as_of == 500


def test_moment_that_has_not_come_yet_counts_as_now_and_freshness_goes_on_from_there() -> None:
    now = 3_600
    progress = ProgressTracker(CellProgress("c0", 3, 0, is_complete=True), lambda: now)
    progress.heard(3, at=7_200)
    assert progress.snapshot().fresh_as_of == 3_600
    progress.heard(3, at=3_500)
    assert progress.snapshot().fresh_as_of == 3_600
    now = 3_800
    progress.heard(3, at=3_700)
    assert progress.snapshot().fresh_as_of == 3_700


def test_saved_moment_that_has_not_come_yet_is_replaced_by_the_next_heartbeat() -> None:
    progress = ProgressTracker(CellProgress("c0", 3, 7_200, is_complete=True), lambda: 3_600)
    progress.heard(3, at=3_500)
    assert progress.snapshot().fresh_as_of == 3_500


def test_hole_has_an_age_from_when_it_is_first_looked_at() -> None:
    progress = tracker()
    assert progress.hole_age_s(now_s=10.0) == 0
    progress.add([2])
    assert progress.hole_age_s(now_s=20.0) == 0
    assert progress.hole_age_s(now_s=23.0) == pytest.approx(3)
    progress.add([1, 4])
    assert progress.hole_age_s(now_s=30.0) == 0, "another hole, whose time starts now"


def test_heartbeat_reveals_a_hole_at_the_end() -> None:
    progress = tracker(3)
    progress.heard(4, at=1)
    progress.hole_age_s(now_s=1.0)
    assert progress.hole_age_s(now_s=2.0) == pytest.approx(1)


def test_age_of_a_hole_starts_again_after_a_repair_that_did_not_close_it() -> None:
    progress = tracker(3)
    progress.heard(4, at=1)
    progress.hole_age_s(now_s=1.0)
    progress.forget_hole()
    assert progress.hole_age_s(now_s=9.0) == 0


def test_advancing_takes_up_what_arrived_beyond() -> None:
    progress = tracker()
    progress.add([5, 6, 9])
    progress.advance_to(4)
    assert progress.watermark == 6
    progress.advance_to(2)
    assert progress.watermark == 6


def test_cell_is_not_complete_while_an_instance_could_not_be_indexed() -> None:
    progress = tracker()
    progress.mark_unindexed("a")
    assert not progress.snapshot().is_complete
    progress.mark_indexed(["b", "a"])
    assert progress.snapshot().is_complete


def test_starting_over_promises_nothing_until_synced() -> None:
    progress = tracker(7)
    progress.heard(7, at=5)
    progress.start_over()
    assert progress.needs_sync
    assert progress.snapshot() == CellProgress("c0", 0, 0, is_complete=False)
    progress.advance_to(9)
    progress.mark_synced()
    assert progress.snapshot() == CellProgress("c0", 9, 0, is_complete=True)


def test_numbers_that_the_cell_has_not_given_out_are_forgotten() -> None:
    progress = tracker()
    progress.add([1, 2, 10**15])
    progress.heard(10**15 + 1, at=500)
    assert progress.hole_age_s(1) == 0
    assert progress.hole_age_s(7) == 6
    progress.disbelieve_beyond(4)
    assert progress.highest_known == 4
    progress.add([3, 4])
    assert progress.hole_age_s(9) == 0
    assert progress.watermark == 4
    progress.heard(4, at=600)
    assert progress.snapshot().fresh_as_of == 600


def test_what_was_written_is_believed_whatever_the_cell_says() -> None:
    progress = tracker(7)
    progress.disbelieve_beyond(3)
    assert (progress.watermark, progress.highest_known) == (7, 7)
