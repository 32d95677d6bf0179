"""What instances may do to balance a group: which moves there are, what each makes of the nodes, whether it is allowed.

The plain way, one move at a time; estimates looks at many at once. Source: contracts/ganeti-htools, 4
and 5.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import assert_never

from fleetlight.manager.operations.balancing.cluster import EXTERNALLY_MIRRORED, ClusterInstance
from fleetlight.manager.operations.balancing.limits import Obstacle, PlacedInstance
from fleetlight.manager.operations.balancing.node_state import NodeState
from fleetlight.manager.operations.balancing.situation import NO_NODE, NodePair

Changes = Mapping[int, NodeState]
"""The nodes that a move changes, by index, in their state afterwards."""


class MoveKind(Enum):
    """The way of an instance to its place. The value lists its steps: f fails over, r replaces the secondary node."""

    FAILOVER = "f"
    FAILOVER_TO = "fa"
    REPLACE_SECONDARY = "r"
    REPLACE_AND_FAILOVER = "r f"
    REPLACE_PRIMARY = "f r f"
    FAILOVER_AND_REPLACE = "f r"
    PLACE = "r f r"

    @property
    def steps(self) -> int:
        """The number of operations."""
        return len(self.value.split())


@dataclass(frozen=True, slots=True)
class Move:
    """A move of an instance, given by index, to another place."""

    instance: int
    kind: MoveKind
    place: NodePair


def is_movable(instance: ClusterInstance) -> bool:
    """Whether an instance may move by itself; of a reservation there is no data that would have to be mirrored."""
    is_mirrored = instance.is_mirrored or instance.disk_template in EXTERNALLY_MIRRORED
    return instance.is_auto_balanced and (is_mirrored or instance.is_forthcoming)


def moves_of(placed: PlacedInstance, place: NodePair, online: Sequence[int]) -> Iterator[Move]:
    """Yield the moves of htools, in its order. online: indexes of the permitted target nodes."""
    targets = [target for target in online if target not in (place.primary, place.secondary)]
    if not placed.instance.is_mirrored:
        if placed.instance.disk_template in EXTERNALLY_MIRRORED:
            yield from (Move(placed.index, MoveKind.FAILOVER_TO, NodePair(target, NO_NODE)) for target in targets)
        return
    has_partner = place.secondary in online
    if has_partner:
        yield Move(placed.index, MoveKind.FAILOVER, NodePair(place.secondary, place.primary))
    for target in targets:
        yield Move(placed.index, MoveKind.REPLACE_SECONDARY, NodePair(place.primary, target))
        yield Move(placed.index, MoveKind.REPLACE_AND_FAILOVER, NodePair(target, place.primary))
        if has_partner:
            yield Move(placed.index, MoveKind.REPLACE_PRIMARY, NodePair(target, place.secondary))
            yield Move(placed.index, MoveKind.FAILOVER_AND_REPLACE, NodePair(place.secondary, target))


def placements_of(placed: PlacedInstance, place: NodePair, online: Sequence[int]) -> Iterator[Move]:
    """Yield every place that a reservation may take in one step, each with the fewest operations."""
    for primary in online:
        if not placed.instance.is_mirrored:
            if primary != place.primary:
                yield Move(placed.index, MoveKind.FAILOVER_TO, NodePair(primary, NO_NODE))
            continue
        for secondary in online:
            after = NodePair(primary, secondary)
            if primary != secondary and after != place:
                yield Move(placed.index, kind_between(place, after), after)


def kind_between(before: NodePair, after: NodePair) -> MoveKind:
    """Return the way of a mirrored instance between two places with the fewest operations."""
    if after.primary == before.primary:
        return MoveKind.REPLACE_SECONDARY
    if after.primary == before.secondary:
        return MoveKind.FAILOVER if after.secondary == before.primary else MoveKind.FAILOVER_AND_REPLACE
    if after.secondary == before.primary:
        return MoveKind.REPLACE_AND_FAILOVER
    return MoveKind.REPLACE_PRIMARY if after.secondary == before.secondary else MoveKind.PLACE


def changes_of_placing(
    states: Sequence[NodeState], placed: PlacedInstance, before: NodePair, after: NodePair
) -> Changes | Obstacle:
    """Return the nodes after a reservation is placed anew; nothing moves, so only its target needs room."""
    changed = dict(_without(states, placed, before))
    partner = None if after.secondary == NO_NODE else states[after.secondary]
    primary = changed.get(after.primary, states[after.primary]).with_primary(placed, partner)
    if isinstance(primary, Obstacle):
        return primary
    changed[after.primary] = primary
    if after.secondary != NO_NODE:
        secondary = changed.get(after.secondary, states[after.secondary]).with_secondary(placed, after.primary)
        if isinstance(secondary, Obstacle):
            return secondary
        changed[after.secondary] = secondary
    return changed


def changes_of(states: Sequence[NodeState], placed: PlacedInstance, before: NodePair, move: Move) -> Changes | Obstacle:
    """Return the nodes after a move, or the obstacle to it.

    Limits that may be exceeded for a while do not keep an instance on an offline node.
    """
    if (refusal := _migration_refusal(states, before, move)) is not None:
        return refusal
    old, new = states[before.primary], states[move.place.primary]
    is_forced = old.limits.node.is_offline
    without = _without(states, placed, before)
    match move.kind:
        case MoveKind.FAILOVER_TO:
            return _both(without, {move.place.primary: new.with_primary(placed, None, is_forced=is_forced)})
        case MoveKind.FAILOVER:
            return _both(
                without,
                {
                    before.secondary: without[before.secondary].with_primary(placed, old, is_forced=is_forced),
                    before.primary: without[before.primary].with_secondary(
                        placed, before.secondary, is_forced=is_forced, ignores_disks=is_forced
                    ),
                },
            )
        case MoveKind.REPLACE_SECONDARY:
            target, is_forced = move.place.secondary, states[before.secondary].limits.node.is_offline
            return _both(
                without,
                {
                    target: states[target].with_secondary(placed, before.primary, is_forced=is_forced),
                    before.primary: without[before.primary].with_primary(placed, states[target], is_forced=True),
                },
            )
        case MoveKind.REPLACE_AND_FAILOVER:
            target, is_forced = move.place.primary, states[before.secondary].limits.node.is_offline
            return _both(
                without,
                {
                    target: new.with_primary(placed, old),
                    before.primary: without[before.primary].with_secondary(placed, target, is_forced=is_forced),
                },
            )
        case MoveKind.REPLACE_PRIMARY:
            target, partner = move.place.primary, without[before.secondary]
            on_the_way = partner.with_primary(placed, new, is_forced=is_forced)
            if isinstance(on_the_way, Obstacle):
                return on_the_way
            return _both(
                without,
                {
                    target: new.with_primary(placed, states[before.secondary], is_forced=is_forced),
                    before.secondary: partner.with_secondary(placed, target, is_forced=is_forced),
                },
            )
        case MoveKind.FAILOVER_AND_REPLACE:
            target = move.place.secondary
            return _both(
                without,
                {
                    before.secondary: without[before.secondary].with_primary(
                        placed, states[target], is_forced=is_forced
                    ),
                    target: states[target].with_secondary(placed, before.secondary, is_forced=is_forced),
                },
            )
        case MoveKind.PLACE:
            return changes_of_placing(states, placed, before, move.place)
        case _:
            assert_never(move.kind)


def _without(states: Sequence[NodeState], placed: PlacedInstance, place: NodePair) -> Mapping[int, NodeState]:
    """Return the nodes of an instance after it has left them."""
    primary = states[place.primary]
    if place.secondary == NO_NODE:
        return {place.primary: primary.without_primary(placed, None)}
    secondary = states[place.secondary]
    return {
        place.primary: primary.without_primary(placed, secondary),
        place.secondary: secondary.without_secondary(placed, place.primary),
    }


def _both(without: Changes, placed: Mapping[int, NodeState | Obstacle]) -> Changes | Obstacle:
    states: dict[int, NodeState] = dict(without)
    for index, state in placed.items():
        if isinstance(state, Obstacle):
            return state
        states[index] = state
    return states


def _migration_refusal(states: Sequence[NodeState], before: NodePair, move: Move) -> Obstacle | None:
    """Return the obstacle if tags of nodes forbid the migration from one to the next."""
    match move.kind:
        case MoveKind.FAILOVER | MoveKind.FAILOVER_AND_REPLACE:
            way: tuple[int, ...] = (before.primary, before.secondary)
        case MoveKind.FAILOVER_TO | MoveKind.REPLACE_AND_FAILOVER:
            way = (before.primary, move.place.primary)
        case MoveKind.REPLACE_PRIMARY:
            way = (before.primary, before.secondary, move.place.primary)
        case MoveKind.REPLACE_SECONDARY | MoveKind.PLACE:
            return None
        case _:
            assert_never(move.kind)
    for source, target in pairwise(way):
        if not states[source].limits.sends <= states[target].limits.receives:
            return Obstacle.MIGRATION
    return None
