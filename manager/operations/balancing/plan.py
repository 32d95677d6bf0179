"""The plan that balances a cluster, by names: the moves of each group, and the cluster after them."""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetlight.manager.operations.balancing.cluster import Cluster, ClusterInstance
from fleetlight.manager.operations.balancing.moves import MoveKind
from fleetlight.manager.operations.balancing.search import MadeMove, balance
from fleetlight.manager.operations.balancing.situation import NO_NODE, NodePair, Situation, chosen_groups


@dataclass(frozen=True, slots=True)
class NodesOfInstance:
    primary: str
    secondary: str | None


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A planned move. moved: the instance before all moves. gain: the reduction of the score."""

    moved: ClusterInstance
    kind: MoveKind
    source: NodesOfInstance
    target: NodesOfInstance
    gain: float
    score_after: float

    @property
    def instance(self) -> str:
        """Its name, or the uuid of one without a name of its own."""
        return self.moved.name

    @property
    def is_forthcoming(self) -> bool:
        return self.moved.is_forthcoming


@dataclass(frozen=True, slots=True)
class GroupPlan:
    group: str
    score_before: float
    score_after: float
    moves: Sequence[PlannedMove]


@dataclass(frozen=True, slots=True)
class BalancePlan:
    """A plan. groups: the evaluated groups. after: the cluster after all moves."""

    groups: Sequence[GroupPlan]
    after: Cluster


def plan_balance(cluster: Cluster, group: str | None = None) -> BalancePlan:
    """Plan moves that balance the group of this name or uuid, or all groups. Raises UnknownGroupError."""
    situation = Situation.of(cluster)
    groups = []
    places: dict[int, tuple[str, str | None]] = {}
    for chosen in chosen_groups(cluster, group):
        outcome = balance(situation, chosen)
        moves = [_planned(cluster, made) for made in outcome.moves]
        ends = {made.move.instance: _nodes(cluster, made.move.place) for made in outcome.moves}
        places |= {number: (end.primary, end.secondary) for number, end in ends.items()}
        groups.append(GroupPlan(chosen.name, outcome.score_before, outcome.score_after, moves))
    return BalancePlan(groups, cluster.moved(places))


def _planned(cluster: Cluster, made: MadeMove) -> PlannedMove:
    instance = cluster.instances[made.move.instance]
    return PlannedMove(
        instance,
        made.move.kind,
        _nodes(cluster, made.before),
        _nodes(cluster, made.move.place),
        made.gain,
        made.score,
    )


def _nodes(cluster: Cluster, place: NodePair) -> NodesOfInstance:
    secondary = None if place.secondary == NO_NODE else cluster.nodes[place.secondary].name
    return NodesOfInstance(cluster.nodes[place.primary].name, secondary)
