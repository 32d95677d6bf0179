"""A cache of the shares by which instances on a node change the score, until the node changes."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

from fleetlight.manager.operations.balancing.estimates import Estimates, Share
from fleetlight.manager.operations.balancing.limits import Obstacle, PlacedInstance
from fleetlight.manager.operations.balancing.moves import Changes
from fleetlight.manager.operations.balancing.node_state import NodeState


class KnownShares:
    """The cache; equal instances share its entries. states: current states of all nodes of the cluster."""

    def __init__(self, states: Sequence[NodeState], estimates: Estimates) -> None:
        self.states = list(states)
        self._estimates = estimates
        self._known = defaultdict[int, dict[Hashable, Share | None]](dict)
        self._shapes: dict[Hashable, int] = {}

    @property
    def total(self) -> Share:
        """The current share of all nodes."""
        return self._estimates.total

    def settle(self, changes: Changes) -> None:
        """Make the changes of a move the current state, and drop the entries of the changed nodes."""
        self._estimates.settle(changes, {index: self.states[index] for index in changes})
        for index, state in changes.items():
            self.states[index] = state
            self._known.pop(index, None)

    def shape(self, placed: PlacedInstance) -> int:
        """Return the same number for all instances that are equal to nodes."""
        alike = replace(placed.instance, name="", uuid=None, primary="", secondary=None, tags=())
        return self._shapes.setdefault((alike, placed.exclusions, placed.wanted_locations), len(self._shapes))

    def change(self, state: NodeState | Obstacle) -> Share | None:
        """Return the change of the total share if a node gets this state; None for an obstacle."""
        return None if isinstance(state, Obstacle) else self._estimates.change(state)

    def gone(self, state: NodeState) -> Share:
        """As `change`, for a node without an instance, which has no obstacle."""
        return self._estimates.change(state)

    def as_primary(
        self, index: int, placed: PlacedInstance, shape: int, partner: NodeState | None, *, is_forced: bool = False
    ) -> Share | None:
        """Return the change if the instance becomes primary on another node; None if it may not."""
        state = self.states[index]
        common = partner.limits.locations if partner is not None and state.limits.locations else None
        key = (shape, is_forced, common)
        known = self._known[index]
        if key not in known:
            known[key] = self.change(state.with_primary(placed, partner, is_forced=is_forced))
        return known[key]

    def as_secondary(
        self, index: int, placed: PlacedInstance, shape: int, primary: int, *, is_forced: bool = False
    ) -> Share | None:
        """Return the change if the instance becomes secondary on another node; None if it may not."""
        state = self.states[index]
        # Of the primary node, only the memory that this node keeps for it matters.
        key = (shape, is_forced, state.peers.get(primary, 0), "secondary")
        known = self._known[index]
        if key not in known:
            known[key] = self.change(state.with_secondary(placed, primary, is_forced=is_forced))
        return known[key]

    def lets(self, source: int, target: int) -> bool:
        """Whether instances may migrate from source to target."""
        return self.states[source].limits.sends <= self.states[target].limits.receives

    def shared(self, placed: PlacedInstance, source: int, target: int) -> float:
        """Return the change of the score by the exclusion tags of an instance that moves from source to target."""
        if not placed.exclusions or placed.instance.is_forthcoming:
            return 0.0
        return self._estimates.shared_exclusions(placed.exclusions, self.states[source], self.states[target])
