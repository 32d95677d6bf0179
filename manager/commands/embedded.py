"""The fleet in a data folder: native cells on SQLite, made when missing and never removed."""

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
    """A cell of the folder, its database, and how many hosts it has.

    is_down: its database is not there, or is not its own; what works on it waits until it is.
    """

    cell: Cell
    engine: Engine
    host_count: int
    is_down: bool = False

    def simulated(self, fleet: Fleet) -> SimulatedCell:
        acceptance = Acceptance(self.engine, fleet, self.cell)
        return SimulatedCell(self.cell, self.engine, fleet, acceptance, self.host_count)


def set_up_fleet(folder: DataFolder, limits: FailureLimits | None = None) -> Fleet:
    """The fleet database of the folder, with the newest schema. Raises FleetUnreachableError."""
    engine = create_database_engine(sqlite_url(folder.fleet_database))
    with translated_fleet_failures():
        upgrade_fleet(engine)
    return Fleet(engine, limits)


def set_up_cells(
    folder: DataFolder, fleet: Fleet, wanted: int, host_count: int = HOSTS_PER_CELL
) -> Sequence[EmbeddedCell]:
    """The cells of the folder, with the newest schemas: those that are there, and cell1, cell2, … up to `wanted`.

    A fleet without cells gets those that the folder has databases of, as after the loss of its own database.
    host_count: simulated hosts that each has at least. Raises FleetUnreachableError; CellUnreachableError for a new
    cell, while one that is known is down then.
    """
    known = {cell.name: cell for cell in fleet.cells()}
    names = known.keys() | {f"cell{number}" for number in range(1, wanted + 1)}
    if not known:
        names |= {database.stem for database in folder.cell_databases()}
    in_order = sorted(names, key=lambda name: (len(name), name))
    return [_set_up_cell(folder, fleet, name, known.get(name), host_count) for name in in_order]


def _set_up_cell(folder: DataFolder, fleet: Fleet, name: str, known: Cell | None, host_count: int) -> EmbeddedCell:
    """known: the cell as it is registered. Only for one that is not a database is made."""
    url = sqlite_url(folder.cell_database(name))
    engine = create_database_engine(url, cell_uuid=None if known is None else known.uuid)
    try:
        with translated_failures(partial(CellUnreachableError, name)):
            upgrade_cell(engine)
            # Also a known one: the folder may have been moved since.
            cell = register_native_cell(fleet, engine, name, url, IN_PROCESS_BUS)
    except CellUnreachableError as error:
        if known is None:
            engine.dispose()
            raise
        _log.error("cell.down", cell=name, reason=error.reason)
        # Where it will be looked for.
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
    """Let `projects` have as much as the simulator makes, and people who try things out more; what was set stays."""
    wanted = dict.fromkeys(("instances", "cores", "ram"), UNLIMITED)
    defaults = fleet.quotas.defaults()
    for project_id in projects:
        limits = fleet.quotas.limits(project_id)
        untouched = {resource: limit for resource, limit in wanted.items() if limits[resource] == defaults[resource]}
        fleet.quotas.set_limits(project_id, untouched)
