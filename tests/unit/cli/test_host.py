"""`fleetlight host` on a fleet in a data folder."""

import json
from pathlib import Path

import pytest
from sqlalchemy import select

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.tables import compute_nodes, node_traits
from fleetlight.cli.data_folder import DataFolder
from fleetlight.manager.commands.embedded import set_up_fleet
from tests.support.fleets.cell_databases import closed_cells
from tests.unit.cli.conftest import Run

SIZE = ("--vcpus", "64", "--memory", "256G", "--disk", "4000G")


@pytest.fixture(autouse=True)
def fleet(empty_place: Path) -> None:
    """One cell in the default data folder, with its simulated hosts."""
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    fleet = set_up_fleet(folder)
    closed_cells(folder, fleet, 1)
    fleet.close()


def test_hosts_join_once_and_are_listed(run: Run) -> None:
    assert run("host", "add", "cell1", "new1", "new2", "--zone", "east", *SIZE).output == "cell1: 2 of 2 hosts added\n"
    assert run("host", "add", "cell1", "new2", "new3", *SIZE).output == "cell1: 1 of 2 hosts added\n"
    hosts = {host["host"]: host for host in json.loads(run("host", "list", "cell1", "--output=json").output)}
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
        "agent": None,
    }
    shown = run("host", "list", "cell1").output
    assert "MEMORY GIB" in shown
    assert ["new1", "east", "up", "enabled", "0", "0", "64", "0", "256", "0", "4000", "-"] in [
        line.split() for line in shown.splitlines()
    ]


def test_unknown_cell_is_named(run: Run) -> None:
    result = run("host", "list", "no-such")
    assert result.exit_code == 2
    assert "no-such" in result.output


def test_reserves_ratios_and_traits_of_hosts_are_set_for_all_or_none(run: Run, empty_place: Path) -> None:
    run("host", "add", "cell1", "new1", "new2", *SIZE)
    given = ("--vcpu-ratio", "4.5", "--reserve-memory", "8G", "--traits", "CUSTOM_GPU, CUSTOM_B")
    assert run("host", "set", "cell1", "new1", "new2", *given).output == "cell1: 2 hosts set\n"
    refused = run("host", "set", "cell1", "new1", "no-such", "--vcpu-ratio", "1")
    assert (refused.exit_code, "no-such" in refused.output, "Traceback" in refused.output) == (1, True, False)
    engine = create_database_engine(f"sqlite:///{next((empty_place / 'fleetlight-data').rglob('cell1*.db'))}")
    with engine.connect() as connection:
        nodes = connection.execute(
            select(compute_nodes).where(compute_nodes.c.hypervisor_hostname.in_(("new1", "new2")))
        ).all()
        traits = connection.execute(select(node_traits.c.trait)).scalars().all()
    engine.dispose()
    assert [(n.vcpus_permille, n.memory_mib_permille, n.reserved_memory_mib) for n in nodes] == [(4500, 1000, 8192)] * 2
    assert sorted(traits) == ["CUSTOM_B", "CUSTOM_B", "CUSTOM_GPU", "CUSTOM_GPU"]


def test_trait_that_is_none_is_refused(run: Run) -> None:
    result = run("host", "set", "cell1", "cell1-compute-01", "--traits", "gpu")
    assert (result.exit_code, "'gpu'" in result.output) == (2, True)


def test_agent_of_a_host_is_set_listed_and_removed(run: Run) -> None:
    host = "cell1-compute-01"
    for given, kept in (("one.example.org", "one.example.org:1811"), ("[2001:db8::1]:18", "[2001:db8::1]:18")):
        assert run("host", "agent", "cell1", host, given).output == f"cell1: {host} has its agent at {kept}\n"
        listed = {
            each["host"]: each["agent"] for each in json.loads(run("host", "list", "cell1", "--output=json").output)
        }
        assert (listed.pop(host), set(listed.values())) == (kept, {None})
    assert run("host", "agent", "cell1", host, "--remove").output == f"cell1: {host} has no agent\n"
    assert all(each["agent"] is None for each in json.loads(run("host", "list", "cell1", "--output=json").output))


@pytest.mark.parametrize(
    ("given", "exit_code", "text"),
    [
        (("cell1-compute-01",), 2, "name either where the agent answers, or --remove"),
        (("cell1-compute-01", "one:1", "--remove"), 2, "name either"),
        (("cell1-compute-01", "https://one:1811"), 2, "'https://one:1811' is no address such as"),
        (("cell1-compute-01", "one:port"), 2, "'one:port' is no address"),
        (("cell1-compute-01", "user@one"), 2, "'user@one' is no address"),
        (("no-such", "one:1811"), 1, "no-such"),
    ],
)
def test_agent_that_cannot_be_set_is_refused(run: Run, given: tuple[str, ...], exit_code: int, text: str) -> None:
    result = run("host", "agent", "cell1", *given)
    assert (result.exit_code, "Traceback" in result.output) == (exit_code, False)
    assert text in " ".join(result.output.split())
