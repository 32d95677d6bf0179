"""Native cells that come back into a fleet whose database was lost, on both databases: each is what it was."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, update

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.registration import register_native_cell, remember_cell
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import cell_state

NewDatabase = Callable[[], str]
Joins = Callable[[Fleet, str, str], Cell]


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    engine = create_database_engine(url)
    yield engine
    engine.dispose()


@contextmanager
def new_fleet(url: str) -> Iterator[Fleet]:
    with opened(url) as engine:
        upgrade_fleet(engine)
        yield Fleet(engine)


def joined(fleet: Fleet, name: str, url: str) -> Cell:
    with opened(url) as engine:
        upgrade_cell(engine)
        return register_native_cell(fleet, engine, name, url, "memory://")


@pytest.fixture
def lost(fleet: Fleet, new_database: NewDatabase) -> dict[str, Cell]:
    """The cells of a fleet whose database is not there any more."""
    return {name: joined(fleet, name, new_database()) for name in ("one", "two", "three")}


def test_cells_come_back_with_their_uuids_and_numbers_in_whatever_order(
    lost: dict[str, Cell], new_database: NewDatabase
) -> None:
    assert [cell.number for cell in lost.values()] == [1, 2, 3]
    with new_fleet(new_database()) as fleet:
        for name in ("three", "one"):
            assert joined(fleet, name, lost[name].database_url) == lost[name]
        new = joined(fleet, "new", new_database())
        assert new.number == 4
        # By another name too.
        again = joined(fleet, "second", lost["two"].database_url)
        assert (again.uuid, again.number) == (lost["two"].uuid, 2)
        assert fleet.cell_keys.of_cells().keys() == {cell.uuid for cell in fleet.cells()}


def test_copy_of_a_database_is_another_cell_and_number_that_was_given_away_is_not_given_twice(
    fleet: Fleet, lost: dict[str, Cell], new_database: NewDatabase
) -> None:
    copy = new_database()
    with opened(copy) as engine:
        upgrade_cell(engine)
        remember_cell(engine, lost["one"])
    other = joined(fleet, "copy", copy)
    assert other.uuid != lost["one"].uuid
    assert other.number == 4
    with new_fleet(new_database()) as later:
        joined(later, "first", new_database())
        assert (joined(later, "one", lost["one"].database_url).uuid, later.cell("one").number) == (lost["one"].uuid, 2)


def test_cell_from_before_keeps_what_the_fleet_knows(fleet: Fleet, lost: dict[str, Cell]) -> None:
    with opened(lost["two"].database_url) as engine:
        with engine.begin() as connection:
            connection.execute(update(cell_state).values(uuid=None, number=None))
        assert register_native_cell(fleet, engine, "two", lost["two"].database_url, "memory://") == lost["two"]
        with engine.connect() as connection:
            assert connection.execute(cell_state.select()).one().uuid == lost["two"].uuid
