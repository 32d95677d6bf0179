"""A host that fails is followed by the next alternate: what is claimed, announced and shown meanwhile."""

from collections.abc import Callable
from importlib import import_module
from itertools import count
from random import Random
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select, update
from structlog.testing import capture_logs

from fleetlight.cells.database.engines import writing
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import allocations, compute_nodes, job_log, job_operations, jobs, services
from fleetlight.manager.operations.actions.vocabulary import VOCABULARY
from fleetlight.manager.operations.instances.instance_actions import InstanceActionLog
from fleetlight.manager.operations.jobs.errors import NodeCallError
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.select_destinations import claim_host
from fleetlight.notifications.payloads.selection import Selection
from fleetlight.resources.amount import Amount
from tests.support.fleets.acting_cell import FLAVOR, REQUEST, SIZE, ActingCell

HOSTS = [f"host{n}" for n in range(1, 6)]
BUILD = ["instance.create.start", "instance.update", "instance.update", "instance.update"]
EXHAUSTED = (
    "Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures for instance {}."
)


class FailingHosts:
    """Hosts of which some fail what they are called for, as `fails` says."""

    def __init__(self) -> None:
        self.fails: Callable[[NodeCall], bool] = lambda _call: False
        self.calls: list[tuple[str, NodeCall]] = []

    def call(self, call: NodeCall, key: str) -> None:
        self.calls.append((key, call))
        if self.fails(call):
            raise NodeCallError(call.host, call.name, "no image")

    def called(self) -> list[str]:
        return [call.host for _, call in self.calls]


@pytest.fixture
def nodes() -> FailingHosts:
    return FailingHosts()


@pytest.fixture
def acting(engine: Engine, fleet: Fleet, cell: Cell, nodes: FailingHosts) -> ActingCell:
    acting = ActingCell(engine, fleet, cell, hosts=HOSTS)
    acting.worker = Worker(engine, fleet, cell, VOCABULARY, nodes)
    return acting


def create(acting: ActingCell, count: int = 1, **values: Any) -> list[str]:
    wanted = {"flavor": FLAVOR, "project_id": "demo", **values}
    return [row.uuid for row in acting.acceptance.create([wanted] * count, {}, REQUEST)]


def selections(acting: ActingCell, uuid: str) -> list[Selection]:
    """What the job of a creation carries."""
    statement = select(job_operations.c.parameters).where(job_operations.c.instance_uuid == uuid)
    with acting.engine.connect() as connection:
        carried = connection.execute(statement).scalar_one()["selections"]
    return [Selection.unwrap(each) for each in carried]


def set_down(acting: ActingCell, *hosts: str, down: bool = True) -> None:
    with writing(acting.engine) as connection:
        connection.execute(update(services).where(services.c.host.in_(hosts)).values(forced_down=down))


def fill(acting: ActingCell, host: str) -> None:
    """Another claim takes all that is left of a host."""
    with writing(acting.engine) as connection:
        node = connection.scalar(
            select(compute_nodes.c.id).where(compute_nodes.c.hypervisor_hostname == f"{host}.example.org")
        )
        taken = {"vcpus": SIZE.vcpus - 1, "memory_mib": 0, "disk_gib": 0}
        connection.execute(insert(allocations).values(instance_uuid=f"of {host}", node_id=node, **taken))


def used(acting: ActingCell, uuid: str) -> list[str]:
    """The hosts that an instance takes up something of."""
    statement = (
        select(services.c.host)
        .join_from(allocations, compute_nodes, compute_nodes.c.id == allocations.c.node_id)
        .join(services, services.c.id == compute_nodes.c.service_id)
        .where(allocations.c.instance_uuid == uuid)
    )
    with acting.engine.connect() as connection:
        return sorted(connection.execute(statement).scalars())


def events(acting: ActingCell) -> list[str]:
    return [event.event_type for event in acting.events()]


def test_creation_carries_its_selections_and_its_host_is_claimed_at_once(acting: ActingCell) -> None:
    [uuid] = create(acting)
    carried = selections(acting, uuid)
    assert [each.service_host for each in carried] == ["host1", "host2", "host3"]
    assert {each.cell_uuid for each in carried} == {acting.cell.uuid}
    assert used(acting, uuid) == ["host1"]


