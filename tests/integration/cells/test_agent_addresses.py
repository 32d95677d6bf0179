"""Which hosts have an agent: set, read anew by who is open already, and removed, on both databases."""

import pytest
from sqlalchemy import Engine

from fleetlight.cells.errors import HostNotFoundError
from fleetlight.cells.kinds.native.agent_addresses import AgentAddress
from fleetlight.cells.kinds.native.capacity import read_capacity
from fleetlight.cells.model import Cell
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.resources.amount import Amount

SIZE = Amount.of_gib(vcpus=16, memory_mib=65_536, disk_gib=1000)


def test_agents_of_hosts_are_set_and_removed(engine: Engine, cell: Cell) -> None:
    nodes = CellNodes(engine, cell)
    nodes.add_hosts([NewHost(host, SIZE, node=f"{host}.example.org") for host in ("host2", "host1")])
    agents, other = AgentAddresses(engine, cell), AgentAddresses(engine, cell)
    assert other.all() == []
    agents.set("host2", "10.0.0.2:1811")
    agents.set("host1", "10.0.0.1:1811")
    first = AgentAddress("host1", "host1.example.org", "10.0.0.1:1811", is_offline=False, is_vm_capable=True)
    second = AgentAddress("host2", "host2.example.org", "10.0.0.2:1811", is_offline=False, is_vm_capable=True)
    assert (other.all(), other.of(["host2", "host3"])) == ([first, second], [second])
    with engine.connect() as connection:
        assert [node.has_agent for node in read_capacity(connection)] == [True, True]
    [service, _] = nodes.services()
    nodes.update_service(service.uuid, forced_down=True)
    assert [agent.is_offline for agent in other.all()] == [True, False]
    agents.set("host1", None)
    assert other.all() == [second]
    with engine.connect() as connection:
        assert {node.name: node.has_agent for node in read_capacity(connection)} == {
            "host1.example.org": False,
            "host2.example.org": True,
        }
    with pytest.raises(HostNotFoundError):
        agents.set("host3", "10.0.0.3:1811")
