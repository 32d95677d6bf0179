"""What one row says of the room in a cell, against the same counted node by node."""

import random
from collections.abc import Sequence
from uuid import UUID

import pytest
from sqlalchemy import Engine, insert

from fleetlight.cells.database.engines import writing
from fleetlight.cells.kinds.native.nodes import ComputeNode
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import allocations
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.manager.operations.scheduling.choose_cell import CellCapacity, CellRequestSpec, is_enough, read_capacity
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.resources.amount import Amount

ZONES = ("west", "east", "empty")
WISHES = (
    RequestSpec(),
    RequestSpec(zone="west"),
    RequestSpec(zone="empty"),
    RequestSpec(host="h3"),
    RequestSpec(node="node-4"),
    RequestSpec(host="h3", node="node-4"),
    RequestSpec(host="nowhere"),
    RequestSpec(zone="east", host="h5"),
    RequestSpec(without=("h0", "h1")),
)
DEMANDS = (Amount.of_gib(1, 512, 1), Amount.of_gib(3, 2048, 0), Amount(), Amount.of_gib(64, 1, 1))


@pytest.fixture
def nodes(engine: Engine, cell: Cell) -> Sequence[ComputeNode]:
    """Twelve hosts, some full, one beyond that; some disabled, some down."""
    dice = random.Random(5)
    found = CellNodes(engine, cell)
    found.add_hosts(
        [
            NewHost(f"h{n}", Amount.of_gib(dice.randint(1, 16), 4096, 40), dice.choice(ZONES[:2]), node=f"node-{n}")
            for n in range(12)
        ]
    )
    for node in found.nodes()[::4]:
        found.update_service(node.service.uuid, disabled=True, disabled_reason=None, forced_down=False)
    for node in found.nodes()[5::6]:
        found.update_service(node.service.uuid, disabled=False, disabled_reason=None, forced_down=True)
    ids = [node.id for node in found.nodes()]
    with writing(engine) as connection:
        for number in range(40):
            size = {"vcpus": dice.randint(0, 3), "memory_mib": dice.choice((0, 256, 1024)), "disk_gib": 2}
            place = {"instance_uuid": str(UUID(int=number)), "node_id": ids[dice.randrange(10)]}
            connection.execute(insert(allocations).values(**place, **size))
    return found.nodes()


@pytest.mark.parametrize("spec", WISHES, ids=str)
def test_room_is_what_the_nodes_have_for_so_many(
    engine: Engine, cell: Cell, nodes: Sequence[ComputeNode], spec: RequestSpec
) -> None:
    requested = [node for node in nodes if may_take(node, spec)]
    for demand in DEMANDS:
        for count in (1, 4, 1000):
            now = read_capacity(engine, cell, demand, spec, count=count, zone=spec.zone)
            assert now.capacity == min(count, sum(how_often(demand, node.free) for node in requested)), (demand, count)
            assert now.free_mib == sum(node.free.memory_mib for node in requested)
            assert now.has_zone == (spec.zone in {None, *(each.service.availability_zone for each in nodes)})
            named = [
                n for n in nodes if spec.host in {None, n.service.host} and spec.node in {None, n.hypervisor_hostname}
            ]
            assert now.has_host == bool(named)


def test_what_is_wished_for_is_not_missed_before_all_cells_have_answered(cell: Cell) -> None:
    members = CellRequestSpec(only=frozenset({cell.uuid}))
    for has_zone, has_host in ((True, False), (False, True), (True, True)):
        capacity = CellCapacity(cell, 0, 0, has_zone=has_zone, has_host=has_host)
        assert is_enough([capacity], RequestSpec(zone="east", host="h5"), 1, members) == (has_zone and has_host)
    assert not is_enough([], RequestSpec(), 1)


def may_take(node: ComputeNode, spec: RequestSpec) -> bool:
    service, is_forced = node.service, spec.host is not None or spec.node is not None
    return (
        service.is_up
        and (is_forced or not service.disabled)
        and spec.zone in {None, service.availability_zone}
        and spec.host in {None, service.host}
        and spec.node in {None, node.hypervisor_hostname}
        and service.host not in spec.without
    )


def how_often(demand: Amount, free: Amount) -> int:
    """Counted by taking away."""
    if demand == Amount():
        return 1
    often = 0
    while demand.fits_into(free):
        free, often = free - demand, often + 1
    return often


def test_a_zone_whose_hosts_take_nothing_new_is_not_there(engine: Engine, cell: Cell) -> None:
    nodes = CellNodes(engine, cell)
    nodes.add_hosts([NewHost("h0", Amount.of_gib(1, 1, 1), "west")])
    assert read_capacity(engine, cell, DEMANDS[0], RequestSpec(), count=1, zone="west").has_zone
    nodes.update_service(nodes.services()[0].uuid, disabled=True, disabled_reason=None, forced_down=False)
    assert not read_capacity(engine, cell, DEMANDS[0], RequestSpec(), count=1, zone="west").has_zone
