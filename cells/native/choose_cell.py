"""Which cell new instances go to: the one with the most room for them."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from cells.fleet.fleet import Fleet
from cells.fleet.server_groups import ServerGroup
from cells.model import Cell
from cells.native.nodes import Capacity, ComputeNode
from cells.native.placement import Wish, may_take

_SOFT = {"soft-affinity": 1, "soft-anti-affinity": -1}


@dataclass(frozen=True, slots=True)
class CellNodesNow:
    """A cell that may take new instances, and its nodes as they were a moment ago."""

    cell: Cell
    nodes: Sequence[ComputeNode]


@dataclass(frozen=True, slots=True)
class CellWish:
    """Which cells are wanted, by uuid.

    only: one of these, since instances that they share a host with are there; empty: any.
    rather: how much each is preferred; 0 for those that are not named.
    """

    only: Collection[str] = ()
    rather: Mapping[str, int] = field(default_factory=dict)


def choose_cell(
    surveyed: Sequence[CellNodesNow], demand: Capacity, wish: Wish, count: int, cells: CellWish = CellWish()
) -> Cell | None:
    """The cell with the most free memory among those with room for `count` instances of `demand`.

    Of several with room the most preferred one. When none has it, one that has some of the wished nodes, and at last
    any: there the scheduling fails, and says so. None only when no cell was surveyed, or none that it can be.
    """

    def rank(now: CellNodesNow) -> tuple[int, int, int]:
        wished = [node for node in now.nodes if may_take(node, wish)]
        room = sum(_how_many(node.free, demand) for node in wished)
        return min(count, room), cells.rather.get(now.cell.uuid, 0), sum(node.free.memory_mib for node in wished)

    allowed = [now for now in surveyed if not cells.only or now.cell.uuid in cells.only]
    best = max(allowed, key=rank, default=None)
    return None if best is None else best.cell


def wished_cells(fleet: Fleet, group: ServerGroup | None, beside: Collection[str]) -> CellWish:
    """What the cells of other instances mean for new ones. beside: uuids of those that they share a host with.

    Raises FleetUnreachableError.
    """
    together = {*beside, *(group.members if group is not None and group.policy == "affinity" else ())}
    only = set(fleet.cells_of(together).values())
    rather: Mapping[str, int] = {}
    if group is not None and group.policy in _SOFT:
        members = Counter(fleet.cells_of(group.members).values())
        rather = {cell: _SOFT[group.policy] * count for cell, count in members.items()}
    return CellWish(only, rather)


def zones(surveyed: Sequence[CellNodesNow]) -> set[str]:
    """The availability zones that have a host which may take new instances."""
    return {node.service.availability_zone for now in surveyed for node in now.nodes if node.is_available}


def _how_many(free: Capacity, demand: Capacity) -> int:
    """How often `demand` fits into `free`; an instance that takes up nothing fits once."""
    pairs = (
        (free.vcpus, demand.vcpus),
        (free.memory_mib, demand.memory_mib),
        (free.disk_gib, demand.disk_gib),
    )
    return max(0, min((have // need for have, need in pairs if need), default=1))
