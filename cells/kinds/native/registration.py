"""Registers a native cell in a fleet, under its former identity if the fleet database was lost.

Documents, queues and numbers of jobs contain the uuid or number of the cell, so its own database stores both as well.
"""

from sqlalchemy import Engine, or_, select, update

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import writing
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import cell_state


def register_native_cell(fleet: Fleet, engine: Engine, name: str, database_url: str, transport_url: str) -> Cell:
    """Register a cell by `Fleet.add_cell`, with the uuid and number in its database unless another cell has them.

    engine: of its database, with the newest schema. Raises as `Fleet.add_cell`, and what SQLAlchemy raises.
    """
    cells = fleet.cells()
    uuid = number = None
    if all(cell.name != name for cell in cells):
        with engine.connect() as connection:
            uuid, number = connection.execute(select(cell_state.c.uuid, cell_state.c.number)).one()
        if any(cell.uuid == uuid for cell in cells):
            # The database is a copy of that cell's.
            uuid = number = None
    cell = fleet.add_cell(name, CellKind.NATIVE, database_url, transport_url, uuid=uuid, number=number)
    remember_cell(engine, cell)
    return cell


def remember_cell(engine: Engine, cell: Cell) -> None:
    """Store the uuid and number of a cell in its database."""
    columns = cell_state.c
    is_another = or_(columns.uuid.is_distinct_from(cell.uuid), columns.number.is_distinct_from(cell.number))
    with engine.connect() as connection:
        if connection.execute(select(columns.id).where(is_another)).first() is None:
            return
    with writing(engine) as connection:
        connection.execute(update(cell_state).values(uuid=cell.uuid, number=cell.number))
