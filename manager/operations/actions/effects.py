"""Effects of steps besides changes of the instance: claims of hosts, their release, and progress of migrations."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import select

from fleetlight.cells.errors import MaxRetriesExceededError, NotResizedError, NoValidHostError
from fleetlight.cells.kinds.native.nodes import COMPUTE
from fleetlight.cells.tables import services
from fleetlight.manager.operations.actions.steps import Effect, destination_of
from fleetlight.manager.operations.instances.instance_migrations import (
    Migration,
    finished_migration,
    read_migration,
    update_migration,
)
from fleetlight.manager.operations.instances.interface_addresses import give_up_interfaces
from fleetlight.manager.operations.jobs.errors import NodeCallError
from fleetlight.manager.operations.jobs.vocabulary import Task
from fleetlight.manager.operations.scheduling.allocations import release, release_except
from fleetlight.manager.operations.scheduling.hosts import Host
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec, demand_of, request_spec
from fleetlight.manager.operations.scheduling.select_destinations import claim_alternate, claim_hosts, selections_of
from fleetlight.notifications.payloads.selection import Selection

SELECTIONS = "selections"
"""Parameter of a creation: its instance's wrapped Selections. Note of any job: the Selections left to try."""
MAX_ATTEMPTS = "max_attempts"
"""Parameter: largest number of hosts to try, including the first."""
TRIED = "tried"
"""Note: the hosts that have failed."""


def choose_host(task: Task) -> None:
    """Claim another host for the job's instance, and note it as the destination."""
    _choose_host(task, max_attempts=1)


def choose_host_and_alternates(task: Task) -> None:
    """As `choose_host`, and note the hosts to try if that one fails."""
    _choose_host(task, max_attempts=task.parameters.get(MAX_ATTEMPTS, 1))


def take_selections(task: Task) -> None:
    """Note the host that was claimed at the acceptance of a creation. Raises NoValidHostError if there was none."""
    selections = _read_selections(task.parameters[SELECTIONS] or ())
    if not selections:
        raise NoValidHostError(_spec_of(task).unsupported)
    chosen, *alternates = selections
    _aim_at(task, chosen, alternates)


def go_to_next_host(task: Task, reason: Exception) -> None:
    """Claim the next alternate with room, and release the claim on the host that failed for `reason`.

    Raises MaxRetriesExceededError after the last one, and keeps the claim then.
    """
    uuid, parameters = task.instance.uuid, task.parameters
    failed = str(destination_of(task)["host"])
    demand, spec = demand_of(parameters.get("flavor") or task.record["flavor"]), _spec_of(task)
    alternates = _read_selections(task.notes.get(SELECTIONS, ()))
    while alternates:
        next_one, *alternates = alternates
        host = claim_alternate(task.connection, next_one, uuid, demand, spec)
        if host is not None:
            break
        task.log(f"host {next_one.service_host} does not suit any more")
    else:
        raise MaxRetriesExceededError(uuid) from reason
    release(task.connection, uuid, destination_of(task)["node"])
    task.notes[TRIED] = [*task.notes.get(TRIED, ()), failed]
    task.log(f"host {failed} has failed: {reason}")
    _aim_at(task, next_one, alternates, host)


def require_destination_up(task: Task) -> None:
    """Raise NodeCallError if the chosen host went down meanwhile."""
    host = str(destination_of(task)["host"])
    statement = select(services.c.forced_down).where(services.c.host == host, services.c.binary == COMPUTE)
    if task.connection.scalar(statement) is not False:
        raise NodeCallError(host, "build", "the host is down")


def _choose_host(task: Task, *, max_attempts: int) -> None:
    record, parameters = task.record, task.parameters
    demand = demand_of(parameters.get("flavor") or record["flavor"])
    [found] = claim_hosts(task.connection, [task.instance.uuid], demand, _spec_of(task), max_attempts=max_attempts)
    chosen, *alternates = selections_of(task.cell, found, demand)
    _aim_at(task, chosen, alternates, found.host)


def _spec_of(task: Task) -> RequestSpec:
    """Make the request spec of the instance, without its host at the beginning of the action."""
    origin = task.parameters.get("origin", task.record)["host"]
    return request_spec(task.fleet, {**task.record, "host": origin}, task.parameters)


def _aim_at(task: Task, chosen: Selection, alternates: Sequence[Selection], host: Host | None = None) -> None:
    """Note the destination and the alternates left. host: of `chosen`, for the job's migration if it has one."""
    task.notes["destination"] = {
        "host": chosen.service_host,
        "node": chosen.nodename,
        "availability_zone": chosen.availability_zone,
    }
    task.notes[SELECTIONS] = [alternate.wrap() for alternate in alternates]
    task.log(f"host {chosen.service_host} was chosen")
    if task.job.migration_id is not None and host is not None:
        update_migration(
            task.connection,
            task.job.migration_id,
            task.now,
            dest_compute=host.service_host,
            dest_node=host.nodename,
            dest_host=host.host_ip,
        )


def _read_selections(wrapped: Sequence[Mapping[str, Any]]) -> list[Selection]:
    return [Selection.unwrap(each) for each in wrapped]


def queue_for_delete(*, queued: bool) -> Effect:
    """Make an effect that marks the mapping as about to be deleted, or removes the mark."""

    def effect(task: Task) -> None:
        task.fleet.mark_queued_for_delete(task.cell.uuid, [task.instance.uuid], queued=queued)

    return effect


def give_back_all(task: Task) -> None:
    """Release all claims of the instance."""
    release_except(task.connection, task.instance.uuid, None)


def give_up_addresses(task: Task) -> None:
    """Release the addresses of the instance's interfaces."""
    give_up_interfaces(task.connection, task.instance.uuid)


def give_back_others(task: Task) -> None:
    """Release all claims of the instance except those on its node before the step."""
    release_except(task.connection, task.instance.uuid, task.record["node"])


def give_back_origin(task: Task) -> None:
    """Release all claims of the instance except those on its destination."""
    release_except(task.connection, task.instance.uuid, destination_of(task)["node"])


def aim_back(task: Task) -> None:
    """Note the original host as the destination of a reverted resize."""
    old = migration_of(task).old_instance
    task.notes["destination"] = {name: old[name] for name in ("host", "node", "availability_zone")}


def migration_is(status: str) -> Effect:
    """Make an effect that sets the status of the job's migration."""

    def effect(task: Task) -> None:
        if task.job.migration_id is not None:
            update_migration(task.connection, task.job.migration_id, task.now, status=status)

    return effect


def confirm_what_waits(task: Task) -> None:
    """Adopt the resize that waits to be confirmed, if any, as the job's migration: a deletion confirms it."""
    with suppress(NotResizedError):
        migration = finished_migration(task.connection, task.instance.uuid)
        task.job.migration_id = migration.id
        update_migration(task.connection, migration.id, task.now, status="confirming")


def migration_of(task: Task) -> Migration:
    """Return the migration of a job. Raises LookupError if it has none."""
    if task.job.migration_id is None:
        raise LookupError(f"job {task.job.id} ({task.job.operation}) has no migration")
    return read_migration(task.connection, task.job.migration_id)
