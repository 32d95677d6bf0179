"""The network interfaces of instances: unique addresses, and networks."""

import ipaddress
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, delete, insert, or_, select

from fleetlight.cells.database.locks import wait_for_lock
from fleetlight.cells.kinds.native.address_pools import AddressPool
from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded_list
from fleetlight.cells.tables import network_connections, network_nics, networks, nic_macs
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.opcodes.instance_parameters import Nic
from fleetlight.manager.operations.opcodes.instances.configuration import NicValues

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_GENERATED = frozenset({None, "auto", "generate"})
_POOL = "pool"
_ATTEMPTS = 100


def take_interfaces(
    connection: Connection, instance_uuid: str, nics: Sequence[Nic], *, mac_prefix: str, group_uuid: str | None
) -> list[NicValues]:
    """Take the addresses of a new instance's interfaces; returns the interfaces.

    group_uuid: the group of its node; None before it has one. Raises PrerequisiteError.
    """
    wait_for_addresses(connection, [nic.model_dump() for nic in nics])
    return [
        take_interface(connection, instance_uuid, position, nic, mac_prefix=mac_prefix, group_uuid=group_uuid)
        for position, nic in enumerate(nics)
    ]


def wait_for_addresses(connection: Connection, nics: Sequence[NicValues]) -> None:
    """Lock the networks of interfaces, and their MAC addresses, until the transaction ends.

    The order is the same in all transactions, so no two of them wait for each other.
    """
    named = {name for nic in nics if isinstance(name := nic.get("network"), str)}
    if named:
        of = networks.c
        found = connection.scalars(select(of.uuid).where(or_(of.name.in_(named), of.uuid.in_(named))))
        for uuid in sorted(found):
            wait_for_lock(connection, _addresses_of(uuid))
    for mac in sorted({mac.lower() for nic in nics if isinstance(mac := nic.get("mac"), str)} - {"auto", "generate"}):
        wait_for_lock(connection, _mac_lock(mac))


def _addresses_of(network_uuid: str) -> str:
    return f"addresses of network {network_uuid}"


def _mac_lock(mac: str) -> str:
    return f"MAC address {mac}"


def take_interface(
    connection: Connection, instance_uuid: str, position: int, nic: Nic, *, mac_prefix: str, group_uuid: str | None
) -> NicValues:
    """As `take_interfaces`, for one interface. position: its index in the instance. Raises PrerequisiteError."""
    network = None if nic.network is None else _network(connection, nic.network)
    if network is not None and (nic.mode is not None or nic.link is not None):
        raise PrerequisiteError(f"NIC {position}: mode and link are those of its network", Reason.WRONG_INPUT)
    prefix = mac_prefix if network is None else network["mac_prefix"] or mac_prefix
    is_set: Mapping[str, Any] = {"mode": nic.mode, "link": nic.link or nic.bridge, "vlan": nic.vlan}
    if network is not None:
        is_set = _connected(connection, network, group_uuid, position)
    return {
        "mac": _take_mac(connection, instance_uuid, nic.mac, prefix),
        "ip": _take_address(connection, instance_uuid, position, nic.ip, network),
        "name": nic.name,
        "uuid": str(uuid4()),
        "network": None if network is None else network["uuid"],
        **{name: value for name, value in is_set.items() if value},
    }


def give_up_interface(connection: Connection, instance_uuid: str, position: int, nic: NicValues) -> None:
    """Release the addresses of one interface."""
    connection.execute(delete(nic_macs).where(nic_macs.c.mac == nic["mac"], nic_macs.c.instance_uuid == instance_uuid))
    columns = network_nics.c
    connection.execute(delete(network_nics).where(columns.instance_uuid == instance_uuid, columns.position == position))


def move_up_interfaces(connection: Connection, instance_uuid: str, position: int) -> None:
    """Move the interfaces behind a removed one forward by one position."""
    columns = network_nics.c
    of_instance = columns.instance_uuid == instance_uuid
    behind = connection.execute(
        select(columns.position).where(of_instance, columns.position > position).order_by(columns.position)
    ).scalars()
    for place in behind.all():
        connection.execute(
            network_nics.update().where(of_instance, columns.position == place).values(position=place - 1)
        )


