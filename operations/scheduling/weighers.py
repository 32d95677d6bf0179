"""Weighers of the nodes that may take an instance: weights in SQL, of which less is better.

The weight of the first weigher decides; what is equal there is left to the next. A weight of a node depends on this
node alone and on where the instances are that a request names, never on what is free of other nodes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Double, case, cast, literal

from fleetlight.cells.tables import SIZES, compute_nodes, services
from fleetlight.operations.scheduling.affinity import AffinityHosts
from fleetlight.operations.scheduling.request_spec import RequestSpec

_DISTANCES = {"soft-affinity": -1, "soft-anti-affinity": 1}


@dataclass(frozen=True, slots=True)
class Room:
    """What weighers know of a node: columns. free: by size, with ratios and without what is reserved.

    instance_count: instances that take up something of it.
    """

    free: Mapping[str, ColumnElement[int]]
    instance_count: ColumnElement[int]


def usable(size: str) -> ColumnElement[int]:
    """How much of `size` instances may take up of a node: what is not reserved, by its ratio."""
    columns = compute_nodes.c
    return (columns[size] - columns[f"reserved_{size}"]) * columns[f"{size}_permille"] // 1000


USABLE = {size: usable(size) for size in SIZES}

Weigher = Callable[[Room, RequestSpec, AffinityHosts], ColumnElement[Any]]


def _distance_from_policy(_room: Room, spec: RequestSpec, affinity: AffinityHosts) -> ColumnElement[int]:
    """How far a host is from what a soft policy wants, by how many other members it has."""
    sign = 0 if spec.group is None else _DISTANCES.get(spec.group.policy, 0)
    if not sign or not affinity.counts:
        return literal(0)
    distances = {host: sign * count for host, count in affinity.counts.items()}
    return case(distances, value=services.c.host, else_=0)


def _taken_part_of_memory(room: Room, _spec: RequestSpec, _neighbours: AffinityHosts) -> ColumnElement[Any]:
    """The emptiest first."""
    usable_mib = USABLE["memory_mib"]
    return -cast(room.free["memory_mib"], Double) / cast(case((usable_mib < 1, 1), else_=usable_mib), Double)


def _instances(room: Room, _spec: RequestSpec, _neighbours: AffinityHosts) -> ColumnElement[int]:
    return room.instance_count


def _age(_room: Room, _spec: RequestSpec, _neighbours: AffinityHosts) -> ColumnElement[int]:
    """The one that joined first: no two nodes are equal."""
    return compute_nodes.c.id


WEIGHERS: Mapping[str, Weigher] = {
    "soft policy of the group": _distance_from_policy,
    "memory": _taken_part_of_memory,
    "instances": _instances,
    "age": _age,
}
