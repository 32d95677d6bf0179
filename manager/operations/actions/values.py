"""Values of steps that depend on the instance, and conditions for steps."""

from collections.abc import Callable, Mapping
from typing import Any

from fleetlight.manager.operations.actions.effects import migration_of
from fleetlight.manager.operations.actions.steps import destination_of, origin_of
from fleetlight.manager.operations.jobs.vocabulary import Task
from fleetlight.resources.power_states import NO_STATE, RUNNING, SHUT_DOWN


def is_on_a_host(task: Task) -> bool:
    return task.record["host"] is not None


def is_on_no_host(task: Task) -> bool:
    return task.record["host"] is None


def was_resized(task: Task) -> bool:
    return bool(origin_of(task)["vm_state"] == "resized")


def was_stopped(task: Task) -> bool:
    return bool(origin_of(task)["vm_state"] == "stopped")


def was_offloaded(task: Task) -> bool:
    return bool(origin_of(task)["vm_state"] == "shelved_offloaded")


def was_only_shelved(task: Task) -> bool:
    return bool(origin_of(task)["vm_state"] == "shelved")


def deleted(task: Task) -> Mapping[str, Any]:
    """Mark the row as deleted, and clear tags, metadata, volumes and fault (contracts/nova-db, 1.4)."""
    return {
        "deleted": True,
        "deleted_at": task.now,
        "terminated_at": task.now,
        "vm_state": "deleted",
        "task_state": None,
        "power_state": NO_STATE,
        "tags": [],
        "metadata": {},
        "block_devices": [],
        "fault": None,
    }


def launched(task: Task) -> Mapping[str, Any]:
    return {"vm_state": "active", "task_state": None, "power_state": RUNNING, "launched_at": task.now}


def placed(task_state: str | None) -> Callable[[Task], Mapping[str, Any]]:
    """Make values that place the instance on the destination, with `task_state`."""

    def values(task: Task) -> Mapping[str, Any]:
        launched_on = task.record["launched_on"] or destination_of(task)["host"]
        return {**destination_of(task), "launched_on": launched_on, "task_state": task_state}

    return values


def unplaced(task_state: str | None) -> Callable[[Task], Mapping[str, Any]]:
    """Make values that take the instance off its host, with `task_state`."""

    def values(task: Task) -> Mapping[str, Any]:
        zone = task.record["pinned_availability_zone"]
        on_no_host = {"host": None, "node": None, "launched_on": None, "availability_zone": zone, "ip_addresses": []}
        return {**on_no_host, "task_state": task_state}

    return values


def networked(task: Task) -> Mapping[str, Any]:
    return {"task_state": "block_device_mapping", "ip_addresses": task.parameters["ip_addresses"]}


def resized_there(task: Task) -> Mapping[str, Any]:
    """Return values that place the instance on the destination, with the new flavor, if any."""
    values = {**destination_of(task), "task_state": "resize_finish"}
    flavor = task.parameters.get("flavor")
    if flavor is not None:
        values |= {
            "flavor": flavor,
            "instance_type_id": task.parameters["flavor_number"],
        }
    return values


def confirmed(task: Task) -> Mapping[str, Any]:
    return _state_from_before(migration_of(task).old_instance)


def reverted(task: Task) -> Mapping[str, Any]:
    old = migration_of(task).old_instance
    return {**old, **_state_from_before(old)}


def _state_from_before(old: Mapping[str, Any]) -> Mapping[str, Any]:
    if old["vm_state"] == "stopped":
        return {"vm_state": "stopped", "power_state": SHUT_DOWN, "task_state": None}
    return {"vm_state": "active", "power_state": RUNNING, "task_state": None}


def rebuilt(task: Task) -> Mapping[str, Any]:
    if was_stopped(task):
        return {"vm_state": "stopped", "power_state": SHUT_DOWN, "task_state": None}
    return launched(task)


def evacuated(task: Task) -> Mapping[str, Any]:
    stays_stopped = bool(task.parameters.get("stays_stopped")) or was_stopped(task)
    return {**launched(task), **({"vm_state": "stopped", "power_state": SHUT_DOWN} if stays_stopped else {})}


def as_before(task: Task) -> Mapping[str, Any]:
    """Return the values from before the action, after a harmless failure."""
    return {"vm_state": origin_of(task)["vm_state"]}
