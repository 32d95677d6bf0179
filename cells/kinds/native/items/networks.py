"""The networks of a native cell as records: addresses, connected groups, and instances."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from fleetlight.cells.kinds.native.address_pools import AddressPool
from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded_or
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instances, network_connections, network_nics, networks, node_groups
from fleetlight.query.sort import nice_key
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.definitions import ResultStatus

_PLAIN = ("uuid", "name", "network", "gateway", "network6", "gateway6", "mac_prefix", "serial_no")
_OF_POOL = ("free_count", "reserved_count", "map", "external_reservations")


def read_networks(
    connection: Connection, _cell: Cell, fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    """Every network; addresses and names of instances are read only if `fields` has them."""
    columns = networks.c
    plain = [columns[name] for name in (*_PLAIN, "created_at", "updated_at")]
    others = [as_text(columns.external_reservations), as_text(columns.tags)]
    connected = _connections(connection)
    taken = _taken(connection) if not set(_OF_POOL).isdisjoint(fields) else {}
    inside = _instances(connection) if not {"inst_list", "inst_cnt"}.isdisjoint(fields) else {}
    return [
        _record(row._mapping, connected.get(row.uuid, []), taken.get(row.uuid, []), inside.get(row.uuid, []))
        for row in connection.execute(select(*plain, *others))
    ]


def _connections(connection: Connection) -> Mapping[str, Sequence[Sequence[str]]]:
    """The connected groups by uuid of the network, each with name, mode, link and VLAN."""
    of = network_connections.c
    found = defaultdict[str, list[list[str]]](list)
    statement = select(of.network_uuid, node_groups.c.name, of.mode, of.link, of.vlan).join_from(
        network_connections, node_groups, node_groups.c.uuid == of.group_uuid
    )
    for network, *connected in connection.execute(statement):
        found[network].append(connected)
    return {network: sorted(groups, key=lambda group: nice_key(group[0])) for network, groups in found.items()}


def _taken(connection: Connection) -> Mapping[str, Sequence[str]]:
    """The addresses of instances, by uuid of the network."""
    found = defaultdict[str, list[str]](list)
    of = network_nics.c
    for network, address in connection.execute(select(of.network_uuid, of.address).where(of.address.is_not(None))):
        found[network].append(address)
    return found


def _instances(connection: Connection) -> Mapping[str, Sequence[str | None]]:
    """The names of instances, or None, by uuid of the network."""
    of = network_nics.c
    statement = (
        select(of.network_uuid, instances.c.uuid, instances.c.display_name)
        .join_from(network_nics, instances, instances.c.uuid == of.instance_uuid)
        .distinct()
    )
    found = defaultdict[str, list[str | None]](list)
    for network, _, name in connection.execute(statement):
        found[network].append(name)
    return found


def _record(
    row: Mapping[Any, Any],
    connected: Sequence[Sequence[str]],
    taken: Sequence[str],
    inside: Sequence[str | None],
) -> Record:
    return {
        **{name: row[name] for name in _PLAIN},
        "tags": decoded_or(row["tags"], []),
        "ctime": row["created_at"],
        "mtime": row["updated_at"],
        "group_list": connected,
        "group_cnt": len(connected),
        "inst_list": sorted((name for name in inside if name is not None), key=nice_key),
        "inst_cnt": len(inside),
        **_pool(row, taken),
    }


def _pool(row: Mapping[Any, Any], taken: Sequence[str]) -> Mapping[str, Any]:
    try:
        pool = AddressPool.of(row["network"], row["gateway"], decoded_or(row["external_reservations"], []), taken)
    except ValueError:  # a damaged row
        return dict.fromkeys(_OF_POOL, ResultStatus.NO_DATA)
    return {
        "free_count": pool.free_count,
        "reserved_count": pool.reserved_count,
        "map": pool.map,
        "external_reservations": ", ".join(map(str, pool.external)),
    }
