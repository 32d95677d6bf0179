"""Fixtures: the databases of a fleet and of one native cell in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    engine = create_database_engine(f"sqlite:///{tmp_path}/fleet.db")
    upgrade_fleet(engine)
    yield Fleet(engine)
    engine.dispose()


@pytest.fixture
def cell(fleet: Fleet, tmp_path: Path) -> Cell:
    return fleet.add_cell("one", CellKind.NATIVE, f"sqlite:///{tmp_path}/one.db", "memory://")


@pytest.fixture
def engine(cell: Cell) -> Iterator[Engine]:
    """The database of `cell`."""
    engine = create_database_engine(cell.database_url)
    upgrade_cell(engine)
    yield engine
    engine.dispose()
