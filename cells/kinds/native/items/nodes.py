"""The nodes of a native cell as records: a compute node with its service, its group, and the instances on it.

A node is offline while its service is forced down, and drained while its service is disabled. What the simulated host
of a node has and gives is what its row and the allocations say; it has no processors or memory of its own to use.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from cells.kinds.native.items.cluster import read_parameters
from cells.kinds.native.items.json_columns import as_text, decoded_or, is_number
from cells.kinds.native.nodes import Capacity, ComputeNode, read_nodes
from cells.model import Cell
from cells.tables import allocations, compute_nodes, instances, node_groups
from query.sort import nice_key
from resources.cluster_parameters import Parameters
from resources.fields import Record
from resources.query_fields.definitions import CellStatus
from resources.query_fields.parameters import NODE_PARAMETERS

AGENT_ADDRESS = "agent_address"
"""What a record says beside the fields that can be asked for: where the agent of the node answers, if it has one."""

_MIB_OF_GIB = 1024
_LIVE = ("ctotal", "mtotal", "mfree", "dtotal", "dfree")
_FREE = frozenset({"mfree", "dfree"})
_OF_SECONDARIES = frozenset({"sinst_cnt", "sinst_list"})
_NOTHING = Capacity(0, 0, 0)


def read_node_records(
    connection: Connection, _cell: Cell, fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    """Every node; the names of instances are read only if `fields` has them."""
    settings, cluster = _settings(connection), read_parameters(connection)
    counts = instance_counts(connection) if "pinst_cnt" in fields else {}
    names = instance_names(connection) if "pinst_list" in fields else {}
    secondaries = secondary_instances(connection) if not _OF_SECONDARIES.isdisjoint(fields) else {}
    reserved = _reserved(connection) if not _FREE.isdisjoint(fields) else {}
    return [
        {
            **_record(node, settings[node.id], cluster, reserved.get(node.id, _NOTHING)),
            "pinst_cnt": counts.get(node.hypervisor_hostname, 0),
            "pinst_list": names.get(node.hypervisor_hostname, []),
            "sinst_cnt": len(secondaries.get(node.hypervisor_hostname, ())),
            "sinst_list": _names(secondaries.get(node.hypervisor_hostname, ())),
        }
        for node in read_nodes(connection)
        if node.id in settings  # it has just joined
    ]


def instance_counts(connection: Connection) -> Mapping[str, int]:
    """How many instances are on each node, by its name."""
    statement = (
        select(instances.c.node, func.count())
        .where(instances.c.deleted.is_(False), instances.c.node.is_not(None))
        .group_by(instances.c.node)
    )
    return {row[0]: row[1] for row in connection.execute(statement)}


def instance_names(connection: Connection) -> Mapping[str, Sequence[str]]:
    """The names of the instances on each node, by its name; without those that have none."""
    statement = select(instances.c.node, instances.c.display_name).where(
        instances.c.deleted.is_(False), instances.c.node.is_not(None), instances.c.display_name.is_not(None)
    )
    found = defaultdict[str, list[str]](list)
    for node, name in connection.execute(statement):
        found[node].append(name)
    return {node: _names(names) for node, names in found.items()}


def secondary_instances(connection: Connection) -> Mapping[str, Sequence[str | None]]:
    """The names of the instances that have a copy of their disks on each node, by its name; None without one.

    Such an instance takes up disk there, and nothing else.
    """
    statement = (
        select(compute_nodes.c.hypervisor_hostname, instances.c.display_name)
        .join_from(allocations, compute_nodes, compute_nodes.c.id == allocations.c.node_id)
        .join(instances, instances.c.uuid == allocations.c.instance_uuid)
        .where(
            allocations.c.vcpus == 0,
            allocations.c.memory_mib == 0,
            instances.c.node != compute_nodes.c.hypervisor_hostname,
        )
    )
    found = defaultdict[str, list[str | None]](list)
    for node, name in connection.execute(statement):
        found[node].append(name)
    return found


def _names(names: Iterable[str | None]) -> Sequence[str]:
    return sorted((name for name in names if name is not None), key=nice_key)


def _reserved(connection: Connection) -> Mapping[int, Capacity]:
    """What reservations take up of each node, by its number: a node itself knows nothing of it."""
    columns = allocations.c
    sums = (func.sum(column) for column in (columns.vcpus, columns.memory_mib, columns.disk_gib))
    statement = select(columns.node_id, *sums).where(columns.is_forthcoming).group_by(columns.node_id)
    return {node: Capacity(*map(int, amounts)) for node, *amounts in connection.execute(statement)}


def node_parameters(cluster: Parameters, of_group: Parameters, of_node: Parameters) -> Parameters:
    """The parameters of a node with what its group, and then the cell, fill in."""
    return {**cluster["ndparams"], **of_group, **of_node}


def _settings(connection: Connection) -> Mapping[int, Mapping[str, Any]]:
    """What is configured of each node beside its size, by its number."""
    columns = compute_nodes.c
    statement = select(
        columns.id,
        columns.master_candidate,
        columns.master_capable,
        columns.vm_capable,
        columns.secondary_ip,
        columns.agent_address,
        columns.serial_no,
        columns.updated_at,
        as_text(columns.tags),
        as_text(columns.ndparams),
        node_groups.c.uuid.label("group_uuid"),
        node_groups.c.name.label("group"),
        as_text(node_groups.c.ndparams).label("ndparams_of_group"),
    ).join_from(compute_nodes, node_groups, node_groups.c.uuid == columns.group_uuid, isouter=True)
    return {row.id: dict(row._mapping) for row in connection.execute(statement)}


def _record(node: ComputeNode, settings: Mapping[str, Any], cluster: Parameters, reserved: Capacity) -> Record:
    own = decoded_or(settings["ndparams"], {})
    filled = node_parameters(cluster, decoded_or(settings["ndparams_of_group"], {}), own)
    is_offline = not node.service.is_up
    return {
        "name": node.hypervisor_hostname,
        "uuid": node.uuid,
        "serial_no": settings["serial_no"],
        "tags": decoded_or(settings["tags"], []),
        "ctime": node.created_at,
        "mtime": _latest(settings["updated_at"], node.created_at, node.service.updated_at),
        "pip": node.host_ip,
        "sip": settings["secondary_ip"] or node.host_ip,
        AGENT_ADDRESS: settings["agent_address"],
        "offline": is_offline,
        "drained": node.service.disabled,
        "master_candidate": settings["master_candidate"],
        "master_capable": settings["master_capable"],
        "vm_capable": settings["vm_capable"],
        # Its database leads a native cell, and none of its nodes.
        "master": False,
        "role": _role(settings["master_candidate"], is_drained=node.service.disabled, is_offline=is_offline),
        "group": settings["group"],
        "group.uuid": settings["group_uuid"],
        "ndparams": filled,
        "custom_ndparams": own,
        **{f"ndp/{name}": filled[name] for name in NODE_PARAMETERS},
        **(dict.fromkeys(_LIVE, CellStatus.OFFLINE) if is_offline else _live(node, reserved)),
    }


def _latest(*moments: int | None) -> int:
    """The last of some times; CellStatus.NO_DATA, which is a number too, where there is none."""
    return max((moment for moment in moments if moment is not None and is_number(moment)), default=CellStatus.NO_DATA)


def _live(node: ComputeNode, reserved: Capacity) -> Mapping[str, Any]:
    """What the node says: what it has, and what is free of it but for reservations."""
    size = node.capacity
    if not all(map(is_number, (size.vcpus, size.memory_mib, size.disk_gib))):
        return dict.fromkeys(_LIVE, CellStatus.NO_DATA)
    return {
        "ctotal": node.capacity.vcpus,
        "mtotal": node.capacity.memory_mib,
        "mfree": node.free.memory_mib + reserved.memory_mib,
        "dtotal": node.capacity.disk_gib * _MIB_OF_GIB,
        "dfree": (node.free.disk_gib + reserved.disk_gib) * _MIB_OF_GIB,
    }


def _role(is_candidate: bool, *, is_drained: bool, is_offline: bool) -> str:
    """The letter of the role (contracts/ganeti-rapi, 6)."""
    if is_candidate:
        return "C"
    if is_drained:
        return "D"
    return "O" if is_offline else "R"
