"""The state of a node with its instances: the effect of moves on it, and their obstacles.

Most resources have two figures: for real instances alone, and with reservations (`with_reserved`). Moves keep both
within the limits, so that a reservation can always be made real. Source: contracts/ganeti-htools, 2 and 4.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, TypeVar

from fleetlight.manager.operations.balancing.cluster import ClusterInstance
from fleetlight.manager.operations.balancing.limits import NodeLimits, Obstacle, PlacedInstance

_SPINDLES_UNKNOWN: Final = -1
_Key = TypeVar("_Key", bound=Hashable)


class NodeState:
    """The state of a node. Moves return another state; `limits` and the figures may be read.

    memory_free: memory neither used nor missing. peers: by index of a primary node, the memory that its secondaries
    here need if it fails. memory_kept: the maximum of `peers`. fails_redundancy: less memory is free than kept.
    primaries, secondaries: number of instances, without reservations.
    """

    __slots__ = (
        "cpus_used",
        "cpus_used_with_reserved",
        "disk_free",
        "disk_free_with_reserved",
        "exclusions",
        "fails_redundancy",
        "limits",
        "location_pairs",
        "location_score",
        "memory_free",
        "memory_free_with_reserved",
        "memory_kept",
        "peers",
        "primaries",
        "secondaries",
        "spindles_free",
        "spindles_free_with_reserved",
        "spindles_used",
        "spindles_used_with_reserved",
    )

    def __init__(self, limits: NodeLimits) -> None:
        """Begin with the reported figures of a node, before its instances are added."""
        node = limits.node
        self.limits = limits
        self.memory_free = node.total_memory_mib - node.own_memory_mib
        self.memory_free_with_reserved = node.free_memory_mib
        self.memory_kept = 0
        self.disk_free = self.disk_free_with_reserved = node.free_disk_mib
        self.cpus_used = self.cpus_used_with_reserved = node.own_vcpus
        self.spindles_free = self.spindles_free_with_reserved = node.free_spindles
        self.spindles_used = self.spindles_used_with_reserved = 0
        self.primaries = self.secondaries = 0
        self.peers: Mapping[int, int] = {}
        self.fails_redundancy = False
        self.exclusions: Mapping[str, int] = {}
        self.location_score = 0
        self.location_pairs: Mapping[tuple[str, str], int] = {}

    def learn_primary(self, placed: PlacedInstance, partner: "NodeState | None") -> None:
        """Add an existing primary instance, which the reported figures contain already if it is real."""
        instance = placed.instance
        self._take_primary(placed, 1, partner)
        if not instance.uses_memory:
            self.memory_free_with_reserved -= instance.memory_mib
        self._learn_disk(instance)

    def learn_secondary(self, placed: PlacedInstance, primary: int) -> None:
        """Add an existing secondary instance. primary: index of its primary node."""
        instance = placed.instance
        self._learn_disk(instance)
        if not instance.is_forthcoming:
            self.secondaries += 1
            if instance.needs_failover_memory:
                self.peers = {**self.peers, primary: self.peers.get(primary, 0) + instance.memory_mib}

    def settle(self) -> None:
        """Compute missing and kept memory, and redundancy, once all instances are added."""
        reported = self.limits.node.free_memory_mib
        self.memory_free -= max(0, self.memory_free - reported)
        self.memory_kept = max(self.peers.values(), default=0)
        self.fails_redundancy = reported < self.memory_kept

    def _learn_disk(self, instance: ClusterInstance) -> None:
        if instance.is_forthcoming:
            self._take_disk(instance, 1)
        elif instance.uses_spindles and not self.limits.node.has_exclusive_storage:
            self.spindles_used += instance.spindle_use
            self.spindles_used_with_reserved += instance.spindle_use

    def _copy(self) -> "NodeState":
        copy = NodeState.__new__(NodeState)
        copy.limits = self.limits
        copy.memory_free = self.memory_free
        copy.memory_free_with_reserved = self.memory_free_with_reserved
        copy.memory_kept = self.memory_kept
        copy.disk_free = self.disk_free
        copy.disk_free_with_reserved = self.disk_free_with_reserved
        copy.cpus_used = self.cpus_used
        copy.cpus_used_with_reserved = self.cpus_used_with_reserved
        copy.spindles_free = self.spindles_free
        copy.spindles_free_with_reserved = self.spindles_free_with_reserved
        copy.spindles_used = self.spindles_used
        copy.spindles_used_with_reserved = self.spindles_used_with_reserved
        copy.primaries = self.primaries
        copy.secondaries = self.secondaries
        copy.peers = self.peers
        copy.fails_redundancy = self.fails_redundancy
        copy.exclusions = self.exclusions
        copy.location_score = self.location_score
        copy.location_pairs = self.location_pairs
        return copy

    def without_primary(self, placed: PlacedInstance, partner: "NodeState | None") -> "NodeState":
        """Return the state without a primary instance. partner: its secondary node, for their common locations."""
        after = self._copy()
        instance = placed.instance
        after._take_primary(placed, -1, partner)
        after.memory_free_with_reserved = self.memory_free_with_reserved + instance.memory_mib
        after._take_disk(instance, -1)
        if not instance.is_forthcoming:
            after.fails_redundancy = after.memory_free <= after.memory_kept
        return after

    def with_primary(
        self, placed: PlacedInstance, partner: "NodeState | None", *, is_forced: bool = False
    ) -> "NodeState | Obstacle":
        """Return the state with another primary instance, or the obstacle.

        is_forced: ignore soft limits, which may be exceeded for a while.
        """
        after = self._copy()
        instance = placed.instance
        after._take_primary(placed, 1, partner)
        after.memory_free_with_reserved = self.memory_free_with_reserved - instance.memory_mib
        after._take_disk(instance, 1)
        if instance.is_forthcoming:
            refusal = None if is_forced else after._refuses_reserved(instance)
            return refusal or after
        after.fails_redundancy = after.memory_free <= after.memory_kept
        return self._refuses_primary(placed, after, is_forced=is_forced) or after

    def without_secondary(self, placed: PlacedInstance, primary: int) -> "NodeState":
        """Return the state without a secondary instance. primary: index of its primary node."""
        after = self._copy()
        instance = placed.instance
        after._take_disk(instance, -1)
        if not instance.is_forthcoming:
            after.secondaries -= 1
            if instance.needs_failover_memory:
                left = self.peers.get(primary, 0) - instance.memory_mib
                after.peers = {**self.peers, primary: left}
                if self.peers.get(primary, 0) >= self.memory_kept:
                    after.memory_kept = max(after.peers.values())
            after.fails_redundancy = after.memory_free <= after.memory_kept
        return after

    def with_secondary(
        self, placed: PlacedInstance, primary: int, *, is_forced: bool = False, ignores_disks: bool = False
    ) -> "NodeState | Obstacle":
        """Return the state with another secondary instance, or the obstacle. primary: index of its primary node.

        is_forced: ignore soft limits. ignores_disks: ignore the free disk, too.
        """
        after = self._copy()
        instance = placed.instance
        after._take_disk(instance, 1)
        needed = instance.memory_mib if instance.needs_failover_memory else 0
        if not instance.is_forthcoming:
            after.secondaries += 1
            if needed:
                peer = self.peers.get(primary, 0) + needed
                after.peers = {**self.peers, primary: peer}
                after.memory_kept = max(self.memory_kept, peer)
            after.fails_redundancy = after.memory_free <= after.memory_kept
            refusal = self._refuses_secondary(after, needed, is_forced=is_forced, ignores_disks=ignores_disks)
            if refusal is not None:
                return refusal
        if not is_forced:
            refusal = after._refuses_reserved_disk()
            if refusal is None and needed >= self.memory_free_with_reserved:
                refusal = Obstacle.MEMORY
            if refusal is not None:
                return refusal
        return after

    def _take_primary(self, placed: PlacedInstance, sign: int, partner: "NodeState | None") -> None:
        instance, limits = placed.instance, self.limits
        vcpus = 0 if instance.is_switched_off else sign * instance.vcpus
        self.cpus_used_with_reserved += vcpus
        if placed.exclusions:
            self.exclusions = changed(self.exclusions, placed.exclusions, sign)
        if instance.is_forthcoming:
            return
        self.cpus_used += vcpus
        self.primaries += sign
        if instance.uses_memory:
            self.memory_free -= sign * instance.memory_mib
        if limits.locations or placed.wanted_locations:
            missed = len(placed.wanted_locations - limits.locations)
            common = limits.locations & partner.limits.locations if partner is not None else ()
            self.location_score += sign * (len(common) + missed)
            pairs = [(location, tag) for location in limits.locations for tag in placed.exclusions]
            self.location_pairs = changed(self.location_pairs, pairs, sign)

    def _take_disk(self, instance: ClusterInstance, sign: int) -> None:
        has_exclusive_storage = self.limits.node.has_exclusive_storage
        if has_exclusive_storage:
            # Spindles count for all disk templates, as in htools.
            self.spindles_free_with_reserved = _spindles_left(self.spindles_free_with_reserved, instance, sign)
            if not instance.is_forthcoming:
                self.spindles_free = _spindles_left(self.spindles_free, instance, sign)
        if not instance.uses_local_storage:
            return
        spindles = sign * instance.spindle_use if instance.uses_spindles and not has_exclusive_storage else 0
        self.disk_free_with_reserved -= sign * instance.disk_mib
        self.spindles_used_with_reserved += spindles
        if not instance.is_forthcoming:
            self.disk_free -= sign * instance.disk_mib
            self.spindles_used += spindles

    def _refuses_primary(self, placed: PlacedInstance, after: "NodeState", *, is_forced: bool) -> Obstacle | None:
        instance, limits = placed.instance, self.limits
        uses_disk = instance.uses_local_storage
        if after.memory_free <= 0:
            return Obstacle.MEMORY
        if uses_disk and after.disk_free <= 0:
            return Obstacle.DISK
        if uses_disk and limits.node.has_exclusive_storage and after.spindles_free < 0:
            return Obstacle.SPINDLES
        if is_forced:
            return None
        if uses_disk and after.spindles_used > limits.greatest_spindles:
            return Obstacle.DISK
        if after.fails_redundancy and not self.fails_redundancy:
            return Obstacle.MEMORY
        if 0 <= limits.policy.vcpu_ratio < after.cpus_used / limits.node.cpus:
            return Obstacle.PROCESSORS
        if any(tag in self.exclusions for tag in placed.exclusions):
            return Obstacle.EXCLUSION
        return after._refuses_reserved(instance)

    def _refuses_reserved(self, instance: ClusterInstance) -> Obstacle | None:
        """Return the obstacle if the instances and reservations exceed the node's limits."""
        limits = self.limits
        if self.memory_free_with_reserved <= 0:
            return Obstacle.MEMORY
        refusal = self._refuses_reserved_disk() if instance.uses_local_storage else None
        if refusal is not None:
            return refusal
        if 0 <= limits.policy.vcpu_ratio < self.cpus_used_with_reserved / limits.node.cpus:
            return Obstacle.PROCESSORS
        return None

    def _refuses_secondary(
        self, after: "NodeState", needed: int, *, is_forced: bool, ignores_disks: bool
    ) -> Obstacle | None:
        if not ignores_disks and after.disk_free <= 0:
            return Obstacle.DISK
        if self.limits.node.has_exclusive_storage and after.spindles_free < 0:
            return Obstacle.SPINDLES
        if is_forced:
            return None
        if after.disk_free < 0 or after.spindles_used > self.limits.greatest_spindles:
            return Obstacle.DISK
        if needed >= self.memory_free or (after.fails_redundancy and not self.fails_redundancy):
            return Obstacle.MEMORY
        return None

    def _refuses_reserved_disk(self) -> Obstacle | None:
        limits = self.limits
        if self.disk_free_with_reserved <= 0:
            return Obstacle.DISK
        if limits.node.has_exclusive_storage and self.spindles_free_with_reserved < 0:
            return Obstacle.SPINDLES
        if self.spindles_used_with_reserved > limits.greatest_spindles:
            return Obstacle.DISK
        return None


def changed(counts: Mapping[_Key, int], keys: Iterable[_Key], sign: int) -> Mapping[_Key, int]:
    """Return the counts with each key counted once more (sign 1) or once less (-1), without entries of 0."""
    after = dict(counts)
    for key in keys:
        count = after.get(key, 0) + sign
        if count > 0:
            after[key] = count
        else:
            after.pop(key, None)
    return after


def _spindles_left(free: int, instance: ClusterInstance, sign: int) -> int:
    if instance.disk_spindles is None:
        # No instance with an unknown number is placed here, and its removal frees none.
        return _SPINDLES_UNKNOWN if sign > 0 else free
    return free - sign * instance.disk_spindles
