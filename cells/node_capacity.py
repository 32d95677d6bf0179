"""What the nodes of a cell have, and what of it is taken, as every kind of cell that knows it tells."""

from dataclasses import dataclass
from typing import Final

from fleetlight.resources.amount import Amount

UNKNOWN_ZONE: Final = "zone"
"""There may be a zone."""
UNKNOWN_RATIOS: Final = "ratios"
"""It may be overcommitted: what can be used is at least what there is."""
UNKNOWN_DISK: Final = "disk"
"""It may have disk for instances, and counts as if it had none."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """total: all that it has. usable: how much of it instances may take up, which is more where it is overcommitted.

    used: what is taken, reservations left out. reserved: by those.
    zone: availability zone; None where there are none. is_available: whether new instances may go there.
    is_silent: it should have said what it has, and has not, so nothing of it counts.
    has_agent: whether an agent of ours does its work; what is there moves to others with one, and to no simulated host.
    unknown: what such a cell cannot know of the node, of UNKNOWN_ZONE, UNKNOWN_RATIOS and UNKNOWN_DISK.
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
        """What of the usable part is neither used nor reserved; below 0 where too much was given away."""
        return self.usable - self.used - self.reserved
