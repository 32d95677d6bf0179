"""The choice of a cell for new instances: the one with the most room for them.

Each cell answers with one row, however many nodes it has; the claim chooses the node later
(fleetlight.manager.operations.scheduling.select_destinations).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache, reduce

from sqlalchemy import ColumnElement, Engine, Select, and_, case, func, literal, or_, select, true

from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.fleet.compute.server_groups import ServerGroup
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.allocated import allocated_by_node
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import SIZES, allocations, compute_nodes, services
from fleetlight.manager.operations.scheduling.affinity import AffinityHosts, find_affinity_hosts
from fleetlight.manager.operations.scheduling.filters import conditions_of
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.weighers import USABLE
from fleetlight.resources.amount import Amount

_SOFT = {"soft-affinity": 1, "soft-anti-affinity": -1}


@dataclass(frozen=True, slots=True)
class CellCapacity:
    """The recent capacity of a cell for new instances, on the nodes that may take them.

    capacity: how many of them fit, at most the requested number. free_mib: free memory of these nodes.
    members: hosts' places of the other members of the request's group there.
    has_zone: whether a host that accepts new instances is in the requested zone. has_host: whether the requested host
    or node exists, in any state. Both are true without such a request.
    """

    cell: Cell
    capacity: int
    free_mib: int
    has_zone: bool
    has_host: bool
    members: int = 0


def read_capacity(
    engine: Engine, cell: Cell, demand: Amount, spec: RequestSpec, *, count: int, zone: str | None = None
) -> CellCapacity:
    """Read the capacity of `cell` for `count` instances of `demand`. Raises CellUnreachableError."""
    with cell_failures(cell.name), engine.connect() as connection:
        affinity = find_affinity_hosts(connection, spec)
        make = _capacity_statement if affinity else _capacity_of_any
        statement = make(demand, spec, count, zone, affinity)
        capacity, free_mib, has_zone, has_host = connection.execute(statement).one()
    members = sum(affinity.counts.values()) if affinity else 0
    return CellCapacity(cell, min(count, int(capacity)), int(free_mib), bool(has_zone), bool(has_host), members)


def _capacity_statement(
    demand: Amount, spec: RequestSpec, count: int, zone: str | None, affinity: AffinityHosts | None
) -> Select[int, int, bool, bool]:
    node, of_services = compute_nodes.c, services.c.id == compute_nodes.c.service_id
    nodes = select(node.id).join_from(compute_nodes, services, of_services)
    usable = (USABLE[size].label(size) for size in SIZES)
    places = _places(spec, count, affinity).label("places")
    requested = nodes.where(conditions_of(spec, affinity)).add_columns(*usable, places).subquery()
    used = allocated_by_node(allocations.c.node_id.in_(select(requested.c.id))).subquery()
    free = (
        select(
            *((requested.c[size] - func.coalesce(used.c[size], 0)).label(size) for size in SIZES), requested.c.places
        )
        .join_from(requested, used, used.c.node_id == requested.c.id, isouter=True)
        .subquery()
    )
    return select(
        func.coalesce(func.sum(_how_many({size: free.c[size] for size in SIZES}, demand, free.c.places)), 0),
        func.coalesce(func.sum(free.c.memory_mib), 0),
        _exists(zone, nodes.where(services.c.availability_zone == zone, _IS_AVAILABLE).exists()),
        _exists(spec.host or spec.node, nodes.where(_is_named(spec)).exists()),
    ).select_from(free)


# Cached, since building the statement takes longer than executing it, and every cell gets the same.
_capacity_of_any = lru_cache(maxsize=64)(_capacity_statement)


@dataclass(frozen=True, slots=True)
class CellRequestSpec:
    """The requested cells, by uuid.

    only: the permitted cells, with the instances to share a host with; empty: any.
    is_together: whether all instances must share one host, also with claims of programs for their group.
    rather: preference of each cell; 0 for others.
    """

    only: Set[str] = frozenset()
    is_together: bool = False
    rather: Mapping[str, int] = field(default_factory=dict)


def rank_cells(surveyed: Sequence[CellCapacity], cells: CellRequestSpec = CellRequestSpec()) -> Sequence[CellCapacity]:
    """Rank the possible cells, the best first; empty if no possible cell was surveyed.

    Cells with room for all instances come first, ordered by preference, then by free memory. Cells with room for some
    follow, and then all others, where the scheduling fails.
    """

    def rank(now: CellCapacity) -> tuple[int, int, int]:
        return now.capacity, cells.rather.get(now.cell.uuid, 0), now.free_mib

    allowed = [now for now in surveyed if not cells.only or now.cell.uuid in cells.only]
    if cells.is_together:
        allowed = [now for now in allowed if now.members] or allowed
    return sorted(allowed, key=rank, reverse=True)


def ways_to_place(
    ranked: Sequence[CellCapacity], count: int, cells: CellRequestSpec
) -> Iterator[Sequence[tuple[Cell, int]]]:
    """Yield distributions of `count` instances, the best first: all in one cell, or spread over the `ranked` cells.

    Each has the number of instances by cell; none if all cells together lack room. A spread fills the cells in the
    order of their rank.
    """
    yield from ([(now.cell, count)] for now in ranked if now.capacity >= count)
    left, spread = count, list[tuple[Cell, int]]()
    for now in ranked:
        if part := min(left, now.capacity):
            spread.append((now.cell, part))
            left -= part
    if len(spread) > 1 and not left and not cells.is_together:
        yield spread


def is_enough(
    surveyed: Sequence[CellCapacity], spec: RequestSpec, count: int, cells: CellRequestSpec = CellRequestSpec()
) -> bool:
    """Whether the choice can be made, or refused, without the cells that have not answered yet."""
    if not (any(now.has_host for now in surveyed) and any(now.has_zone for now in surveyed)):
        # Wait, so that the existence of a requested zone or host does not depend on the fastest cell.
        return False
    if cells.only:
        return cells.only <= {now.cell.uuid for now in surveyed}
    return bool(spec.host or spec.node) or any(now.capacity >= count for now in surveyed)


def requested_cells(
    fleet: Fleet, group: ServerGroup | None, beside: Collection[str], *, project_id: str | None
) -> CellRequestSpec:
    """Find the requested cells, from the cells of other instances.

    beside: uuids of instances to share a host with. project_id: the project that these must have; None for any.
    Raises FleetUnreachableError.
    """
    together = group.members if group is not None and group.policy == "affinity" else ()
    only = {*fleet.cells_of(together).values(), *fleet.cells_of(beside, project_id=project_id).values()}
    rather: Mapping[str, int] = {}
    if group is not None and group.policy in _SOFT:
        members = Counter(fleet.cells_of(group.members).values())
        rather = {cell: _SOFT[group.policy] * count for cell, count in members.items()}
    is_together = group is not None and group.policy == "affinity"
    return CellRequestSpec(only, is_together, rather)


_IS_AVAILABLE = and_(services.c.disabled.is_(False), services.c.forced_down.is_(False))


def _is_named(spec: RequestSpec) -> ColumnElement[bool]:
    names = ((services.c.host, spec.host), (compute_nodes.c.hypervisor_hostname, spec.node))
    return and_(true(), *(column == name for column, name in names if name is not None))


def _exists(requested: str | None, found: ColumnElement[bool]) -> ColumnElement[bool]:
    return literal(True) if requested is None else found


def _places(spec: RequestSpec, count: int, affinity: AffinityHosts | None) -> ColumnElement[int]:
    """Return how many of `count` instances a node may take, by the policy of their group."""
    if spec.group is None or spec.group.policy != "anti-affinity":
        return literal(count)
    most, counts = spec.group.most_on_one_host, affinity.counts if affinity else {}
    left = {host: min(count, most - members) for host, members in counts.items()}
    return case(left, value=services.c.host, else_=min(count, most)) if left else literal(min(count, most))


def _how_many(free: Mapping[str, ColumnElement[int]], demand: Amount, most: ColumnElement[int]) -> ColumnElement[int]:
    """Return how often `demand` fits on a node, up to `most`; an empty demand fits once."""
    needs = {size: getattr(demand, size) for size in SIZES if getattr(demand, size)}
    if not needs:
        return literal(1)
    times = [most, *(free[size] // need for size, need in needs.items())]
    lacks = or_(*(free[size] < need for size, need in needs.items()))
    return case((lacks, 0), else_=reduce(_least, times))


def _least(one: ColumnElement[int], other: ColumnElement[int]) -> ColumnElement[int]:
    # Not by `least`, which SQLite lacks; its function `min` has the name of the aggregate.
    return case((one < other, one), else_=other)
