"""Operations on the contents of instances, and on what hosts report of them (contracts/ganeti-rapi, 6).

Simulated hosts have no disks, so operations on disks only change the cell's rows, and exports fail.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from fleetlight.manager.operations.jobs.errors import JobError, PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.manager.operations.opcodes.building import host_step, instance_lock, operation
from fleetlight.manager.operations.opcodes.instances.checks import (
    check_state,
    check_system,
    known_instance,
    real_instance,
)
from fleetlight.manager.operations.opcodes.instances.configuration import configuration_of
from fleetlight.manager.operations.opcodes.opcode import InstanceOpCode, OpCode
from fleetlight.notifications.event_types import INSTANCE_UPDATE
from fleetlight.resources.query_fields.ganeti import DISKS_FORTHCOMING, own_value

_OFF = frozenset({"stopped", "error"})


class InstanceReinstall(InstanceOpCode):
    OP_ID = "OP_INSTANCE_REINSTALL"

    os_type: str | None = None
    force_variant: bool = False
    osparams: dict[str, Any] = Field(default_factory=dict)
    osparams_private: dict[str, Any] | None = None
    osparams_secret: dict[str, Any] | None = None


class InstanceRecreateDisks(InstanceOpCode):
    """Recreate disks. disks: indexes, or pairs of an index and parameters; empty: all."""

    OP_ID = "OP_INSTANCE_RECREATE_DISKS"

    disks: list[Any] = Field(default_factory=list)
    nodes: list[str] = Field(default_factory=list)
    iallocator: str | None = None


class InstanceActivateDisks(InstanceOpCode):
    OP_ID = "OP_INSTANCE_ACTIVATE_DISKS"

    ignore_size: bool = False
    wait_for_sync: bool = False


class InstanceDeactivateDisks(InstanceOpCode):
    OP_ID = "OP_INSTANCE_DEACTIVATE_DISKS"

    force: bool = False


class InstanceQueryData(OpCode):
    """Report the configuration of an instance. instances: names; native cells need exactly one."""

    OP_ID = "OP_INSTANCE_QUERY_DATA"

    use_locking: bool = False
    instances: list[str] = Field(default_factory=list)
    static: bool = False

    @property
    def instance(self) -> str | None:
        return self.instances[0] if self.instances else None


class BackupPrepare(InstanceOpCode):
    OP_ID = "OP_BACKUP_PREPARE"

    mode: Literal["local", "remote"]


class BackupExport(InstanceOpCode):
    OP_ID = "OP_BACKUP_EXPORT"

    target_node: str | list[Any]
    mode: Literal["local", "remote"] = "local"
    shutdown: bool = True
    remove_instance: bool = False
    ignore_remove_failures: bool = False
    compress: str = "none"
    x509_key_name: list[Any] | None = None
    destination_x509_ca: str | None = None
    shutdown_timeout: Annotated[int, Field(ge=0)] = 120
    zero_free_space: bool = False


class BackupRemove(InstanceOpCode):
    OP_ID = "OP_BACKUP_REMOVE"


class NotSimulatedError(JobError):
    """The simulated hosts of the cell cannot carry out the operation."""


def _check_reinstall(op: InstanceReinstall, task: Task) -> None:
    record = real_instance(op, task)
    check_state(op, record, _OFF, "be reinstalled: it has to be shut down")
    given = (op.osparams, op.osparams_private, op.osparams_secret)
    check_system(task, op.os_type or (configuration_of(record).os if any(given) else None), *given)


def _reinstall(task: Task) -> None:
    op = InstanceReinstall.read(task.parameters)
    record = task.record
    task.instance.change("instance.rebuild.start", {}, task.now, request=task.job.request)
    values: dict[str, Any] = {}
    if op.os_type is not None and record["ganeti"] is not None:
        kept = record["ganeti"]
        values["ganeti"] = {**kept, "values": {**kept["values"], "os": op.os_type}}
    task.instance.change("instance.rebuild.end", values, task.now, request=task.job.request)


def _check_recreate(op: InstanceRecreateDisks, task: Task) -> None:
    record = real_instance(op, task)
    check_state(op, record, _OFF, "have its disks made again: it has to be shut down", may_be_offline=True)
    if op.nodes and op.iallocator is not None:
        text = "Give either the iallocator or the new nodes, not both"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)
    if op.nodes or op.iallocator:
        raise PrerequisiteError("Disks are made again where they are: no nodes are taken", Reason.WRONG_INPUT)
    count = len(configuration_of(record).disks)
    for each in op.disks:
        index = each[0] if isinstance(each, list) and each else each
        if not isinstance(index, int) or not 0 <= index < count:
            raise PrerequisiteError(f"Invalid disk index {index!r:.100}: it has {count} disks", Reason.WRONG_INPUT)


def _check_real(op: Any, task: Task) -> None:
    real_instance(op, task)


def _activate(op: InstanceActivateDisks, task: Task) -> None:
    """Set the result to the disks on the node, each as [node, name for the guest, device]."""
    record = real_instance(op, task)
    if record["node"] is None:
        raise PrerequisiteError(f"Instance '{op.instance_name}' is on no node", Reason.WRONG_STATE)
    disks = configuration_of(record).disks
    task.job.result = [[record["node"], f"disk/{index}", None] for index, _ in enumerate(disks)]


def _check_deactivate(op: InstanceDeactivateDisks, task: Task) -> None:
    record = real_instance(op, task)
    if not op.force:
        check_state(op, record, _OFF, "have its disks deactivated: it has to be shut down")


def _tell(op: InstanceQueryData, task: Task) -> None:
    """Set the result to the configuration of one instance, by its name. Raises PrerequisiteError."""
    if len(op.instances) != 1:
        raise PrerequisiteError("One instance is to be named", Reason.WRONG_INPUT)
    record = known_instance(InstanceOpCode(instance_name=op.instances[0]), task)
    configuration = configuration_of(record)
    name = record["display_name"] or task.instance.uuid
    # Instances of the compute API have no flag for each disk.
    flags = own_value(record, DISKS_FORTHCOMING) or [record["forthcoming"] for _ in configuration.disks]
    wanted = "up" if record["vm_state"] == "active" else "down"
    task.job.result = {
        name: {
            "name": name,
            "uuid": task.instance.uuid,
            "config_state": wanted,
            "run_state": None if op.static else wanted,
            "pnode": record["node"],
            "snodes": [] if configuration.secondary is None else [configuration.secondary],
            "os": configuration.os,
            "hypervisor": configuration.hypervisor,
            "disk_template": configuration.template,
            "disks": [
                {"iv_name": f"disk/{index}", **disk, "forthcoming": is_forthcoming}
                for index, (disk, is_forthcoming) in enumerate(zip(configuration.disks, flags, strict=True))
            ],
            "nics": list(configuration.nics),
            "be_instance": dict(configuration.backend),
            "hv_instance": dict(configuration.hypervisor_parameters),
            "os_instance": dict(configuration.os_parameters),
            "forthcoming": record["forthcoming"],
            "serial_no": task.instance.row.revision,
        }
    }


def _cannot(_task: Task) -> None:
    raise NotSimulatedError("simulated hosts keep no contents of disks, so there is nothing to export")


def _note(task: Task) -> None:
    task.instance.change(INSTANCE_UPDATE, {}, task.now, request=task.job.request)


CONTENTS: tuple[tuple[str, Operation], ...] = (
    operation(
        InstanceReinstall,
        _check_reinstall,
        host_step("rebuild", parameters=lambda _task: {"start": False}),
        Step(_reinstall),
        locks=instance_lock,
    ),
    operation(InstanceRecreateDisks, _check_recreate, host_step("set_disks"), Step(_note), locks=instance_lock),
    operation(InstanceActivateDisks, _activate, locks=instance_lock),
    operation(InstanceDeactivateDisks, _check_deactivate, locks=instance_lock),
    operation(InstanceQueryData, _tell, locks=instance_lock),
    operation(BackupPrepare, _check_real, Step(_cannot), locks=instance_lock),
    operation(BackupExport, _check_real, Step(_cannot), locks=instance_lock),
    operation(BackupRemove, _check_real, Step(_cannot), locks=instance_lock),
)
