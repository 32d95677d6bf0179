"""`scripts/bench scheduler`: what placing an instance costs in a small and in a large fleet, beside bare statements."""

import gc
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from sqlalchemy import Engine, text

from bench import fleet as made_up
from bench.measure import Figure, at_most, figure, seconds
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.migrations import upgrade_cell
from fleetlight.cells.model import Cell
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.manager.operations.scheduling.choose_cell import rank_cells, read_capacity
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.select_destinations import select_destinations
from fleetlight.resources.amount import Amount

_CELLS = 20
_SMALL, _LARGE = 1000, 5000
_DEMAND = Amount.of_gib(2, 4096, 20)
_SIZE = Amount.of_gib(64, 262_144, 4000)
_ATTEMPTS = 3
# Before there were alternates, placing took ten times the bare statements (docs/performance.md).
_GOAL = 5
# The least that a placement without alternates has to ask a database: the room of each cell, one choice, one claim.
_ROOM = text("""
    SELECT coalesce(sum(CASE WHEN free_vcpus < 2 OR free_mib < 4096 OR free_gib < 20 THEN 0 ELSE 1 END), 0),
           sum(free_mib)
    FROM (
        SELECT n.vcpus - coalesce(u.vcpus, 0) AS free_vcpus, n.memory_mib - coalesce(u.mib, 0) AS free_mib,
               n.disk_gib - coalesce(u.gib, 0) AS free_gib
        FROM compute_nodes AS n JOIN services AS s ON s.id = n.service_id
        LEFT JOIN (
            SELECT node_id, sum(vcpus) AS vcpus, sum(memory_mib) AS mib, sum(disk_gib) AS gib
            FROM allocations GROUP BY node_id
        ) AS u ON u.node_id = n.id
        WHERE NOT s.forced_down AND NOT s.disabled
    ) AS free
""")
_BEST = text("""
    SELECT n.id, n.hypervisor_hostname, s.host
    FROM compute_nodes AS n JOIN services AS s ON s.id = n.service_id
    LEFT JOIN (
        SELECT node_id, count(*) AS instances, sum(vcpus) AS vcpus, sum(memory_mib) AS mib, sum(disk_gib) AS gib
        FROM allocations GROUP BY node_id
    ) AS u ON u.node_id = n.id
    WHERE NOT s.forced_down AND NOT s.disabled AND n.vcpus - coalesce(u.vcpus, 0) >= 2
      AND n.memory_mib - coalesce(u.mib, 0) >= 4096 AND n.disk_gib - coalesce(u.gib, 0) >= 20
    ORDER BY (n.memory_mib - coalesce(u.mib, 0)) * 1.0 / n.memory_mib DESC, coalesce(u.instances, 0), n.id LIMIT 4
""")
_CLAIM = text(
    "INSERT INTO allocations (instance_uuid, node_id, vcpus, memory_mib, disk_gib) VALUES (:uuid, :node, 2, 4096, 20)"
)


@dataclass(frozen=True, slots=True)
class _World:
    """Cells with their open databases, empty but for hosts."""

    cells: Sequence[Cell]
    engines: Mapping[str, Engine]


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: a hundred instances instead of a thousand. Cells are asked one by one, as it is the work that counts."""
    count = 100 if quick else 1000
    costs: dict[int, float] = {}
    for nodes in (_SMALL, _LARGE):
        world = _new_world(directory / str(nodes), nodes)
        ours_s, bare_s = _per_instance(world, count)
        costs[nodes] = ours_s
        what = f"{count} instances one by one on {nodes} nodes in {_CELLS} cells, with alternates"
        yield figure(f"scheduler.place.{nodes}", ours_s * 1000, "ms", what, runs=count)
        yield figure(
            f"scheduler.place.{nodes}.ratio",
            ours_s / bare_s,
            "x",
            f"the same, to the statements of a placement without alternates ({bare_s * 1000:.1f} ms)",
            runs=count,
            goal=at_most(_GOAL),
        )
        for engine in world.engines.values():
            engine.dispose()
    grown = f"an instance on {_LARGE} nodes, to one on {_SMALL}"
    yield figure("scheduler.place.growth", costs[_LARGE] / costs[_SMALL], "x", grown, runs=count, goal=at_most(3))


def _new_world(directory: Path, nodes: int) -> _World:
    directory.mkdir()
    empty = directory / "empty.db"
    engine = create_database_engine(f"sqlite:///{empty}")
    upgrade_cell(engine)
    engine.dispose()
    cells, engines = [], {}
    for number, uuid in enumerate(made_up.cell_uuids(_CELLS)):
        # To make the tables of each cell would take longer than all that is measured.
        shutil.copy(empty, directory / f"cell{number}.db")
        url = f"sqlite:///{directory}/cell{number}.db"
        cell = Cell(uuid, f"cell{number}", CellKind.NATIVE, url, "memory://")
        engines[uuid] = create_database_engine(url)
        hosts = [NewHost(f"{cell.name}-{host}", _SIZE) for host in range(nodes // _CELLS)]
        CellNodes(engines[uuid], cell).add_hosts(hosts)
        cells.append(cell)
    return _World(cells, engines)


def _per_instance(world: _World, count: int) -> tuple[float, float]:
    """Seconds that an instance takes by the scheduler and by bare statements, in turn in the same cells."""
    ours_s = bare_s = 0.0
    # `seconds` collects garbage before each call, which would take longer than the call if it looked at everything.
    gc.collect()
    gc.freeze()
    try:
        for number in range(count):
            ours_s += seconds(partial(_place, world, str(UUID(int=2 * number))))
            bare_s += seconds(partial(_place_bare, world, str(UUID(int=2 * number + 1))))
    finally:
        gc.unfreeze()
    return ours_s / count, bare_s / count


def _place(world: _World, uuid: str) -> None:
    spec = RequestSpec()
    surveyed = [read_capacity(world.engines[cell.uuid], cell, _DEMAND, spec, count=1) for cell in world.cells]
    best = rank_cells(surveyed)[0].cell
    with writing(world.engines[best.uuid]) as connection:
        [selections] = select_destinations(connection, best, [uuid], _DEMAND, spec, max_attempts=_ATTEMPTS)
        for selection in selections:
            selection.wrap()


def _place_bare(world: _World, uuid: str) -> None:
    room: list[tuple[int, int, str]] = []
    for cell in world.cells:
        with world.engines[cell.uuid].connect() as connection:
            nodes, free_mib = connection.execute(_ROOM).one()
            room.append((min(1, nodes), free_mib, cell.uuid))
    best = max(room, key=lambda each: each[:2])[2]
    with writing(world.engines[best]) as connection:
        node, *_ = connection.execute(_BEST).all()
        connection.execute(_CLAIM, {"uuid": uuid, "node": node.id})
