"""Calls of hosts by steps, and their parameters about the instance.

fleetlight.manager.operations.nodes.host_calls carries the calls out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetlight.manager.operations.actions.effects import migration_of
from fleetlight.manager.operations.actions.steps import PublisherService, destination_of, host_of, origin_of
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.manager.operations.jobs.vocabulary import MakeCall, Task
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.ganeti import DISK_LISTS, own_value
from fleetlight.resources.units import MIB_PER_GIB

_OFF = frozenset({"stopped", "shelved"})


def current_host(task: Task) -> str:
    """Return the host on which the instance is, or will be."""
    return host_of(task, PublisherService.COMPUTE)


def host_call(
    name: str,
    parameters: Callable[[Task], Mapping[str, Any]] = lambda _task: {},
    host: Callable[[Task], str | None] = current_host,
) -> MakeCall:
    """Make the call of a host about a step's instance.

    parameters: further parameters. host: returns the host to call; None for no call.
    """

    def call(task: Task) -> NodeCall | None:
        called = host(task)
        if called is None:
            return None
        about = {"instance_uuid": task.instance.uuid, "guest": guest_of(task.record)}
        return NodeCall(called, name, {**about, **parameters(task)})

    return call


def guest_of(record: Record, flavor: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return hypervisor (None for the host's default), memory (MiB), vcpus and disks (MiB each) of a guest.

    flavor: the new flavor, if it differs from that of the record.
    """
    given = flavor or record["flavor"] or {}
    return {
        "hypervisor": own_value(record, "hypervisor"),
        "memory": given.get("memory_mb"),
        "vcpus": given.get("vcpus"),
        "disks": _disks(record, given),
    }


def with_copies(task: Task) -> Mapping[str, Any]:
    """Return the nodes with copies of mirrored disks, and those that may have remains of the instance."""
    copies: Sequence[str] = own_value(task.record, "snodes") or ()
    return {"other_hosts": [*copies, *task.parameters.get("other_hosts", ())]}


def moved_guest(task: Task) -> Mapping[str, Any]:
    """Return the guest of a move or resize, and whether it runs afterwards."""
    return {"guest": guest_of(task.record, task.parameters.get("flavor")), "start": _ran(task)}


def evacuated_guest(task: Task) -> Mapping[str, Any]:
    return {"start": _ran(task) and not task.parameters.get("stays_stopped")}


def back_from_target(task: Task) -> Mapping[str, Any]:
    """Return the parameters that undo a move to the destination."""
    return {"target_host": destination_of(task)["host"], "start": _ran(task), "keeps_disks": False}


def to_target(task: Task) -> Mapping[str, Any]:
    return {"target_host": destination_of(task)["host"], "keeps_disks": False}


def reverted_guest(task: Task) -> Mapping[str, Any]:
    """Return the guest as it was before its resize, and the host that it leaves."""
    old = migration_of(task).old_instance
    return {
        "guest": guest_of(task.record, old["flavor"]),
        "start": old["vm_state"] not in _OFF,
        "target_host": task.record["host"],
    }


def rebuilt_guest(task: Task) -> Mapping[str, Any]:
    return {"start": _ran(task)}


def host_left_behind(task: Task) -> str | None:
    """Return the host before a resize; None if no resize waits to be confirmed."""
    return None if task.job.migration_id is None else migration_of(task).old_instance["host"]


def origin_host(task: Task) -> str | None:
    host: str | None = origin_of(task)["host"]
    return host


def destination_host(task: Task) -> str | None:
    return str(destination_of(task)["host"])


def _ran(task: Task) -> bool:
    return origin_of(task)["vm_state"] not in _OFF


def _disks(record: Record, flavor: Mapping[str, Any]) -> list[int]:
    if record["ganeti"] is not None:
        return [size for size in own_value(record, DISK_LISTS["size"]) or () if size]
    sizes = [flavor.get("root_gb") or 0, flavor.get("ephemeral_gb") or 0]
    return [size * MIB_PER_GIB for size in sizes if size]
