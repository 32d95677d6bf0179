"""How much of the fleet a project takes up."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Engine, func, select

from cells.database import translated_failures
from cells.errors import CellUnreachableError
from cells.flavors import Flavor
from cells.fleet import Fleet
from cells.model import Cell
from cells.native_cells import NativeCells
from cells.quotas import check
from cells.tables import instances, jobs

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


def project_turn(project_id: str) -> str:
    """The turn (cells.turns) of whoever looks at the quotas of a project, and then lets it have more."""
    return f"quotas of project {project_id}"


def check_new_instances(fleet: Fleet, native: NativeCells, project_id: str, flavor: Flavor, count: int) -> None:
    """Raise QuotaExceededError when the project may not have `count` more instances of `flavor`."""
    requested = {"instances": count, "cores": count * flavor.vcpus, "ram": count * flavor.memory_mb}
    check(fleet.quotas.limits(project_id), in_use(fleet, native, project_id), requested)


def check_larger_flavor(
    fleet: Fleet, native: NativeCells, project_id: str, old: Mapping[str, Any] | None, flavor: Flavor
) -> None:
    """Raise QuotaExceededError when an instance of flavor `old` (Nova's FlavorPayload) may not get `flavor` instead."""
    had = old or {}
    more = {
        "cores": flavor.vcpus - (had.get("vcpus") or 0),
        "ram": flavor.memory_mb - (had.get("memory_mb") or 0),
    }
    if any(amount > 0 for amount in more.values()):
        check(fleet.quotas.limits(project_id), in_use(fleet, native, project_id), more)


def _sizes(engine: Engine, cell: Cell, project_id: str) -> tuple[int, int]:
    """Virtual processors and MiB of memory of the instances that are there, and of what they are about to become."""
    flavor = instances.c.flavor
    statement = select(
        func.coalesce(func.sum(flavor["vcpus"].as_integer()), 0),
        func.coalesce(func.sum(flavor["memory_mb"].as_integer()), 0),
    ).where(instances.c.project_id == project_id, instances.c.deleted.is_(False))
    growing = (
        select(jobs.c.parameters, flavor.label("flavor"))
        .join(instances, instances.c.uuid == jobs.c.instance_uuid)
        .where(jobs.c.action == "resize", instances.c.project_id == project_id, instances.c.deleted.is_(False))
    )
    with translated_failures(partial(CellUnreachableError, cell.name)), engine.connect() as connection:
        cores, ram = map(int, connection.execute(statement).one())
        for row in connection.execute(growing):
            now, later = row.flavor or {}, row.parameters["flavor"]
            cores += max(0, later["vcpus"] - (now.get("vcpus") or 0))
            ram += max(0, later["memory_mb"] - (now.get("memory_mb") or 0))
    return cores, ram
