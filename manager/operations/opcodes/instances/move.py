"""OP_INSTANCE_FAILOVER, OP_INSTANCE_MIGRATE and OP_INSTANCE_REPLACE_DISKS (contracts/ganeti-rapi, 6).

An instance with mirrored disks moves to its secondary node, and the old primary node becomes the secondary one. An
instance with shared disks moves to any node of its group. A move of a reservation changes its row, and calls no node
(contracts/ganeti-reservations, 7).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from fleetlight.cells.errors import NoValidHostError
from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.manager.operations.actions.host_parameters import host_call, origin_host
from fleetlight.manager.operations.actions.steps import origin_of
from fleetlight.manager.operations.jobs.errors import NodeCallError, PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.manager.operations.opcodes.building import instance_lock, operation
from fleetlight.manager.operations.opcodes.instance_parameters import MIRRORED, SHARED
from fleetlight.manager.operations.opcodes.instances.checks import (
    check_node_online,
    check_online,
    known_instance,
    real_instance,
)
from fleetlight.manager.operations.opcodes.instances.configuration import Configuration, configuration_of
from fleetlight.manager.operations.opcodes.instances.node_claims import (
    Wanted,
    demand_of_instance,
    mark_forthcoming,
    no_room,
    node_called,
    take_more,
    take_secondary,
    usable_node,
)
from fleetlight.manager.operations.opcodes.instances.power import task_ends
from fleetlight.manager.operations.opcodes.opcode import InstanceOpCode
from fleetlight.manager.operations.scheduling.allocations import allocate, release
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.select_destinations import claim_host
from fleetlight.notifications.event_types import (
    INSTANCE_LIVE_MIGRATION_POST_DEST_END,
    INSTANCE_POWER_ON_END,
    INSTANCE_UPDATE,
)
from fleetlight.resources.amount import Amount
from fleetlight.resources.fields import Record
from fleetlight.resources.power_states import RUNNING

_MOVABLE = MIRRORED | SHARED | {"diskless"}


class InstanceFailover(InstanceOpCode):
    """Stop the guest, and start it on another node."""

    OP_ID = "OP_INSTANCE_FAILOVER"

    target_node: str | None = None
    iallocator: str | None = None
    ignore_consistency: bool = False
    ignore_ipolicy: bool = False
    cleanup: bool = False
    shutdown_timeout: Annotated[int, Field(ge=0)] = 120


class InstanceMigrate(InstanceOpCode):
    """Move the guest while it runs."""

    OP_ID = "OP_INSTANCE_MIGRATE"

    mode: Literal["live", "non-live"] | None = None
    target_node: str | None = None
    cleanup: bool = False
    iallocator: str | None = None
    allow_failover: bool = False
    allow_runtime_changes: bool = True
    ignore_ipolicy: bool = False
    ignore_hvversions: bool = False


def _numbers(value: object) -> object:
    """Convert a text such as `0,1`, which old clients send, to a list."""
    if not isinstance(value, str):
        return value
    return [int(part) for part in value.split(",") if part.strip()]


class InstanceReplaceDisks(InstanceOpCode):
    """Replace disks, or the secondary node. disks: indexes; empty: all."""

    OP_ID = "OP_INSTANCE_REPLACE_DISKS"

    mode: Literal["replace_on_primary", "replace_on_secondary", "replace_new_secondary", "replace_auto"]
    disks: Annotated[list[Annotated[int, Field(ge=0)]], BeforeValidator(_numbers)] = Field(default_factory=list)
    remote_node: str | None = None
    iallocator: str | None = None
    early_release: bool = False
    ignore_ipolicy: bool = False


def _check_move(op: InstanceFailover | InstanceMigrate, task: Task, record: Record) -> None:
    configuration = configuration_of(record)
    if record["node"] is None:
        raise PrerequisiteError(f"Instance '{op.instance_name}' is on no node", Reason.WRONG_STATE)
    if op.target_node is not None and op.iallocator is not None:
        raise PrerequisiteError("Do not specify both, iallocator and node", Reason.WRONG_INPUT)
    if configuration.template not in _MOVABLE:
        text = f"Instance '{op.instance_name}': disk layout '{configuration.template}' does not allow it to be moved"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    target = _named_target(op, task, record, configuration)
    if target is not None:
        check_node_online(task, target, may_be_drained=configuration.template in MIRRORED)


def _named_target(
    op: InstanceFailover | InstanceMigrate, task: Task, record: Record, configuration: Configuration
) -> str | None:
    """Return the name of the target node; None if the scheduler chooses it. Raises PrerequisiteError."""
    target = None if op.target_node is None else node_called(task.connection, op.target_node).name
    if target == record["node"]:
        text = f"Instance '{op.instance_name}' is on '{target}' already"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    if configuration.template not in MIRRORED:
        return target
    if configuration.secondary is None:
        text = f"Instance '{op.instance_name}' has no secondary node"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    if target not in {None, configuration.secondary}:
        text = f"Instances with disk template '{configuration.template}' can only go to their secondary node"
        raise PrerequisiteError(f"{text}, '{configuration.secondary}'", Reason.WRONG_INPUT)
    return configuration.secondary


def _check_failover(op: InstanceFailover, task: Task) -> None:
    _check_move(op, task, known_instance(op, task))


def _check_migrate(op: InstanceMigrate, task: Task) -> None:
    record = real_instance(op, task)
    _check_move(op, task, record)
    if not op.allow_failover:
        check_online(op, record, "be migrated")
        if record["power_state"] != RUNNING:
            text = f"Instance '{op.instance_name}' does not run: only a failover can move it"
            raise PrerequisiteError(text, Reason.WRONG_STATE)
    check_node_online(task, record["node"])


def _take(opcode: type[InstanceFailover | InstanceMigrate], task: Task) -> None:
    """Claim the target node, and announce the begin of the move. Raises PrerequisiteError."""
    op = opcode.read(task.parameters)
    record, uuid = task.record, task.instance.uuid
    configuration = configuration_of(record)
    demand = demand_of_instance(configuration, read_parameters(task.connection))
    name = _named_target(op, task, record, configuration)
    if configuration.template in MIRRORED and name is not None:
        take_more(task.connection, uuid, name, Amount.of_gib(0, 0, demand.disk_gib), demand)
    else:
        name = _claim(task, demand, name)
    target = node_called(task.connection, name)
    task.notes["destination"] = {"host": target.host, "node": target.name, "availability_zone": target.zone}
    if record["forthcoming"]:
        mark_forthcoming(task.connection, uuid, is_forthcoming=True)
    else:
        begin, task.notes["arrival"] = _events(opcode, task)
        task.instance.change(begin, {"task_state": "migrating"}, task.now, request=task.job.request)


def _events(opcode: type[InstanceFailover | InstanceMigrate], task: Task) -> tuple[str, str]:
    """Return the event types of the begin and the arrival: Nova's for what happens to the guest."""
    if task.record["power_state"] != RUNNING:
        return INSTANCE_UPDATE, INSTANCE_UPDATE
    if opcode is InstanceMigrate:
        return "instance.live_migration_pre.start", INSTANCE_LIVE_MIGRATION_POST_DEST_END
    if node_called(task.connection, task.record["node"]).is_offline:
        # Nothing can shut down the guest on an offline node.
        return "instance.evacuate", INSTANCE_POWER_ON_END
    return "instance.power_off.start", INSTANCE_POWER_ON_END


