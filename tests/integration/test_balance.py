"""`fleetlight balance --execute`: the moves are made, and the cell is then what was planned."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import writing
from fleetlight.cells.model import NO_REQUEST, RequestContext
from fleetlight.cells.tables import allocations, compute_nodes, instances, job_locks
from fleetlight.cli.app import app
from fleetlight.cli.settings import load_settings
from fleetlight.manager.commands.balance import cells_to_balance
from fleetlight.manager.operations.balancing.cluster import Cluster, DiskTemplate
from fleetlight.manager.operations.balancing.cluster_file import read_cluster
from fleetlight.manager.operations.cell_worker import SimulatedHosts
from fleetlight.manager.operations.jobs.errors import NodeCallError
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.manager.operations.native_cells import acceptance_in
from fleetlight.manager.operations.opcodes.instances.place_reservation import InstancePlace
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.select_destinations import claim_host
from fleetlight.manager.operations.submitting import JobSubmission
from fleetlight.resources.amount import Amount
from tests.contract.compute_fleet import CELLS, ComputeFleet, compute_fleet
from tests.support.rapi_calls import RapiCalls
from tests.support.servers.htools import Htools, htools

__all__ = ["htools"]

CELL = "north"
FLAVOR = {"flavorid": "1", "name": "s", "memory_mb": 4096, "vcpus": 2, "root_gb": 0, "ephemeral_gb": 0, "swap": 0}
SIZE = {"beparams": {"memory": 4096, "vcpus": 2}, "disks": [{"size": 10 * 1024 + 1}], "nics": [{}], "os": "debian-12"}
ON_TWO = {"pnode": "north-host0", "snode": "north-host1"}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def fleet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ComputeFleet]:
    """Four hosts, and a configuration that names the fleet; workers work whenever the command waits."""
    urls = [f"sqlite:///{tmp_path}/fleet.db"]
    new_database: Callable[[], str] | None = None
    if request.param == "postgresql":
        new_database = request.getfixturevalue("new_postgresql_database")
        urls = [new_database() for _ in range(1 + len(CELLS))]
        new_database = iter(urls).__next__
    monkeypatch.chdir(tmp_path)
    with compute_fleet(tmp_path, new_database=new_database) as fleet:
        fleet.add_hosts(4)
        (tmp_path / "fleetlight.toml").write_text(f'[fleet]\ndatabase_url = "{urls[0]}"\n')
        monkeypatch.setattr("fleetlight.manager.commands.balance._pause", capture_logs()(fleet.work))
        yield fleet


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["balance", "--cell", CELL, *map(str, arguments)], catch_exceptions=False)


def planned(*arguments: object) -> Any:
    result = run("--output", "json", *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def add_servers(fleet: ComputeFleet, *names: str, **values: Any) -> list[str]:
    """Servers as the compute API makes them, all on the first host."""
    wanted = [
        {"display_name": name, "project_id": "demo", "user_id": "ada", "image_ref": "", "flavor": FLAVOR, **values}
        for name in names
    ]
    acceptance = acceptance_in(fleet.native, fleet.fleet, fleet.cells[CELL])
    rows = acceptance.create(wanted, {"host": "north-host0"}, RequestContext("req-1", "ada", "demo"))
    fleet.work()
    return [row.uuid for row in rows]


def add_instances(fleet: ComputeFleet, **by_name: Mapping[str, Any]) -> None:
    """Instances and reservations over the remote API."""
    rapi = RapiCalls(fleet, fleet.api(), f"/cells/{CELL}/2")
    for name, values in by_name.items():
        rapi.result("POST", "/instances", {"__version__": 1, "mode": "create", "name": name, **SIZE, **values})


def crowd(fleet: ComputeFleet) -> None:
    """Instances of all sorts, on one or two of the four hosts."""
    fleet.index()
    add_servers(fleet, "server1", "server2", "server3")
    add_instances(
        fleet,
        **{f"drbd{number}": {"disk_template": "drbd", **ON_TWO} for number in range(4)},
        stopped={"disk_template": "drbd", "start": False, **ON_TWO},
        plain={"disk_template": "plain", "pnode": "north-host0"},
        shared={"disk_template": "sharedfile", "pnode": "north-host0"},
        reserved1={"disk_template": "drbd", "forthcoming": True, **ON_TWO},
        reserved2={"disk_template": "drbd", "forthcoming": True, **ON_TWO},
        later={"disk_template": "plain", "forthcoming": True, "pnode": "north-host0"},
    )


def places(fleet: ComputeFleet) -> dict[str, tuple[str, str | None]]:
    """Primary and secondary node of each instance, by its name."""
    columns = instances.c
    with fleet.engine(CELL).connect() as connection:
        rows = connection.execute(
            select(columns.display_name, columns.node, columns.ganeti, columns.task_state).where(~columns.deleted)
        ).all()
    assert {row.task_state for row in rows} <= {None}
    own = {row.display_name: row.ganeti["values"] if row.ganeti else {} for row in rows}
    return {row.display_name: (row.node, next(iter(own[row.display_name].get("snodes") or ()), None)) for row in rows}


def claims(fleet: ComputeFleet) -> set[tuple[str, str, Amount, bool]]:
    """What is claimed: for which instance, of which node, how much, and whether for a reservation."""
    columns = allocations.c
    statement = (
        select(
            instances.c.display_name,
            compute_nodes.c.hypervisor_hostname,
            columns.vcpus,
            columns.memory_mib,
            columns.disk_gib,
            columns.is_forthcoming,
        )
        .join_from(allocations, compute_nodes, compute_nodes.c.id == columns.node_id)
        .join(instances, instances.c.uuid == columns.instance_uuid)
    )
    with fleet.engine(CELL).connect() as connection:
        return {
            (name, node, Amount.of_gib(*sizes), bool(kind))
            for name, node, *sizes, kind in connection.execute(statement)
        }


def claims_of(cluster: Cluster) -> set[tuple[str, str, Amount, bool]]:
    """What a cluster as it is planned has claimed; servers have no disk of their own here, others whole GiB."""
    found = set()
    for each in cluster.instances:
        disk_gib = each.disk_mib // 1024 * (each.disk_template is not DiskTemplate.EXT)
        found.add((each.name, each.primary, Amount.of_gib(each.vcpus, each.memory_mib, disk_gib), each.is_forthcoming))
        if each.secondary is not None:
            found.add((each.name, each.secondary, Amount.of_gib(0, 0, disk_gib), each.is_forthcoming))
    return found


def test_cell_is_what_was_planned_and_hbal_finds_nothing_better(
    fleet: ComputeFleet, htools: Htools, tmp_path: Path
) -> None:
    crowd(fleet)
    plan_file, after_file = tmp_path / "plan.data", tmp_path / "after.data"
    document = planned("--save-text", plan_file)
    moved = {move["instance"] for move in document["moves"]}
    assert moved & {"reserved1", "reserved2", "later"}
    assert moved & {"drbd0", "drbd1", "drbd2", "drbd3"}
    assert moved & {"server1", "server2", "server3"}

    made = planned("--execute")
    assert [move["status"] for move in made["moves"]] == ["success"] * len(document["moves"])
    assert [move["to"] for move in made["moves"]] == [move["to"] for move in document["moves"]]
    expected = read_cluster(plan_file.read_text())
    assert places(fleet) == {each.name: (each.primary, each.secondary) for each in expected.instances}
    assert claims(fleet) == claims_of(expected)

    again = planned("--save-text", after_file)
    assert again["moves"] == []
    assert again["score_before"] == pytest.approx(document["score_after"], abs=1e-9)
    assert after_file.read_text() == plan_file.read_text()
    balanced = htools.balance(after_file.read_text(), "default")
    assert balanced is not None
    assert balanced.before == pytest.approx(document["score_after"], abs=1e-6)
    assert balanced.best >= balanced.before - 1e-6
    with fleet.engine(CELL).connect() as connection:
        assert connection.scalar(select(func.count()).select_from(job_locks)) == 0


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_servers_take_their_disks_along(fleet: ComputeFleet) -> None:
    fleet.index()
    add_servers(fleet, *(f"server{number}" for number in range(6)), flavor={**FLAVOR, "root_gb": 20, "swap": 1025})
    document = planned("--execute")
    assert {move["status"] for move in document["moves"]} == {"success"}
    assert {(node, size.disk_gib) for _, node, size, _ in claims(fleet)} == {(f"north-host{n}", 22) for n in range(4)}
    assert planned()["moves"] == []


class FailingHosts(SimulatedHosts):
    """Hosts that cannot migrate what is on them."""

    def call(self, call: NodeCall, key: str) -> Any:
        if call.name == "migrate":
            raise NodeCallError(call.host, call.name, "no route to host")
        return super().call(call, key)


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_behind_a_move_that_fails_nothing_is_submitted_and_another_call_plans_anew(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(fleet)
    before = places(fleet)
    monkeypatch.setattr("fleetlight.manager.operations.rebalancing.execution.MOST_AT_ONCE", 1)
    with monkeypatch.context() as failing:
        failing.setattr("fleetlight.manager.operations.cell_worker.SimulatedHosts", FailingHosts)
        result = run("--execute", "--output", "json")
    moves = json.loads(result.stdout)["moves"]
    assert (result.exit_code, "not all moves were made" in result.stderr) == (1, True)
    [failed] = [move for move in moves if move["status"] == "error"]
    assert f"job {failed['job']}: migrate on north-host0: no route to host" in result.stderr
    assert "no route to host" in failed["why"]
    behind = moves[moves.index(failed) + 1 :]
    assert behind
    assert {(move["job"], move["status"]) for move in behind} == {(None, None)}
    assert places(fleet)[failed["instance"]] == before[failed["instance"]]

    assert {move["status"] for move in planned("--execute")["moves"]} == {"success"}
    assert planned()["moves"] == []


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_moves_that_count_on_one_that_fails_end_with_it(fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are submitted already; what has nothing to do with it is made."""
    crowd(fleet)
    monkeypatch.setattr("fleetlight.manager.operations.cell_worker.SimulatedHosts", FailingHosts)
    result = run("--execute", "--output", "json")
    moves = json.loads(result.stdout)["moves"]
    failed: set[str] = set()
    for move in moves:
        nodes = {name for place in (move["from"], move["to"]) for name in place.values() if name}
        if move["job"] is not None and nodes & failed:
            assert "which this one depends on, has ended with status error" in move["why"]
        if move["status"] == "error":
            failed |= nodes
    assert failed


