"""Add native cells to the fleet."""

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
    """Add a cell, upgrade its database and register the instances in it. fleet_url: address of the fleet database.

    Raises ConfigurationError if a known cell would get a database that has none of its instances.
    """
    known = fleet.cells()
    before = next((cell for cell in known if cell.name == name and cell.kind is CellKind.NATIVE), None)
    # Upgrade first: a process that finds the cell in the registry may read it at once.
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
    """Refuse a database that has none of the cell's instances: one that was moved or restored would have some.

    This comes before the upgrade, since after it an empty database would look like the cell's.
    cell: with its new database. Raises ConfigurationError, and CellUnreachableError if the database does not answer.
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