def _claim(task: Task, demand: Amount, name: str | None) -> str:
    origin = node_called(task.connection, task.record["node"])
    spec = RequestSpec(node=name, node_group=None if name else origin.group_uuid, without=(origin.host,))
    try:
        return claim_host(task.connection, task.instance.uuid, demand, spec).nodename
    except NoValidHostError:
        raise no_room(demand, Wanted(name)) from None


def _moving(task: Task) -> Mapping[str, Any]:
    target = task.notes["destination"]
    return {
        "target": target["node"],
        "target_host": target["host"],
        "start": origin_of(task)["power_state"] == RUNNING,
        "keeps_disks": configuration_of(task.record).template in MIRRORED,
    }


def _left(_task: Task) -> None:
    """Do nothing after the call by which the old node removed the guest, but for mirrored disks."""


def _arrive(task: Task) -> None:
    """Put the instance on the target node, and release its claims on the old one, but for mirrored disks."""
    record, uuid = task.record, task.instance.uuid
    configuration = configuration_of(record)
    origin = node_called(task.connection, record["node"])
    cluster = read_parameters(task.connection)
    after = configuration
    if configuration.template in MIRRORED:
        disk_gib = demand_of_instance(configuration, cluster).disk_gib
        allocate(task.connection, uuid, origin.id, Amount.of_gib(0, 0, disk_gib))
        after = replace(configuration, secondary=origin.name)
    else:
        release(task.connection, uuid, origin.name)
    is_reserved = record["forthcoming"]
    if is_reserved:
        mark_forthcoming(task.connection, uuid, is_forthcoming=True)
    moved: dict[str, Any] = {**task.notes["destination"], "task_state": None}
    if record["ganeti"] is not None:
        moved |= after.values(cluster, is_forthcoming=is_reserved)
    event_type = "reservation.move.end" if is_reserved else task.notes["arrival"]
    task.instance.change(event_type, moved, task.now, request=task.job.request)


