"""The fleet in a data folder: native cells on SQLite, created when missing and never removed."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import structlog
from sqlalchemy import Engine

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, translated_failures
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.adoption import map_instances
from fleetlight.cells.fleet.compute.quotas import UNLIMITED
from fleetlight.cells.fleet.database import translated_fleet_failures
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.registration import register_native_cell
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import FailureLimits
from fleetlight.cli.data_folder import DataFolder, sqlite_url
from fleetlight.cli.fleet import IN_PROCESS_BUS
from fleetlight.manager.operations.actions.accepting import Acceptance
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes
from fleetlight.manager.operations.simulation.simulated_instances import HOSTS_PER_CELL, new_hosts
from fleetlight.manager.operations.simulation.simulator import SimulatedCell

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EmbeddedCell:
    """A cell of the folder, its database, and its number of hosts.

    is_down: its database is missing, or belongs to another cell; parts that work on it wait until that changes.
    """

    cell: Cell
    engine: Engine
    host_count: int
    is_down: bool = False

    def simulated(self, fleet: Fleet) -> SimulatedCell:
        acceptance = Acceptance(self.engine, fleet, self.cell)
        return SimulatedCell(self.cell, self.engine, fleet, acceptance, self.host_count)


def set_up_fleet(folder: DataFolder, limits: FailureLimits | None = None) -> Fleet:
    """Open the folder's fleet database with the newest schema. Raises FleetUnreachableError."""
    engine = create_database_engine(sqlite_url(folder.fleet_database))
    with translated_fleet_failures():
        upgrade_fleet(engine)
    return Fleet(engine, limits)


def set_up_cells(
    folder: DataFolder, fleet: Fleet, wanted: int, host_count: int = HOSTS_PER_CELL
) -> Sequence[EmbeddedCell]:
    """Set up the cells of the folder with the newest schemas: existing ones, and cell1, cell2, … up to `wanted`.

    A fleet without cells, for example after the loss of its database, gets the cells with databases in the folder.
    host_count: the least number of simulated hosts for each. Raises FleetUnreachableError, and CellUnreachableError for
    a new cell; a known cell is then set up as down.
    """
    known = {cell.name: cell for cell in fleet.cells()}
    names = known.keys() | {f"cell{number}" for number in range(1, wanted + 1)}
    if not known:
        names |= {database.stem for database in folder.cell_databases()}
    in_order = sorted(names, key=lambda name: (len(name), name))
    return [_set_up_cell(folder, fleet, name, known.get(name), host_count) for name in in_order]


def _set_up_cell(folder: DataFolder, fleet: Fleet, name: str, known: Cell | None, host_count: int) -> EmbeddedCell:
    """known: the cell in the registry. A database is created only for a new cell."""
    url = sqlite_url(folder.cell_database(name))
    engine = create_database_engine(url, cell_uuid=None if known is None else known.uuid)
    try:
        with translated_failures(partial(CellUnreachableError, name)):
            upgrade_cell(engine)
            # Register known cells again, since the folder may have been moved.
            cell = register_native_cell(fleet, engine, name, url, IN_PROCESS_BUS)
    except CellUnreachableError as error:
        if known is None:
            engine.dispose()
            raise
        _log.error("cell.down", cell=name, reason=error.reason)
        # Register the place where its database should be.
        cell = fleet.add_cell(name, CellKind.NATIVE, url, IN_PROCESS_BUS)
        return EmbeddedCell(cell, engine, host_count, is_down=True)
    if known is None:
        # The folder may still have the database of a cell that was removed.
        with closing(open_adapter(cell)) as adapter:
            map_instances(adapter, fleet)
    nodes = CellNodes(engine, cell)
    nodes.add_hosts(new_hosts(name, host_count))
    fleet.known_hosts.remember({cell.uuid: [service.host for service in nodes.services()]})
    return EmbeddedCell(cell, engine, host_count)


def lift_quotas(fleet: Fleet, projects: Sequence[str]) -> None:
    """Let `projects` have as much as the simulator and curious users create; limits set by hand stay."""
    wanted = dict.fromkeys(("instances", "cores", "ram"), UNLIMITED)
    defaults = fleet.quotas.defaults()
    for project_id in projects:
        limits = fleet.quotas.limits(project_id)
        untouched = {resource: limit for resource, limit in wanted.items() if limits[resource] == defaults[resource]}
        fleet.quotas.set_limits(project_id, untouched)
