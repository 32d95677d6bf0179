"""How late an answer is, is how long this process did nothing but wait for it."""

import time
from threading import Event

from fleetlight.cells.daemon_threads import have_answered, in_background


def test_process_that_computes_does_not_count_that_as_waiting() -> None:
    ends_at_s = time.process_time() + 0.6

    def compute() -> None:
        while time.process_time() < ends_at_s:
            pass

    assert have_answered([in_background(compute, "computes")], 0.1)


def test_one_that_says_nothing_is_given_up() -> None:
    answer = Event()
    hanging = in_background(answer.wait, "hangs")
    try:
        assert not have_answered([hanging], 0.2)
    finally:
        answer.set()
    assert have_answered([hanging], 60)
