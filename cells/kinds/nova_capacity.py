"""The capacity of a compute node of Nova, as its compute service last reported it; pure.

Resources that a service reserves for its host count as used, as in Nova. Nova has no reservations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetlight.cells.node_capacity import UNKNOWN_RATIOS, UNKNOWN_ZONE, NodeCapacity
from fleetlight.resources.amount import Amount


@dataclass(frozen=True, slots=True)
class NovaInventory:
    """An inventory of processors, memory (MiB) or disk (GiB): total, used, and the ratio of overcommitment.

    ratio: None or 0 if the service has not reported it, or it was not read.
    """

    total: int | None
    used: int | None = None
    ratio: float | None = None

    @property
    def usable(self) -> int:
        """The amount that instances may use in total."""
        return int((self.total or 0) * (self.ratio or 1))


def nova_node_capacity(
    name: str, inventories: Sequence[NovaInventory], *, is_available: bool, zone: str | None = None
) -> NodeCapacity:
    """The capacity of a node. inventories: of processors, memory and disk. zone: None if unknown.

    A node that has not reported all of them counts as having nothing, and takes no new instances.
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
