"""The capacity of a native cell's nodes, and their allocations, with those of reservations apart."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from fleetlight.cells.kinds.native.agent_addresses import read_agents
from fleetlight.cells.kinds.native.allocated import allocated_by_node
from fleetlight.cells.kinds.native.nodes import read_nodes
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.cells.tables import SIZES, allocations, compute_nodes, instances, node_groups
from fleetlight.resources.amount import Amount


def read_capacity(connection: Connection) -> Sequence[NodeCapacity]:
    """The capacity of every node; an instance that moves counts on both of its nodes."""
    groups, usable, reserved = _groups(connection), _usable(connection), _reserved(connection)
    with_agents = {agent.node for agent in read_agents(connection)}
    return [
        NodeCapacity(
            name=node.hypervisor_hostname,
            group=groups.get(node.id),
            zone=node.service.availability_zone,
            is_available=node.is_available,
            total=node.capacity,
            usable=usable[node.id],
            used=node.used - reserved[node.id],
            reserved=reserved[node.id],
            has_agent=node.hypervisor_hostname in with_agents,
        )
        for node in read_nodes(connection)
        if node.id in usable  # it has just joined
    ]


def _groups(connection: Connection) -> Mapping[int, str]:
    statement = select(compute_nodes.c.id, node_groups.c.name).join_from(
        compute_nodes, node_groups, node_groups.c.uuid == compute_nodes.c.group_uuid
    )
    return {row.id: row.name for row in connection.execute(statement)}


def _usable(connection: Connection) -> Mapping[int, Amount]:
    """The resources of each node that the scheduler may allocate: total without the node's own, times its ratios."""
    columns = compute_nodes.c
    sizes = ((columns[size] - columns[f"reserved_{size}"]) * columns[f"{size}_permille"] // 1000 for size in SIZES)
    return {
        node_id: Amount.of_gib(*map(int, amounts))
        for node_id, *amounts in connection.execute(select(columns.id, *sizes))
    }


def _reserved(connection: Connection) -> Mapping[int, Amount]:
    of_reservations = select(instances.c.uuid).where(instances.c.forthcoming.is_(True))
    statement = allocated_by_node(allocations.c.instance_uuid.in_(of_reservations))
    found = defaultdict[int, Amount](Amount)
    found |= {node_id: Amount.of_gib(*sums) for node_id, _, _, *sums in connection.execute(statement)}
    return found
