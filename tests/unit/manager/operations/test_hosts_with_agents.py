"""Actions on hosts with agents: what the agents are called for, what their guests are like then, and what fails how."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select
from structlog.testing import capture_logs

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instances
from fleetlight.manager.agents.wire import CallRequest
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.nodes.errors import StoreUnreachableError
from fleetlight.manager.operations.nodes.stores.store import StateChange
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.modify import InstanceGrowDisk, InstanceSetParams
from fleetlight.manager.operations.opcodes.instances.move import InstanceFailover
from fleetlight.manager.operations.opcodes.instances.power import InstanceReboot, InstanceShutdown
from fleetlight.manager.operations.opcodes.instances.remove import InstanceRemove
from fleetlight.manager.operations.opcodes.nodes import NodeSetParams
from fleetlight.manager.operations.opcodes.opcode import OpCode
from tests.support.fleets.acting_cell import FLAVOR, REQUEST
from tests.support.memory.memory_store import MemoryStore
from tests.support.played.hosts_with_agents import GIB, MIRRORED, SIZE, AgentCell

FREE = SIZE.disk_mib
LARGE = {**FLAVOR, "flavorid": "m2", "name": "large", "memory_mb": 4096, "root_gb": 40}


@pytest.fixture
def acting(engine: Engine, fleet: Fleet, cell: Cell, tmp_path: Path) -> Iterator[AgentCell]:
    acting = AgentCell(engine, fleet, cell, tmp_path / "agents")
    yield acting
    acting.agents.close()


def test_instance_is_made_on_the_host_and_removed_with_its_disks(acting: AgentCell) -> None:
    uuid = acting.made()
    assert acting.agents.guests() == {uuid: ["host1"]}
    assert acting.agents.free_mib() == {"host1": FREE - 20 * GIB, "host2": FREE, "host3": FREE}
    acting.do(uuid, "delete")
    assert (acting.agents.guests(), set(acting.agents.free_mib().values())) == ({}, {FREE})
    assert (acting.used(), acting.locks()) == ({}, 0)


@pytest.mark.parametrize(
    ("actions", "runs"),
    [
        (["os-stop"], False),
        (["os-stop", "os-start"], True),
        (["reboot SOFT"], True),
        (["os-stop", "reboot HARD"], True),
        (["pause", "unpause"], True),
        (["suspend"], False),
        (["suspend", "resume"], True),
        (["rescue", "unrescue"], True),
        (["rebuild"], True),
        (["os-stop", "rebuild"], False),
        (["softDelete"], False),
        (["softDelete", "restore"], True),
        (["shelve"], False),
        (["shelve", "unshelve"], True),
    ],
    ids=str,
)
def test_guest_runs_as_the_record_says(acting: AgentCell, actions: list[str], runs: bool) -> None:
    uuid = acting.made()
    for action in actions:
        acting.do(uuid, action)
    record = acting.record(uuid)
    assert (record["fault"], record["task_state"]) == (None, None)
    hosts = [record["host"]] if runs else []
    assert acting.agents.guests().get(uuid, []) == hosts
    used = {host: FREE - free for host, free in acting.agents.free_mib().items() if free != FREE}
    assert used == ({} if record["host"] is None else {record["host"]: 20 * GIB})


@pytest.mark.parametrize("state", ["active", "stopped"])
@pytest.mark.parametrize("end", ["confirmResize", "revertResize", "delete"])
@pytest.mark.parametrize("action", ["resize", "migrate"])
def test_moved_guest_is_on_one_host(acting: AgentCell, action: str, end: str, state: str) -> None:
    uuid = acting.made()
    if state == "stopped":
        acting.do(uuid, "os-stop")
    wanted = {"flavor": LARGE, "flavor_number": 2} if action == "resize" else {}
    acting.do(uuid, action, host="host2", **wanted)
    assert acting.record(uuid)["vm_state"] == "resized"
    assert acting.agents.guests() == ({uuid: ["host2"]} if state == "active" else {})
    acting.do(uuid, end)
    host = {"confirmResize": "host2", "revertResize": "host1", "delete": None}[end]
    assert acting.agents.guests() == ({uuid: [host]} if state == "active" and host else {})
    disk = 40 if action == "resize" and end == "confirmResize" else 20
    used = {host: FREE - free for host, free in acting.agents.free_mib().items() if free != FREE}
    assert used == ({} if host is None else {host: disk * GIB})


def test_guest_is_migrated_live(acting: AgentCell) -> None:
    uuid = acting.made()
    acting.do(uuid, "os-migrateLive", host="host2")
    assert (acting.agents.guests(), acting.record(uuid)["host"]) == ({uuid: ["host2"]}, "host2")
    assert acting.agents.free_mib() == {"host1": FREE, "host2": FREE - 20 * GIB, "host3": FREE}
    assert acting.agents.memory_mib() == {"host1": 0, "host2": 2048, "host3": 0}


def test_host_that_refuses_is_left_with_nothing_and_the_next_one_is_tried(acting: AgentCell) -> None:
    acting.agents.refuse("host1", "instance_create", "no such image")
    [row] = acting.acceptance.create([{"flavor": FLAVOR, "project_id": "demo"}], {}, REQUEST)
    acting.work()
    host = acting.record(row.uuid)["host"]
    assert (acting.state(row.uuid)[0], host) == ("active", "host2")
    assert acting.agents.connection.made[:2] == [
        ("host1.example.org", "instance_create"),
        ("host1.example.org", "instance_remove"),
    ]
    assert (acting.agents.guests(), acting.used()) == ({row.uuid: ["host2"]}, {"host2": 1})


def test_failure_is_shown_with_node_and_reason(acting: AgentCell) -> None:
    uuid = acting.made()
    acting.agents.refuse("host1", "instance_shutdown", "the hypervisor is away")
    acting.do(uuid, "os-stop")
    assert (acting.state(uuid)[0], acting.locks()) == ("error", 0)
    assert acting.fault(uuid) == (
        "stop on host1: instance_shutdown failed on node host1.example.org: the hypervisor is away"
    )


def test_guest_stays_where_it_was_when_its_move_fails(acting: AgentCell) -> None:
    uuid = acting.made()
    for action, call in (("os-migrateLive", "accept_instance"), ("migrate", "instance_start")):
        acting.agents.refuse("host2", call, "no memory")
        acting.do(uuid, action, host="host2")
        assert (acting.state(uuid)[0], acting.record(uuid)["host"]) == ("active", "host1"), action
        assert "no memory" in acting.fault(uuid)
        assert acting.agents.guests() == {uuid: ["host1"]}
        assert acting.agents.free_mib() == {"host1": FREE - 20 * GIB, "host2": FREE, "host3": FREE}
        assert (acting.used(), acting.agents.memory_mib()["host2"]) == ({"host1": 1}, 0)
        acting.agents.behave("host2")
        acting.acceptance.reset_state(uuid, "active", request=REQUEST)


def test_host_that_cannot_be_reached_is_waited_for_and_others_go_on(acting: AgentCell) -> None:
    first, second = acting.made(), acting.made(host="host2")
    acting.agents.connection.before = lambda node, _name: "cannot connect" if node == "host1.example.org" else None
    acting.accept(first, "os-stop")
    acting.accept(second, "os-stop")
    with capture_logs() as logs:
        acting.work()
        acting.agents.clock.now_s += 5
        acting.work()
    assert (acting.state(first)[1], acting.state(second)[0]) == ("powering-off", "stopped")
    assert [log["event"] for log in logs].count("worker.node_waited_for") == 1
    acting.agents.connection.before = lambda _node, _name: None
    acting.agents.clock.now_s += 5
    acting.work()
    assert acting.state(first)[0] == "stopped"


def test_job_fails_when_its_host_stays_away(acting: AgentCell) -> None:
    uuid = acting.made()
    acting.agents.connection.before = lambda _node, _name: "cannot connect to 10.0.0.1:1811: Connection refused"
    acting.accept(uuid, "os-stop")
    for _ in range(20):
        acting.work()
        acting.agents.clock.now_s += 10
    assert (acting.state(uuid)[0], acting.count_live_jobs(), acting.locks()) == ("error", 0, 0)
    assert "node host1.example.org: cannot connect to 10.0.0.1:1811: Connection refused" in acting.fault(uuid)


def test_no_other_host_is_tried_while_it_is_not_known_what_the_first_has_done(acting: AgentCell) -> None:
    acting.agents.connection.behind = lambda _node, name: "no answer within 10 s" if name == "instance_create" else None
    acting.agents.connection.before = lambda _node, name: "cannot connect" if name == "instance_remove" else None
    [row] = acting.acceptance.create([{"flavor": FLAVOR, "project_id": "demo"}], {}, REQUEST)
    for _ in range(200):
        acting.work()
        acting.agents.clock.now_s += 20
    assert (acting.count_live_jobs(), acting.state(row.uuid)[0]) == (0, "error")
    assert acting.agents.guests() == {row.uuid: ["host1"]}
    assert (acting.record(row.uuid)["host"], acting.used()) == ("host1", {"host1": 1})
    assert "could not be undone" in acting.fault(row.uuid)
    acting.agents.connection.before = lambda _node, _name: None
    acting.agents.clock.now_s += 100
    acting.do(row.uuid, "delete")
    assert (acting.agents.guests(), acting.used()) == ({}, {})


def test_host_without_an_agent_takes_nothing_of_one_that_has_one(acting: AgentCell) -> None:
    uuid, simulated = acting.made(), acting.instance(host="host4", node="host4.example.org")
    acting.do(uuid, "os-migrateLive", host="host4")
    assert (acting.state(uuid)[0], acting.agents.guests()) == ("active", {uuid: ["host1"]})
    acting.do(simulated, "os-migrateLive", host="host1")
    assert (acting.state(simulated)[0], acting.record(simulated)["host"]) == ("active", "host4")
    assert (
        acting.fault(uuid)
        == acting.fault(simulated)
        == "No valid host was found. There are not enough hosts available."
    )


def test_host_whose_agent_was_removed_meanwhile_takes_nothing(acting: AgentCell) -> None:
    addresses = AgentAddresses(acting.engine, acting.cell)
    uuid = acting.made()
    acting.accept(uuid, "os-migrateLive", host="host2")
    while acting.record(uuid)["task_state"] is not None and not acting.used().get("host2"):
        acting.worker.run_once()
    addresses.set("host2", None)
    acting.work()
    assert (acting.state(uuid)[0], acting.agents.guests()) == ("active", {uuid: ["host1"]})
    assert acting.fault(uuid) == "migrate on host1: host host2 has no agent, and host1 has one"


def test_what_no_agent_does_is_said(acting: AgentCell) -> None:
    uuid = acting.made()
    acting.do(uuid, "trigger_crash_dump")
    assert acting.fault(uuid) == "crash on host1: agents of hosts cannot do that"
    assert acting.state(uuid)[0] == "active"


def test_instance_from_before_the_agent_is_there_when_it_was_rebooted(acting: AgentCell) -> None:
    uuid = acting.instance()
    assert acting.agents.guests() == {}
    acting.do(uuid, "reboot HARD")
    assert acting.agents.guests() == {uuid: ["host1"]}


def test_what_a_worker_asks_for_too_late_is_refused(acting: AgentCell) -> None:
    """One that was held up while its job was given up for a deletion, which another worker has carried out."""
    late: list[Any] = []
    agent = acting.agents.connection.agents["host1.example.org"]

    def hold_up(_node: str, name: str) -> str | None:
        if name == "instance_create" and not late:
            late.append(True)
            acting.accept(row.uuid, "delete")
            acting.restart_worker()
            acting.work()
        return None

    acting.agents.connection.before = hold_up
    [row] = acting.acceptance.create([{"flavor": FLAVOR, "project_id": "demo"}], {"host": "host1"}, REQUEST)
    acting.work()
    assert acting.state(row.uuid)[0] == "deleted"
    assert (acting.agents.guests(), acting.agents.free_mib()["host1"]) == ({}, FREE)
    assert agent.call("instance_list", CallRequest(arguments={"hypervisor_list": ["fake"]})) == [True, []]


class AwayStore(MemoryStore):
    """A server that does not answer."""

    def begin_change(self, change: StateChange) -> None:
        raise StoreUnreachableError("redis://cache1", "Connection refused")


def test_job_waits_while_the_cache_is_away(acting: AgentCell) -> None:
    first, second = acting.made(), acting.instance(host="host4", node="host4.example.org")
    acting.restart_worker(AwayStore(600))
    acting.accept(first, "os-stop")
    acting.accept(second, "os-stop")
    with capture_logs() as logs:
        acting.work()
        acting.agents.clock.now_s += 10_000
        acting.work()
    assert (acting.state(first)[1], acting.state(second)[0]) == ("powering-off", "stopped")
    assert acting.agents.guests() == {first: ["host1"]}
    assert [log["reason"] for log in logs if log["event"] == "worker.node_waited_for"] == [
        "the node state cache at redis://cache1 cannot be reached: Connection refused"
    ]
    acting.restart_worker(MemoryStore(600))
    acting.work()
    assert (acting.state(first)[0], acting.agents.guests()) == ("stopped", {})


def test_deletion_leaves_nothing_on_a_host_that_a_guest_was_about_to_go_to(acting: AgentCell) -> None:
    uuid = acting.made()
    acting.accept(uuid, "os-migrateLive", host="host2")
    acting.agents.connection.before = lambda _node, name: "cannot connect" if name == "instance_migrate" else None
    acting.work()
    assert acting.agents.memory_mib() == {"host1": 2048, "host2": 2048, "host3": 0}
    acting.agents.clock.now_s += 5
    acting.do(uuid, "delete")
    assert (acting.state(uuid)[0], acting.agents.guests()) == ("deleted", {})
    assert set(acting.agents.memory_mib().values()) == {0}
    assert set(acting.agents.free_mib().values()) == {FREE}


@pytest.mark.parametrize("is_offline", [True, False])
def test_node_that_goes_offline_or_comes_back_is_not_shown_as_before(acting: AgentCell, is_offline: bool) -> None:
    opcode = NodeSetParams(node_name="host1.example.org", offline=is_offline)
    remembered = MemoryStore(600)
    acting.restart_worker(remembered)
    for node in ("host1.example.org", "host2.example.org"):
        ticket, _ = remembered.begin_fetch(node)
        remembered.put(node, ticket, b"{}", 0.0)
    acting.submit(opcode)
    acting.work()
    assert remembered.find(["host1.example.org", "host2.example.org"]).keys() == {"host2.example.org"}


@pytest.mark.parametrize(
    ("opcode", "disks_mib", "memory_mib"),
    [
        (InstanceGrowDisk.read({"instance_name": "web1", "disk": 0, "amount": 1024}), 3072, 128),
        (InstanceSetParams.read({"instance_name": "web1", "disks": [["add", {"size": 1024}]]}), 3072, 128),
        (InstanceSetParams.read({"instance_name": "web1", "runtime_mem": 64}), 2048, 64),
    ],
    ids=["grow", "add", "memory"],
)
def test_hosts_follow_what_is_changed_over_the_remote_api(
    acting: AgentCell, opcode: OpCode, disks_mib: int, memory_mib: int
) -> None:
    acting.submit(InstanceCreate.read(MIRRORED))
    acting.work()
    acting.submit(opcode)
    acting.work()
    assert acting.agents.free_mib() == {"host1": FREE - disks_mib, "host2": FREE - disks_mib, "host3": FREE}
    assert acting.agents.memory_mib() == {"host1": memory_mib, "host2": 0, "host3": 0}
    acting.submit(InstanceRemove.read({"instance_name": "web1"}))
    acting.work()
    assert set(acting.agents.free_mib().values()) == {FREE}


def test_instance_fails_over_from_a_node_that_is_marked_offline(acting: AgentCell) -> None:
    acting.submit(InstanceCreate.read(MIRRORED))
    acting.work()
    called: list[str] = []

    def before(node: str, name: str) -> str | None:
        called.append(node)
        return "cannot connect" if node.startswith("host1") else None

    acting.agents.connection.before = before
    acting.submit(NodeSetParams(node_name="host1.example.org", offline=True))
    acting.submit(InstanceFailover.read({"instance_name": "web1"}))
    acting.work()
    with acting.engine.connect() as connection:
        [place] = connection.execute(select(instances.c.host, instances.c.vm_state, instances.c.fault))
    assert tuple(place) == ("host2", "active", None)
    assert set(called) == {"host2.example.org"}
    assert acting.agents.memory_mib()["host2"] == 128


def states(acting: AgentCell) -> list[str]:
    """Of the instances that are there."""
    with acting.engine.connect() as connection:
        return list(connection.scalars(select(instances.c.vm_state).where(instances.c.deleted.is_(False))))


def test_what_could_not_be_built_is_given_up_unless_its_host_may_have_it(acting: AgentCell) -> None:
    acting.agents.refuse("host1", "instance_create", "no such image")
    acting.submit(InstanceCreate.read(MIRRORED))
    acting.work()
    assert (states(acting), set(acting.agents.free_mib().values()), acting.used()) == ([], {FREE}, {})
    acting.agents.behave("host1")
    acting.agents.connection.behind = lambda _node, _name: "no answer within 10 s"
    acting.submit(InstanceCreate.read(MIRRORED))
    for _ in range(200):
        acting.work()
        acting.agents.clock.now_s += 20
    assert (states(acting), acting.locks()) == (["error"], 0)


def test_jobs_that_wait_for_the_same_host_have_each_their_own_time(acting: AgentCell) -> None:
    uuids = [acting.made() for _ in range(4)]
    acting.agents.connection.before = lambda _node, _name: "cannot connect"
    for uuid in uuids:
        acting.accept(uuid, "os-stop")
    for _ in range(10):
        acting.work()
        acting.agents.clock.now_s += 10
    assert [acting.state(uuid)[0] for uuid in uuids] == ["error"] * 4


def test_job_that_was_accepted_earlier_and_runs_later_is_carried_out(acting: AgentCell) -> None:
    acting.submit(InstanceCreate.read(MIRRORED))
    acting.work()
    for opcode, priority in ((InstanceShutdown, 0), (InstanceReboot, -10)):
        acting.submit(opcode.read({"instance_name": "web1", "priority": priority}))
    acting.work()
    assert (states(acting), acting.agents.guests()) == (["stopped"], {})