def test_instances_of_one_request_have_the_same_alternates_and_none_is_a_chosen_host(acting: ActingCell) -> None:
    carried = [selections(acting, uuid) for uuid in create(acting, 3)]
    assert [[each.service_host for each in one] for one in carried] == [
        ["host1", "host4", "host5"],
        ["host2", "host4", "host5"],
        ["host3", "host4", "host5"],
    ]


def test_host_that_fails_the_build_is_followed_by_the_next(acting: ActingCell, nodes: FailingHosts) -> None:
    nodes.fails = lambda call: call.host == "host1"
    [uuid] = create(acting)
    with capture_logs():
        acting.work()
    record = acting.record(uuid)
    assert (record["vm_state"], record["host"], record["launched_on"]) == ("active", "host2", "host2")
    assert record["fault"] is None
    assert used(acting, uuid) == ["host2"]
    assert nodes.called() == ["host1", "host2"]
    assert events(acting)[3:] == [
        *BUILD,
        "instance.create.error",
        "instance.update",
        *BUILD,
        "instance.create.end",
    ]
    failed = [event for event in acting.events() if event.event_type in {"instance.create.error", "instance.update"}]
    of_error = failed[4]
    assert (of_error.event_type, of_error.publisher_id, of_error.host) == (
        "instance.create.error",
        "nova-compute:host1",
        "host1",
    )
    assert (failed[5].publisher_id, failed[5].host, failed[5].task_state) == ("nova-conductor:one", None, "scheduling")
    acting.check_revisions()


def test_reschedule_is_in_the_log_of_the_job_and_in_the_instance_action(
    acting: ActingCell, nodes: FailingHosts
) -> None:
    nodes.fails = lambda call: call.host == "host1"
    [uuid] = create(acting)
    with capture_logs() as logs:
        acting.work()
    assert [entry["event"] for entry in logs] == ["job.goes_on"]
    with acting.engine.connect() as connection:
        told = list(connection.execute(select(job_log.c.data).order_by(job_log.c.serial)).scalars())
    assert told == [
        "host host1 was chosen",
        "host host1 has failed: create on host1: no image",
        "host host2 was chosen",
    ]
    found = InstanceActionLog(acting.engine, acting.cell).find(uuid, "req-1")
    assert found is not None
    assert [(event.host, event.result) for event in reversed(found[1])] == [("host1", "Error"), ("host2", "Success")]
    assert found[0].message is None


def test_action_has_failed_when_the_last_host_has(acting: ActingCell, nodes: FailingHosts) -> None:
    nodes.fails = lambda _call: True
    [uuid] = create(acting)
    acting.work()
    [action] = InstanceActionLog(acting.engine, acting.cell).actions(uuid)
    assert action.message == "Error"


def test_calls_of_two_attempts_have_different_keys(acting: ActingCell, nodes: FailingHosts) -> None:
    """So no answer to the first can be taken for one to the second."""
    nodes.fails = lambda call: call.host == "host1"
    create(acting)
    with capture_logs():
        acting.work()
    keys = [key for key, _ in nodes.calls]
    assert len(set(keys)) == len(keys) == 2


def test_behind_the_last_host_the_instance_is_in_error_on_no_host(acting: ActingCell, nodes: FailingHosts) -> None:
    nodes.fails = lambda call: call.name == "create"
    [uuid] = create(acting)
    with capture_logs():
        acting.work()
    record = acting.record(uuid)
    assert (record["vm_state"], record["task_state"], record["host"], record["node"]) == ("error", None, None, None)
    assert (record["fault"]["code"], record["fault"]["message"]) == (500, EXHAUSTED.format(uuid))
    assert record["fault"]["details"] == "create on host3: no image"
    assert used(acting, uuid) == []
    assert nodes.called() == ["host1", "host2", "host3"]
    assert events(acting).count("instance.create.error") == 3
    assert events(acting)[-1] == "compute_task.build_instances.error"
    with acting.engine.connect() as connection:
        assert connection.execute(select(jobs.c.status)).scalar_one() == "error"
    acting.check_revisions()


