"""All moves of the instances of a group with the estimated score after each.

A move changes two or three nodes, and many moves change a node equally: the state of a node with another primary
instance does not depend on where that comes from. The oracle of this module is `moves`, which computes single moves.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fleetlight.manager.operations.balancing.cluster import EXTERNALLY_MIRRORED
from fleetlight.manager.operations.balancing.estimates import Share
from fleetlight.manager.operations.balancing.known_shares import KnownShares
from fleetlight.manager.operations.balancing.limits import Obstacle, PlacedInstance
from fleetlight.manager.operations.balancing.moves import Move, MoveKind, kind_between
from fleetlight.manager.operations.balancing.situation import NO_NODE, NodePair


class MoveCandidate(NamedTuple):
    """An allowed move of an instance. estimate: of the score after it. primary, secondary: indexes of nodes."""

    estimate: float
    kind: MoveKind
    primary: int
    secondary: int

    def move_of(self, instance: int) -> Move:
        """Return the move of the instance with this index."""
        return Move(instance, self.kind, NodePair(self.primary, self.secondary))


def moves_with_estimates(
    known: KnownShares, placed: PlacedInstance, place: NodePair, online: Sequence[int]
) -> Iterator[MoveCandidate]:
    """Yield the moves of `moves_of` that `changes_of` allows. place: current nodes. online: possible targets."""
    targets = [target for target in online if target not in (place.primary, place.secondary)]
    if placed.instance.is_mirrored:
        mirrored = _Mirrored(known, placed, place)
        has_partner = place.secondary in online
        if has_partner:
            yield from mirrored.failover()
        for target in targets:
            yield from mirrored.moves_to(target, has_partner=has_partner)
    elif placed.instance.disk_template in EXTERNALLY_MIRRORED:
        old = known.states[place.primary]
        base = known.total.plus(known.gone(old.without_primary(placed, None)))
        shape, is_forced = known.shape(placed), old.limits.node.is_offline
        for target in targets:
            share = known.as_primary(target, placed, shape, None, is_forced=is_forced)
            if share is not None and known.lets(place.primary, target):
                estimate = base.score_with(share) + known.shared(placed, place.primary, target)
                yield MoveCandidate(estimate, MoveKind.FAILOVER_TO, target, NO_NODE)


def placements_with_estimates(
    known: KnownShares, placed: PlacedInstance, place: NodePair, online: Sequence[int]
) -> Iterator[MoveCandidate]:
    """Yield the moves of `placements_of` that `changes_of_placing` allows, for a reservation."""
    states = known.states
    without = {place.primary: states[place.primary].without_primary(placed, None)}
    if place.secondary != NO_NODE:
        without[place.secondary] = states[place.secondary].without_secondary(placed, place.primary)
    gone = {index: known.gone(state) for index, state in without.items()}
    base, shape = known.total, known.shape(placed)
    for left in gone.values():
        base = base.plus(left)

    def as_primary(index: int) -> Share | None:
        if index not in gone:
            return known.as_primary(index, placed, shape, None)
        share = known.change(without[index].with_primary(placed, None))
        return None if share is None else share.minus(gone[index])

    def as_secondary(index: int) -> Share | None:
        if index not in gone:
            return known.as_secondary(index, placed, shape, NO_NODE)
        share = known.change(without[index].with_secondary(placed, NO_NODE))
        return None if share is None else share.minus(gone[index])

    primaries = [(index, share) for index in online if (share := as_primary(index)) is not None]
    if place.secondary == NO_NODE:
        for primary, share in primaries:
            if primary != place.primary:
                yield MoveCandidate(base.score_with(share), MoveKind.FAILOVER_TO, primary, NO_NODE)
        return
    secondaries = [(index, share) for index in online if (share := as_secondary(index)) is not None]
    for primary, share in primaries:
        with_primary = base.plus(share)
        for secondary, other in secondaries:
            after = NodePair(primary, secondary)
            if primary != secondary and after != place:
                yield MoveCandidate(with_primary.score_with(other), kind_between(place, after), primary, secondary)


class _Mirrored:
    """The moves of one instance with a secondary node."""

    def __init__(self, known: KnownShares, placed: PlacedInstance, place: NodePair) -> None:
        self._known = known
        self._placed = placed
        self._shape = known.shape(placed)
        self._old, self._partner = place.primary, place.secondary
        self._primary, self._secondary = known.states[place.primary], known.states[place.secondary]
        # Soft limits do not keep an instance on an offline node.
        self._leaves_primary = self._primary.limits.node.is_offline
        self._leaves_secondary = self._secondary.limits.node.is_offline
        self._without_primary = self._primary.without_primary(placed, self._secondary)
        self._without_secondary = self._secondary.without_secondary(placed, place.primary)
        self._primary_gone = known.total.plus(known.gone(self._without_primary))
        self._secondary_gone = known.total.plus(known.gone(self._without_secondary))
        self._bases: dict[object, Share | None] = {}
        self._may_fail_over = known.lets(self._old, self._partner)
        on_the_way = self._without_secondary.with_primary(placed, None, is_forced=self._leaves_primary)
        self._may_go_through = self._may_fail_over and not isinstance(on_the_way, Obstacle)

    def failover(self) -> Iterator[MoveCandidate]:
        """Yield the failover to the secondary node, if it is allowed."""
        is_forced = self._leaves_primary
        new = self._known.change(self._without_secondary.with_primary(self._placed, self._primary, is_forced=is_forced))
        other = self._known.change(
            self._without_primary.with_secondary(
                self._placed, self._partner, is_forced=is_forced, ignores_disks=is_forced
            )
        )
        if self._may_fail_over and new is not None and other is not None:
            estimate = self._known.total.plus(new).score_with(other) + self._shared(self._partner)
            yield MoveCandidate(estimate, MoveKind.FAILOVER, self._partner, self._old)

    def moves_to(self, target: int, *, has_partner: bool) -> Iterator[MoveCandidate]:
        """Yield the moves that use a third node, in the order of htools. has_partner: the secondary node is online."""
        known, placed, shape = self._known, self._placed, self._shape
        share = known.as_secondary(target, placed, shape, self._old, is_forced=self._leaves_secondary)
        if share is not None and (base := self._primary_stays(target)) is not None:
            yield MoveCandidate(base.score_with(share), MoveKind.REPLACE_SECONDARY, self._old, target)
        if known.lets(self._old, target):
            share = known.as_primary(target, placed, shape, self._primary)
            if share is not None and (base := self._primary_becomes_secondary(target)) is not None:
                estimate = base.score_with(share) + self._shared(target)
                yield MoveCandidate(estimate, MoveKind.REPLACE_AND_FAILOVER, target, self._old)
        if not has_partner:
            return
        is_forced = self._leaves_primary
        if self._may_go_through and known.lets(self._partner, target):
            share = known.as_primary(target, placed, shape, self._secondary, is_forced=is_forced)
            if share is not None and (base := self._secondary_stays(target)) is not None:
                estimate = base.score_with(share) + self._shared(target)
                yield MoveCandidate(estimate, MoveKind.REPLACE_PRIMARY, target, self._partner)
        if self._may_fail_over:
            share = known.as_secondary(target, placed, shape, self._partner, is_forced=is_forced)
            if share is not None and (base := self._secondary_becomes_primary(target)) is not None:
                estimate = base.score_with(share) + self._shared(self._partner)
                yield MoveCandidate(estimate, MoveKind.FAILOVER_AND_REPLACE, self._partner, target)

    def _primary_stays(self, target: int) -> Share | None:
        """Return the total share without the new secondary node, of which only the locations matter."""
        partner = self._known.states[target]
        key = ("primary stays", partner.limits.locations if self._primary.limits.locations else None)
        if key not in self._bases:
            state = self._without_primary.with_primary(self._placed, partner, is_forced=True)
            self._bases[key] = _plus(self._secondary_gone, self._known.change(state))
        return self._bases[key]

    def _primary_becomes_secondary(self, target: int) -> Share | None:
        """Return the total share without the new primary node, of which only the memory kept for it matters."""
        key = ("primary becomes secondary", self._primary.peers.get(target, 0))
        if key not in self._bases:
            state = self._without_primary.with_secondary(self._placed, target, is_forced=self._leaves_secondary)
            self._bases[key] = _plus(self._secondary_gone, self._known.change(state))
        return self._bases[key]

    def _secondary_stays(self, target: int) -> Share | None:
        key = ("secondary stays", self._secondary.peers.get(target, 0))
        if key not in self._bases:
            state = self._without_secondary.with_secondary(self._placed, target, is_forced=self._leaves_primary)
            self._bases[key] = _plus(self._primary_gone, self._known.change(state))
        return self._bases[key]

    def _secondary_becomes_primary(self, target: int) -> Share | None:
        partner = self._known.states[target]
        key = ("secondary becomes primary", partner.limits.locations if self._secondary.limits.locations else None)
        if key not in self._bases:
            state = self._without_secondary.with_primary(self._placed, partner, is_forced=self._leaves_primary)
            self._bases[key] = _plus(self._primary_gone, self._known.change(state))
        return self._bases[key]

    def _shared(self, target: int) -> float:
        return self._known.shared(self._placed, self._old, target)


def _plus(share: Share, other: Share | None) -> Share | None:
    return None if other is None else share.plus(other)
