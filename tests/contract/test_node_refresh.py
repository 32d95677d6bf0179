"""The operation that asks nodes for everything: its job, what it announces, and when it comes by itself."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.job_numbers import number_in_cell
from fleetlight.cells.model import NO_REQUEST
from fleetlight.cells.tables import changes, compute_nodes, job_operations, jobs, services
from fleetlight.manager.agents.drivers.driver import SHUT_DOWN
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.jobs.model import NewJob, NewOperation
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.nodes.model import AgentNode
from fleetlight.manager.operations.opcodes.cluster import ClusterSetParams
from fleetlight.manager.operations.opcodes.refresh import NodeSnapshotRefresh, Refresher, postpone_refresh
from fleetlight.manager.operations.submitting import JobSubmission
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from fleetlight.notifications.envelope import decode
from fleetlight.notifications.registry import parse_payload
from fleetlight.resources.power_states import RUNNING
from tests.contract.compute_fleet import ComputeFleet, compute_fleet
from tests.support.played.played_hosts import PlayedHosts, guest

CELL = "north"
N0, N1, N2 = (f"{CELL}-host{number}" for number in range(3))
EVERYTHING = ("bootid", "diskinfo", "hv")
ACTIVE = {"vm_state": "active", "power_state": RUNNING}


on_both = pytest.mark.parametrize(
    "fleet", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ComputeFleet]:
    """Three hosts in each cell, of which those of north have agents, but for the last one."""
    is_sqlite = getattr(request, "param", "sqlite") == "sqlite"
    new_database = None if is_sqlite else request.getfixturevalue("new_postgresql_database")
    with compute_fleet(tmp_path, new_database=new_database) as fleet:
        fleet.add_hosts(3)
        for host in (N0, N1):
            set_agent(fleet, host, "10.0.0.1:1811")
        yield fleet


def set_agent(fleet: ComputeFleet, host: str, address: str | None) -> None:
    AgentAddresses(fleet.engine(CELL), fleet.cells[CELL]).set(host, address)


def mark(fleet: ComputeFleet, host: str, *, offline: bool) -> None:
    with writing(fleet.engine(CELL)) as connection:
        connection.execute(update(services).where(services.c.host == host).values(forced_down=offline))


def refresh(fleet: ComputeFleet, hosts: PlayedHosts, **parameters: Any) -> Any:
    """Status and result of a job."""
    cell = fleet.cells[CELL]
    number = JobSubmission(fleet.engine(CELL), cell).submit([NodeSnapshotRefresh(**parameters)], NO_REQUEST)
    fleet.work(hosts)
    columns = (jobs.c.status, job_operations.c.result)
    with fleet.engine(CELL).connect() as connection:
        return tuple(
            connection.execute(
                select(*columns)
                .join_from(jobs, job_operations, job_operations.c.job_id == jobs.c.id)
                .where(jobs.c.id == number_in_cell(cell, number))
            ).one()
        )


def announced(fleet: ComputeFleet) -> list[Any]:
    """What was announced of nodes and instances since the last look: name and both statuses."""
    with writing(fleet.engine(CELL)) as connection:
        messages = connection.execute(
            select(changes.c.id, changes.c.message).where(changes.c.event_type.like("%status.update")).order_by("id")
        ).all()
        connection.execute(changes.delete().where(changes.c.id.in_([row.id for row in messages])))
    payloads: list[Any] = [parse_payload(decode(row.message).payload) for row in messages]
    return [(getattr(each, "uuid", each.node), each.previous_status, each.status) for each in payloads]


def test_all_nodes_with_an_agent_are_asked_for_everything_and_remembered(
    fleet: ComputeFleet, hosts: PlayedHosts
) -> None:
    assert refresh(fleet, hosts) == ("success", [[N0, True, ""], [N1, True, ""]])
    assert sorted(hosts.calls) == [(N0, EVERYTHING), (N1, EVERYTHING)]
    hosts.calls.clear()
    # What is remembered is asked for again unless that is refused.
    refresh(fleet, hosts, bypass=False)
    assert hosts.calls == []
    refresh(fleet, hosts, nodes=[N1])
    assert hosts.calls == [(N1, EVERYTHING)]


@pytest.mark.parametrize(
    ("change", "is_forgotten"),
    [
        ({"enabled_hypervisors": ["kvm", "fake"]}, True),
        ({"vg_name": "fast"}, True),
        ({"candidate_pool_size": 3}, False),
    ],
)
def test_nothing_is_remembered_when_a_cell_has_other_hypervisors_or_another_volume_group(
    fleet: ComputeFleet, hosts: PlayedHosts, change: dict[str, Any], is_forgotten: bool
) -> None:
    refresh(fleet, hosts)
    hosts.calls.clear()
    JobSubmission(fleet.engine(CELL), fleet.cells[CELL]).submit([ClusterSetParams(**change)], NO_REQUEST)
    fleet.work(hosts)
    hosts.of(fleet.cells[CELL]).node_snapshot([AgentNode(N0, "host:1")], {"bootid": True})
    assert bool(hosts.calls) is is_forgotten


def test_node_that_fails_fails_nothing_else(fleet: ComputeFleet, hosts: PlayedHosts) -> None:
    hosts.failing[N0] = "no answer"
    assert refresh(fleet, hosts) == ("success", [[N0, False, "no answer"], [N1, True, ""]])
    mark(fleet, N1, offline=True)
    assert refresh(fleet, hosts, nodes=[N1, N2]) == (
        "success",
        [[N1, False, "Node is marked offline"], [N2, False, "has no agent"]],
    )
    # Those that are offline are not meant when all are.
    assert refresh(fleet, hosts) == ("success", [[N0, False, "no answer"]])


def test_node_that_is_not_there_ends_the_job(fleet: ComputeFleet, hosts: PlayedHosts) -> None:
    status, result = refresh(fleet, hosts, nodes=["nowhere"])
    assert (status, result[0], hosts.calls) == ("error", "OpPrereqError", [])


def test_node_without_instances_is_asked_for_its_boot(fleet: ComputeFleet, hosts: PlayedHosts) -> None:
    with writing(fleet.engine(CELL)) as connection:
        of_node = compute_nodes.c.hypervisor_hostname == N0
        connection.execute(update(compute_nodes).where(of_node).values(vm_capable=False))
    refresh(fleet, hosts)
    assert sorted(hosts.calls) == [(N0, ("bootid",)), (N1, EVERYTHING)]


@on_both
def test_each_change_of_what_nodes_say_is_announced_once(fleet: ComputeFleet, hosts: PlayedHosts) -> None:
    up = fleet.create(CELL, host=N0, node=N0, **ACTIVE)
    down = fleet.create(CELL, host=N0, node=N0, vm_state="stopped")
    hosts.guests[N0] = {up: guest()}
    refresh(fleet, hosts)
    assert announced(fleet) == []
    hosts.guests[N0] = {down: guest()}
    for _ in range(2):
        refresh(fleet, hosts)
    assert sorted(announced(fleet)) == sorted([(up, None, "ERROR_down"), (down, None, "ERROR_up")])
    hosts.guests = {N1: {up: guest()}, N0: {down: guest(state=SHUT_DOWN)}}
    for _ in range(2):
        refresh(fleet, hosts)
    assert sorted(announced(fleet)) == sorted([(up, "ERROR_down", "ERROR_wrongnode"), (down, "ERROR_up", "ADMIN_down")])
    hosts.guests = {N0: {up: guest()}}
    for _ in range(2):
        refresh(fleet, hosts)
    assert announced(fleet) == [(up, "ERROR_wrongnode", "running")]


def test_node_that_goes_and_comes_back_is_announced_once_and_its_instances_keep_what_was_known(
    fleet: ComputeFleet, hosts: PlayedHosts
) -> None:
    up = fleet.create(CELL, host=N0, node=N0, **ACTIVE)
    refresh(fleet, hosts)
    assert announced(fleet) == [(up, None, "ERROR_down")]
    hosts.failing[N0] = "no answer"
    for _ in range(2):
        refresh(fleet, hosts)
    assert announced(fleet) == [(N0, "up", "down")]
    mark(fleet, N0, offline=True)
    for _ in range(2):
        refresh(fleet, hosts)
    assert announced(fleet) == [(N0, "down", "offline")]
    mark(fleet, N0, offline=False)
    hosts.failing.clear()
    refresh(fleet, hosts)
    assert announced(fleet) == [(N0, "offline", "up")]
    hosts.guests[N0] = {up: guest()}
    refresh(fleet, hosts)
    assert announced(fleet) == [(up, "ERROR_down", "running")]


def test_what_is_there_no_more_is_forgotten_without_a_word(fleet: ComputeFleet, hosts: PlayedHosts) -> None:
    up = fleet.create(CELL, host=N0, node=N0, **ACTIVE)
    hosts.failing[N1] = "no answer"
    refresh(fleet, hosts)
    assert sorted(announced(fleet)) == sorted([(up, None, "ERROR_down"), (N1, "up", "down")])
    for host in (N0, N1):
        set_agent(fleet, host, None)
    set_agent(fleet, N2, "10.0.0.3:1811")
    refresh(fleet, hosts)
    hosts.failing.clear()
    for host in (N0, N1):
        set_agent(fleet, host, "10.0.0.1:1811")
    hosts.guests[N0] = {up: guest()}
    refresh(fleet, hosts)
    assert announced(fleet) == []


def test_instance_that_is_changed_meanwhile_is_not_judged(fleet: ComputeFleet, hosts: PlayedHosts) -> None:
    changing = fleet.create(CELL, host=N0, node=N0, **ACTIVE)
    busy = fleet.create(CELL, host=N0, node=N0, **ACTIVE)

    def interfere(node: str, _timeout_s: float) -> None:
        if node == N0:
            fleet.operations(CELL).update(changing, {"display_name": "other"})

    hosts.during = interfere
    with writing(fleet.engine(CELL)) as connection:
        stop = NewOperation("os-stop", {"origin": {}}, busy)
        add_jobs(connection, ALL_OPERATIONS, [NewJob([stop], priority=5)], 1)
    refresh(fleet, hosts)
    assert announced(fleet) == []
    hosts.during = lambda _node, _timeout_s: None
    refresh(fleet, hosts)
    # One is stopped by now, and is not there.
    assert announced(fleet) == [(changing, None, "ERROR_down")]


def test_worker_without_a_certificate_leaves_the_job_to_others(fleet: ComputeFleet, hosts: PlayedHosts) -> None:
    submission = JobSubmission(fleet.engine(CELL), fleet.cells[CELL])
    submission.submit([NodeSnapshotRefresh()], NO_REQUEST)
    fleet.work()
    with fleet.engine(CELL).connect() as connection:
        assert connection.scalar(select(jobs.c.status)) == "running"
    fleet.work(hosts)
    with fleet.engine(CELL).connect() as connection:
        assert connection.scalar(select(jobs.c.status)) == "success"


def queued(fleet: ComputeFleet) -> int:
    with fleet.engine(CELL).connect() as connection:
        return len(connection.execute(select(jobs.c.id)).all())


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000_000_000_000

    def __call__(self) -> int:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * 1_000_000)


@on_both
def test_refresh_is_queued_once_in_an_interval_whoever_looks(fleet: ComputeFleet, hosts: PlayedHosts) -> None:
    clock = ManualClock()
    of_two_workers = [Refresher(fleet.engine(CELL), fleet.cells[CELL], 300, clock) for _ in range(2)]
    assert [each.submit() for each in of_two_workers] == [1, 0]
    fleet.work(hosts)
    clock.wait(269)
    assert [each.submit() for each in of_two_workers] == [0, 0]
    clock.wait(62)
    assert sorted(each.submit() for each in of_two_workers) == [0, 1]


def test_refresh_waits_for_agents_that_start(fleet: ComputeFleet) -> None:
    clock, cell, engine = ManualClock(), fleet.cells[CELL], fleet.engine(CELL)
    for seconds in (30, 20):
        postpone_refresh(engine, cell, seconds, clock)
    refresher = Refresher(engine, cell, 300, clock)
    assert (refresher.submit(), refresher.rest_s()) == (0, 30)
    clock.wait(30)
    assert refresher.submit() == 1


def test_refresh_that_waits_still_is_not_doubled(fleet: ComputeFleet, hosts: PlayedHosts) -> None:
    clock = ManualClock()
    refresher = Refresher(fleet.engine(CELL), fleet.cells[CELL], 300, clock)
    for _ in range(4):
        refresher.submit()
        clock.wait(400)
    assert queued(fleet) == 1
    fleet.work(hosts)
    assert (refresher.submit(), queued(fleet)) == (1, 2)


def test_cell_without_agents_is_not_refreshed(fleet: ComputeFleet) -> None:
    refresher = Refresher(fleet.engine("east"), fleet.cells["east"], 300)
    assert (refresher.submit(), refresher.rest_s()) == (0, inf)
