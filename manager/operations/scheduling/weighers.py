"""Weighers of the nodes that may take an instance; a lower weight is better.

The first weigher decides, and each next one only among nodes of equal weight. The weights of a node depend on the node
and on the places of the instances that a request names, never on other nodes' free resources. So a claim changes the
weights of its own host alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from sqlalchemy import ColumnElement

from fleetlight.cells.tables import SIZES, compute_nodes
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec

Number = TypeVar("Number", float, ColumnElement[float])
_DISTANCES = {"soft-affinity": -1, "soft-anti-affinity": 1}


@dataclass(frozen=True, slots=True)
class Room(Generic[Number]):
    """The figures of a node for weighers: columns, for a database to compute weights, or numbers.

    free_mib, usable_mib: memory, the second at least 1. instances: with claims on the node.
    distance: from what a soft policy wants (`distance_of`). node_id: the number of the node.
    """

    free_mib: Number
    usable_mib: Number
    instances: Number
    distance: Number
    node_id: Number


def usable(size: str) -> ColumnElement[int]:
    """Return the amount of `size` that instances may claim: the part not reserved, times the allocation ratio."""
    columns = compute_nodes.c
    return (columns[size] - columns[f"reserved_{size}"]) * columns[f"{size}_permille"] // 1000


USABLE = {size: usable(size) for size in SIZES}


def distance_of(spec: RequestSpec, members: int) -> int:
    """Return the distance of a host from what a soft policy wants. members: other members of the group on it."""
    return 0 if spec.group is None else _DISTANCES.get(spec.group.policy, 0) * members


class Weigher(Protocol):
    """A function that returns a weight: a column for columns, a number for numbers."""

    def __call__(self, room: Room[Number], /) -> Number: ...


WEIGHERS: Mapping[str, Weigher] = {
    "soft policy of the group": lambda room: room.distance,
    "memory": lambda room: -room.free_mib / room.usable_mib,  # prefers the emptiest node
    "instances": lambda room: room.instances,
    "age": lambda room: room.node_id,  # prefers the oldest node, and is unique
}


def weights_of(room: Room[Number]) -> tuple[Number, ...]:
    """Return the weights of a node, the most important first."""
    return tuple(weigher(room) for weigher in WEIGHERS.values())
