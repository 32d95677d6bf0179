"""A pace is kept on average, whoever spends, and a pause before does not allow a rush."""

from threading import Event

from fleetlight.indexer.writing.throttle import Throttle


class FakeTime:
    """A clock that only moves when somebody pauses."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def pause(self, wait_s: float) -> None:
        self.pauses.append(wait_s)
        self.now_s += wait_s


def test_rows_take_the_time_that_their_rate_says() -> None:
    time = FakeTime()
    pace = Throttle(50, Event(), clock=time.clock, pause=time.pause)
    for rows in (100, 50, 25):
        pace.spend(rows)
    assert time.pauses == [2.0, 1.0, 0.5]


def test_time_that_reading_takes_counts_and_is_not_saved_up() -> None:
    time = FakeTime()
    pace = Throttle(50, Event(), clock=time.clock, pause=time.pause)
    pace.spend(50)
    time.now_s += 10
    pace.spend(50)
    assert time.pauses == [1.0, 1.0]


def test_no_rate_is_no_limit() -> None:
    time = FakeTime()
    pace = Throttle(None, Event(), clock=time.clock, pause=time.pause)
    pace.spend(1_000_000)
    assert pace.takes_s(1_000_000) == 0
    assert time.pauses == []


def test_stopping_ends_the_wait() -> None:
    stop = Event()
    stop.set()
    Throttle(0.001, stop).spend(1_000_000)
