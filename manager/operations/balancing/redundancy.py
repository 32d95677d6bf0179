"""Redundancy of a cluster: whether the other nodes have room for all instances of any lost node.

As in hspace without `--no-capacity-checks`: instances with mirrored disks fail over, those with shared disks go to the
nodes with the best score, and all others are created anew there. Source: contracts/ganeti-htools, 6.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from fleetlight.manager.operations.balancing.cluster import EXTERNALLY_MIRRORED, ClusterInstance, DiskTemplate
from fleetlight.manager.operations.balancing.estimates import Estimates, Share
from fleetlight.manager.operations.balancing.known_shares import KnownShares
from fleetlight.manager.operations.balancing.limits import Obstacle, PlacedInstance
from fleetlight.manager.operations.balancing.moves import Changes
from fleetlight.manager.operations.balancing.node_state import NodeState
from fleetlight.manager.operations.balancing.policy import policy_refusal
from fleetlight.manager.operations.balancing.situation import NO_NODE, NodePair, Situation

_Placed = tuple[PlacedInstance, NodePair]
# Scores that differ by less are equal; of equal nodes, the later one is taken.
_SAME_SCORE: Final = 1e-9
_GO_ELSEWHERE: Final = (EXTERNALLY_MIRRORED | {DiskTemplate.DISKLESS}) - {DiskTemplate.BLOCK}


class Redundancy:
    """The redundancy of a cluster that is being filled: `holds` checks a place, and `settle` takes it."""

    def __init__(self, situation: Situation) -> None:
        self._on = defaultdict[int, list[_Placed]](list)
        for placed, place in zip(situation.instances, situation.places, strict=True):
            if not placed.instance.is_forthcoming:
                # The newest instance comes first, as in htools.
                self._on[place.primary].insert(0, (placed, place))
        self._groups = {
            group.uuid: _Group(situation, situation.group_members(group)) for group in situation.cluster.groups
        }
        self._group_of = [state.limits.node.group_uuid for state in situation.states]
        self._order = list(range(len(self._group_of)))
        self._known: dict[int, bool] = {}

    def holds(self, changes: Changes, placed: PlacedInstance, place: NodePair) -> bool:
        """Whether the cluster could lose any node with the instance at `place`. changes: nodes changed by that."""
        for index in self._order:
            if not self._can_lose(index, changes, placed, place):
                # Check this node first next time, since it most likely fails for the next place, too.
                self._order.remove(index)
                self._order.insert(0, index)
                return False
        return True

    def settle(self, changes: Changes, placed: PlacedInstance, place: NodePair) -> None:
        """Put the instance at `place`, and drop the results that the changes affect."""
        self._on[place.primary].insert(0, (placed, place))
        self._groups[self._group_of[place.primary]].settle(changes)
        self._known = {index: value for index, value in self._known.items() if not self._looks_at(index, changes)}

    def _can_lose(self, index: int, changes: Changes, placed: PlacedInstance, place: NodePair) -> bool:
        """Whether the cluster could lose one node, see `holds`."""
        group = self._groups[self._group_of[index]]
        if index == place.primary:
            return group.can_lose(index, [(placed, place), *self._on[index]], changes)
        if self._looks_at(index, changes):
            return group.can_lose(index, self._on[index], changes)
        if index not in self._known:
            self._known[index] = group.can_lose(index, self._on[index], {})
        return self._known[index]

    def _looks_at(self, index: int, changes: Changes) -> bool:
        """Whether changed nodes may take instances of a lost node."""
        if any(not placed.instance.is_mirrored for placed, _ in self._on[index]):
            return any(self._group_of[changed] == self._group_of[index] for changed in changes)
        return index in changes or any(place.secondary in changes for _, place in self._on[index])


class _Group:
    """The nodes of a group; only they can take the instances of a lost one."""

    def __init__(self, situation: Situation, members: Sequence[int]) -> None:
        states = {index: situation.states[index] for index in members}
        has_reservations = any(each.is_forthcoming for each in situation.cluster.instances)
        self._known = KnownShares(situation.states, Estimates(states, has_reservations=has_reservations))
        # Offline nodes count with their last reported figures, as in htools.
        self._members = members
        self._counts_spindles = any(state.limits.node.has_exclusive_storage for state in states.values())

    def settle(self, changes: Changes) -> None:
        """Make the changes the current state."""
        self._known.settle(changes)

    def can_lose(self, lost: int, instances: Sequence[_Placed], changes: Changes) -> bool:
        """Whether the other nodes have room for all instances of a lost node, after changes."""
        if not instances:
            return True
        mirrored = [each for each in instances if each[0].instance.is_mirrored]
        others = [placed for placed, _ in instances if not placed.instance.is_mirrored]
        states = list(self._known.states)
        for index, state in changes.items():
            states[index] = state
        for placed, place in mirrored:
            if not _fails_over(states, placed, place):
                return False
        if not others or self._has_room_for_all(lost, [placed.instance for placed in others], states):
            return True
        evacuation = _Evacuation(self._known, lost, [index for index in self._members if index != lost], states)
        going = [placed for placed in others if placed.instance.disk_template in _GO_ELSEWHERE]
        made_anew = [placed for placed in others if placed.instance.disk_template not in _GO_ELSEWHERE]
        made_anew.sort(key=lambda placed: placed.instance.memory_mib, reverse=True)
        return all(map(evacuation.move, going)) and all(map(evacuation.make_anew, made_anew))

    def _has_room_for_all(self, lost: int, instances: Iterable[ClusterInstance], states: Sequence[NodeState]) -> bool:
        """Whether there is room for as many instances of the largest size, so that any distribution fits.

        False if that is unknown.
        """
        instances = list(instances)
        targets = [states[index] for index in self._members if index != lost]
        sends = states[lost].limits.sends
        if self._counts_spindles or any(not sends <= state.limits.receives for state in targets):
            return False
        if any(
            policy_refusal(each, targets[0].limits.policy, targets[0])
            for each in instances
            if targets and each.disk_template not in _GO_ELSEWHERE
        ):
            return False
        memory = max(each.memory_mib if each.uses_memory else 0 for each in instances)
        disk = max(each.disk_mib if each.uses_local_storage else 0 for each in instances)
        needed, room = len(instances), 0
        for state in targets:
            by_memory = _so_many(state.memory_free, memory, needed)
            room += min(by_memory, _so_many(state.disk_free, disk, needed) if disk else needed)
        return room >= needed


def _fails_over(states: list[NodeState], placed: PlacedInstance, place: NodePair) -> bool:
    """Fail an instance over in `states`, without soft limits; returns whether its secondary node has room."""
    primary, secondary = states[place.primary], states[place.secondary]
    new = secondary.without_secondary(placed, place.primary).with_primary(placed, primary, is_forced=True)
    without, is_offline = primary.without_primary(placed, secondary), primary.limits.node.is_offline
    old = without.with_secondary(placed, place.secondary, is_forced=True, ignores_disks=is_offline)
    if isinstance(new, Obstacle) or isinstance(old, Obstacle):
        return False
    states[place.primary], states[place.secondary] = old, new
    return True


def _so_many(free: int, size: int, at_most: int) -> int:
    """Return how many of a size fit if some of `free` has to remain."""
    if free <= 0:
        return 0
    return min(at_most, (free - 1) // size) if size else at_most


class _Evacuation:
    """Moves the instances of one node to others, one after the other. states: of all nodes; changes with each move."""

    def __init__(self, known: KnownShares, lost: int, targets: Sequence[int], states: list[NodeState]) -> None:
        self._known = known
        self._lost = lost
        self._targets = targets
        self._states = states
        changed = {index for index in (lost, *targets) if states[index] is not known.states[index]}
        self._changes: dict[int, Share] = {index: known.gone(states[index]) for index in changed}

    def move(self, placed: PlacedInstance) -> bool:
        """Move an instance to the best node; returns whether there is one."""
        self._set(self._lost, self._states[self._lost].without_primary(placed, None))
        return self._place(placed, lambda index: self._known.lets(self._lost, index))

    def make_anew(self, placed: PlacedInstance) -> bool:
        """Create an instance on the best node; returns whether there is one."""

        def may_take(index: int) -> bool:
            state = self._states[index]
            return policy_refusal(placed.instance, state.limits.policy, state) is None

        return self._place(placed, may_take)

    def _place(self, placed: PlacedInstance, may_take: Callable[[int], bool]) -> bool:
        base = self._known.total
        for change in self._changes.values():
            base = base.plus(change)
        shape = self._known.shape(placed)
        best, least = NO_NODE, 0.0
        for index in self._targets:
            share = self._share(index, placed, shape) if may_take(index) else None
            if share is None:
                continue
            estimate = base.score_with(share)
            if best == NO_NODE or estimate <= least + _SAME_SCORE:
                best, least = index, min(estimate, least) if best != NO_NODE else estimate
        if best == NO_NODE:
            return False
        after = self._states[best].with_primary(placed, None, is_forced=True)
        if isinstance(after, Obstacle):
            return False
        self._set(best, after)
        return True

    def _share(self, index: int, placed: PlacedInstance, shape: int) -> Share | None:
        before = self._changes.get(index)
        if before is None:
            return self._known.as_primary(index, placed, shape, None, is_forced=True)
        share = self._known.change(self._states[index].with_primary(placed, None, is_forced=True))
        return None if share is None else share.minus(before)

    def _set(self, index: int, state: NodeState) -> None:
        self._states[index] = state
        self._changes[index] = self._known.gone(state)
