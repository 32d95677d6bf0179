"""Cells of Fleetlight's own join the fleet."""

from contextlib import closing

from cells.adapters import open_adapter
from cells.fleet.adoption import map_instances
from cells.fleet.fleet import Fleet
from cells.model import CellKind
from cli.cells.joined import Joined
from cli.cells.new_cell import check_database_url, upgrade
from cli.database_accounts import renew_rights


def add_native_cell(fleet: Fleet, fleet_url: str, name: str, database_url: str, transport_url: str) -> Joined:
    """Add a cell with the newest schema, and what is in it; fleet_url: the address of the fleet database."""
    known = fleet.cells()
    # First the schema: whoever finds the cell in the registry may read it at once.
    upgrade(check_database_url(database_url, name, known), name)
    cell = fleet.add_cell(name, CellKind.NATIVE, database_url, transport_url)
    renew_rights(fleet_url, [cell])
    with closing(open_adapter(cell)) as adapter:
        instances = map_instances(adapter, fleet)
    return Joined(cell, all(cell.uuid != other.uuid for other in known), instances)
