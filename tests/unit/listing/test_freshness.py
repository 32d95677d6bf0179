"""For which cells the index may answer, at the very limits, and how old it is said to be."""

import pytest

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.listing.answer import Consistency, Freshness

NOW = 1_790_000_000_000_000
FRESHNESS = Freshness(NOW, 2.5)


def progress(age_us: int, *, is_complete: bool = True) -> CellProgress:
    return CellProgress("c", 7, NOW - age_us, is_complete=is_complete)


@pytest.mark.parametrize(
    ("age_us", "is_complete"),
    [(0, True), (2_500_000, True), (2_500_001, False), (-2_000_000, True), (-2_000_001, False)],
)
def test_index_is_complete_up_to_the_limit_and_not_behind_it(age_us: int, is_complete: bool) -> None:
    assert FRESHNESS.is_complete(progress(age_us)) is is_complete
    assert FRESHNESS.answers(progress(age_us), Consistency.BOUNDED) is is_complete
    assert FRESHNESS.answers(progress(age_us), Consistency.ANY)
    assert not FRESHNESS.answers(progress(age_us), Consistency.STRONG)


def test_cell_whose_rows_are_not_all_there_is_never_complete() -> None:
    assert not FRESHNESS.is_complete(progress(0, is_complete=False))


@pytest.mark.parametrize("consistency", Consistency)
def test_cell_that_the_index_does_not_follow_is_asked_itself(consistency: Consistency) -> None:
    assert not FRESHNESS.answers(None, consistency)


@pytest.mark.parametrize(("age_us", "behind_s", "age_s"), [(3_000_000, 3.0, 3.0), (0, 0.0, 0.0), (-500_000, -0.5, 0.0)])
def test_age_is_in_seconds_and_never_negative(age_us: int, behind_s: float, age_s: float) -> None:
    assert (FRESHNESS.behind_s(progress(age_us)), FRESHNESS.age_s(progress(age_us))) == (behind_s, age_s)
