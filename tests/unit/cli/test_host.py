"""`fleetlight host` on a fleet in a data folder."""

import json
from pathlib import Path

import pytest

from cli.data_folder import DataFolder
from cli.processes.embedded import set_up_cells, set_up_fleet
from tests.unit.cli.conftest import Run

SIZE = ("--vcpus", "64", "--memory-gib", "256", "--disk-gib", "4000")


@pytest.fixture(autouse=True)
def fleet(empty_place: Path) -> None:
    """One cell in the default data folder, with its simulated hosts."""
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    fleet = set_up_fleet(folder)
    for cell in set_up_cells(folder, fleet, 1):
        cell.engine.dispose()
    fleet.close()


def test_hosts_join_once_and_are_listed(run: Run) -> None:
    assert run("host", "add", "cell1", "new1", "new2", "--zone", "east", *SIZE).output == "cell1: 2 of 2 hosts added\n"
    assert run("host", "add", "cell1", "new2", "new3", *SIZE).output == "cell1: 1 of 2 hosts added\n"
    hosts = {host["host"]: host for host in json.loads(run("host", "list", "cell1", "--json").output)}
    assert {"cell1-compute-01", "new1", "new2", "new3"} <= hosts.keys()
    assert hosts["new1"] == {
        "host": "new1",
        "zone": "east",
        "state": "up",
        "status": "enabled",
        "instances": 0,
        "vcpus": 64,
        "vcpus_used": 0,
        "memory_mib": 262_144,
        "memory_mib_used": 0,
        "disk_gib": 4000,
        "disk_gib_used": 0,
    }
    shown = run("host", "list", "cell1").output
    assert "MEMORY GIB" in shown
    assert ["new1", "east", "up", "enabled", "0", "0", "/", "64", "0", "/", "256", "0", "/", "4000"] in [
        line.split() for line in shown.splitlines()
    ]


def test_unknown_cell_is_named(run: Run) -> None:
    result = run("host", "list", "no-such")
    assert result.exit_code == 2
    assert "no-such" in result.output
