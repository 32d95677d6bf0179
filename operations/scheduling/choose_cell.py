"""Which cell new instances go to: the one with the most room for them.

What a cell is asked for is one row, however many nodes it has; which of them an instance goes to is decided when it is
claimed there (operations.scheduling.placement).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce

from sqlalchemy import BigInteger, ColumnElement, Engine, and_, case, cast, func, literal, or_, select, true

from cells.database.engines import cell_failures
from cells.fleet.fleet import Fleet
from cells.fleet.server_groups import ServerGroup
from cells.kinds.native.nodes import Capacity
from cells.model import Cell
from cells.tables import allocations, compute_nodes, services
from operations.scheduling.placement import Wish, condition_of

_SOFT = {"soft-affinity": 1, "soft-anti-affinity": -1}
_SIZES = ("vcpus", "memory_mib", "disk_gib")


@dataclass(frozen=True, slots=True)
class CellRoom:
    """What a cell that may take new instances had for them a moment ago, on the nodes that they may go to.

    room: how many of them fit there, counted up to as many as there are. free_mib: memory of these nodes.
    has_zone: whether a host that takes new instances is in the wished zone. has_host: whether the wished host or node
    is there, whatever its state. Both are true where nothing is wished.
    """

    cell: Cell
    room: int
    free_mib: int
    has_zone: bool
    has_host: bool


def read_room(
    engine: Engine, cell: Cell, demand: Capacity, wish: Wish, *, count: int, zone: str | None = None
) -> CellRoom:
    """What `cell` has for `count` instances of `demand`. zone: the one to look for; raises CellUnreachableError."""
    node, of_services = compute_nodes.c, services.c.id == compute_nodes.c.service_id
    nodes = select(node.id).join_from(compute_nodes, services, of_services)
    wished = nodes.where(condition_of(wish)).add_columns(*(node[size] for size in _SIZES)).subquery()
    used = (
        select(allocations.c.node_id, *(func.sum(allocations.c[size]).label(size) for size in _SIZES))
        .where(allocations.c.node_id.in_(select(wished.c.id)))
        .group_by(allocations.c.node_id)
        .subquery()
    )
    free = (
        select(
            *(
                # A sum of big integers is a fraction on PostgreSQL, of which no whole number would come below.
                (wished.c[size] - cast(func.coalesce(used.c[size], 0), BigInteger)).label(size)
                for size in _SIZES
            )
        )
        .join_from(wished, used, used.c.node_id == wished.c.id, isouter=True)
        .subquery()
    )
    statement = select(
        func.coalesce(func.sum(_how_many({size: free.c[size] for size in _SIZES}, demand, count)), 0),
        func.coalesce(func.sum(free.c.memory_mib), 0),
        _exists(zone, nodes.where(services.c.availability_zone == zone, _IS_AVAILABLE).exists()),
        _exists(wish.host or wish.node, nodes.where(_is_named(wish)).exists()),
    ).select_from(free)
    with cell_failures(cell.name), engine.connect() as connection:
        room, free_mib, has_zone, has_host = connection.execute(statement).one()
    return CellRoom(cell, min(count, int(room)), int(free_mib), bool(has_zone), bool(has_host))


@dataclass(frozen=True, slots=True)
class CellWish:
    """Which cells are wanted, by uuid.

    only: one of these, since instances that they share a host with are there; empty: any.
    rather: how much each is preferred; 0 for those that are not named.
    """

    only: Set[str] = frozenset()
    rather: Mapping[str, int] = field(default_factory=dict)


def choose_cell(surveyed: Sequence[CellRoom], cells: CellWish = CellWish()) -> Cell | None:
    """The cell with the most free memory among those with room for all that are asked for.

    Of several with room the most preferred one. When none has it, one that has some of the wished nodes, and at last
    any: there the scheduling fails, and says so. None only when no cell was surveyed, or none that it can be.
    """

    def rank(now: CellRoom) -> tuple[int, int, int]:
        return now.room, cells.rather.get(now.cell.uuid, 0), now.free_mib

    allowed = [now for now in surveyed if not cells.only or now.cell.uuid in cells.only]
    best = max(allowed, key=rank, default=None)
    return None if best is None else best.cell


def is_enough(surveyed: Sequence[CellRoom], wish: Wish, count: int, cells: CellWish = CellWish()) -> bool:
    """Whether a choice can be made, or refused, without the cells that have not answered yet."""
    if not (any(now.has_host for now in surveyed) and any(now.has_zone for now in surveyed)):
        # Whether there is what is wished for must not depend on who answers first.
        return False
    if cells.only:
        return cells.only <= {now.cell.uuid for now in surveyed}
    return bool(wish.host or wish.node) or any(now.room >= count for now in surveyed)


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


_IS_AVAILABLE = and_(services.c.disabled.is_(False), services.c.forced_down.is_(False))


def _is_named(wish: Wish) -> ColumnElement[bool]:
    names = ((services.c.host, wish.host), (compute_nodes.c.hypervisor_hostname, wish.node))
    return and_(true(), *(column == name for column, name in names if name is not None))


def _exists(wished: str | None, found: ColumnElement[bool]) -> ColumnElement[bool]:
    return literal(True) if wished is None else found


def _how_many(free: Mapping[str, ColumnElement[int]], demand: Capacity, most: int) -> ColumnElement[int]:
    """How often `demand` fits into what is free of a node, up to `most`; what takes up nothing fits once."""
    needs = {size: getattr(demand, size) for size in _SIZES if getattr(demand, size)}
    if not needs:
        return literal(1)
    times: list[ColumnElement[int]] = [literal(most), *(free[size] // need for size, need in needs.items())]
    lacks = or_(*(free[size] < need for size, need in needs.items()))
    return case((lacks, 0), else_=reduce(_least, times))


def _least(one: ColumnElement[int], other: ColumnElement[int]) -> ColumnElement[int]:
    # SQLite has no function of that name, and calls it like the one that is an aggregate.
    return case((one < other, one), else_=other)
