"""OP_INSTANCE_SET_PARAMS, OP_INSTANCE_RENAME and OP_INSTANCE_GROW_DISK (contracts/ganeti-rapi, 6).

They change the configuration; a running guest gets it at its next start. Changes of a reservation call no node.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.manager.operations.actions.new_instance import hostname_of
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.manager.operations.opcodes.building import event_of_update, host_step, instance_lock, operation
from fleetlight.manager.operations.opcodes.instance_parameters import (
    MIRRORED,
    BackendParameters,
    Mebibytes,
    Moment,
    Template,
)
from fleetlight.manager.operations.opcodes.instances.checks import (
    check_host_name,
    check_hypervisor_parameters,
    check_name_is_free,
    check_system,
    check_template,
    known_instance,
    real_instance,
)
from fleetlight.manager.operations.opcodes.instances.configuration import Configuration, configuration_of
from fleetlight.manager.operations.opcodes.instances.list_changes import Changes, changed_disks, changed_nics
from fleetlight.manager.operations.opcodes.instances.node_claims import (
    Places,
    Wanted,
    change_places,
    demand_of_instance,
    mark_forthcoming,
    node_called,
    take_places,
)
from fleetlight.manager.operations.opcodes.instances.policy import check_policy
from fleetlight.manager.operations.opcodes.instances.reservation_expiries import clear_expiry, set_expiry
from fleetlight.manager.operations.opcodes.opcode import InstanceOpCode
from fleetlight.manager.operations.opcodes.parameter_values import check_memory
from fleetlight.resources.amount import Amount
from fleetlight.resources.query_fields.cluster_parameters import DEFAULT, Parameters
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_CHANGEABLE_TEMPLATE = "a disk template is converted by no host of this cell"


class InstanceSetParams(InstanceOpCode):
    """Change an instance. expires_at: end of a reservation, in seconds since the epoch, or `never`."""

    OP_ID = "OP_INSTANCE_SET_PARAMS"

    nics: Changes = Field(default_factory=list)
    disks: Changes = Field(default_factory=list)
    beparams: BackendParameters = Field(default_factory=BackendParameters)
    hvparams: dict[str, Any] = Field(default_factory=dict)
    osparams: dict[str, Any] = Field(default_factory=dict)
    osparams_private: dict[str, Any] | None = None
    os_name: str | None = None
    disk_template: Template | None = None
    ext_params: dict[str, Any] = Field(default_factory=dict)
    file_driver: str | None = None
    file_storage_dir: str | None = None
    pnode: str | None = None
    remote_node: str | None = None
    iallocator: str | None = None
    runtime_mem: Annotated[int, Field(gt=0)] | None = None
    offline: bool | None = None
    force: bool = False
    force_variant: bool = False
    ignore_ipolicy: bool = False
    wait_for_sync: bool = True
    conflicts_check: bool = True
    hotplug: bool = True
    instance_communication: bool | None = None
    expires_at: Moment | Literal["never"] | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether the operation has no changes."""
        lists = (self.nics, self.disks, self.beparams.values(), self.hvparams, self.osparams)
        others = (self.os_name, self.disk_template, self.pnode, self.runtime_mem, self.offline, self.expires_at)
        return not any(lists) and all(value is None for value in others)


class InstanceRename(InstanceOpCode):
    OP_ID = "OP_INSTANCE_RENAME"

    new_name: str
    name_check: bool = False
    ip_check: bool = False


class InstanceGrowDisk(InstanceOpCode):
    """Grow a disk. amount: MiB to add, or, if `absolute`, the new size."""

    OP_ID = "OP_INSTANCE_GROW_DISK"

    disk: Annotated[int, Field(ge=0)]
    amount: Mebibytes
    absolute: bool = False
    wait_for_sync: bool = True
    ignore_ipolicy: bool = False


def _modify(op: InstanceSetParams, task: Task) -> None:
    """Check and change the record in one transaction; the result lists the changes. Raises PrerequisiteError."""
    record = known_instance(op, task)
    _check_changes(op, task)
    cluster = read_parameters(task.connection)
    before = configuration_of(record)
    attempt = task.connection.begin_nested()
    wanted, of_disks = _wanted(op, task, before, cluster)
    # Lock nodes before addresses, as creations do, so that no two transactions wait for each other.
    says_size = bool(op.beparams.values() or wanted.disks)
    places = _take_places(task, before, wanted, cluster, says_size=says_size)
    group = _group(task, places)
    nics, of_nics = changed_nics(task, before.nics, op.nics, mac_prefix=cluster["mac_prefix"], group_uuid=group)
    after = replace(wanted, nics=nics, secondary=_secondary(before, places))
    if not op.ignore_ipolicy:
        # The compute API makes servers without interfaces, which this operation may change, too.
        nic_count = len(after.nics) if before.nics or after.nics else None
        check_policy(task.connection, after, cluster, group, nic_count=nic_count)
    task.job.result = [*of_disks, *of_nics, *_told(op)]
    if op.dry_run:
        attempt.rollback()
        return
    _write(task, after, cluster, places)
    if op.expires_at == "never":
        clear_expiry(task.connection, task.instance.uuid)
    elif op.expires_at is not None:
        set_expiry(task.connection, task.instance.uuid, op.expires_at * MICROSECONDS_PER_SECOND)
    attempt.commit()