def _take_mac(connection: Connection, instance_uuid: str, wanted: str | None, prefix: str) -> str:
    if wanted in _GENERATED:
        for _ in range(_ATTEMPTS):
            mac = ":".join([prefix, *(f"{random.randrange(256):02x}" for _ in range(3))])  # noqa: S311  # no secret
            if _is_free(connection, mac):
                break
        else:
            raise PrerequisiteError(f"There is no free MAC address with the prefix {prefix}", Reason.NO_RESOURCES)
    else:
        mac = str(wanted).lower()
        if not _MAC.fullmatch(mac):
            raise PrerequisiteError(f"'{wanted}' is no MAC address", Reason.WRONG_INPUT)
        if not _is_free(connection, mac):
            raise PrerequisiteError(f"MAC address {mac} is already in use in the cluster", Reason.NOT_UNIQUE)
    connection.execute(insert(nic_macs).values(mac=mac, instance_uuid=instance_uuid))
    return mac


def _is_free(connection: Connection, mac: str) -> bool:
    # Lock the address, so that no other transaction takes it.
    wait_for_lock(connection, _mac_lock(mac))
    return connection.execute(select(nic_macs.c.mac).where(nic_macs.c.mac == mac)).first() is None


def _network(connection: Connection, name: str) -> Mapping[str, Any]:
    columns = networks.c
    row = connection.execute(
        select(
            columns.uuid,
            columns.name,
            columns.network,
            columns.gateway,
            columns.mac_prefix,
            as_text(columns.external_reservations),
        ).where(or_(columns.name == name, columns.uuid == name))
    ).one_or_none()
    if row is None:
        raise PrerequisiteError(f"Network '{name}' not found", Reason.UNKNOWN)
    return dict(row._mapping)


def _connected(
    connection: Connection, network: Mapping[str, Any], group_uuid: str | None, position: int
) -> Mapping[str, Any]:
    """Return mode, link and vlan of the group's connection; none without a group. Raises PrerequisiteError."""
    if group_uuid is None:
        return {}
    columns = network_connections.c
    row = connection.execute(
        select(columns.mode, columns.link, columns.vlan).where(
            columns.network_uuid == network["uuid"], columns.group_uuid == group_uuid
        )
    ).one_or_none()
    if row is None:
        text = f"NIC {position}: network '{network['name']}' is not connected to the group of the node"
        raise PrerequisiteError(text, Reason.WRONG_STATE)
    return dict(row._mapping)


def _take_address(
    connection: Connection, instance_uuid: str, position: int, wanted: str | None, network: Mapping[str, Any] | None
) -> str | None:
    if network is None:
        if wanted == _POOL:
            text = f"NIC {position}: an address of a pool needs a network"
            raise PrerequisiteError(text, Reason.WRONG_INPUT)
        return None if wanted is None else _address(wanted)
    wait_for_lock(connection, _addresses_of(network["uuid"]))
    taken = connection.scalars(
        select(network_nics.c.address).where(
            network_nics.c.network_uuid == network["uuid"], network_nics.c.address.is_not(None)
        )
    ).all()
    external = decoded_list(network["external_reservations"], str)
    pool = AddressPool.of(network["network"], network["gateway"], external, taken)
    address = None if wanted is None else _of_pool(pool, network, wanted)
    connection.execute(
        insert(network_nics).values(
            instance_uuid=instance_uuid, position=position, network_uuid=network["uuid"], address=address
        )
    )
    return address


def _of_pool(pool: AddressPool, network: Mapping[str, Any], wanted: str) -> str:
    if wanted == _POOL:
        free = next(pool.free(), None)
        if free is None:
            raise PrerequisiteError(f"Network '{network['name']}' has no free address", Reason.NO_RESOURCES)
        return str(free)
    address = ipaddress.ip_address(_address(wanted))
    if address not in pool.subnet:
        text = f"Address {address} is not in network '{network['name']}' ({pool.subnet})"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)
    if address in pool.of_instances or address in pool.external:
        text = f"Address {address} is already in use in network '{network['name']}'"
        raise PrerequisiteError(text, Reason.NOT_UNIQUE)
    return str(address)


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise PrerequisiteError(f"'{text}' is no IP address", Reason.WRONG_INPUT) from None
