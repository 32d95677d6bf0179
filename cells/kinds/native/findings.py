"""Findings of a native cell: compares its rows with its hosts and allocations, and with the last reports of nodes."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from sqlalchemy import Connection, and_, or_, select

from fleetlight.cells.findings import Finding, FindingKind, wrong
from fleetlight.cells.kinds.native.agent_addresses import read_agents
from fleetlight.cells.kinds.native.capacity import read_capacity
from fleetlight.cells.kinds.native.items.stored_nodes import OBSERVED_NODE
from fleetlight.cells.tables import allocations, compute_nodes, instances, observed_statuses, services
from fleetlight.resources.query_fields.instance_status import NODE_DOWN, NODE_OFFLINE, WRONG_NODE

_KINDS = {WRONG_NODE: FindingKind.WRONG_HOST, "ERROR_up": FindingKind.RUNNING_THOUGH_OFF}
_SAYS = {
    WRONG_NODE: "another node has it running",
    "ERROR_up": "it is to be off, and its node has it running",
    "ERROR_down": "it is to be on, and its node does not have it running",
    NODE_DOWN: "it is to be on, and its node does not answer",
    NODE_OFFLINE: "it is to be on, and its node is marked offline",
}
_EVACUATE = "`openstack server evacuate {}`, once its host is marked as down"
_MENDS = {
    WRONG_NODE: "shut it down on the node that has it running, then `openstack server reboot --hard {}`",
    "ERROR_up": "`openstack server start {}`; stop it then, if it is to be off",
    "ERROR_down": "`openstack server reboot --hard {}`",
    NODE_DOWN: _EVACUATE,
    NODE_OFFLINE: _EVACUATE,
}
_NODE_OF_INSTANCE = compute_nodes.c.hypervisor_hostname


def read_findings(connection: Connection, cell: str, limit: int) -> Sequence[Finding]:
    """At most `limit` of each kind, as of the transaction of `connection`. cell: its name."""
    sources: tuple[Callable[[Connection, str, int], Iterator[Finding]], ...] = (
        _on_unknown_hosts,
        _observed_instances,
        _loose_allocations,
        _overallocated_nodes,
        _hosts_without_agent,
    )
    return [found for source in sources for found in islice(source(connection, cell, limit), limit)]


def _on_unknown_hosts(connection: Connection, cell: str, limit: int) -> Iterator[Finding]:
    columns = instances.c
    is_unknown = or_(
        columns.host.not_in(select(services.c.host)),
        and_(columns.node.is_not(None), columns.node.not_in(select(_NODE_OF_INSTANCE))),
    )
    statement = select(columns.uuid, columns.host, columns.node).where(
        columns.deleted.is_(False), columns.host.is_not(None), is_unknown
    )
    for uuid, host, node in connection.execute(statement.order_by(columns.uuid).limit(limit)):
        evidence = f"it is on host '{host}', node '{node}', which the cell does not have"
        add = f"`fleetlight host add {cell} {host}` if there is such a host"
        remedy = f"{add}; otherwise `openstack server delete {uuid}`"
        yield wrong(uuid, evidence, remedy, kind=FindingKind.UNKNOWN_HOST, cell=cell)


def _observed_instances(connection: Connection, cell: str, limit: int) -> Iterator[Finding]:
    """Findings from the last reports of nodes (fleetlight.manager.operations.nodes.differences)."""
    columns, observed = instances.c, observed_statuses.c
    statement = (
        select(columns.uuid, columns.node, observed.status, observed.observed_at)
        .join_from(observed_statuses, instances, columns.uuid == observed.name)
        .where(observed.kind != OBSERVED_NODE, observed.status.in_(_SAYS), columns.deleted.is_(False))
        .order_by(observed.status, columns.uuid)
        .limit(limit)
    )
    for uuid, node, status, observed_at in connection.execute(statement):
        kind = _KINDS.get(status, FindingKind.NOT_RUNNING)
        evidence = f"{_SAYS[status]} (node '{node}', {status})"
        yield wrong(uuid, evidence, _MENDS[status].format(uuid), kind=kind, cell=cell, since=observed_at)


def _loose_allocations(connection: Connection, cell: str, limit: int) -> Iterator[Finding]:
    is_gone = or_(instances.c.uuid.is_(None), instances.c.deleted.is_(True))
    statement = (
        select(allocations.c.instance_uuid, _NODE_OF_INSTANCE, allocations.c.memory_mib)
        .join_from(allocations, compute_nodes, compute_nodes.c.id == allocations.c.node_id)
        .outerjoin(instances, instances.c.uuid == allocations.c.instance_uuid)
        .where(is_gone)
        .order_by(allocations.c.instance_uuid)
        .limit(limit)
    )
    for uuid, node, memory_mib in connection.execute(statement):
        evidence = f"{memory_mib} MiB of node '{node}' are allocated to an instance that the cell does not have"
        remedy = "delete its row of `allocations` in the database of the cell"
        yield wrong(uuid, evidence, remedy, kind=FindingKind.LOOSE_ALLOCATION, cell=cell)


def _overallocated_nodes(connection: Connection, cell: str, _limit: int) -> Iterator[Finding]:
    for node in read_capacity(connection):
        over = [
            f"{-left} {unit}"
            for left, unit in (
                (node.free.vcpus, "processors"),
                (node.free.memory_mib, "MiB of memory"),
                (node.free.disk_mib, "MiB of disk"),
            )
            if left < 0
        ]
        if over:
            evidence = f"{', '.join(over)} more are allocated than instances may use there"
            remedy = f"`fleetlight balance {cell} --execute`, or `fleetlight host set` to let them use more"
            yield wrong(node.name, evidence, remedy, kind=FindingKind.OVERALLOCATED_NODE, cell=cell)


def _hosts_without_agent(connection: Connection, cell: str, _limit: int) -> Iterator[Finding]:
    """Hosts without an agent in a cell that has agents; if none has one, all hosts are simulated."""
    with_agent = {agent.node: agent.address for agent in read_agents(connection)}
    observed = observed_statuses.c
    down = select(observed.name, observed.observed_at).where(observed.kind == OBSERVED_NODE, observed.status == "down")
    for node, observed_at in connection.execute(down.order_by(observed.name)):
        evidence = f"its agent at {with_agent.get(node, 'no address')} does not answer"
        remedy = f"start `fleetlight node-agent` there, then `fleetlight node refresh --cell {cell} {node}`"
        yield wrong(node, evidence, remedy, kind=FindingKind.HOST_WITHOUT_AGENT, cell=cell, since=observed_at)
    hosts = (
        select(_NODE_OF_INSTANCE, services.c.host)
        .join_from(compute_nodes, services, services.c.id == compute_nodes.c.service_id)
        .where(compute_nodes.c.agent_address.is_(None))
        .order_by(_NODE_OF_INSTANCE)
    )
    for node, host in connection.execute(hosts) if with_agent else ():
        evidence = "it has no agent, and other hosts of the cell have one"
        remedy = f"`fleetlight host agent {cell} {host} ADDRESS`"
        yield wrong(node, evidence, remedy, kind=FindingKind.HOST_WITHOUT_AGENT, cell=cell)
