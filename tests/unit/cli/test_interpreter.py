"""What processes set before they begin to work."""

import sys
from collections.abc import Iterator

import pytest

from fleetlight.cli.interpreter import share_among_threads


@pytest.fixture(autouse=True)
def _interval_stays() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(("threads", "expected_s"), [(1, 0.005), (50, 0.005), (1000, 0.1)])
def test_threads_of_many_cells_keep_the_interpreter_for_longer(threads: int, expected_s: float) -> None:
    sys.setswitchinterval(0.005)
    share_among_threads(threads)
    assert sys.getswitchinterval() == pytest.approx(expected_s)


def test_longer_interval_of_the_same_process_stays() -> None:
    sys.setswitchinterval(0.02)
    share_among_threads(8)
    assert sys.getswitchinterval() == pytest.approx(0.02)
