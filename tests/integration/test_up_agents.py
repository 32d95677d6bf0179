"""`fleetlight up --simulate --agents`: its agents end with it, however it ends, and come back if they end alone."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import NodesSettings
from fleetlight.cli.data_folder import DataFolder, sqlite_url
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.nodes.opening import NodeRpcs, node_of
from tests.integration.test_up import Up
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.night]

ARGUMENTS = ("--simulate", "--instances", "0", "--rate", "0", "--cells", "1")
CELL = Cell("c0a5b6a2-5a0d-4f3e-9a64-0f9d3c0d1e2f", "cell1", CellKind.NATIVE, "", "")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    up = Up(tmp_path)
    yield up
    up.clean_up()


def answering(up: Up) -> list[str]:
    """The nodes whose agents answer, at the addresses that the cell has."""
    folder = DataFolder(up.data_dir)
    engine = create_database_engine(sqlite_url(folder.cell_database("cell1")))
    rpcs = NodeRpcs(NodesSettings(certificates_dir=folder.certificates))
    try:
        nodes = [node_of(agent) for agent in AgentAddresses(engine, CELL).all()]
        results = rpcs.of(CELL).call(nodes, "version", {}, timeout_s=20)
        return [name for name, result in results.items() if result.payload == 1]
    finally:
        rpcs.close()
        engine.dispose()


def processes(up: Up) -> list[int]:
    """Of all agents that it has started so far."""
    return [int(found) for found in re.findall(r'"up.agent_started".*"process": (\d+)', up.log)]


def test_agents_live_as_long_as_the_fleet(up: Up) -> None:
    nodes = ["cell1-agent-01.example.org"]
    up.start(*ARGUMENTS, "--agents", "1")
    wait_until(lambda: answering(up) == nodes, 60)
    [first] = processes(up)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(processes(up)) == 2 and answering(up) == nodes, 60)
    up.kill()
    wait_until(lambda: answering(up) == [], 30)
    # What is on a host that was made is there still, so its agent is.
    up.start(*ARGUMENTS)
    wait_until(lambda: answering(up) == nodes, 60)
    assert up.stop() == 0
    assert answering(up) == []