def test_alternate_without_room_is_passed_over(acting: ActingCell, nodes: FailingHosts) -> None:
    nodes.fails = lambda call: call.host == "host1"
    [uuid] = create(acting)
    fill(acting, "host2")
    with capture_logs():
        acting.work()
    assert (acting.record(uuid)["host"], used(acting, uuid)) == ("host3", ["host3"])


def test_alternate_that_is_down_or_gone_is_passed_over(acting: ActingCell, nodes: FailingHosts) -> None:
    nodes.fails = lambda call: call.host == "host1"
    [uuid] = create(acting)
    set_down(acting, "host2")
    acting.nodes.remove_service(acting.nodes.services(host="host3")[0].uuid)
    with capture_logs():
        acting.work()
    assert acting.record(uuid)["fault"]["message"] == EXHAUSTED.format(uuid)
    assert used(acting, uuid) == []


@pytest.mark.parametrize("steps", range(6))
def test_host_that_goes_down_meanwhile_is_followed_by_the_next(acting: ActingCell, steps: int) -> None:
    [uuid] = create(acting)
    for _ in range(steps):
        acting.worker.run_once()
    set_down(acting, "host1")
    with capture_logs():
        acting.work()
    assert (acting.state(uuid)[0], acting.record(uuid)["host"]) == ("active", "host2")
    assert used(acting, uuid) == ["host2"]


