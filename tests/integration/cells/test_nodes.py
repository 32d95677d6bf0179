"""The hosts of a cell: what they have, what instances use of them, and what operators may do, on both databases."""

from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, insert, select

from fleetlight.cells.errors import HostInUseError, HostNotFoundError
from fleetlight.cells.kinds.native.nodes import COMPUTE
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import allocations, changes
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.resources.amount import Amount
from fleetlight.resources.uuids import number_of

SIZE = Amount.of_gib(vcpus=16, memory_mib=65_536, disk_gib=1000)
HOSTS = [NewHost("host1", SIZE, "zone-a", "node1.example.org"), NewHost("host2", SIZE, "zone-b")]
INSTANCE = "c0a5b6a2-5a0d-4f3e-9a64-0f9d3c0d1e2f"


@pytest.fixture
def nodes(engine: Engine, cell: Cell) -> CellNodes:
    nodes = CellNodes(engine, cell)
    nodes.add_hosts(HOSTS)
    return nodes


def announced(engine: Engine) -> list[tuple[str, dict[str, Any]]]:
    with engine.connect() as connection:
        rows = connection.execute(select(changes.c.event_type, changes.c.message).order_by(changes.c.id)).all()
    messages = [msgspec.json.decode(msgspec.json.decode(row.message)["oslo.message"]) for row in rows]
    return [
        (row.event_type, message["payload"]["nova_object.data"])
        for row, message in zip(rows, messages, strict=True)
        if row.event_type.startswith("service.")
    ]


def test_hosts_join_once(nodes: CellNodes) -> None:
    before = nodes.nodes()
    nodes.add_hosts([*HOSTS, NewHost("host3", SIZE)])
    after = nodes.nodes()
    assert after[:2] == before
    assert [node.service.host for node in after] == ["host1", "host2", "host3"]
    assert [service.host for service in nodes.services()] == ["host1", "host2", "host3"]


def test_node_shows_what_instances_use_of_it(nodes: CellNodes, engine: Engine) -> None:
    first, second = nodes.nodes()
    with engine.begin() as connection:
        connection.execute(
            insert(allocations).values(instance_uuid=INSTANCE, node_id=first.id, vcpus=4, memory_mib=2048, disk_gib=20)
        )
    first, second = nodes.nodes()
    assert (first.hypervisor_hostname, first.service.availability_zone) == ("node1.example.org", "zone-a")
    assert (first.used, first.instance_count) == (Amount.of_gib(4, 2048, 20), 1)
    assert first.free == Amount.of_gib(12, 63_488, 980)
    assert (second.used, second.instance_count, second.free) == (Amount(), 0, SIZE)


def test_nodes_and_services_are_found_by_their_names_uuids_and_numbers(nodes: CellNodes, engine: Engine) -> None:
    first, second = nodes.nodes()
    with engine.begin() as connection:
        amounts = {"vcpus": 1, "memory_mib": 1, "disk_gib": 1}
        claims = [{"instance_uuid": INSTANCE, "node_id": node.id, **amounts} for node in (first, second)]
        connection.execute(insert(allocations), claims)
    first, second = nodes.nodes()
    assert nodes.nodes_of(["host2", "no-such"]) == [second]
    assert nodes.nodes_named_like("NODE1.") == [first]
    assert nodes.nodes_named_like("%") == nodes.nodes_named_like("_") == []
    for node in (first, second):
        assert nodes.node(node.uuid) == nodes.node(number_of(node.uuid)) == node
        service = node.service
        assert nodes.service(service.uuid) == nodes.service(number_of(service.uuid)) == service
        assert nodes.services(host=service.host) == nodes.services(host=service.host, binary=COMPUTE) == [service]
    assert nodes.services(binary="nova-scheduler") == []
    # Beyond every number that stands for something, so that it is the beginning of no uuid.
    for unknown in (INSTANCE, 0, number_of(first.uuid) * 16, 10**16 - 1):
        assert nodes.node(unknown) is None
        assert nodes.service(unknown) is None


def test_zone_of_a_host_without_instances_is_changed_and_announced_once(nodes: CellNodes, engine: Engine) -> None:
    service = nodes.services()[0]
    for _ in range(2):
        nodes.set_zone(service.uuid, "zone-c")
    assert nodes.services()[0].availability_zone == "zone-c"
    [(event_type, data)] = announced(engine)
    assert (event_type, data["host"], data["availability_zone"]) == ("service.update", "host1", "zone-c")
    claim = insert(allocations).values(
        instance_uuid=INSTANCE, node_id=nodes.nodes()[0].id, vcpus=1, memory_mib=1, disk_gib=1
    )
    with engine.begin() as connection:
        connection.execute(claim)
    nodes.set_zone(service.uuid, "zone-c")
    with pytest.raises(HostInUseError):
        nodes.set_zone(service.uuid, "zone-a")
    with pytest.raises(HostNotFoundError):
        nodes.set_zone(INSTANCE, "zone-a")


def test_disabling_and_forcing_down_is_announced_once(nodes: CellNodes, engine: Engine) -> None:
    service = nodes.services()[0]
    for _ in range(2):
        changed = nodes.update_service(service.uuid, disabled=True, disabled_reason="new disks", forced_down=True)
    assert (changed.disabled, changed.disabled_reason, changed.is_up) == (True, "new disks", False)
    assert not nodes.nodes()[0].is_available
    [(event_type, payload)] = announced(engine)
    assert event_type == "service.update"
    assert (payload["host"], payload["disabled"], payload["forced_down"]) == ("host1", True, True)


def test_service_goes_only_when_nothing_uses_its_node(nodes: CellNodes, engine: Engine) -> None:
    node = nodes.nodes()[0]
    values = {"instance_uuid": INSTANCE, "node_id": node.id, "vcpus": 1, "memory_mib": 1, "disk_gib": 1}
    with engine.begin() as connection:
        connection.execute(insert(allocations).values(values))
    with pytest.raises(HostInUseError, match="host1"):
        nodes.remove_service(node.service.uuid)
    with engine.begin() as connection:
        connection.execute(allocations.delete())
    nodes.remove_service(node.service.uuid)
    assert [node.service.host for node in nodes.nodes()] == ["host2"]
    with pytest.raises(HostNotFoundError):
        nodes.remove_service(node.service.uuid)
