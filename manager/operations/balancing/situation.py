"""A cluster with the state of each node, from which scores, moves and allocations are computed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fleetlight.manager.operations.balancing.cluster import Cluster, ClusterInstance, ClusterNode, NodeGroup
from fleetlight.manager.operations.balancing.errors import UnknownGroupError
from fleetlight.manager.operations.balancing.limits import NodeLimits, PlacedInstance
from fleetlight.manager.operations.balancing.node_state import NodeState

_EXCLUSION: Final = "htools:iextags:"
_LOCATION: Final = "htools:nlocation:"
_WANTED_LOCATION: Final = "htools:desiredlocation:"
_MIGRATION: Final = "htools:migration:"
_ALLOWED_MIGRATION: Final = "htools:allowmigration:"
_BETWEEN: Final = "::"


def exclusions(cluster_tags: Iterable[str], instance_tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags that only one primary instance of a node should have."""
    prefixes = tuple(prefix for prefix in _after(_EXCLUSION, cluster_tags) if prefix)
    return tuple(tag for tag in instance_tags if prefixes and tag.startswith(prefixes))


def wanted_locations(cluster_tags: Iterable[str], instance_tags: Iterable[str]) -> frozenset[str]:
    """Return the locations at which an instance should be."""
    prefixes = tuple(prefix for prefix in _after(_WANTED_LOCATION, cluster_tags) if prefix)
    return frozenset(tag for tag in instance_tags if prefixes and tag.startswith(prefixes))


def locations(cluster_tags: Iterable[str], node_tags: Iterable[str]) -> frozenset[str]:
    """Return the locations of a node, which it shares with nodes that fail with it."""
    return _labels(_LOCATION, cluster_tags, node_tags)


def sent_migrations(cluster_tags: Iterable[str], node_tags: Iterable[str]) -> frozenset[str]:
    """Return the migration tags of a node, which target nodes of its instances must allow."""
    return _labels(_MIGRATION, cluster_tags, node_tags)


def received_migrations(cluster_tags: Sequence[str], node_tags: Sequence[str]) -> frozenset[str]:
    """Return the migration tags that a node allows for the nodes from which instances come."""
    own = sent_migrations(cluster_tags, node_tags)
    pairs = (text.split(_BETWEEN) for text in _after(_ALLOWED_MIGRATION, cluster_tags))
    return own.union(pair[0] for pair in pairs if len(pair) == 2 and pair[1] in own)


def _labels(prefix: str, cluster_tags: Iterable[str], node_tags: Iterable[str]) -> frozenset[str]:
    wanted = tuple(f"{name}:" for name in _after(prefix, cluster_tags))
    return frozenset(tag for tag in node_tags if wanted and tag.startswith(wanted))


def _after(prefix: str, tags: Iterable[str]) -> list[str]:
    return [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]


NO_NODE: Final = -1


@dataclass(frozen=True, slots=True)
class NodePair:
    """The place of an instance: indexes of its primary node, and of its secondary node or NO_NODE."""

    primary: int
    secondary: int


@dataclass(frozen=True, slots=True)
class Situation:
    """All states by index of the node, and all places by index of the instance."""

    cluster: Cluster
    instances: Sequence[PlacedInstance]
    states: Sequence[NodeState]
    places: Sequence[NodePair]

    @classmethod
    def of(cls, cluster: Cluster) -> "Situation":
        indexes = {node.name: index for index, node in enumerate(cluster.nodes)}
        instances = [_placed(cluster, index, instance) for index, instance in enumerate(cluster.instances)]
        places = [
            NodePair(indexes[instance.primary], NO_NODE if instance.secondary is None else indexes[instance.secondary])
            for instance in cluster.instances
        ]
        groups = {group.uuid: group for group in cluster.groups}
        states = [_empty(cluster, index, node, groups) for index, node in enumerate(cluster.nodes)]
        for placed, place in zip(instances, places, strict=True):
            partner = None if place.secondary == NO_NODE else states[place.secondary]
            states[place.primary].learn_primary(placed, partner)
            if partner is not None:
                partner.learn_secondary(placed, place.primary)
        for state in states:
            state.settle()
        return cls(cluster, instances, states, places)

    def group_members(self, group: NodeGroup) -> Sequence[int]:
        """Return the indexes of a group's nodes."""
        return [index for index, node in enumerate(self.cluster.nodes) if node.group_uuid == group.uuid]


def chosen_groups(cluster: Cluster, name: str | None) -> Sequence[NodeGroup]:
    """Return the groups of this name or uuid; for None all groups with nodes. Raises UnknownGroupError."""
    if name is None:
        used = {node.group_uuid for node in cluster.nodes}
        return [group for group in cluster.groups if group.uuid in used]
    found = [group for group in cluster.groups if name in (group.name, group.uuid)]
    if not found:
        raise UnknownGroupError(name, [group.name for group in cluster.groups])
    return found


def _placed(cluster: Cluster, index: int, instance: ClusterInstance) -> PlacedInstance:
    tags = cluster.tags, instance.tags
    return PlacedInstance(index, instance, exclusions(*tags), wanted_locations(*tags))


def _empty(cluster: Cluster, index: int, node: ClusterNode, groups: Mapping[str, NodeGroup]) -> NodeState:
    policy = groups[node.group_uuid].policy
    if node.vcpu_ratio is not None:
        # A negative ratio means none.
        ratios = [ratio for ratio in (policy.vcpu_ratio, node.vcpu_ratio) if ratio >= 0]
        policy = replace(policy, vcpu_ratio=min(ratios, default=0.0))
    return NodeState(
        NodeLimits(
            index=index,
            node=node,
            policy=policy,
            greatest_spindles=policy.spindle_ratio * node.spindles,
            locations=locations(cluster.tags, node.tags),
            sends=sent_migrations(cluster.tags, node.tags),
            receives=received_migrations(cluster.tags, node.tags),
        )
    )
