"""Weighers of the nodes that may take an instance: weights of which less is better.

The weight of the first weigher decides; what is equal there is left to the next. A weight of a node depends on this
node alone and on where the instances are that a request names, never on what is free of other nodes. So a claim changes
the weights of its own host alone.
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
    """What weighers know of a node: columns, of which a database makes weights, or the numbers of one node.

    free_mib, usable_mib: memory, the second at least 1. instances: that take up something of the node.
    distance: how far its host is from what a soft policy wants (`distance_of`). node_id: the number of the node.
    """

    free_mib: Number
    usable_mib: Number
    instances: Number
    distance: Number
    node_id: Number


def usable(size: str) -> ColumnElement[int]:
    """How much of `size` instances may take up of a node: what is not reserved, by its ratio."""
    columns = compute_nodes.c
    return (columns[size] - columns[f"reserved_{size}"]) * columns[f"{size}_permille"] // 1000


USABLE = {size: usable(size) for size in SIZES}


def distance_of(spec: RequestSpec, members: int) -> int:
    """How far a host is from what a soft policy wants, by how many other members of the group it has."""
    return 0 if spec.group is None else _DISTANCES.get(spec.group.policy, 0) * members


def _distance_from_policy(room: Room[Number]) -> Number:
    return room.distance


def _taken_part_of_memory(room: Room[Number]) -> Number:
    """The emptiest first."""
    return -room.free_mib / room.usable_mib


def _instances(room: Room[Number]) -> Number:
    return room.instances


def _age(room: Room[Number]) -> Number:
    """The one that joined first: no two nodes are equal."""
    return room.node_id


class Weigher(Protocol):
    """A weight: a column of columns, a number of numbers."""

    def __call__(self, room: Room[Number], /) -> Number: ...


WEIGHERS: Mapping[str, Weigher] = {
    "soft policy of the group": _distance_from_policy,
    "memory": _taken_part_of_memory,
    "instances": _instances,
    "age": _age,
}


def weights_of(room: Room[Number]) -> tuple[Number, ...]:
    """The weights of a node, in the order in which they count."""
    return tuple(weigher(room) for weigher in WEIGHERS.values())
