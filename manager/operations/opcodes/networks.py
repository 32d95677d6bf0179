"""Operations of Ganeti on networks: their addresses, and their connections to groups."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import Row, delete, insert, select

from fleetlight.cells.kinds.native.address_pools import AddressPool
from fleetlight.cells.tables import compute_nodes, instances, network_connections, network_nics, networks
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.model import Lock
from fleetlight.manager.operations.jobs.vocabulary import Operation, Task
from fleetlight.manager.operations.opcodes.configuration_changes import change_item, configuring
from fleetlight.manager.operations.opcodes.groups import check_name
from fleetlight.manager.operations.opcodes.lookups import known_group, known_network, networks_called
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.opcodes.parameter_values import check_mac_prefix, wrong
from fleetlight.manager.operations.opcodes.tags import check_tags

_NONE = "none"
_TEXTS = ("gateway", "network6", "gateway6", "mac_prefix")


class _NetworkOpCode(OpCode):
    ABOUT = "network_name"

    network_name: str


class NetworkAdd(_NetworkOpCode):
    """Add a network. conflicts_check: has no effect, since cells do not manage addresses outside of networks."""

    OP_ID = "OP_NETWORK_ADD"

    network: str
    gateway: str | None = None
    network6: str | None = None
    gateway6: str | None = None
    mac_prefix: str | None = None
    add_reserved_ips: list[str] | None = None
    conflicts_check: bool = True
    tags: list[str] | None = None


class NetworkSetParams(_NetworkOpCode):
    """Change a network. The word `none` removes a value."""

    OP_ID = "OP_NETWORK_SET_PARAMS"

    gateway: str | None = None
    network6: str | None = None
    gateway6: str | None = None
    mac_prefix: str | None = None
    add_reserved_ips: list[str] | None = None
    remove_reserved_ips: list[str] | None = None


class NetworkRemove(_NetworkOpCode):
    OP_ID = "OP_NETWORK_REMOVE"

    force: bool = False


class NetworkRename(_NetworkOpCode):
    OP_ID = "OP_NETWORK_RENAME"

    new_name: str


class NetworkConnect(_NetworkOpCode):
    """Connect a network to a group. conflicts_check: see NetworkAdd."""

    OP_ID = "OP_NETWORK_CONNECT"

    group_name: str
    network_mode: Literal["bridged", "routed", "openvswitch"]
    network_link: str
    network_vlan: str = ""
    conflicts_check: bool = True


class NetworkDisconnect(_NetworkOpCode):
    OP_ID = "OP_NETWORK_DISCONNECT"

    group_name: str


@dataclass(frozen=True, slots=True)
class _Connection:
    """A planned change of a connection. row: the existing one. wanted: values of the new one."""

    network: Row[Any]
    group: Row[Any]
    row: Row[Any] | None
    wanted: Mapping[str, str]


def _plan_add(op: NetworkAdd, task: Task) -> Mapping[str, Any]:
    if networks_called(task.connection, check_name(op.network_name)):
        raise PrerequisiteError(f"Network with name '{op.network_name}' already exists", Reason.EXISTS)
    check_tags(op.tags or ())
    texts = {name: value for name in _TEXTS if (value := getattr(op, name)) is not None}
    _check_texts(texts)
    reserved = op.add_reserved_ips or []
    _pool(op.network, op.gateway, reserved, [])
    return {
        "name": op.network_name,
        "network": op.network,
        **texts,
        "external_reservations": sorted(set(reserved)),
        "tags": sorted(set(op.tags or ())),
    }


def _add(values: Mapping[str, Any], task: Task) -> None:
    own = {"uuid": str(uuid4()), "serial_no": 1, "created_at": task.now, "updated_at": task.now}
    task.connection.execute(insert(networks).values(**values, **own))


def _plan_modify(op: NetworkSetParams, task: Task) -> tuple[Row[Any], Mapping[str, Any]]:
    names = (*_TEXTS, "add_reserved_ips", "remove_reserved_ips")
    if all(getattr(op, name) is None for name in names):
        raise wrong("Please pass at least one modification")
    network = known_network(task, op.network_name)
    given = {name: value for name in _TEXTS if (value := getattr(op, name)) is not None}
    texts = {name: None if value == _NONE else value for name, value in given.items()}
    _check_texts({name: value for name, value in texts.items() if value is not None})
    taken = _taken(task, network)
    reserved = _reserved(op, network, taken)
    gateway = texts.get("gateway", network.gateway)
    if gateway != network.gateway and gateway in taken:
        raise PrerequisiteError(
            f"Address {gateway} is used by an instance, so it can be no gateway", Reason.WRONG_STATE
        )
    _pool(network.network, gateway, reserved, taken)
    return network, {**texts, "external_reservations": sorted(reserved)}


def _reserved(op: NetworkSetParams, network: Row[Any], taken: Collection[str]) -> set[str]:
    """Return the external reservations after the operation. Raises PrerequisiteError."""
    reserved = set(network.external_reservations)
    for address in op.add_reserved_ips or ():
        if address in reserved or address in taken:
            raise PrerequisiteError(f"Address {address} is already reserved", Reason.WRONG_STATE)
    for address in op.remove_reserved_ips or ():
        if address not in reserved:
            raise PrerequisiteError(f"Address {address} is not reserved from outside", Reason.WRONG_STATE)
    return reserved.union(op.add_reserved_ips or ()).difference(op.remove_reserved_ips or ())


def _modify(plan: tuple[Row[Any], Mapping[str, Any]], task: Task) -> None:
    network, values = plan
    change_item(task, networks, network, values)


def _plan_remove(op: NetworkRemove, task: Task) -> Row[Any]:
    network = known_network(task, op.network_name)
    connected = select(network_connections.c.group_uuid).where(network_connections.c.network_uuid == network.uuid)
    if task.connection.execute(connected.limit(1)).first() is not None:
        raise PrerequisiteError(f"Network '{op.network_name}' is connected to node groups", Reason.WRONG_STATE)
    used = select(network_nics.c.instance_uuid).where(network_nics.c.network_uuid == network.uuid)
    if task.connection.execute(used.limit(1)).first() is not None:
        raise PrerequisiteError(f"Network '{op.network_name}' is used by instances", Reason.WRONG_STATE)
    return network


def _remove(network: Row[Any], task: Task) -> None:
    task.connection.execute(delete(networks).where(networks.c.uuid == network.uuid))


def _plan_rename(op: NetworkRename, task: Task) -> tuple[Row[Any], str]:
    network = known_network(task, op.network_name)
    if networks_called(task.connection, check_name(op.new_name)):
        raise PrerequisiteError(f"Network with name '{op.new_name}' already exists", Reason.EXISTS)
    return network, op.new_name


def _rename(plan: tuple[Row[Any], str], task: Task) -> str:
    network, name = plan
    change_item(task, networks, network, {"name": name})
    return name


def _plan_connect(op: NetworkConnect, task: Task) -> _Connection:
    wanted = {"mode": op.network_mode, "link": op.network_link, "vlan": op.network_vlan}
    return _connection(task, op.network_name, op.group_name, wanted)


def _connect(plan: _Connection, task: Task) -> None:
    if plan.row is not None:
        task.log(f"Network '{plan.network.name}' is already mapped to group '{plan.group.name}'")
        return
    values = {"network_uuid": plan.network.uuid, "group_uuid": plan.group.uuid, **plan.wanted}
    task.connection.execute(insert(network_connections).values(**values))
    change_item(task, networks, plan.network, {})


def _plan_disconnect(op: NetworkDisconnect, task: Task) -> _Connection:
    plan = _connection(task, op.network_name, op.group_name, {})
    if plan.row is not None and (used := _instances_in(task, plan)):
        text = f"Network '{op.network_name}' is used in group '{op.group_name}' by: {', '.join(used)}"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    return plan


def _disconnect(plan: _Connection, task: Task) -> None:
    if plan.row is None:
        task.log(f"Network '{plan.network.name}' is not mapped to group '{plan.group.name}'")
        return
    of = network_connections.c
    task.connection.execute(
        delete(network_connections).where(of.network_uuid == plan.network.uuid, of.group_uuid == plan.group.uuid)
    )
    change_item(task, networks, plan.network, {})


def _connection(task: Task, network_name: str, group_name: str, wanted: Mapping[str, str]) -> _Connection:
    network, group = known_network(task, network_name), known_group(task, group_name)
    of = network_connections.c
    statement = select(network_connections).where(of.network_uuid == network.uuid, of.group_uuid == group.uuid)
    return _Connection(network, group, task.connection.execute(statement).one_or_none(), wanted)


def _instances_in(task: Task, plan: _Connection) -> Sequence[str]:
    """Return the names of the instances with a node in the group and an interface in the network."""
    statement = (
        select(instances.c.uuid, instances.c.display_name)
        .join_from(network_nics, instances, instances.c.uuid == network_nics.c.instance_uuid)
        .join(compute_nodes, compute_nodes.c.hypervisor_hostname == instances.c.node)
        .where(network_nics.c.network_uuid == plan.network.uuid, compute_nodes.c.group_uuid == plan.group.uuid)
        .distinct()
    )
    return sorted(row.display_name or row.uuid for row in task.connection.execute(statement))


def _taken(task: Task, network: Row[Any]) -> Collection[str]:
    """Return the addresses of instances."""
    of = network_nics.c
    statement = select(of.address).where(of.network_uuid == network.uuid, of.address.is_not(None))
    return task.connection.scalars(statement).all()


def _pool(network: str, gateway: str | None, reserved: Collection[str], taken: Collection[str]) -> AddressPool:
    try:
        return AddressPool.of(network, gateway, reserved, taken)
    except ValueError as error:
        raise wrong(f"Invalid network, gateway or reserved address: {error}") from error


def _check_texts(texts: Mapping[str, str]) -> None:
    """Raises PrerequisiteError for an invalid prefix of MAC addresses, IPv6 network or gateway."""
    check_mac_prefix(texts.get("mac_prefix"))
    try:
        if (network := texts.get("network6")) is not None:
            IPv6Network(network)
        if (gateway := texts.get("gateway6")) is not None:
            IPv6Address(gateway)
    except ValueError as error:
        raise wrong(f"Invalid IPv6 network or gateway: {error}") from error


def _lock(op: _NetworkOpCode, _instance_uuid: str | None) -> Collection[Lock]:
    return (Lock("network", op.network_name),)


def _lock_with_group(op: NetworkConnect | NetworkDisconnect, _instance_uuid: str | None) -> Collection[Lock]:
    return (Lock("network", op.network_name), Lock("nodegroup", op.group_name))


NETWORKS: tuple[tuple[str, Operation], ...] = (
    configuring(NetworkAdd, _plan_add, _add, locks=_lock),
    configuring(NetworkSetParams, _plan_modify, _modify, locks=_lock),
    configuring(NetworkRemove, _plan_remove, _remove, locks=_lock),
    configuring(NetworkRename, _plan_rename, _rename, locks=_lock),
    configuring(NetworkConnect, _plan_connect, _connect, locks=_lock_with_group),
    configuring(NetworkDisconnect, _plan_disconnect, _disconnect, locks=_lock_with_group),
)