def _check_changes(op: InstanceSetParams, task: Task) -> None:
    reserved = task.record["forthcoming"]
    is_running = task.record["vm_state"] not in {"stopped", "building"}
    for is_wrong, text, reason in (
        (op.changes_nothing, "No changes submitted", Reason.WRONG_INPUT),
        (op.ext_params and op.disk_template != "ext", "ext_params are for the template ext", Reason.WRONG_INPUT),
        (op.disk_template is not None and not reserved, _CHANGEABLE_TEMPLATE, Reason.WRONG_INPUT),
        (op.pnode is not None, "the primary node is changed by moves alone", Reason.WRONG_INPUT),
        (op.expires_at is not None and not reserved, "only a reservation ends by itself", Reason.WRONG_STATE),
        (op.runtime_mem is not None and reserved, "a reservation has no memory in use", Reason.WRONG_STATE),
        (op.runtime_mem is not None and not is_running, "the instance does not run", Reason.WRONG_STATE),
        (op.offline is not None and reserved, "a reservation is neither online nor offline", Reason.WRONG_STATE),
        (bool(op.offline) and is_running, "a running instance cannot be set offline", Reason.WRONG_STATE),
    ):
        if is_wrong:
            raise PrerequisiteError(f"Instance '{op.instance_name}': {text}", reason)


def _wanted(
    op: InstanceSetParams, task: Task, before: Configuration, cluster: Parameters
) -> tuple[Configuration, list[list[Any]]]:
    """Return the changed configuration but for interfaces, and the changes of disks. Raises PrerequisiteError."""
    system = op.os_name or before.os
    os_parameters = _unset_removed({**before.os_parameters, **op.osparams})
    if op.os_name or op.osparams or op.osparams_private:
        check_system(task, system, os_parameters, _unset_removed(op.osparams_private or {}))
    hvparams = before.hypervisor_parameters
    if op.hvparams:
        hvparams = check_hypervisor_parameters(cluster, before.hypervisor, system, hvparams, op.hvparams)
    check_template(cluster, op.disk_template)
    template = op.disk_template or before.template
    disks, of_disks = changed_disks(before.disks, op.disks, may_change_size=task.record["forthcoming"])
    if disks and template in {None, "diskless"}:
        template = cluster["enabled_disk_templates"][0] if template is None else template
        if template == "diskless":
            raise PrerequisiteError("Disk operations not supported for diskless instances", Reason.WRONG_STATE)
    after = replace(
        before,
        os=system,
        template=template,
        backend={**before.backend, **op.beparams.values()},
        hypervisor_parameters=hvparams,
        os_parameters=os_parameters,
        disks=disks,
        is_offline=before.is_offline if op.offline is None else op.offline,
    )
    check_memory(after.filled_backend(cluster))
    return after, of_disks


def _told(op: InstanceSetParams) -> list[list[Any]]:
    """Return the changes beside disks and interfaces, as pairs of name and value."""
    return [
        *([f"be/{name}", value] for name, value in op.beparams.values().items()),
        *([f"hv/{name}", value] for name, value in op.hvparams.items()),
        *([f"os/{name}", value] for name, value in op.osparams.items()),
        *([["os", op.os_name]] if op.os_name else []),
        *([["disk_template", op.disk_template]] if op.disk_template else []),
        *([["admin_state", "offline" if op.offline else "down"]] if op.offline is not None else []),
        *([["runtime_memory", op.runtime_mem]] if op.runtime_mem is not None else []),
    ]


def _unset_removed(given: Parameters) -> Parameters:
    return {name: value for name, value in given.items() if value != DEFAULT}


