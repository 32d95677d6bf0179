"""Properties of nodes and instances that no move changes, and the obstacles to moves."""

from dataclasses import dataclass
from enum import Enum, auto

from fleetlight.manager.operations.balancing.cluster import ClusterInstance, ClusterNode, Policy


class Obstacle(Enum):
    """Why an instance may not be placed on a node."""

    MEMORY = auto()
    DISK = auto()
    PROCESSORS = auto()
    REDUNDANCY = auto()
    EXCLUSION = auto()
    MIGRATION = auto()
    DISK_COUNT = auto()
    SPINDLES = auto()
    POLICY = auto()


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """The properties of a node that no move changes.

    greatest_spindles: by the policy. sends, receives: labels of migration that it has, and those whose nodes may send
    instances to it.
    """

    index: int
    node: ClusterNode
    policy: Policy
    greatest_spindles: float
    locations: frozenset[str]
    sends: frozenset[str]
    receives: frozenset[str]


@dataclass(frozen=True, slots=True)
class PlacedInstance:
    """An instance with properties from its tags. exclusions: a node should have only one instance with each tag."""

    index: int
    instance: ClusterInstance
    exclusions: tuple[str, ...]
    wanted_locations: frozenset[str]