def _is_reserved(task: Task) -> bool:
    return bool(task.record["forthcoming"])


def _is_real(task: Task) -> bool:
    return not task.record["forthcoming"]


def _give_back(task: Task, error: Exception) -> None:
    """Leave the instance on its node, and release its claims on the target."""
    destination = task.notes.get("destination")
    if destination is None:
        return
    if destination["node"] == task.record["node"]:
        # The instance has arrived; only the removal from its old node has failed.
        task_ends(task, error)
        return
    configuration = configuration_of(task.record)
    node = node_called(task.connection, destination["node"])
    if configuration.secondary == node.name:
        demand = demand_of_instance(configuration, read_parameters(task.connection))
        allocate(task.connection, task.instance.uuid, node.id, Amount.of_gib(0, 0, demand.disk_gib))
    else:
        release(task.connection, task.instance.uuid, node.name)
    if not task.record["forthcoming"]:
        task_ends(task, error)
        if isinstance(error, NodeCallError) and not error.is_certain:
            # The outcome of the call is unknown, and so is the node where the guest runs.
            task.instance.change("instance.update", {"vm_state": "error"}, task.now, request=task.job.request)


def _check_replace(op: InstanceReplaceDisks, task: Task) -> None:
    record = known_instance(op, task)
    configuration = configuration_of(record)
    if configuration.template not in MIRRORED:
        text = "Can only run replace disks for DRBD8-based instances"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)
    is_new = op.mode == "replace_new_secondary"
    if is_new and (op.remote_node is None) == (op.iallocator is None):
        text = "When changing the secondary either an iallocator script must be used or the new node given"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)
    if not is_new and (op.remote_node is not None or op.iallocator is not None):
        text = "The iallocator and new node options can only be used when changing the secondary node"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)
    unknown = [index for index in op.disks if index >= len(configuration.disks)]
    if unknown:
        raise PrerequisiteError(f"Disk {unknown[0]} is not of this instance", Reason.WRONG_INPUT)
    if op.remote_node is not None:
        _check_new_secondary(task, record, configuration, op.remote_node)


def _check_new_secondary(task: Task, record: Record, configuration: Configuration, name: str) -> None:
    node = usable_node(task.connection, name, is_primary=False)
    if node.name == record["node"]:
        raise PrerequisiteError("The specified node is the primary node of the instance", Reason.WRONG_INPUT)
    if node.name == configuration.secondary:
        raise PrerequisiteError("The specified node is already the secondary node of the instance", Reason.WRONG_INPUT)


def _changes_secondary(task: Task) -> bool:
    return InstanceReplaceDisks.read(task.parameters).mode == "replace_new_secondary"


def _replace_secondary(task: Task) -> None:
    op = InstanceReplaceDisks.read(task.parameters)
    record, uuid = task.record, task.instance.uuid
    configuration = configuration_of(record)
    cluster = read_parameters(task.connection)
    disk_gib = demand_of_instance(configuration, cluster).disk_gib
    before = configuration.secondary
    # Exclude the old secondary node, whose claim goes only after the new one is made.
    new = take_secondary(task.connection, uuid, record["node"], op.remote_node, disk_gib, without=before)
    if before is not None:
        release(task.connection, uuid, before)
    is_reserved = record["forthcoming"]
    mark_forthcoming(task.connection, uuid, is_forthcoming=is_reserved)
    values = replace(configuration, secondary=new.name).values(cluster, is_forthcoming=is_reserved)
    event_type = "reservation.move.end" if is_reserved else INSTANCE_UPDATE
    task.instance.change(event_type, values, task.now, request=task.job.request)


MOVE: tuple[tuple[str, Operation], ...] = (
    operation(
        InstanceFailover,
        _check_failover,
        Step(partial(_take, InstanceFailover)),
        Step(_arrive, _is_reserved),
        Step(_arrive, _is_real, host_call("failover", _moving, origin_host)),
        Step(_left, _is_real, host_call("leave", _moving, origin_host)),
        locks=instance_lock,
        undo=host_call("undo_move", _moving, origin_host),
        show_failure=_give_back,
    ),
    operation(
        InstanceMigrate,
        _check_migrate,
        Step(partial(_take, InstanceMigrate)),
        Step(_arrive, call=host_call("migrate", _moving, origin_host)),
        Step(_left, call=host_call("leave", _moving, origin_host)),
        locks=instance_lock,
        undo=host_call("undo_migrate", _moving, origin_host),
        show_failure=_give_back,
    ),
    operation(
        InstanceReplaceDisks,
        _check_replace,
        Step(_replace_secondary, _changes_secondary),
        locks=instance_lock,
    ),
)
