"""The capacity of a cell's nodes, and how much of it is in use, for all kinds of cells that know it."""

from dataclasses import dataclass
from typing import Final

from fleetlight.resources.amount import Amount

UNKNOWN_ZONE: Final = "zone"
"""The node may have a zone."""
UNKNOWN_RATIOS: Final = "ratios"
"""The node may be overcommitted: its usable capacity is a lower bound."""
UNKNOWN_DISK: Final = "disk"
"""The node may have disk for instances, but counts as having none."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """The capacity of one node.

    usable: how much instances may use, which exceeds `total` if the node is overcommitted. used: without reservations.
    zone: availability zone; None if it has none. is_available: whether new instances may go there.
    is_silent: the node should have reported its capacity, and has not, so it counts for nothing.
    has_agent: whether one of our agents does its work; its instances move only to other nodes with agents.
    unknown: what such a cell cannot know of the node: UNKNOWN_ZONE, UNKNOWN_RATIOS, UNKNOWN_DISK.
    """

    name: str
    group: str | None
    zone: str | None
    is_available: bool
    total: Amount
    usable: Amount
    used: Amount
    reserved: Amount
    unknown: frozenset[str] = frozenset()
    has_agent: bool = False
    is_silent: bool = False

    @property
    def free(self) -> Amount:
        """The usable capacity that is neither used nor reserved; negative if the node has too many instances."""
        return self.usable - self.used - self.reserved