def test_interrupted_call_says_what_goes_on_and_the_next_one_goes_on_behind_it(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd(fleet)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr("fleetlight.manager.operations.rebalancing.execution.MOST_AT_ONCE", 2)
        interrupted.setattr("fleetlight.manager.commands.balance._pause", interrupt)
        result = run("--execute")
    assert result.exit_code == 130
    assert "nothing more is submitted, and jobs " in result.stderr
    numbers = result.stderr.split("and jobs ")[1].split(" go on")[0].split(", ")
    assert len(numbers) == 2

    again = run("--execute")
    assert again.exit_code == 0, again.stderr
    assert "Cell north: waiting for 2 jobs of an earlier call" in again.stderr
    assert planned()["moves"] == []


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_two_calls_do_not_move_instances_of_one_cell_at_once(fleet: ComputeFleet) -> None:
    with cells_to_balance(load_settings(None, None), CELL):
        other = run("--execute")
    assert (other.exit_code, "moves its instances; wait until it ends" in other.stderr) == (1, True)
    assert "fleetlight balance (process " in other.stderr


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_reservation_without_room_stays_where_it_is(fleet: ComputeFleet) -> None:
    add_instances(fleet, later={"disk_template": "drbd", "forthcoming": True, **ON_TWO})
    before = places(fleet), claims(fleet)
    to_full = InstancePlace(instance_name="later", primary_node="north-host2", secondary_node="north-host3")
    fill = Amount.of_gib(63, 0, 0)
    with writing(fleet.engine(CELL)) as connection:
        claim_host(connection, str(UUID(int=7)), fill, RequestSpec(node="north-host2"))
    JobSubmission(fleet.engine(CELL), fleet.cells[CELL]).submit([to_full], NO_REQUEST)
    fleet.work()
    assert (places(fleet), claims(fleet)) == before


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_cell_that_is_only_read_is_refused(fleet: ComputeFleet) -> None:
    fleet.fleet.add_cell("cloud", CellKind.NOVA_API, "http://127.0.0.1:9", "")
    refused = run("--cell", "cloud", "--execute")
    assert (refused.exit_code, "cell cloud is only read (kind 'nova-api')" in refused.stderr) == (2, True)
