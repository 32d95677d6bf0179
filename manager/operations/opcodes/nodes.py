"""Operations of Ganeti on nodes: their roles and parameters.

`offline` and `drained` are flags of the compute service of the node (docs/decisions/0019).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from sqlalchemy import Row, func, select

from fleetlight.cells.tables import compute_nodes, instances, services
from fleetlight.manager.operations.hosts.cell_nodes import change_service
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.model import Lock
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.manager.operations.jobs.vocabulary import Operation, Task
from fleetlight.manager.operations.nodes.host_calls import FORGET
from fleetlight.manager.operations.opcodes.building import operation
from fleetlight.manager.operations.opcodes.configuration_changes import Changes, change_item, configuring
from fleetlight.manager.operations.opcodes.groups import refuse_states
from fleetlight.manager.operations.opcodes.lookups import known_node
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.opcodes.parameter_values import node_parameters, wrong

_FLAGS = ("master_candidate", "drained", "offline")
_CHANGEABLE = (*_FLAGS, "master_capable", "vm_capable", "secondary_ip", "ndparams", "powered", "hv_state", "disk_state")
_OF_SERVICE = {"drained": "disabled", "offline": "forced_down"}


class NodeOpCode(OpCode):
    ABOUT = "node_name"

    node_name: str


class NodeSetParams(NodeOpCode):
    """Change a node. auto_promote, force: have no effect, since no node leads a native cell."""

    OP_ID = "OP_NODE_SET_PARAMS"

    force: bool = False
    master_candidate: bool | None = None
    offline: bool | None = None
    drained: bool | None = None
    auto_promote: bool = False
    master_capable: bool | None = None
    vm_capable: bool | None = None
    secondary_ip: str | None = None
    ndparams: dict[str, Any] | None = None
    powered: bool | None = None
    hv_state: dict[str, Any] | None = None
    disk_state: dict[str, Any] | None = None


class NodePowercycle(NodeOpCode):
    OP_ID = "OP_NODE_POWERCYCLE"

    force: bool = False


@dataclass(frozen=True, slots=True)
class _Change:
    """A planned change. flags: all three new flags. values: new column values of the node.

    told: the result of the operation.
    """

    node: Row[Any]
    service: Row[Any]
    flags: Mapping[str, bool]
    values: Mapping[str, Any]
    told: Changes


def _plan_modify(op: NodeSetParams, task: Task) -> _Change:
    if all(getattr(op, name) is None for name in _CHANGEABLE):
        raise wrong("Please pass at least one modification")
    if sum(bool(getattr(op, name)) for name in _FLAGS) > 1:
        raise wrong("Can't set the node into more than one state at the same time")
    refuse_states(op.hv_state, op.disk_state)
    node = known_node(task, op.node_name)
    service = task.connection.execute(select(services).where(services.c.id == node.service_id).with_for_update()).one()
    _check_capabilities(op, task, node)
    if op.powered is not None:
        text = f"Node {op.node_name} does not support out of band handling, can not change powered state"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    before = {"master_candidate": node.master_candidate, "drained": service.disabled, "offline": service.forced_down}
    flags = _flags(op, before)
    values = _values(op, node)
    told = [[name, str(value)] for name, value in values.items()]
    told += [[name, str(value)] for name, value in flags.items() if value != before[name]]
    return _Change(node, service, flags, values, told)


def _check_capabilities(op: NodeSetParams, task: Task, node: Row[Any]) -> None:
    is_capable = node.master_capable if op.master_capable is None else op.master_capable
    if op.master_candidate and not is_capable:
        text = f"Node {op.node_name} is not master capable, cannot make it a master candidate"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    if op.vm_capable is False:
        on_node = (instances.c.node == node.hypervisor_hostname, instances.c.deleted.is_(False))
        count = task.connection.scalar(select(func.count()).select_from(instances).where(*on_node))
        if count:
            text = f"Node {op.node_name} hosts {count} instances, cannot unset the 'vm_capable' flag"
            raise PrerequisiteError(text, Reason.WRONG_STATE)


def _flags(op: NodeSetParams, before: Mapping[str, bool]) -> Mapping[str, bool]:
    """Return the new flags. Setting a flag clears the others, and a node that is not capable is no candidate."""
    given = {name: value for name in _FLAGS if (value := getattr(op, name)) is not None}
    after = dict.fromkeys(_FLAGS, False) | given if any(given.values()) else {**before, **given}
    return {**after, "master_candidate": False} if op.master_capable is False else after


def _values(op: NodeSetParams, node: Row[Any]) -> Mapping[str, Any]:
    values: dict[str, Any] = {}
    for name in ("master_capable", "vm_capable"):
        if getattr(op, name) is not None:
            values[name] = getattr(op, name)
    if op.secondary_ip is not None:
        values["secondary_ip"] = _address(op.secondary_ip)
    if op.ndparams is not None:
        values["ndparams"] = node_parameters(node.ndparams, op.ndparams)
    return values


def _address(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except ValueError as error:
        raise wrong(f"Secondary IP ({text}) needs to be a valid IPv4 address") from error


def _modify(change: _Change, task: Task) -> Changes:
    values = {**change.values, "master_candidate": change.flags["master_candidate"]}
    change_item(task, compute_nodes, change.node, values)
    of_service = {column: change.flags[flag] for flag, column in _OF_SERVICE.items()}
    if any(change.service._mapping[column] != value for column, value in of_service.items()):
        # An enabled host has no reason for being disabled.
        reason = {} if of_service["disabled"] else {"disabled_reason": None}
        change_service(task.connection, change.service.uuid, {**of_service, **reason}, task.now)
    return change.told


def _refuse_powercycle(op: NodePowercycle, task: Task) -> None:
    known_node(task, op.node_name)
    raise PrerequisiteError(f"Node {op.node_name} is simulated and has no power to cycle", Reason.ENVIRONMENT)


def node_lock(op: NodeOpCode, _instance_uuid: str | None) -> Collection[Lock]:
    """Return the lock of the operation's node."""
    return (Lock("node", op.node_name),)


def _forget(task: Task) -> NodeCall | None:
    """Return the call that drops the cached state of a node which goes offline or comes back."""
    op = NodeSetParams.read(task.parameters)
    if op.offline is None:
        return None
    node = known_node(task, op.node_name)
    host = task.connection.scalar(select(services.c.host).where(services.c.id == node.service_id))
    return NodeCall(str(host), FORGET)


NODES: tuple[tuple[str, Operation], ...] = (
    configuring(NodeSetParams, _plan_modify, _modify, locks=node_lock, call=_forget),
    operation(NodePowercycle, _refuse_powercycle, locks=node_lock),
)