def _take_places(
    task: Task, before: Configuration, after: Configuration, cluster: Parameters, *, says_size: bool
) -> Places | None:
    """Claim the additional resources; returns None if neither nodes nor demand change. Raises PrerequisiteError.

    says_size: whether the demand is known: then a reservation without nodes gets some, since it could not be made real
        for certain otherwise (contracts/ganeti-reservations, 5).
    """
    record, uuid, connection = task.record, task.instance.uuid, task.connection
    if record["node"] is None:
        if not record["forthcoming"] or not says_size:
            return None
        demand = demand_of_instance(after, cluster)
        places = take_places(connection, uuid, demand, Wanted(), after.template or "diskless")
    elif _takes_up(before, cluster) == _takes_up(after, cluster):
        return None
    else:
        primary = node_called(connection, record["node"])
        places = change_places(connection, uuid, primary, before, after, cluster=cluster)
    mark_forthcoming(connection, uuid, is_forthcoming=record["forthcoming"])
    return places


def _takes_up(configuration: Configuration, cluster: Parameters) -> tuple[Amount, bool]:
    return demand_of_instance(configuration, cluster), configuration.template in MIRRORED


def _group(task: Task, places: Places | None) -> str | None:
    """Return the group of the instance's node; None before it has one."""
    if places is not None:
        return places.primary.group_uuid
    node = task.record["node"]
    return None if node is None else node_called(task.connection, node).group_uuid


def _secondary(before: Configuration, places: Places | None) -> str | None:
    if places is None:
        return before.secondary
    return None if places.secondary is None else places.secondary.name


def _write(task: Task, after: Configuration, cluster: Parameters, places: Places | None) -> None:
    values = after.values(cluster, is_forthcoming=task.record["forthcoming"])
    if places is not None:
        node = places.primary
        values |= {"host": node.host, "node": node.name, "availability_zone": node.zone}
    task.instance.change(event_of_update(task.record), values, task.now, request=task.job.request)


def _rename(op: InstanceRename, task: Task) -> None:
    """Rename the instance; the result is the new name. Raises PrerequisiteError."""
    record = known_instance(op, task)
    name = op.new_name
    if op.name_check:
        raise PrerequisiteError("Names are not looked up here: name_check has to be off", Reason.WRONG_INPUT)
    if op.ip_check:
        raise PrerequisiteError("IP address check requires a name check", Reason.WRONG_INPUT)
    check_host_name(name)
    if not record["forthcoming"] and record["vm_state"] not in {"stopped", "error"}:
        text = f"Instance '{op.instance_name}' is in state '{record['vm_state']}': it has to be shut down for this"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    if name != record["display_name"]:
        check_name_is_free(task, name, task.instance.uuid)
    task.job.result = name
    if not op.dry_run:
        values = {"display_name": name, "hostname": hostname_of(name, task.instance.uuid)}
        task.instance.change(event_of_update(record), values, task.now, request=task.job.request)


def _check_grow(op: InstanceGrowDisk, task: Task) -> None:
    record = real_instance(op, task)
    before = configuration_of(record)
    if op.disk >= len(before.disks):
        text = f"Instance '{op.instance_name}' has no disk {op.disk}: it has {len(before.disks)}"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)
    size = before.disks[op.disk]["size"]
    if op.absolute and op.amount < size:
        text = f"Can't shrink disks: disk {op.disk} has {size} MiB, and is to have {op.amount}"
        raise PrerequisiteError(text, Reason.WRONG_STATE)


def _grow(task: Task) -> None:
    op = InstanceGrowDisk.read(task.parameters)
    cluster = read_parameters(task.connection)
    before = configuration_of(task.record)
    disk = before.disks[op.disk]
    size = op.amount if op.absolute else disk["size"] + op.amount
    grown = [*before.disks[: op.disk], {**disk, "size": size}, *before.disks[op.disk + 1 :]]
    after = replace(before, disks=grown)
    _write(task, after, cluster, _take_places(task, before, after, cluster, says_size=True))


def _grown(task: Task) -> Mapping[str, Any]:
    """Return the disk's index and new size, which the cell has stored, so a failed call of the host can be repeated."""
    disk = InstanceGrowDisk.read(task.parameters).disk
    return {"disk": disk, "size": configuration_of(task.record).disks[disk]["size"]}


def _memory(task: Task) -> Mapping[str, Any]:
    return {"memory": InstanceSetParams.read(task.parameters).runtime_mem}


MODIFY: tuple[tuple[str, Operation], ...] = (
    operation(
        InstanceSetParams,
        _modify,
        host_step("set_disks", lambda task: bool(InstanceSetParams.read(task.parameters).disks)),
        host_step("set_memory", lambda task: _memory(task)["memory"] is not None, _memory),
        locks=instance_lock,
    ),
    operation(InstanceRename, _rename, locks=instance_lock),
    operation(
        InstanceGrowDisk, _check_grow, Step(_grow), host_step("grow_disk", parameters=_grown), locks=instance_lock
    ),
)
