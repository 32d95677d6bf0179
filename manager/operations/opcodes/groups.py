"""Operations of Ganeti on node groups."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import Row, delete, insert, select, update

from fleetlight.cells.tables import compute_nodes, instances, network_connections, node_groups
from fleetlight.manager.operations.hosts.node_announcements import announce_changed_nodes
from fleetlight.manager.operations.jobs.errors import JobError, PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.model import Lock
from fleetlight.manager.operations.jobs.vocabulary import Operation, Task
from fleetlight.manager.operations.opcodes.configuration_changes import Changes, change_item, configuring
from fleetlight.manager.operations.opcodes.lookups import groups_called, known_group, known_node
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.opcodes.parameter_values import (
    disk_parameters,
    instance_policy,
    node_parameters,
    object_of,
    wrong,
)
from fleetlight.resources.query_fields.cluster_parameters import Parameters
from fleetlight.resources.uuids import is_uuid

AllocPolicy = Literal["preferred", "last_resort", "unallocable"]


class _GroupOpCode(OpCode):
    ABOUT = "group_name"

    group_name: str


class _Parameters(_GroupOpCode):
    """Parameters of a group. hv_state, disk_state: must be empty, as cells do not store them."""

    alloc_policy: AllocPolicy | None = None
    ndparams: dict[str, Any] | None = None
    diskparams: dict[str, Any] | None = None
    ipolicy: dict[str, Any] | None = None
    hv_state: dict[str, Any] | None = None
    disk_state: dict[str, Any] | None = None


class GroupAdd(_Parameters):
    OP_ID = "OP_GROUP_ADD"


class GroupSetParams(_Parameters):
    OP_ID = "OP_GROUP_SET_PARAMS"


class GroupRemove(_GroupOpCode):
    OP_ID = "OP_GROUP_REMOVE"


class GroupRename(_GroupOpCode):
    OP_ID = "OP_GROUP_RENAME"

    new_name: str


class GroupAssignNodes(_GroupOpCode):
    """Move nodes to a group. force: allow instances whose nodes are in two groups afterwards."""

    OP_ID = "OP_GROUP_ASSIGN_NODES"

    nodes: list[str]
    force: bool = False


@dataclass(frozen=True, slots=True)
class _Change:
    """A planned change. values: new column values of the group. told: the result of the operation."""

    group: Row[Any]
    values: Mapping[str, Any]
    told: Changes


def check_name(name: str) -> str:
    """Return a name of a group or network. Raises PrerequisiteError if it is invalid."""
    # Lookups could not tell a name that is a uuid from the uuid of another item.
    if not name.strip() or "/" in name or is_uuid(name):
        raise wrong(f"Invalid name '{name}'")
    return name


def refuse_states(hv_state: Parameters | None, disk_state: Parameters | None) -> None:
    """Raises PrerequisiteError for states of hypervisors or disks, which cells do not store."""
    if hv_state or disk_state:
        raise wrong("States of hypervisors and disks (hv_state, disk_state) are not kept here")


def _plan_add(op: GroupAdd, task: Task) -> Mapping[str, Any]:
    refuse_states(op.hv_state, op.disk_state)
    if found := groups_called(task.connection, check_name(op.group_name)):
        text = f"Desired group name '{op.group_name}' already exists as a node group (UUID: {found[0].uuid})"
        raise PrerequisiteError(text, Reason.EXISTS)
    return {
        "name": op.group_name,
        "alloc_policy": op.alloc_policy or "preferred",
        **_parameters(op, {"ndparams": {}, "diskparams": {}, "ipolicy": {}}),
    }


def _add(values: Mapping[str, Any], task: Task) -> None:
    own = {"uuid": str(uuid4()), "tags": [], "serial_no": 1, "created_at": task.now, "updated_at": task.now}
    task.connection.execute(insert(node_groups).values(**values, **own))


def _plan_modify(op: GroupSetParams, task: Task) -> _Change:
    given = (op.alloc_policy, op.ndparams, op.diskparams, op.ipolicy, op.hv_state, op.disk_state)
    if all(value is None for value in given):
        raise wrong("Please pass at least one modification")
    refuse_states(op.hv_state, op.disk_state)
    group = known_group(task, op.group_name)
    own = {
        name: getattr(group, name) for name in ("ndparams", "diskparams", "ipolicy") if getattr(op, name) is not None
    }
    parameters = _parameters(op, own)
    policy = {} if op.alloc_policy is None else {"alloc_policy": op.alloc_policy}
    told = [[name, str(value)] for name, value in parameters.items() if name != "ipolicy"]
    return _Change(group, {**policy, **parameters}, told)


def _parameters(op: _Parameters, own: Mapping[str, Parameters]) -> Mapping[str, Parameters]:
    """Merge the operation's values into the parameters that `own` names. Raises PrerequisiteError."""
    merged: dict[str, Parameters] = {}
    for name, before in own.items():
        given = object_of(getattr(op, name) or {}, name)
        match name:
            case "ndparams":
                merged[name] = node_parameters(before, given)
            case "diskparams":
                merged[name] = disk_parameters(before, given)
            case _:
                merged[name] = instance_policy(before, given, is_of_group=True)
    return merged


