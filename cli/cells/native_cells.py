"""Cells of Fleetlight's own join the fleet."""

from contextlib import closing
from dataclasses import replace

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.fleet.adoption import map_instances
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.registration import register_native_cell
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.cells.joined import Joined
from fleetlight.cli.cells.new_cell import check_database_url, upgrade
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.output import counted
from fleetlight.cli.postgresql_rights import renew_rights
from fleetlight.query.filters import In
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID

_LOOKED_FOR = 500


def add_native_cell(fleet: Fleet, fleet_url: str, name: str, database_url: str, transport_url: str) -> Joined:
    """Add a cell with the newest schema, and what is in it; fleet_url: the address of the fleet database.

    Raises ConfigurationError when a known cell would get a database that has nothing of it.
    """
    known = fleet.cells()
    before = next((cell for cell in known if cell.name == name and cell.kind is CellKind.NATIVE), None)
    # First the schema: a process that finds the cell in the registry may read it at once.
    engine = check_database_url(database_url, name, known)
    if before is not None:
        _require_its_instances(fleet, replace(before, database_url=database_url))
    upgrade(engine, name)
    with cell_failures(name):
        cell = register_native_cell(fleet, engine, name, database_url, transport_url)
    engine.dispose()
    renew_rights(fleet_url, [cell])
    with closing(open_adapter(cell)) as adapter:
        instances = map_instances(adapter, fleet)
    return Joined(cell, before, instances)


def _require_its_instances(fleet: Fleet, cell: Cell) -> None:
    """A database that was moved, or restored, has instances of the cell; another one has none.

    Looked at before anything is made there, for an empty database would pass for the cell.
    cell: with the database that it is to have. Raises ConfigurationError, and CellUnreachableError where there is none.
    """
    known = [mapping.instance_uuid for mapping in fleet.mappings_of_cell(cell.uuid, limit=_LOOKED_FOR)]
    if not known:
        return
    with closing(open_adapter(cell)) as adapter:
        found = adapter.read_page(PageRequest(In("uuid", tuple(known)), INSTANCES_BY_UUID, 1, fields=("uuid",)))
    if not found:
        raise ConfigurationError(
            f"--database-url: this is another database than that of cell {cell.name}, which has "
            f"{counted(fleet.count_mappings(cell.uuid), 'instance')}, and has none of those; "
            f"add it as a cell of another name, or remove {cell.name} first: `fleetlight cell remove {cell.name}`"
        )
