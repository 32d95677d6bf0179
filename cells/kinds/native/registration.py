"""Registration of a native cell: how it joins a fleet, and comes back into one whose database was lost: as the cell
that it was.

Documents of an index, queues and numbers of jobs go by uuid and number of the cell, so its database has both, too.
"""

from sqlalchemy import Engine, or_, select, update

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import writing
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import cell_state


def register_native_cell(fleet: Fleet, engine: Engine, name: str, database_url: str, transport_url: str) -> Cell:
    """Register a cell as `Fleet.add_cell` does; a new one as what it was before, unless another cell is that.

    engine: of its database, with the newest schema.
    """
    cells = fleet.cells()
    uuid = number = None
    if all(cell.name != name for cell in cells):
        with engine.connect() as connection:
            uuid, number = connection.execute(select(cell_state.c.uuid, cell_state.c.number)).one()
        if any(cell.uuid == uuid for cell in cells):
            # This is a copy of the database of that cell.
            uuid = number = None
    cell = fleet.add_cell(name, CellKind.NATIVE, database_url, transport_url, uuid=uuid, number=number)
    remember_cell(engine, cell)
    return cell


def remember_cell(engine: Engine, cell: Cell) -> None:
    """Note in the database of a cell which one it is."""
    columns = cell_state.c
    is_another = or_(columns.uuid.is_distinct_from(cell.uuid), columns.number.is_distinct_from(cell.number))
    with engine.connect() as connection:
        if connection.execute(select(columns.id).where(is_another)).first() is None:
            return
    with writing(engine) as connection:
        connection.execute(update(cell_state).values(uuid=cell.uuid, number=cell.number))
