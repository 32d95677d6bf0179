"""What time it is for a fleet, and when a process cannot know; with a database that only tells the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from fleetlight.cells.fleet.clock_metrics import measure_clock
from fleetlight.cells.fleet.fleet_clock import FleetClock

_S = 1_000_000
_BEGAN = 1_790_000_000 * _S


class Times:
    """The clock of the database, and both clocks of a machine."""

    def __init__(self) -> None:
        self.engine = SimpleNamespace(dialect=SimpleNamespace(name="postgresql"))
        self.database = self.own = _BEGAN
        self.monotonic_ns = 7
        self.answer_takes_s = 0.0

    def passes(self, duration_s: float) -> None:
        self.database += round(duration_s * _S)
        self.own += round(duration_s * _S)
        self.monotonic_ns += round(duration_s * 1e9)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        yield SimpleNamespace(execute=lambda _: SimpleNamespace(scalar_one=self._answer))

    def _answer(self) -> int:
        """The database says what time it is, and its answer is on the way for long."""
        now = self.database
        self.passes(self.answer_takes_s)
        return now


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def clock(times: Times) -> FleetClock:
    return FleetClock(cast(Any, times), lambda: times.own, lambda: times.monotonic_ns)


def test_time_is_that_of_the_database_and_not_known_before_it_was_looked_at(times: Times, clock: FleetClock) -> None:
    times.own -= 15 * _S
    assert not clock.is_sure
    clock.look()
    times.passes(3)
    assert (clock(), clock.is_sure, clock.agrees, clock.offset_s) == (times.database, True, False, -15)


def test_answer_that_was_on_its_way_for_long_counts_for_nothing(times: Times, clock: FleetClock) -> None:
    times.own -= 15 * _S
    times.answer_takes_s = 4
    clock.look()
    assert not clock.is_sure
    times.answer_takes_s = 0
    clock.look()
    times.answer_takes_s = 4
    clock.look()
    assert (clock(), clock.is_sure) == (times.database, True)


@pytest.mark.parametrize("by_s", [-15, 15])
def test_clock_that_is_set_makes_the_time_unsure_until_the_next_look(
    times: Times, clock: FleetClock, by_s: int
) -> None:
    clock.look()
    times.own += by_s * _S
    assert (clock() == times.database, clock.is_sure) == (True, False)
    clock.look()
    assert (clock() == times.database, clock.is_sure, clock.agrees) == (True, True, False)


def test_machine_that_was_suspended_does_not_know_the_time_until_the_next_look(times: Times, clock: FleetClock) -> None:
    clock.look()
    monotonic_ns = times.monotonic_ns
    times.passes(60)
    times.monotonic_ns = monotonic_ns
    assert not clock.is_sure
    clock.look()
    assert (clock() == times.database, clock.is_sure, clock.agrees) == (True, True, True)


def test_clock_that_disagrees_is_told_of_once_and_when_it_agrees_again(times: Times, clock: FleetClock) -> None:
    times.own += 2 * _S
    with capture_logs() as logs:
        clock.look()
        times.passes(5)
        clock.look()
        times.own -= 2 * _S
        clock.look()
        clock.look()
    told = [(entry["event"], entry["offset_s"]) for entry in logs]
    assert told == [("clock.disagrees", 2.0), ("clock.agrees_again", 0.0)]


def test_offset_is_a_metric(times: Times, clock: FleetClock) -> None:
    registry = CollectorRegistry()
    measure_clock(registry, clock)
    clock.look()
    times.own += 3 * _S
    assert registry.get_sample_value("fleetlight_clock_offset_seconds") == 3.0


def test_time_of_a_fleet_in_a_file_is_that_of_its_machine(times: Times, clock: FleetClock) -> None:
    times.engine.dialect.name = "sqlite"
    clock.look()
    times.own += 3600 * _S
    assert (clock(), clock.is_sure, clock.agrees) == (times.own, True, True)
