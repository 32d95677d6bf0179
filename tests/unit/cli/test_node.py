"""`fleetlight node refresh`."""

from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest
from sqlalchemy import select

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.tables import compute_nodes
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.resources.amount import Amount
from tests.support.played.played_hosts import PlayedHosts
from tests.unit.cli.conftest import Run

FLEET, CELL = "sqlite:///fleet.db", "sqlite:///cell1.db"


@pytest.fixture
def hosts() -> Iterator[PlayedHosts]:
    hosts = PlayedHosts()
    yield hosts
    hosts.close()


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch, hosts: PlayedHosts) -> Iterator[None]:
    """A cell with three hosts, of which two have an agent, and a worker."""
    fleet_engine, engine = create_database_engine(FLEET), create_database_engine(CELL)
    upgrade_fleet(fleet_engine)
    upgrade_cell(engine)
    fleet = Fleet(fleet_engine)
    cell = fleet.add_cell("cell1", CellKind.NATIVE, CELL, "memory://")
    CellNodes(engine, cell).add_hosts([NewHost(f"node{number}", Amount.of_gib(1, 1, 1), "nova") for number in range(3)])
    for number in (0, 1):
        AgentAddresses(engine, cell).set(f"node{number}", "10.0.0.1:1811")
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", FLEET)
    rpcs: Any = hosts
    stop = Event()
    worker = Thread(target=new_worker(engine, fleet, cell, rpcs=rpcs).run, args=(stop,))
    worker.start()
    yield
    stop.set()
    worker.join()
    fleet.close()
    engine.dispose()


@pytest.mark.usefixtures("cell")
def test_nodes_are_refreshed_and_those_that_fail_are_told(run: Run, hosts: PlayedHosts) -> None:
    shown = run("node", "refresh")
    assert (shown.exit_code, shown.stdout) == (0, "cell1: 2 nodes refreshed\n"), shown.stderr
    assert hosts.called() == {"node0", "node1"}
    hosts.failing["node0"] = "no answer"
    shown = run("node", "refresh", "--cell", "cell1")
    assert (shown.exit_code, shown.stdout) == (1, "cell1: 1 node refreshed\n")
    assert "cell1: node0: no answer" in shown.stderr
    assert "1 node of 2 did not answer" in shown.stderr
    hosts.calls.clear()
    assert run("node", "refresh", "node1").exit_code == 0
    assert hosts.called() == {"node1"}
    for names, text in ((("node2",), "there is no node with an agent called node2"), (("--cell", "x"), "no cell")):
        refused = run("node", "refresh", *names)
        assert (refused.exit_code, text in refused.stderr) == (2, True), refused.stderr


@pytest.mark.usefixtures("cell")
def test_node_is_named_by_its_uuid_too(run: Run, hosts: PlayedHosts) -> None:
    engine = create_database_engine(CELL)
    with engine.connect() as connection:
        uuid = connection.scalar(select(compute_nodes.c.uuid).where(compute_nodes.c.hypervisor_hostname == "node1"))
    engine.dispose()
    shown = run("node", "refresh", uuid)
    assert (shown.exit_code, shown.stdout) == (0, "cell1: 1 node refreshed\n"), shown.stderr
    assert hosts.called() == {"node1"}


@pytest.mark.usefixtures("cell")
def test_name_of_no_node_is_refused_with_what_may_be_meant(run: Run) -> None:
    refused = run("node", "refresh", "nodee1")
    assert refused.exit_code == 2
    assert "there is no node with an agent called nodee1; did you mean 'node1'?" in refused.stderr


def test_job_that_nobody_carries_out_is_told_about(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet_engine, engine = create_database_engine(FLEET), create_database_engine(CELL)
    upgrade_fleet(fleet_engine)
    upgrade_cell(engine)
    fleet = Fleet(fleet_engine)
    cell = fleet.add_cell("cell1", CellKind.NATIVE, CELL, "memory://")
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", FLEET)
    refused = run("node", "refresh")
    assert (refused.exit_code, "no node has an agent" in refused.stderr) == (2, True)
    CellNodes(engine, cell).add_hosts([NewHost("node0", Amount.of_gib(1, 1, 1), "nova")])
    AgentAddresses(engine, cell).set("node0", "10.0.0.1:1811")
    shown = run("node", "refresh", "--wait", "0")
    assert (shown.exit_code, "is a worker running?" in shown.stderr) == (1, True)
    fleet.close()
    engine.dispose()
