"""What it changes of the score that an instance is placed on a node, kept until the node changes."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

from fleetlight.manager.operations.balancing.estimates import Estimates, Share
from fleetlight.manager.operations.balancing.limits import Obstacle, PlacedInstance
from fleetlight.manager.operations.balancing.moves import Changes
from fleetlight.manager.operations.balancing.node_state import NodeState


class KnownShares:
    """states: of all nodes of the cluster, as they are now. Instances that are alike share what is known."""

    def __init__(self, states: Sequence[NodeState], estimates: Estimates) -> None:
        self.states = list(states)
        self._estimates = estimates
        self._known = defaultdict[int, dict[Hashable, Share | None]](dict)
        self._shapes: dict[Hashable, int] = {}

    @property
    def total(self) -> Share:
        """Of all nodes, as they are now."""
        return self._estimates.total

    def settle(self, changes: Changes) -> None:
        """Take the changes of a move as what is now."""
        self._estimates.settle(changes, {index: self.states[index] for index in changes})
        for index, state in changes.items():
            self.states[index] = state
            self._known.pop(index, None)

    def shape(self, placed: PlacedInstance) -> int:
        """The same number for all instances that nodes cannot tell from each other."""
        alike = replace(placed.instance, name="", uuid=None, primary="", secondary=None, tags=())
        return self._shapes.setdefault((alike, placed.exclusions, placed.wanted_locations), len(self._shapes))

    def change(self, state: NodeState | Obstacle) -> Share | None:
        """What it changes if a node has this state; None if it may not."""
        return None if isinstance(state, Obstacle) else self._estimates.change(state)

    def gone(self, state: NodeState) -> Share:
        """The same of an instance that goes away, which is never refused."""
        return self._estimates.change(state)

    def as_primary(
        self, index: int, placed: PlacedInstance, shape: int, partner: NodeState | None, *, is_forced: bool = False
    ) -> Share | None:
        """The change of a node that the instance is not on when it becomes primary there; None if it may not."""
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
        """The change of a node that the instance is not on when it becomes secondary there; None if it may not."""
        state = self.states[index]
        # Of the primary node only counts how much this one keeps free for it already.
        key = (shape, is_forced, state.peers.get(primary, 0), "secondary")
        known = self._known[index]
        if key not in known:
            known[key] = self.change(state.with_secondary(placed, primary, is_forced=is_forced))
        return known[key]

    def lets(self, source: int, target: int) -> bool:
        """Whether instances may migrate from one node to another."""
        return self.states[source].limits.sends <= self.states[target].limits.receives

    def shared(self, placed: PlacedInstance, source: int, target: int) -> float:
        """What it adds that the primary node changes, beside the shares of the nodes."""
        if not placed.exclusions or placed.instance.is_forthcoming:
            return 0.0
        return self._estimates.shared_exclusions(placed.exclusions, self.states[source], self.states[target])