def _modify(change: _Change, task: Task) -> Changes:
    change_item(task, node_groups, change.group, change.values)
    return change.told


def _plan_remove(op: GroupRemove, task: Task) -> Row[Any]:
    group = known_group(task, op.group_name)
    inside = compute_nodes.c.group_uuid == group.uuid
    nodes = task.connection.scalars(
        select(compute_nodes.c.hypervisor_hostname).where(inside).order_by(compute_nodes.c.hypervisor_hostname)
    ).all()
    if nodes:
        text = f"Group '{op.group_name}' not empty, has the following nodes: {', '.join(nodes)}"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    if len(task.connection.execute(select(node_groups.c.id).limit(2)).all()) < 2:
        raise PrerequisiteError(f"Group '{op.group_name}' is the only group, cannot be removed", Reason.WRONG_STATE)
    return group


def _remove(group: Row[Any], task: Task) -> None:
    task.connection.execute(delete(network_connections).where(network_connections.c.group_uuid == group.uuid))
    task.connection.execute(delete(node_groups).where(node_groups.c.uuid == group.uuid))


def _plan_rename(op: GroupRename, task: Task) -> tuple[Row[Any], str]:
    group = known_group(task, op.group_name)
    if found := groups_called(task.connection, check_name(op.new_name)):
        text = f"Desired new name '{op.new_name}' clashes with existing node group (UUID: {found[0].uuid})"
        raise PrerequisiteError(text, Reason.EXISTS)
    return group, op.new_name


def _rename(plan: tuple[Row[Any], str], task: Task) -> str:
    group, name = plan
    change_item(task, node_groups, group, {"name": name})
    return name


def _plan_assignment(op: GroupAssignNodes, task: Task) -> tuple[Row[Any], Sequence[Row[Any]]]:
    group = known_group(task, op.group_name)
    nodes = [known_node(task, name) for name in op.nodes]
    moving = {node.hypervisor_hostname for node in nodes if node.group_uuid != group.uuid}
    if moving and not op.force and (split := _newly_split(task, moving, group.uuid)):
        text = f"The following instances get split by this change and --force was not given: {', '.join(split)}"
        raise JobError(text)
    return group, nodes


def _newly_split(task: Task, moving: Collection[str], group_uuid: str) -> Sequence[str]:
    """Return the names of instances whose nodes are in one group now, and would be in several."""
    of_nodes = select(compute_nodes.c.hypervisor_hostname, compute_nodes.c.group_uuid)
    before = {row[0]: row[1] for row in task.connection.execute(of_nodes)}
    after = {**before, **dict.fromkeys(moving, group_uuid)}
    statement = select(instances.c.uuid, instances.c.display_name, instances.c.node, instances.c.ganeti).where(
        instances.c.deleted.is_(False), instances.c.ganeti.is_not(None), instances.c.node.is_not(None)
    )
    split = []
    for row in task.connection.execute(statement):
        nodes = [row.node, *(row.ganeti["values"].get("snodes") or ())]
        groups = [{where.get(node) for node in nodes} for where in (before, after)]
        if len(groups[0]) == 1 and len(groups[1]) > 1:
            split.append(row.display_name or row.uuid)
    return sorted(split)


def _assign(plan: tuple[Row[Any], Sequence[Row[Any]]], task: Task) -> None:
    group, nodes = plan
    columns = compute_nodes.c
    is_moving = columns.uuid.in_([node.uuid for node in nodes if node.group_uuid != group.uuid])
    values = {"group_uuid": group.uuid, "serial_no": columns.serial_no + 1, "updated_at": task.now}
    task.connection.execute(update(compute_nodes).where(is_moving).values(values))
    announce_changed_nodes(task.connection, task.now, is_moving)


def _lock(op: _GroupOpCode, _instance_uuid: str | None) -> Collection[Lock]:
    return (Lock("nodegroup", op.group_name),)


def _lock_with_nodes(op: GroupAssignNodes, _instance_uuid: str | None) -> Collection[Lock]:
    return (Lock("nodegroup", op.group_name), *(Lock("node", name) for name in sorted(set(op.nodes))))


GROUPS: tuple[tuple[str, Operation], ...] = (
    configuring(GroupAdd, _plan_add, _add, locks=_lock),
    configuring(GroupSetParams, _plan_modify, _modify, locks=_lock),
    configuring(GroupRemove, _plan_remove, _remove, locks=_lock),
    configuring(GroupRename, _plan_rename, _rename, locks=_lock),
    configuring(GroupAssignNodes, _plan_assignment, _assign, locks=_lock_with_nodes),
)
