"""What time it is for a fleet is said by its database, and by no machine."""

from pathlib import Path

import pytest

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.fleet_clock import FleetClock
from fleetlight.resources.clock import system_clock

_HOUR_S = 3600
_SECOND = 1_000_000


class Machine:
    """A machine whose clock is turned, and which may be suspended."""

    def __init__(self) -> None:
        self.shifted = self.monotonic_ns = 0

    def now(self) -> int:
        return system_clock() + self.shifted


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.postgresql
@pytest.mark.parametrize("hours", [-1, 1])
def test_clock_of_a_machine_counts_for_nothing_once_the_database_was_looked_at(
    machine: Machine, postgresql_url: str, hours: int
) -> None:
    engine = create_database_engine(postgresql_url)
    clock = FleetClock(FleetDatabase(engine), machine.now, lambda: machine.monotonic_ns)
    before = system_clock()
    clock.look()
    after = system_clock()
    machine.shifted = hours * _HOUR_S * _SECOND
    assert before - _SECOND < clock() < after + _SECOND
    first = clock()
    machine.monotonic_ns += 5_000_000_000
    assert clock() == first + 5 * _SECOND
    # It was suspended for an hour, in which its own clocks stood still.
    machine.monotonic_ns -= _HOUR_S * 1_000_000_000
    clock.look()
    assert before - _SECOND < clock() < system_clock() + _SECOND
    engine.dispose()


def test_clock_of_a_fleet_in_a_file_is_that_of_its_machine(machine: Machine, tmp_path: Path) -> None:
    engine = create_database_engine(f"sqlite:///{tmp_path}/fleet.db")
    clock = FleetClock(FleetDatabase(engine), machine.now)
    clock.look()
    machine.shifted = _HOUR_S * _SECOND
    assert system_clock() < clock() - machine.shifted + _SECOND
    assert clock() > system_clock() + machine.shifted // 2
    engine.dispose()


def test_clock_goes_on_while_the_database_is_away(machine: Machine) -> None:
    engine = create_database_engine("postgresql+psycopg://127.0.0.1:1/fleet")
    clock = FleetClock(FleetDatabase(engine), machine.now)
    with pytest.raises(FleetUnreachableError):
        clock.look()
    assert abs(clock() - system_clock()) < _SECOND
    engine.dispose()