def test_resize_goes_to_the_next_host_when_the_chosen_one_goes_down(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.accept(uuid, "resize", flavor={**FLAVOR, "flavorid": "m2", "vcpus": 4}, flavor_number=2)
    for _ in range(3):
        acting.worker.run_once()
    assert used(acting, uuid) == ["host1", "host2"]
    set_down(acting, "host2")
    with capture_logs():
        acting.work()
    assert (acting.state(uuid)[0], acting.record(uuid)["host"]) == ("resized", "host3")
    assert used(acting, uuid) == ["host1", "host3"]
    assert "instance.resize.error" in events(acting)


@pytest.mark.parametrize("action", ["os-migrateLive", "evacuate", "unshelve"])
def test_other_moves_have_no_alternates(acting: ActingCell, action: str) -> None:
    """contracts/nova-selection, 4"""
    if action == "unshelve":
        uuid = acting.instance(vm_state="shelved_offloaded", host=None, node=None)
    else:
        uuid = acting.instance()
    if action == "evacuate":
        set_down(acting, "host1")
    acting.accept(uuid, action)
    for _ in range(3):
        acting.worker.run_once()
    with acting.engine.connect() as connection:
        notes = connection.execute(select(job_operations.c.notes)).scalar_one()
    assert (notes["destination"]["host"] in HOSTS, notes["selections"]) == (True, [])


def test_failure_of_another_kind_ends_the_creation(acting: ActingCell, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a mistake of ours")

    [uuid] = create(acting)
    for _ in range(2):
        acting.worker.run_once()
    monkeypatch.setattr("fleetlight.manager.operations.actions.building.begin_event", broken)
    with capture_logs():
        acting.work()
    assert acting.record(uuid)["fault"]["message"] == "a mistake of ours"
    assert "instance.create.error" not in events(acting)
    assert used(acting, uuid) == []


def test_deletion_ends_a_build_that_goes_from_host_to_host(acting: ActingCell, nodes: FailingHosts) -> None:
    nodes.fails = lambda call: call.host == "host1" and call.name == "create"
    [uuid] = create(acting)
    with capture_logs():
        for _ in range(8):
            acting.worker.run_once()
        assert used(acting, uuid) == ["host2"]
        acting.accept(uuid, "delete")
        acting.work()
    assert (acting.record(uuid)["vm_state"], used(acting, uuid)) == ("deleted", [])


def test_creation_of_more_than_fits_claims_nothing_and_ends_in_error(acting: ActingCell) -> None:
    """contracts/nova-selection, 4: if not every instance can claim a host, none does."""
    half = {**FLAVOR, "vcpus": SIZE.vcpus // 2 + 1}
    uuids = create(acting, len(HOSTS) + 1, flavor=half)
    assert acting.used() == {}
    with capture_logs():
        acting.work()
    assert {acting.state(uuid)[0] for uuid in uuids} == {"error"}
    assert "No valid host" in acting.record(uuids[0])["fault"]["message"]


@pytest.mark.parametrize("seed", range(3))
def test_no_instance_is_lost_and_nothing_taken_twice_while_hosts_fail_at_random(
    acting: ActingCell, nodes: FailingHosts, seed: int
) -> None:
    """Workers are replaced by others between any two steps, as if they had been killed there."""
    dice = Random(seed)
    nodes.fails = lambda _call: dice.random() < 0.4
    uuids = [uuid for _ in range(6) for uuid in create(acting, dice.randint(1, 3))]
    with capture_logs():
        for number in count():
            if dice.random() < 0.1:
                set_down(acting, dice.choice(HOSTS), down=dice.random() < 0.5)
            if not Worker(acting.engine, acting.fleet, acting.cell, VOCABULARY, nodes).run_once():
                break
            assert number < 2000
    for uuid in uuids:
        record = acting.record(uuid)
        assert record["task_state"] is None
        assert (record["vm_state"], used(acting, uuid)) in [("active", [record["host"]]), ("error", [])]
    acting.check_revisions()
    for node in acting.nodes.nodes():
        assert Amount().fits_into(node.free)


def test_members_of_a_group_that_are_created_together_keep_to_its_policy(acting: ActingCell, fleet: Fleet) -> None:
    group = fleet.server_groups.create("apart", "anti-affinity", project_id="demo", user_id="ada")
    create(acting, 3, server_groups=[group.uuid])
    assert acting.used() == {"host1": 1, "host2": 1, "host3": 1}


class KilledError(BaseException):
    """The worker is killed: nothing that it would do behind this is done."""


@pytest.mark.parametrize(
    "where",
    [
        "fleetlight.manager.operations.actions.vocabulary.finish_event",
        "fleetlight.manager.operations.actions.effects.claim_alternate",
        "fleetlight.manager.operations.actions.effects.release",
        "fleetlight.manager.operations.actions.effects.Selection.wrap",
        "fleetlight.manager.operations.jobs.worker.save_operation",
        "fleetlight.manager.operations.actions.building.begin_event",
    ],
)
def test_worker_that_is_killed_within_a_reschedule_leaves_it_to_the_next(
    acting: ActingCell, nodes: FailingHosts, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """At each of its statements; the transaction is undone, and another worker finds the job where it was."""
    nodes.fails = lambda call: call.host == "host1"
    [uuid] = create(acting)
    for _ in range(6):
        acting.worker.run_once()
    assert not nodes.calls
    owner, _, name = where.rpartition(".")
    kills = iter([True])

    def killed(*arguments: Any, **named: Any) -> Any:
        if next(kills, False):
            raise KilledError
        return original(*arguments, **named)

    target = Selection if owner.endswith("Selection") else import_module(owner)
    original = getattr(target, name)
    monkeypatch.setattr(target, name, killed)
    with capture_logs():
        for _ in range(50):
            try:
                if not Worker(acting.engine, acting.fleet, acting.cell, VOCABULARY, nodes).run_once():
                    break
            except KilledError:
                assert len(used(acting, uuid)) == 1
    assert not next(kills, False)
    assert nodes.called()[-1] == "host2"
    assert (acting.state(uuid)[0], used(acting, uuid)) == ("active", ["host2"])
    acting.check_revisions()


def test_action_that_fails_leaves_mirrored_disks_their_second_node(acting: ActingCell, nodes: FailingHosts) -> None:
    uuid = acting.instance(ganeti={"values": {"snodes": ["host2.example.org"]}, "no_data": [], "offline": []})
    disk = Amount.of_gib(0, 0, FLAVOR["root_gb"])  # type: ignore[arg-type]  # of a table of texts and numbers
    with writing(acting.engine) as connection:
        claim_host(connection, uuid, disk, RequestSpec(node="host2.example.org"))
    nodes.fails = lambda call: call.name == "reboot"
    with capture_logs():
        acting.do(uuid, "reboot SOFT")
    assert used(acting, uuid) == ["host1", "host2"]
