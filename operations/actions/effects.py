"""What steps do besides changing their instance: hosts that are claimed and given back, migrations that move on."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cells.errors import NotResizedError, ResourceNotFoundError
from cells.fleet.server_groups import ServerGroup
from cells.kinds.native.instance_migrations import (
    Migration,
    finished_migration,
    read_migration,
    update_migration,
)
from operations.actions.steps import Effect, destination_of
from operations.jobs.vocabulary import Task
from operations.scheduling.placement import RequestSpec, claim_host, demand_of, release_except


def choose_host(task: Task) -> None:
    """Claim a host for what the job is about, another one than it is on, and remember it as its destination."""
    record, parameters = task.record, task.parameters
    hints: Mapping[str, Any] = record["scheduler_hints"] or {}
    spec = RequestSpec(
        zone=None if parameters.get("is_forced") else record["pinned_availability_zone"],
        host=parameters.get("host"),
        node=parameters.get("node"),
        without=() if record["host"] is None else (record["host"],),
        beside=_uuids(hints.get("same_host")),
        apart=_uuids(hints.get("different_host")),
        project_id=None if parameters.get("is_by_administrator") else record["project_id"],
        group=_group_of(task),
    )
    demand = demand_of(parameters.get("flavor") or record["flavor"])
    node = claim_host(task.connection, task.instance.uuid, demand, spec)
    task.notes["destination"] = {
        "host": node.service.host,
        "node": node.hypervisor_hostname,
        "availability_zone": node.service.availability_zone,
    }
    task.log(f"host {node.service.host} was chosen")
    if task.job.migration_id is not None:
        update_migration(
            task.connection,
            task.job.migration_id,
            task.now,
            dest_compute=node.service.host,
            dest_node=node.hypervisor_hostname,
            dest_host=node.host_ip,
        )


def queue_for_delete(*, queued: bool) -> Effect:
    """Say in the mapping that the instance is about to be deleted, or that it is not any more."""

    def effect(task: Task) -> None:
        task.fleet.mark_queued_for_delete(task.cell.uuid, [task.instance.uuid], queued=queued)

    return effect


def _group_of(task: Task) -> ServerGroup | None:
    """The group of the instance with the members of this moment; None too if the group was deleted meanwhile."""
    for uuid in task.record["server_groups"] or ():
        with suppress(ResourceNotFoundError):
            return task.fleet.server_groups.find(uuid, project_id=None)
    return None


def give_back_all(task: Task) -> None:
    """The instance takes up nothing any more."""
    release_except(task.connection, task.instance.uuid, None)


def give_back_others(task: Task) -> None:
    """The instance takes up nothing but what it does of the node that it is on, before the step."""
    release_except(task.connection, task.instance.uuid, task.record["node"])


def give_back_origin(task: Task) -> None:
    """The instance takes up nothing but what it does of its destination."""
    release_except(task.connection, task.instance.uuid, destination_of(task)["node"])


def aim_back(task: Task) -> None:
    """The destination of a resize that is reverted is the host that it came from."""
    old = migration_of(task).old_instance
    task.notes["destination"] = {name: old[name] for name in ("host", "node", "availability_zone")}


def migration_is(status: str) -> Effect:
    """The job's migration moves on."""

    def effect(task: Task) -> None:
        if task.job.migration_id is not None:
            update_migration(task.connection, task.job.migration_id, task.now, status=status)

    return effect


def confirm_what_waits(task: Task) -> None:
    """Take the resize that waits to be confirmed for this job's: a deletion confirms it, if there is one."""
    with suppress(NotResizedError):
        migration = finished_migration(task.connection, task.instance.uuid)
        task.job.migration_id = migration.id
        update_migration(task.connection, migration.id, task.now, status="confirming")


def migration_of(task: Task) -> Migration:
    if task.job.migration_id is None:
        raise LookupError(f"job {task.job.id} ({task.job.operation}) has no migration")
    return read_migration(task.connection, task.job.migration_id)


def _uuids(hint: Any) -> list[str]:
    if hint is None:
        return []
    return [str(item) for item in hint] if isinstance(hint, list) else [str(hint)]
