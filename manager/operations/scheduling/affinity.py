"""Hosts of the instances that a request names for affinity or anti-affinity."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select

from fleetlight.cells.tables import allocations, compute_nodes, instances, services
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec

HostsOf = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True)
class AffinityHosts:
    """Hosts of other instances. named: of those in hints, by uuid. members: of the other members of the group.

    counts: number of other members by host.
    """

    named: HostsOf
    members: HostsOf
    counts: Mapping[str, int]


NO_AFFINITY = AffinityHosts({}, {}, {})


def find_affinity_hosts(
    connection: Connection, spec: RequestSpec, instance_uuid: str | None = None
) -> AffinityHosts | None:
    """Find the hosts for an instance to place, without its own; None if `spec` names no instances."""
    if not (spec.group or spec.beside or spec.apart):
        return None
    members: Collection[str] = () if spec.group is None else (*spec.group.members, *spec.group.claimed)
    named = hosts_of(connection, {*spec.beside, *spec.apart} - {instance_uuid}, spec.project_id)
    of_members = hosts_of(connection, set(members) - {instance_uuid})
    counts = Counter(host for member in members for host in of_members.get(member, ()))
    return AffinityHosts(named, of_members, counts)


def hosts_of(connection: Connection, uuids: Collection[str], project_id: str | None = None) -> HostsOf:
    """Return the hosts of instances, and the hosts with claims for them: both hosts of a move, and a new instance's.

    project_id: only instances of this project; None for any.
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
