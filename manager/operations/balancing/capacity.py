"""The number of further instances of a size that a cluster can hold, and then of smaller sizes, like hspace.

Source: contracts/ganeti-htools, 6.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fleetlight.manager.operations.balancing.cluster import (
    AllocationPolicy,
    Cluster,
    ClusterInstance,
    DiskTemplate,
    InstanceStatus,
)
from fleetlight.manager.operations.balancing.estimates import Estimates, Share
from fleetlight.manager.operations.balancing.limits import Obstacle, PlacedInstance
from fleetlight.manager.operations.balancing.node_state import NodeState
from fleetlight.manager.operations.balancing.policy import policy_refusal
from fleetlight.manager.operations.balancing.redundancy import Redundancy
from fleetlight.manager.operations.balancing.score import score
from fleetlight.manager.operations.balancing.situation import NO_NODE, NodePair, Situation
from fleetlight.resources.amount import Amount

MEMORY_STEP_MIB: Final = 64
DISK_STEP_MIB: Final = 256
_ESTIMATE_ERROR: Final = 1e-7
# In the order of htools, which decides between equally frequent causes.
_CAUSES: Final = (
    Obstacle.MEMORY,
    Obstacle.DISK,
    Obstacle.PROCESSORS,
    Obstacle.REDUNDANCY,
    Obstacle.EXCLUSION,
    Obstacle.MIGRATION,
    Obstacle.DISK_COUNT,
    Obstacle.SPINDLES,
)


@dataclass(frozen=True, slots=True)
class Tier:
    """A number of instances of one size."""

    size: Amount
    count: int


def tiers_of(cluster: Cluster, size: Amount, template: DiskTemplate, *, stays_redundant: bool = True) -> Sequence[Tier]:
    """Count the instances of this size for which there is room, and then of each smaller size that still fits.

    stays_redundant: whether the instances of any node must still have room on others; except mirrored ones, for which
        their own nodes keep room anyway.
    """
    space = _Space(cluster, template, stays_redundant=stays_redundant)
    return list(_tiers(space, size))


def count_of(size: Amount, tiers: Sequence[Tier]) -> int:
    """Return the number of instances of one size."""
    return sum(tier.count for tier in tiers if tier.size == size)


def without_reservations(cluster: Cluster) -> Cluster:
    return replace(cluster, instances=tuple(each for each in cluster.instances if not each.is_forthcoming))


def _tiers(space: "_Space", size: Amount) -> Iterator[Tier]:
    tried: list[tuple[Amount, Mapping[Obstacle, int]]] = []
    while True:
        count, failures = space.fill(size)
        if count:
            tried.clear()
            yield Tier(size, count)
        tried.append((size, failures))
        # Shrink the resource of the most frequent refusal; if that is impossible, one whose change alone suffices.
        following = _smaller(size, _by_frequency(failures)[0]) or _sufficient(space, tried)
        if following is None:
            return
        size = following


def _sufficient(space: "_Space", tried: list[tuple[Amount, Mapping[Obstacle, int]]]) -> Amount | None:
    """Return the largest size that fits and differs in one resource from a tried size, trying the last one first."""
    while tried:
        size, failures = tried.pop()
        found = (_shrunk_until_it_fits(space, size, cause) for cause in _by_frequency(failures))
        if (first := next((each for each in found if each is not None), None)) is not None:
            tried.clear()
            return first
    return None


def _shrunk_until_it_fits(space: "_Space", size: Amount, cause: Obstacle) -> Amount | None:
    found: Amount | None = size
    while found is not None:
        failures = space.failures(found)
        if space.fits(failures):
            return found
        if not failures[cause]:
            return None
        found = _smaller(found, cause)
    return None


def _smaller(size: Amount, cause: Obstacle) -> Amount | None:
    """Shrink a size by one step in the resource of a refusal; None if that is impossible."""
    match cause:
        case Obstacle.MEMORY if size.memory_mib >= 2 * MEMORY_STEP_MIB:
            return replace(size, memory_mib=size.memory_mib - MEMORY_STEP_MIB)
        case Obstacle.DISK if size.disk_mib >= 2 * DISK_STEP_MIB:
            return replace(size, disk_mib=size.disk_mib - DISK_STEP_MIB)
        case Obstacle.PROCESSORS if size.vcpus > 1:
            return replace(size, vcpus=size.vcpus - 1)
    return None


def _by_frequency(failures: Mapping[Obstacle, int]) -> Sequence[Obstacle]:
    """Sort the causes of refusals by frequency; of equal ones the last in the order of htools first."""
    return sorted(_CAUSES, key=lambda cause: (failures[cause], _CAUSES.index(cause)), reverse=True)


class _Space:
    """A cluster that is being filled."""

    def __init__(self, cluster: Cluster, template: DiskTemplate, *, stays_redundant: bool) -> None:
        situation = Situation.of(cluster)
        # For mirrored instances hspace checks only their own nodes.
        is_checked = stays_redundant and template is not DiskTemplate.DRBD
        self._redundancy = Redundancy(situation) if is_checked else None
        self._states = list(situation.states)
        self._template = template
        self._spindle_use = cluster.policy.standard.spindle_use
        groups = {
            group.uuid: group for group in cluster.groups if group.allocation_policy is not AllocationPolicy.UNALLOCABLE
        }
        online = [state for state in self._states if not state.limits.node.is_offline]
        is_redundant = not any(state.fails_redundancy for state in online)
        self._targets = [
            state.limits.index for state in online if is_redundant and state.limits.node.group_uuid in groups
        ]
        has_reservations = any(each.is_forthcoming for each in cluster.instances)
        self._estimates = Estimates(dict(enumerate(self._states)), has_reservations=has_reservations)

    def fill(self, size: Amount) -> tuple[int, Mapping[Obstacle, int]]:
        """Place as many instances as fit; returns their number, and the refusals of the next one by cause."""
        placed, count = self._instance(size), 0
        while (best := self._best(placed)) is not None:
            place, changes = best
            self._estimates.settle(changes, {index: self._states[index] for index in changes})
            for index, state in changes.items():
                self._states[index] = state
            if self._redundancy is not None:
                self._redundancy.settle(changes, placed, place)
            count += 1
        failures = self._refusals(placed)
        failures[Obstacle.REDUNDANCY] += sum(1 for _ in self._places(placed))
        return count, failures

    def failures(self, size: Amount) -> Mapping[Obstacle, int]:
        """Count the refusals of an instance by cause, up to the first place that fits."""
        placed = self._instance(size)
        failures = self._refusals(placed)
        for place in self._places(placed) if self._redundancy is not None else ():
            if self._is_redundant(placed, place, self._after(placed, place)):
                break
            failures[Obstacle.REDUNDANCY] += 1
        return failures

    def _refusals(self, placed: PlacedInstance) -> Counter[Obstacle]:
        """Count the refusals by nodes alone."""
        primaries = {index: self._as_primary(index, placed) for index in self._targets}
        if not self._is_mirrored:
            return Counter(state for state in primaries.values() if isinstance(state, Obstacle))
        failures = Counter[Obstacle]()
        as_secondary = {index: self._refusal_as_secondary(index, placed, NO_NODE) for index in self._targets}
        for targets in self._by_group().values():
            usual = Counter(as_secondary[index] for index in targets)
            for primary in targets:
                state = primaries[primary]
                if isinstance(state, Obstacle):
                    failures[state] += len(targets) - 1
                    continue
                found = usual.copy()
                found[as_secondary[primary]] -= 1
                for secondary in self._peers_of(primary, targets):
                    found[as_secondary[secondary]] -= 1
                    found[self._refusal_as_secondary(secondary, placed, primary)] += 1
                failures.update({refusal: count for refusal, count in found.items() if refusal is not None})
        return failures

    def fits(self, failures: Mapping[Obstacle, int]) -> bool:
        """Whether some place is not among the refusals."""
        groups = self._by_group().values()
        places = sum(len(group) * (len(group) - 1) for group in groups) if self._is_mirrored else len(self._targets)
        return sum(failures.values()) < places

    def _by_group(self) -> Mapping[str, Sequence[int]]:
        groups = defaultdict[str, list[int]](list)
        for index in self._targets:
            groups[self._states[index].limits.node.group_uuid].append(index)
        return groups

    def _peers_of(self, primary: int, targets: Sequence[int]) -> Iterator[int]:
        """Yield the nodes that already keep memory free for node `primary`."""
        return (index for index in targets if index != primary and self._states[index].peers.get(primary))

    def _refusal_as_secondary(self, index: int, placed: PlacedInstance, primary: int) -> Obstacle | None:
        found = self._states[index].with_secondary(placed, primary)
        return found if isinstance(found, Obstacle) else None

    @property
    def _is_mirrored(self) -> bool:
        return self._template is DiskTemplate.DRBD

    def _instance(self, size: Amount) -> PlacedInstance:
        instance = ClusterInstance(
            "",
            size.memory_mib,
            size.disk_mib,
            size.vcpus,
            InstanceStatus.RUNNING,
            "",
            None,
            self._template,
            spindle_use=self._spindle_use,
            disk_spindles=1,
        )
        return PlacedInstance(len(self._states), instance, (), frozenset())

    def _places(self, placed: PlacedInstance) -> Iterator[NodePair]:
        """Yield each place that does not refuse it, in order."""
        group_of = {index: group for group in self._by_group().values() for index in group}
        refusals: dict[tuple[int, int], Obstacle | None] = {}
        for primary in self._targets:
            if isinstance(self._as_primary(primary, placed), Obstacle):
                continue
            if not self._is_mirrored:
                yield NodePair(primary, NO_NODE)
                continue
            for secondary in group_of[primary]:
                key = (secondary, self._states[secondary].peers.get(primary, 0))
                if key not in refusals:
                    refusals[key] = self._refusal_as_secondary(secondary, placed, primary)
                if secondary != primary and refusals[key] is None:
                    yield NodePair(primary, secondary)

    def _as_primary(self, index: int, placed: PlacedInstance) -> NodeState | Obstacle:
        state = self._states[index]
        refusal = policy_refusal(placed.instance, state.limits.policy, state)
        return refusal or state.with_primary(placed, None)

    def _best(self, placed: PlacedInstance) -> tuple[NodePair, Mapping[int, NodeState]] | None:
        """Return the place with the lowest score, the last of equals, and the changed nodes."""
        for place, after in self._best_first(placed):
            if self._is_redundant(placed, place, after):
                return place, after
        return None

    def _is_redundant(self, placed: PlacedInstance, place: NodePair, after: Mapping[int, NodeState]) -> bool:
        return self._redundancy is None or self._redundancy.holds(after, placed, place)

    def _best_first(self, placed: PlacedInstance) -> Iterator[tuple[NodePair, Mapping[int, NodeState]]]:
        """Yield the places that do not refuse it, by exact score, with the changed nodes."""
        estimated = sorted(self._estimated(placed), key=lambda each: each[0])
        begin = 0
        while begin < len(estimated):
            limit = estimated[begin][0]
            limit += _ESTIMATE_ERROR * (1 + limit)
            end = bisect_right(estimated, limit, key=lambda each: each[0])
            # Later ones first among equals, whose order the sort keeps.
            near = sorted(((number, place) for _, number, place in estimated[begin:end]), reverse=True)
            exact = [(place, self._after(placed, place)) for _, place in near]
            yield from sorted(exact, key=lambda each: self._score(each[1])) if len(exact) > 1 else exact
            begin = end

    def _estimated(self, placed: PlacedInstance) -> Iterator[tuple[float, int, NodePair]]:
        """Yield the estimated score of each place, and its number."""
        shares: dict[tuple[int, int], Share] = {}

        def share(index: int, primary: int) -> Share:
            state = self._states[index]
            key = (index, NO_NODE if index == primary else state.peers.get(primary, 0))
            if key not in shares:
                after = state.with_primary(placed, None) if index == primary else state.with_secondary(placed, primary)
                shares[key] = self._estimates.change(after if isinstance(after, NodeState) else state)
            return shares[key]

        for number, place in enumerate(self._places(placed)):
            base = self._estimates.total.plus(share(place.primary, place.primary))
            if place.secondary == NO_NODE:
                yield base.score(), number, place
            else:
                yield base.score_with(share(place.secondary, place.primary)), number, place

    def _after(self, placed: PlacedInstance, place: NodePair) -> Mapping[int, NodeState]:
        partner = None if place.secondary == NO_NODE else self._states[place.secondary]
        changed = {place.primary: self._states[place.primary].with_primary(placed, partner)}
        if partner is not None:
            changed[place.secondary] = partner.with_secondary(placed, place.primary)
        return {index: state for index, state in changed.items() if isinstance(state, NodeState)}

    def _score(self, changed: Mapping[int, NodeState]) -> float:
        return score([changed.get(index, state) for index, state in enumerate(self._states)])
