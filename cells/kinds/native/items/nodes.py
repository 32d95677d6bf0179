"""The nodes of a native cell as records: their stored fields, and the instances on them.

A node is offline while its service is forced down, and drained while its service is disabled. The capacity and use of a
simulated host are those of its row and allocations; it uses no processors or memory itself.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from fleetlight.cells.kinds.native.allocated import allocated_by_node
from fleetlight.cells.kinds.native.items.stored_nodes import read_stored_nodes
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import allocations, compute_nodes, instances
from fleetlight.query.sort import nice_key
from fleetlight.resources.amount import Amount
from fleetlight.resources.fields import Record
from fleetlight.resources.node import has_size, shown_node
from fleetlight.resources.query_fields.definitions import ResultStatus

_FREE = frozenset({"mfree", "dfree"})
_OF_SECONDARIES = frozenset({"sinst_cnt", "sinst_list"})


def read_node_records(
    connection: Connection, _cell: Cell, fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    """Every node; names of instances, and free resources, are read only if `fields` has them."""
    counts = instance_counts(connection) if "pinst_cnt" in fields else {}
    names = instance_names(connection) if "pinst_list" in fields else {}
    secondaries = secondary_instances(connection) if not _OF_SECONDARIES.isdisjoint(fields) else {}
    used = None if _FREE.isdisjoint(fields) else _used(connection)
    return [
        {
            **shown_node(node.record),
            **_free(node.record, None if used is None else used.get(node.id, Amount())),
            "pinst_cnt": counts.get(node.record["hypervisor_hostname"], 0),
            "pinst_list": names.get(node.record["hypervisor_hostname"], []),
            "sinst_cnt": len(secondaries.get(node.record["hypervisor_hostname"], ())),
            "sinst_list": _names(secondaries.get(node.record["hypervisor_hostname"], ())),
        }
        for node in read_stored_nodes(connection)
    ]


def instance_counts(connection: Connection) -> Mapping[str, int]:
    """The number of instances by name of the node."""
    statement = (
        select(instances.c.node, func.count())
        .where(instances.c.deleted.is_(False), instances.c.node.is_not(None))
        .group_by(instances.c.node)
    )
    return {row[0]: row[1] for row in connection.execute(statement)}


def instance_names(connection: Connection) -> Mapping[str, Sequence[str]]:
    """The names of instances by name of the node; leaves out instances without a name."""
    statement = select(instances.c.node, instances.c.display_name).where(
        instances.c.deleted.is_(False), instances.c.node.is_not(None), instances.c.display_name.is_not(None)
    )
    found = defaultdict[str, list[str]](list)
    for node, name in connection.execute(statement):
        found[node].append(name)
    return {node: _names(names) for node, names in found.items()}


def secondary_instances(connection: Connection) -> Mapping[str, Sequence[str | None]]:
    """The names of instances with a copy of their disks on a node, by name of the node; None for one without a name.

    Such an instance uses only disk there.
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


def _used(connection: Connection) -> Mapping[int, Amount]:
    """The use of each node by id, without reservations, which a node itself does not know."""
    statement = allocated_by_node(~allocations.c.is_forthcoming)
    return {node: Amount.of_gib(*sums) for node, _, _, *sums in connection.execute(statement)}


def _free(stored: Record, used: Amount | None) -> Mapping[str, Any]:
    """The free resources of a node, without regard to reservations. used: None if no field needs it."""
    if stored["offline"]:
        return dict.fromkeys(_FREE, ResultStatus.OFFLINE)
    if used is None or not has_size(stored):
        return dict.fromkeys(_FREE, ResultStatus.NO_DATA)
    free = Amount.of_gib(stored["vcpus"], stored["memory_mib"], stored["disk_gib"]) - used
    return {
        "mfree": free.memory_mib,
        "dfree": free.disk_mib,
    }
