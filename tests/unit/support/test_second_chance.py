"""What gets no second chance: many failures, a skip, and whatever is about damage, completeness or tenancy."""

from pathlib import Path

import pytest

from tests.support.second_chance import AGAIN, ONE_CHANCE, may_run_again

CHECKOUT = Path(__file__).parents[3]
SLOW = ["tests/integration/test_up.py::test_one", "tests/clients/test_novaclient.py::test_two[a b]"]


def test_two_failures_may_be_looked_at_again_and_three_are_too_many() -> None:
    assert may_run_again(SLOW[:1], skipped=0)
    assert may_run_again(SLOW, skipped=0)
    assert not may_run_again([*SLOW, "tests/integration/test_up.py::test_three"], skipped=0)


def test_run_with_a_skip_has_failed_for_good() -> None:
    assert not may_run_again(SLOW, skipped=1)


def test_run_without_failures_does_not_run_again() -> None:
    assert not may_run_again([], skipped=0)


@pytest.mark.parametrize("place", ONE_CHANCE)
def test_test_about_damage_completeness_or_tenancy_has_one_chance(place: str) -> None:
    assert list(CHECKOUT.glob(f"{place}*")), "a folder or files that are there"
    assert not may_run_again([SLOW[0], f"{place}x.py::test_it"], skipped=0)


def test_script_runs_again_by_the_status_that_says_so() -> None:
    assert f"readonly again={AGAIN}\n" in (CHECKOUT / "scripts" / "test").read_text()
