"""Counts what a project uses in the fleet.

The fleet database counts instances, but only the cells know cores and memory, so those of a cell that is down do not
count.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Engine, func, select

from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fleet.compute.flavors import Flavor
from fleetlight.cells.fleet.compute.quotas import check
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instances, job_operations
from fleetlight.resources.amount import Amount

_log = structlog.get_logger(__name__)
# Operations that store the flavor their instance will have.
_GROWING = ("resize", "revertResize")


def in_use(fleet: Fleet, native: NativeCells, project_id: str, user_id: str | None = None) -> dict[str, int]:
    """The project's use of its quotas, by resource (fleetlight.cells.fleet.compute.quotas.DEFAULTS).

    The cells with instances of the project are queried at the same time. Those that hang, or have not answered within
    `CellPool.deadline_s`, do not count. Raises FleetUnreachableError.
    """
    wanted = fleet.cells_of_project(project_id) - native.pool.hanging()
    cells = [cell for cell in native.cells() if cell.uuid in wanted]
    return with_sizes(fleet.quotas.counts(project_id, user_id), _sizes(native, cells, project_id))


def _sizes(native: NativeCells, cells: Sequence[Cell], project_id: str) -> list[Amount]:
    """The sizes from the cells that answer in time."""

    def ask(cell: Cell) -> Amount:
        return size_in(native.engine(cell), cell, project_id)

    threads = DaemonThreads(len(cells), "usage")
    asked = {threads.submit(partial(ask, cell)): cell for cell in cells}
    answered, late = wait(asked, timeout=native.pool.deadline_s)
    threads.shutdown(wait=False)
    sizes = []
    for answer in answered:
        try:
            sizes.append(answer.result())
        except CellUnreachableError as error:
            _log.warning("usage.cell_unreachable", cell=asked[answer].name, reason=error.reason)
    for answer in late:
        _log.warning("usage.cell_unreachable", cell=asked[answer].name, reason="no answer in time")
    return sizes


def with_sizes(counts: Mapping[str, int], sizes: Sequence[Amount]) -> dict[str, int]:
    """The use of quotas by resource, from the counts of the fleet database and the sizes of the cells."""
    return {**counts, "cores": sum(size.vcpus for size in sizes), "ram": sum(size.memory_mib for size in sizes)}


def project_lock(project_id: str) -> str:
    """The name of the lock (fleetlight.cells.fleet.advisory_locks) that an API holds between checking a project's
    quotas and letting it have more.
    """
    return f"quotas of project {project_id}"


def check_new_instances(fleet: Fleet, native: NativeCells, project_id: str, flavor: Flavor, count: int) -> None:
    """Raises QuotaExceededError if the project may not have `count` more instances of `flavor`."""
    requested = {"instances": count, "cores": count * flavor.vcpus, "ram": count * flavor.memory_mb}
    check(fleet.quotas.limits(project_id), in_use(fleet, native, project_id), requested)


def check_larger_flavor(
    fleet: Fleet,
    native: NativeCells,
    project_id: str,
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any] | None,
) -> None:
    """Raises QuotaExceededError if an instance of flavor `old` may not get `new` instead (Nova's FlavorPayload)."""
    more = _more_than(old or {}, new or {})
    if any(amount > 0 for amount in more.values()):
        check(fleet.quotas.limits(project_id), in_use(fleet, native, project_id), more)


def check_restored_instance(
    fleet: Fleet,
    native: NativeCells,
    project_id: str,
    flavor: Mapping[str, Any] | None,
) -> None:
    """Raises QuotaExceededError if a soft-deleted instance of `flavor` may not be restored."""
    has = flavor or {}
    requested = {"instances": 1, "cores": has.get("vcpus") or 0, "ram": has.get("memory_mb") or 0}
    check(fleet.quotas.limits(project_id), in_use(fleet, native, project_id), requested)


def size_in(engine: Engine, cell: Cell, project_id: str) -> Amount:
    """The size of a project's instances in one cell, with resizes under way counted. Raises CellUnreachableError."""
    flavor = instances.c.flavor
    statement = select(
        func.coalesce(func.sum(flavor["vcpus"].as_integer()), 0),
        func.coalesce(func.sum(flavor["memory_mb"].as_integer()), 0),
    ).where(
        instances.c.project_id == project_id,
        instances.c.deleted.is_(False),
        instances.c.vm_state.is_distinct_from("soft-delete"),
    )
    growing = (
        select(job_operations.c.parameters, flavor.label("flavor"))
        .join(instances, instances.c.uuid == job_operations.c.instance_uuid)
        .where(job_operations.c.operation.in_(_GROWING), job_operations.c.ended_at.is_(None))
        .where(instances.c.project_id == project_id, instances.c.deleted.is_(False))
    )
    with cell_failures(cell.name), engine.connect() as connection:
        cores, ram = map(int, connection.execute(statement).one())
        for row in connection.execute(growing):
            more = _more_than(row.flavor or {}, row.parameters.get("flavor") or {})
            cores += max(0, more["cores"])
            ram += max(0, more["ram"])
    return Amount(cores, ram)


def _more_than(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, int]:
    """How much more one flavor needs than another, by resource."""
    return {
        "cores": (new.get("vcpus") or 0) - (old.get("vcpus") or 0),
        "ram": (new.get("memory_mb") or 0) - (old.get("memory_mb") or 0),
    }
