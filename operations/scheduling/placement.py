"""Which host an instance goes to: of those that may take it and have room the one that its group prefers, then the
emptiest.

What is taken is claimed in the transaction of the step, under the lock of the node, so that no node is given away
twice, and under that of the group, so that no two of its members break its policy together. Alternates and their
allocation requests (contracts/nova-selection) come with the scheduler.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, insert, literal, select

from cells.database.locks import wait_for_lock
from cells.errors import NoValidHostError
from cells.fleet.server_groups import ServerGroup
from cells.kinds.native.nodes import Capacity, ComputeNode, read_emptiest_nodes
from cells.tables import allocations, compute_nodes, instances, services
from resources.fields import Record

_RESIZED = "resized"
# More than one, for those who claim at the same time all want the emptiest.
_READ_AT_ONCE = 4
_DISTANCES = {"soft-affinity": -1, "soft-anti-affinity": 1}
_HostsOf = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """Where an instance may go.

    zone: only there. host, node: only this one, even if it is disabled. without: not on these hosts.
    beside, apart: uuids of instances of the cell that it has to share its host with, or must not.
    project_id: these mean instances of this project, as if there were no others; None: those of any.
    group: the server group that it is a member of.
    """

    zone: str | None = None
    host: str | None = None
    node: str | None = None
    without: Collection[str] = ()
    beside: Collection[str] = ()
    apart: Collection[str] = ()
    project_id: str | None = None
    group: ServerGroup | None = None


def demand_of(flavor: Mapping[str, Any] | None) -> Capacity:
    """What an instance with `flavor` (fields of Nova's FlavorPayload) takes up of its node; swap is on the disk."""
    if flavor is None:
        return Capacity(0, 0, 0)
    swap_gib = -(-(flavor.get("swap") or 0) // 1024)
    disk_gib = (flavor["root_gb"] or 0) + (flavor["ephemeral_gb"] or 0) + swap_gib
    return Capacity(flavor["vcpus"] or 0, flavor["memory_mb"] or 0, disk_gib)


def condition_of(spec: RequestSpec) -> ColumnElement[bool]:
    """Which nodes `wish` leaves, whatever is free of them: a condition on `compute_nodes` and `services`."""
    is_forced = spec.host is not None or spec.node is not None
    wanted = (
        (services.c.availability_zone, spec.zone),
        (services.c.host, spec.host),
        (compute_nodes.c.hypervisor_hostname, spec.node),
    )
    return and_(
        services.c.forced_down.is_(False),
        *([] if is_forced else [services.c.disabled.is_(False)]),
        *(column == value for column, value in wanted if value is not None),
        *([services.c.host.not_in(spec.without)] if spec.without else []),
    )


def claim_host(connection: Connection, instance_uuid: str, demand: Capacity, spec: RequestSpec) -> ComputeNode:
    """Choose a node and take up `demand` of it. Raises NoValidHostError."""
    members: Collection[str] = () if spec.group is None else spec.group.members
    if spec.group is not None:
        wait_for_lock(connection, f"server group {spec.group.uuid}")
    named = _hosts_of(connection, {*spec.beside, *spec.apart} - {instance_uuid}, spec.project_id)
    hosts_of = _hosts_of(connection, set(members) - {instance_uuid})
    neighbours = Counter(host for member in members for host in hosts_of.get(member, ()))
    conditions = (condition_of(spec), *_suits(spec, named), *_is_allowed(spec.group, hosts_of, neighbours))
    distance, full = _distance(spec.group, neighbours), list[int]()
    while nodes := read_emptiest_nodes(
        connection, demand, *conditions, compute_nodes.c.id.not_in(full), first=distance, limit=_READ_AT_ONCE
    ):
        for node in nodes:
            # Locked, and looked at again: another claim may have come first.
            connection.execute(select(compute_nodes.c.id).where(compute_nodes.c.id == node.id).with_for_update())
            if demand.fits_into(node.capacity.minus(_used(connection, node.id))):
                _allocate(connection, instance_uuid, node.id, demand)
                return node
            full.append(node.id)
    raise NoValidHostError


def release_except(connection: Connection, instance_uuid: str, node: str | None) -> None:
    """Give back what an instance takes up of any node but the one called `node`; of all if that is None."""
    statement = delete(allocations).where(allocations.c.instance_uuid == instance_uuid)
    if node is not None:
        kept = select(compute_nodes.c.id).where(compute_nodes.c.hypervisor_hostname == node)
        statement = statement.where(allocations.c.node_id.not_in(kept))
    connection.execute(statement)


def give_back_claims(connection: Connection, record: Record) -> None:
    """What was claimed for an action of an instance that will not be finished; a resized one keeps both its places."""
    if record["vm_state"] != _RESIZED:
        release_except(connection, record["uuid"], record["node"])


def allocate_on_their_nodes(connection: Connection, records: Sequence[Record]) -> None:
    """Count instances that are placed already: what they take up of the nodes that they are on."""
    names = {record["node"] for record in records if record["node"] is not None}
    statement = select(compute_nodes.c.hypervisor_hostname, compute_nodes.c.id).where(
        compute_nodes.c.hypervisor_hostname.in_(names)
    )
    ids = {row.hypervisor_hostname: row.id for row in connection.execute(statement)} if names else {}
    values = [
        _allocation(record["uuid"], ids[record["node"]], demand_of(record["flavor"]))
        for record in records
        if record["node"] in ids and not record["deleted"]
    ]
    if values:
        connection.execute(insert(allocations), values)


def _suits(spec: RequestSpec, hosts_of: _HostsOf) -> Iterator[ColumnElement[bool]]:
    """On hosts with all those that it has to be beside, and with none of those that it has to be apart from."""
    for uuid in spec.beside:
        yield services.c.host.in_(hosts_of.get(uuid, ()))
    for uuid in spec.apart:
        yield services.c.host.not_in(hosts_of.get(uuid, ()))


def _is_allowed(
    group: ServerGroup | None, hosts_of: _HostsOf, neighbours: Mapping[str, int]
) -> Iterator[ColumnElement[bool]]:
    """On hosts that a hard policy lets a member go to. neighbours: how many other members each host has."""
    match group:
        case ServerGroup(policy="affinity", members=members):
            for member in members:
                if member in hosts_of:
                    yield services.c.host.in_(hosts_of[member])
        case ServerGroup(policy="anti-affinity", max_server_per_host=limit):
            yield services.c.host.not_in([host for host, count in neighbours.items() if count >= (limit or 1)])


def _distance(group: ServerGroup | None, neighbours: Mapping[str, int]) -> ColumnElement[int]:
    """How far a host is from what a soft policy wants, by how many other members it has: less is better."""
    sign = 0 if group is None else _DISTANCES.get(group.policy, 0)
    if not sign or not neighbours:
        return literal(0)
    return case({host: sign * count for host, count in neighbours.items()}, value=services.c.host, else_=0)


def _hosts_of(connection: Connection, uuids: Collection[str], project_id: str | None = None) -> _HostsOf:
    """Where instances of the cell are, and where something is claimed for them: both of a move, and a new one's.

    project_id: only those of this project; None: those of any.
    """
    if project_id is not None:
        of_project = instances.c.uuid.in_(uuids), instances.c.project_id == project_id
        uuids = set(connection.scalars(select(instances.c.uuid).where(*of_project))) if uuids else ()
    if not uuids:
        return {}
    hosts: dict[str, set[str]] = {}
    where_they_are = select(instances.c.uuid, instances.c.host).where(
        instances.c.uuid.in_(uuids), instances.c.deleted.is_(False), instances.c.host.is_not(None)
    )
    claimed = (
        select(allocations.c.instance_uuid, services.c.host)
        .join_from(allocations, compute_nodes, compute_nodes.c.id == allocations.c.node_id)
        .join(services, services.c.id == compute_nodes.c.service_id)
        .where(allocations.c.instance_uuid.in_(uuids))
    )
    for statement in (where_they_are, claimed):
        for uuid, host in connection.execute(statement):
            hosts.setdefault(uuid, set()).add(host)
    return hosts


def _used(connection: Connection, node_id: int) -> Capacity:
    columns = (allocations.c.vcpus, allocations.c.memory_mib, allocations.c.disk_gib)
    statement = select(*(func.coalesce(func.sum(column), 0) for column in columns))
    row = connection.execute(statement.where(allocations.c.node_id == node_id)).one()
    return Capacity(*map(int, row))


def _allocate(connection: Connection, instance_uuid: str, node_id: int, demand: Capacity) -> None:
    # One may be left there of a resize that an administrator ended by resetting the state.
    own = (allocations.c.instance_uuid == instance_uuid, allocations.c.node_id == node_id)
    connection.execute(delete(allocations).where(*own))
    connection.execute(insert(allocations).values(_allocation(instance_uuid, node_id, demand)))


def _allocation(instance_uuid: str, node_id: int, demand: Capacity) -> dict[str, Any]:
    return {
        "instance_uuid": instance_uuid,
        "node_id": node_id,
        "vcpus": demand.vcpus,
        "memory_mib": demand.memory_mib,
        "disk_gib": demand.disk_gib,
    }
