"""What a compute node of Nova has and what of it is taken, as its compute service said last; pure.

What a service keeps for its host counts as used, as Nova has it. Nova has no reservations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetlight.cells.node_capacity import UNKNOWN_RATIOS, UNKNOWN_ZONE, NodeCapacity
from fleetlight.resources.amount import Amount


@dataclass(frozen=True, slots=True)
class NovaInventory:
    """Of processors, MiB of memory or GiB of disk: what there is, what of it is used, and how much may be given away.

    ratio: None or 0 where the service has not said it, or is not asked for it.
    """

    total: int | None
    used: int | None = None
    ratio: float | None = None

    @property
    def usable(self) -> int:
        return int((self.total or 0) * (self.ratio or 1))


def nova_node_capacity(
    name: str, inventories: Sequence[NovaInventory], *, is_available: bool, zone: str | None = None
) -> NodeCapacity:
    """inventories: of processors, memory and disk. zone: None where it is not known.

    A node that has not said all of it has nothing, and nothing new goes there.
    """
    is_known = all(each.total is not None and each.used is not None for each in inventories)
    unknown = set()
    if zone is None:
        unknown.add(UNKNOWN_ZONE)
    if not all(each.ratio for each in inventories):
        unknown.add(UNKNOWN_RATIOS)

    def amounts(values: Sequence[int]) -> Amount:
        vcpus, memory_mib, disk_gib = values
        return Amount.of_gib(vcpus, memory_mib, disk_gib) if is_known else Amount()

    return NodeCapacity(
        name=name,
        group=None,
        zone=zone,
        is_available=is_available and is_known,
        total=amounts([each.total or 0 for each in inventories]),
        usable=amounts([each.usable for each in inventories]),
        used=amounts([each.used or 0 for each in inventories]),
        reserved=Amount(),
        unknown=frozenset(unknown),
        is_silent=not is_known,
    )
