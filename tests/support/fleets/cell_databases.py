"""The databases of a fleet and of one native cell in it: as fixtures, and for each example of a property."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import Engine

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell
from fleetlight.cli.data_folder import DataFolder
from fleetlight.manager.commands.embedded import EmbeddedCell, set_up_cells


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


def closed_cells(folder: DataFolder, fleet: Fleet, wanted: int) -> Sequence[EmbeddedCell]:
    """See `set_up_cells`. Nothing is left open."""
    cells = set_up_cells(folder, fleet, wanted)
    for each in cells:
        each.engine.dispose()
    return cells


@contextmanager
def native_cell() -> Iterator[tuple[Engine, Fleet, Cell]]:
    """The database of the only cell of a fleet, both in a folder that goes with them."""
    with TemporaryDirectory() as folder:
        fleet_engine = create_database_engine(f"sqlite:///{Path(folder) / 'fleet.db'}")
        upgrade_fleet(fleet_engine)
        fleet = Fleet(fleet_engine)
        cell = fleet.add_cell("one", CellKind.NATIVE, f"sqlite:///{Path(folder) / 'one.db'}", "memory://")
        engine = create_database_engine(cell.database_url)
        upgrade_cell(engine)
        try:
            yield engine, fleet, cell
        finally:
            engine.dispose()
            fleet.close()
