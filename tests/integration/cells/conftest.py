"""A fleet with one native cell, on each kind of database: the same tests hold both to the same contract."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Engine

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell
from tests.support.fleets.acting_cell import acting
from tests.support.fleets.instance_operations import InstanceOperations

__all__ = ["acting"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """A function that returns the URL of an empty database."""
    if request.param == "postgresql":
        make: Callable[[], str] = request.getfixturevalue("new_postgresql_database")
        return make
    numbers = count()
    return lambda: f"sqlite:///{tmp_path}/database-{next(numbers)}.db"


@pytest.fixture
def fleet(new_database: Callable[[], str]) -> Iterator[Fleet]:
    engine = create_database_engine(new_database())
    upgrade_fleet(engine)
    yield Fleet(engine)
    engine.dispose()


@pytest.fixture
def cell(fleet: Fleet, new_database: Callable[[], str]) -> Cell:
    return fleet.add_cell("one", CellKind.NATIVE, new_database(), "memory://")


@pytest.fixture
def engine(cell: Cell) -> Iterator[Engine]:
    """The database of `cell`."""
    engine = create_database_engine(cell.database_url)
    upgrade_cell(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def clock() -> Callable[[], int]:
    """Each look at it is a second later than the one before."""
    times = count(1_800_000_000_000_000, 1_000_000)
    return lambda: next(times)


@pytest.fixture
def operations(engine: Engine, fleet: Fleet, cell: Cell, clock: Callable[[], int]) -> InstanceOperations:
    return InstanceOperations(engine, fleet, cell, clock)
