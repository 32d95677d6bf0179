"""Changes of the native cells that an application has open (fleetlight.cells.fan_out.native_cells).

Each function raises CellUnreachableError: at once if the address of the cell cannot be used.
"""

from collections.abc import Mapping
from typing import Any

from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.manager.operations.actions.accepting import Acceptance
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes
from fleetlight.manager.operations.instances.instance_migrations import finished_migration


def nodes_in(native: NativeCells, cell: Cell) -> CellNodes:
    """Return the hosts of `cell`."""
    return CellNodes(native.engine(cell), cell)


def acceptance_in(native: NativeCells, fleet: Fleet, cell: Cell) -> Acceptance:
    """Return the Acceptance of `cell`."""
    return Acceptance(native.engine(cell), fleet, cell, max_attempts=native.max_attempts)


def flavor_before_resize(native: NativeCells, cell: Cell, instance_uuid: str) -> Mapping[str, Any] | None:
    """Return the flavor (FlavorPayload) that a revert restores. Raises NotResizedError if there is no resize."""
    with cell_failures(cell.name), native.engine(cell).connect() as connection:
        flavor: Mapping[str, Any] | None = finished_migration(connection, instance_uuid).old_instance["flavor"]
    return flavor
