"""How much of the fleet a project takes up."""

from functools import partial

import structlog
from sqlalchemy import Engine, func, select

from cells.database import translated_failures
from cells.errors import CellUnreachableError
from cells.flavors import Flavor
from cells.fleet import Fleet
from cells.model import Cell
from cells.native_cells import NativeCells
from cells.quotas import check
from cells.tables import instances

_log = structlog.get_logger(__name__)


def in_use(fleet: Fleet, native: NativeCells, project_id: str, user_id: str | None = None) -> dict[str, int]:
    """What counts against the quotas of a project, by resource (cells.quotas.DEFAULTS).

    Of a cell that is down, the instances count and their cores and memory do not: nobody else knows them.
    Raises FleetUnreachableError.
    """
    used = fleet.quotas.counts(project_id, user_id) | {"cores": 0, "ram": 0}
    for cell in native.cells():
        try:
            cores, ram = _sizes(native.engine(cell), cell, project_id)
        except CellUnreachableError as error:
            _log.warning("usage.cell_unreachable", cell=cell.name, reason=error.reason)
            continue
        used["cores"] += cores
        used["ram"] += ram
    return used


def check_new_instances(fleet: Fleet, native: NativeCells, project_id: str, flavor: Flavor, count: int) -> None:
    """Raise QuotaExceededError when the project may not have `count` more instances of `flavor`."""
    requested = {"instances": count, "cores": count * flavor.vcpus, "ram": count * flavor.memory_mb}
    check(fleet.quotas.limits(project_id), in_use(fleet, native, project_id), requested)


def _sizes(engine: Engine, cell: Cell, project_id: str) -> tuple[int, int]:
    """Virtual processors and MiB of memory of the instances that are there."""
    flavor = instances.c.flavor
    statement = select(
        func.coalesce(func.sum(flavor["vcpus"].as_integer()), 0),
        func.coalesce(func.sum(flavor["memory_mb"].as_integer()), 0),
    ).where(instances.c.project_id == project_id, instances.c.deleted.is_(False))
    with translated_failures(partial(CellUnreachableError, cell.name)), engine.connect() as connection:
        cores, ram = connection.execute(statement).one()
    return int(cores), int(ram)
