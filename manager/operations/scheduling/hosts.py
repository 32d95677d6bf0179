"""The nodes of a cell that pass the scheduler's filters and have room, the best first."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    Row,
    Select,
    bindparam,
    case,
    cast,
    func,
    literal,
    or_,
    select,
)

from fleetlight.cells.kinds.native.allocated import allocated_by_node
from fleetlight.cells.tables import SIZES, allocations, compute_nodes, services
from fleetlight.manager.operations.scheduling.affinity import NO_AFFINITY, AffinityHosts
from fleetlight.manager.operations.scheduling.filters import conditions_of
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.weighers import USABLE, WEIGHERS, Room, distance_of, weights_of
from fleetlight.resources.amount import Amount

_NAMES = ("uuid", "hypervisor_hostname", "group_uuid", "host_ip")
# Parameters of the statements.
_NODE, _NODES, _HOSTS = "node", "other_nodes", "other_hosts"
_IS_NODE = compute_nodes.c.id == bindparam(_NODE, type_=BigInteger)
_IS_NAMED = compute_nodes.c.id.in_(bindparam(_NODES, type_=BigInteger, expanding=True))
_LOCK = select(compute_nodes.c.id).where(_IS_NODE).with_for_update()
_LOCK_ALL = select(compute_nodes.c.id).where(_IS_NAMED).order_by(compute_nodes.c.id).with_for_update()
LOCKED_AT_ONCE = 4
"""Largest number of nodes among which `lock_free_node` looks for an unlocked one."""
_IS_ONE_OF = [compute_nodes.c.id == bindparam(f"node_{place}", type_=BigInteger) for place in range(LOCKED_AT_ONCE)]
_LOCK_FREE = (
    select(compute_nodes.c.id)
    .where(or_(*_IS_ONE_OF))
    .order_by(case(*((is_it, place) for place, is_it in enumerate(_IS_ONE_OF))))
    .limit(1)
    .with_for_update(skip_locked=True)
)


@dataclass(frozen=True, slots=True)
class Host:
    """A node that may take an instance. weights: by WEIGHERS, lower is better, and unique to each node.

    usable: capacity for instances. used: usage by `instances` instances. members: number of other members of the
    request's group on its host.
    """

    node_id: int
    node_uuid: str
    nodename: str
    group_uuid: str
    host_ip: str
    service_host: str
    availability_zone: str
    usable: Amount
    used: Amount
    instances: int
    members: int
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class HostQuery:
    """A query for hosts with room for `demand` that meet `spec` and `affinity`.

    affinity: None for a request that names no other instances.
    """

    demand: Amount
    spec: RequestSpec
    affinity: AffinityHosts | None = None


def read_best_hosts(
    connection: Connection,
    query: HostQuery,
    *,
    limit: int,
    without_nodes: Collection[int] = (),
    without_hosts: Collection[str] = (),
) -> Sequence[Host]:
    """Read the best hosts, at most `limit`, without the named hosts, and those of the numbered nodes."""
    statement = _best(query, limit) if query.affinity else _best_of_any(query, limit)
    named = {_NODES: list(without_nodes), _HOSTS: list(without_hosts)}
    return [_host(row, query) for row in connection.execute(statement, named)]


def read_locked_host(connection: Connection, query: HostQuery, node_id: int) -> Host | None:
    """Lock a node until the transaction ends, and read its host again; None if it does not meet the query any more."""
    connection.execute(_LOCK, {_NODE: node_id})
    return read_host(connection, query, node_id)


def lock_free_node(connection: Connection, node_ids: Sequence[int]) -> int | None:
    """Lock the first unlocked one of at most LOCKED_AT_ONCE nodes; returns None if all are locked."""
    ids: list[int | None] = [*node_ids, *[None] * (LOCKED_AT_ONCE - len(node_ids))]
    return connection.scalar(_LOCK_FREE, {f"node_{place}": node_id for place, node_id in enumerate(ids)})


def read_locked_hosts(connection: Connection, query: HostQuery, *, limit: int) -> Sequence[Host]:
    """Lock and read the best hosts, at most `limit`; only one transaction at a time may do this."""
    best = read_best_hosts(connection, query, limit=limit)
    named = {_NODES: [host.node_id for host in best]}
    connection.execute(_LOCK_ALL, named)
    statement, _ = _candidates(query, _IS_NAMED)
    return [_host(row, query) for row in connection.execute(statement, named)]


def after_claim(host: Host, query: HostQuery, node_id: int) -> Host:
    """Return a host after a member has claimed `query.demand` on this node, or on another node of the host."""
    host = replace(host, members=host.members + 1)
    if host.node_id == node_id:
        host = replace(host, used=host.used + query.demand, instances=host.instances + 1)
    room: Room[float] = Room(
        free_mib=host.usable.memory_mib - host.used.memory_mib,
        usable_mib=max(1, host.usable.memory_mib),
        instances=host.instances,
        distance=distance_of(query.spec, host.members),
        node_id=host.node_id,
    )
    return replace(host, weights=weights_of(room))


def read_host(connection: Connection, query: HostQuery, node_id: int) -> Host | None:
    """Read the host on a node; None if it does not meet the query."""
    statement = _one(query) if query.affinity else _one_of_any(query)
    row = connection.execute(statement, {_NODE: node_id}).one_or_none()
    return None if row is None else _host(row, query)


def _best(query: HostQuery, limit: int) -> Select[tuple[Any, ...]]:
    others = (
        ~_IS_NAMED,
        services.c.host.not_in(bindparam(_HOSTS, expanding=True)),
    )
    statement, order = _candidates(query, *others)
    return statement.order_by(*order).limit(limit)


def _one(query: HostQuery) -> Select[tuple[Any, ...]]:
    statement, _ = _candidates(query, _IS_NODE)
    return statement


# Cached, since building a statement takes longer than executing it, and requests without affinity are often equal.
_best_of_any = lru_cache(maxsize=64)(_best)
_one_of_any = lru_cache(maxsize=64)(_one)


def _candidates(
    query: HostQuery, *conditions: ColumnElement[bool]
) -> tuple[Select[tuple[Any, ...]], Sequence[ColumnElement[Any]]]:
    """Make the statement that reads hosts with room, and its order."""
    demand, spec, affinity = query.demand, query.spec, query.affinity or NO_AFFINITY
    wanted = (conditions_of(spec, affinity), *conditions)
    of_services = services.c.id == compute_nodes.c.service_id
    nodes = select(compute_nodes.c.id).join_from(compute_nodes, services, of_services).where(*wanted)
    used = allocated_by_node(allocations.c.node_id.in_(nodes)).subquery()
    taken = {size: func.coalesce(used.c[size], 0) for size in SIZES}
    free: dict[str, ColumnElement[int]] = {size: USABLE[size] - taken[size] for size in SIZES}
    instance_count: ColumnElement[float] = func.coalesce(used.c.instance_count, 0)
    weights = _weights(free["memory_mib"], instance_count, spec, affinity)
    statement = (
        select(
            compute_nodes.c.id,
            *(compute_nodes.c[name] for name in _NAMES),
            services.c.host,
            services.c.availability_zone,
            *(USABLE[size].label(f"usable_{size}") for size in SIZES),
            *(taken[size].label(f"used_{size}") for size in SIZES),
            instance_count.label("instance_count"),
            *weights,
        )
        .join_from(compute_nodes, services, of_services)
        .outerjoin(used, used.c.node_id == compute_nodes.c.id)
        .where(*wanted, *_has_room(free, demand))
    )
    return statement, weights


def _weights(
    free_mib: ColumnElement[int], instance_count: ColumnElement[float], spec: RequestSpec, affinity: AffinityHosts
) -> Sequence[ColumnElement[float]]:
    usable_mib = USABLE["memory_mib"]
    distances = {host: distance_of(spec, count) for host, count in affinity.counts.items()}
    room: Room[ColumnElement[float]] = Room(
        free_mib=cast(free_mib, Double),
        usable_mib=cast(case((usable_mib < 1, 1), else_=usable_mib), Double),
        instances=instance_count,
        distance=case(distances, value=services.c.host, else_=0) if any(distances.values()) else literal(0),
        node_id=compute_nodes.c.id,
    )
    return [weight.label(f"weight_{number}") for number, weight in enumerate(weights_of(room))]


def _has_room(free: dict[str, ColumnElement[int]], demand: Amount) -> Iterator[ColumnElement[bool]]:
    return (free[size] >= getattr(demand, size) for size in SIZES)


def _host(row: Row[Any], query: HostQuery) -> Host:
    values, affinity = row._mapping, query.affinity or NO_AFFINITY
    return Host(
        node_id=values["id"],
        node_uuid=values["uuid"],
        nodename=values["hypervisor_hostname"],
        group_uuid=values["group_uuid"],
        host_ip=values["host_ip"],
        service_host=values["host"],
        availability_zone=values["availability_zone"],
        usable=Amount.of_gib(*(values[f"usable_{size}"] for size in SIZES)),
        used=Amount.of_gib(*(values[f"used_{size}"] for size in SIZES)),
        instances=values["instance_count"],
        members=affinity.counts.get(values["host"], 0),
        weights=tuple(values[f"weight_{number}"] for number in range(len(WEIGHERS))),
    )
