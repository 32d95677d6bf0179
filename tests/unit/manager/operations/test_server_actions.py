"""Every action as a row: where it is allowed, what it announces in which order, and where it ends."""

from typing import Any

import pytest
from sqlalchemy import Engine, select
from structlog.testing import capture_logs

from fleetlight.cells.errors import (
    InstanceLockedError,
    InstanceNotReadyError,
    InvalidTransitionError,
    StateConflictError,
)
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instance_action_events, migrations
from tests.support.fleets.acting_cell import FLAVOR, REQUEST, ActingCell

BIGGER = {**FLAVOR, "flavorid": "m2", "name": "big", "vcpus": 4}
SELECT = ["scheduler.select_destinations.start", "scheduler.select_destinations.end"]
HOSTS = {"host1", "host2"}
STOPPED = {"vm_state": "stopped", "power_state": 4}


def pair(base: str) -> list[str]:
    return [f"instance.{base}.start", f"instance.{base}.end"]


UPDATE = "instance.update"
MOVE = [
    UPDATE,
    *SELECT,
    "instance.exists",
    *pair("resize_prep"),
    *pair("resize"),
    *pair("resize_finish"),
]
REBUILD = [
    UPDATE,
    *SELECT,
    "instance.rebuild_scheduled",
    "instance.exists",
    "instance.rebuild.start",
    UPDATE,
    UPDATE,
]
LIVE = [
    UPDATE,
    *SELECT,
    *pair("live_migration_pre"),
    "instance.live_migration_post.start",
    *pair("live_migration_post_dest"),
    "instance.live_migration_post.end",
]
Row = tuple[str, dict[str, Any], dict[str, Any], list[str], tuple[str, int]]
# (action, parameters, state before, events, (vm_state, power_state) after)
ROWS: list[Row] = [
    ("os-start", {}, STOPPED, [UPDATE, *pair("power_on")], ("active", 1)),
    ("os-stop", {}, {}, [UPDATE, *pair("power_off")], ("stopped", 4)),
    ("os-stop", {}, {"vm_state": "error"}, [UPDATE, *pair("power_off")], ("stopped", 4)),
    ("reboot SOFT", {}, {}, [UPDATE, "instance.reboot.start", UPDATE, "instance.reboot.end"], ("active", 1)),
    ("reboot HARD", {}, STOPPED, [UPDATE, "instance.reboot.start", UPDATE, "instance.reboot.end"], ("active", 1)),
    ("pause", {}, {}, [UPDATE, *pair("pause")], ("paused", 3)),
    ("unpause", {}, {"vm_state": "paused"}, [UPDATE, *pair("unpause")], ("active", 1)),
    ("suspend", {}, {}, [UPDATE, *pair("suspend")], ("suspended", 4)),
    ("resume", {}, {"vm_state": "suspended"}, [UPDATE, *pair("resume")], ("active", 1)),
    (
        "rescue",
        {},
        STOPPED,
        [UPDATE, "instance.rescue.start", "instance.exists", "instance.rescue.end"],
        ("rescued", 1),
    ),
    ("unrescue", {}, {"vm_state": "rescued"}, [UPDATE, *pair("unrescue")], ("active", 1)),
    (
        "rebuild",
        {},
        {},
        [*REBUILD, "instance.rebuild.end"],
        ("active", 1),
    ),
    (
        "rebuild",
        {},
        STOPPED,
        [*REBUILD, UPDATE, *pair("power_off"), "instance.rebuild.end"],
        ("stopped", 4),
    ),
    ("resize", {"flavor": BIGGER, "flavor_number": 2}, {}, MOVE, ("resized", 1)),
    ("migrate", {}, STOPPED, MOVE, ("resized", 4)),
    (
        "os-migrateLive",
        {},
        {},
        LIVE,
        ("active", 1),
    ),
    (
        "shelve",
        {},
        {},
        [UPDATE, "instance.exists", "instance.shelve.start", UPDATE, "instance.shelve.end", *pair("shelve_offload")],
        ("shelved_offloaded", 4),
    ),
    ("shelveOffload", {}, {"vm_state": "shelved"}, [UPDATE, *pair("shelve_offload")], ("shelved_offloaded", 4)),
    ("unshelve", {}, {"vm_state": "shelved"}, [UPDATE, *pair("power_on")], ("active", 1)),
    (
        "unshelve",
        {},
        {"vm_state": "shelved_offloaded", "host": None, "node": None},
        [UPDATE, *SELECT, "instance.unshelve.start", UPDATE, "instance.unshelve.end"],
        ("active", 1),
    ),
    ("changePassword", {}, {}, [UPDATE, UPDATE], ("active", 1)),
    ("trigger_crash_dump", {}, {}, pair("trigger_crash_dump"), ("active", 1)),
    ("restore", {}, {"vm_state": "soft-delete"}, [UPDATE, *pair("restore")], ("active", 1)),
    ("delete", {}, {}, [UPDATE, "instance.delete.start", *pair("shutdown"), "instance.delete.end"], ("deleted", 0)),
    (
        "forceDelete",
        {},
        {"vm_state": "shelved_offloaded", "host": None, "node": None},
        [UPDATE, *pair("delete")],
        ("deleted", 0),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}-{row[2].get('vm_state', 'active')}" for row in ROWS])
def test_action_announces_its_events_in_order_and_ends_idle(acting: ActingCell, row: Row) -> None:
    action, parameters, before, events, after = row
    uuid = acting.instance(**before)
    announced = acting.do(uuid, action, **parameters)
    assert [event.event_type for event in announced] == events
    assert acting.state(uuid) == (after[0], None, after[1])
    # Each change of the row has the next revision; what changes no row has none.
    revisions = [event.revision for event in announced if event.event_type.startswith("instance.")]
    assert revisions == list(range(2, 2 + len(revisions)))
    if acting.record(uuid)["deleted"]:
        return
    # What a host did is said to be of that host, and not of the cell, which has the services beside the hosts.
    with acting.engine.connect() as connection:
        work = connection.execute(select(instance_action_events.c.event, instance_action_events.c.host)).all()
    assert {event.host for event in work if event.event.startswith("compute_")} <= HOSTS


@pytest.mark.parametrize(
    ("action", "before", "text"),
    [
        ("os-start", {}, "Cannot 'start' instance {} while it is in vm_state active"),
        ("os-stop", STOPPED, "Cannot 'stop' instance {} while it is in vm_state stopped"),
        ("pause", {"task_state": "pausing"}, "Cannot 'pause' instance {} while it is in task_state pausing"),
        ("reboot SOFT", STOPPED, "Cannot 'reboot' instance {} while it is in vm_state stopped"),
        ("pause", {"launched_at": None}, "Instance {} is in an invalid state for 'pause'"),
        ("os-stop", {"host": None}, "Instance {} is not ready"),
        ("os-stop", {"locked": True, "locked_by": "owner"}, "Instance {} is locked"),
        ("delete", {"locked": True, "locked_by": "owner"}, "Instance {} is locked"),
        ("changePassword", {"locked": True}, "Instance {} is in an invalid state for 'changePassword'"),
        ("confirmResize", {}, "Cannot 'confirmResize' instance {} while it is in vm_state active"),
        ("unshelve", {}, "Cannot 'unshelve' instance {} while it is in vm_state active"),
    ],
)
def test_action_that_the_state_does_not_allow_is_refused(
    acting: ActingCell, action: str, before: dict[str, Any], text: str
) -> None:
    uuid = acting.instance(**before)
    announced = len(acting.events())
    with pytest.raises(StateConflictError) as refused:
        acting.accept(uuid, action)
    assert str(refused.value) == text.format(uuid)
    assert len(acting.events()) == announced


def test_locks_do_not_stop_administrators(acting: ActingCell) -> None:
    uuid = acting.instance(locked=True, locked_by="owner")
    acting.accept(uuid, "os-stop", is_admin=True)


def test_hard_reboot_may_be_repeated_while_a_soft_one_is_refused(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.accept(uuid, "reboot HARD")
    acting.accept(uuid, "reboot HARD")
    with pytest.raises(InvalidTransitionError, match="task_state rebooting_hard"):
        acting.accept(uuid, "reboot SOFT")
    acting.work()
    assert acting.state(uuid) == ("active", None, 1)


def test_creation_is_built_step_by_step(acting: ActingCell) -> None:
    address = {"label": "net", "address": "10.0.0.4", "version": 4, "mac": "fa:16:3e:00:00:01"}
    values = {"display_name": "web", "project_id": "demo", "flavor": FLAVOR, "ip_addresses": [address]}
    [row] = acting.acceptance.create([values], {}, REQUEST)
    assert acting.state(row.uuid) == ("building", "scheduling", 0)
    acting.work()
    events = acting.events()
    assert [(event.event_type, event.task_state) for event in events] == [
        ("instance.update", "scheduling"),
        ("scheduler.select_destinations.start", None),
        ("scheduler.select_destinations.end", None),
        ("instance.create.start", None),
        ("instance.update", "networking"),
        ("instance.update", "block_device_mapping"),
        ("instance.update", "spawning"),
        ("instance.create.end", None),
    ]
    assert [event.publisher_id for event in events] == [
        "nova-conductor:one",
        "nova-scheduler:one",
        "nova-scheduler:one",
        *["nova-compute:host1"] * 5,
    ]
    assert [event.host for event in events[3:5]] == [None, "host1"]
    record = acting.record(row.uuid)
    assert (record["vm_state"], record["power_state"], record["host"]) == ("active", 1, "host1")
    assert record["launched_at"] is not None
    assert record["ip_addresses"][0]["address"] == "10.0.0.4"
    assert acting.used() == {"host1": 1}


def test_creation_without_a_host_ends_in_error_with_a_fault(acting: ActingCell) -> None:
    huge = {**FLAVOR, "vcpus": 1000}
    [row] = acting.acceptance.create([{"flavor": huge}], {}, REQUEST)
    acting.work()
    record = acting.record(row.uuid)
    assert (record["vm_state"], record["task_state"], record["host"]) == ("error", None, None)
    assert record["fault"]["code"] == 500
    assert "No valid host was found" in record["fault"]["message"]
    assert [event.event_type for event in acting.events()][-2:] == [
        "instance.update",
        "compute_task.build_instances.error",
    ]
    assert acting.used() == {}


def test_resize_takes_up_both_hosts_until_it_is_confirmed(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.do(uuid, "resize", flavor=BIGGER, flavor_number=2)
    record = acting.record(uuid)
    assert (record["host"], record["flavor_id"], record["flavor"]["vcpus"]) == ("host2", "m2", 4)
    assert acting.used() == {"host1": 1, "host2": 1}
    announced = acting.do(uuid, "confirmResize")
    assert [event.event_type for event in announced] == pair("resize_confirm")
    assert acting.state(uuid) == ("active", None, 1)
    assert acting.used() == {"host2": 1}


def test_reverted_resize_is_as_if_nothing_had_happened(acting: ActingCell) -> None:
    uuid = acting.instance(**STOPPED)
    before = acting.record(uuid)
    acting.do(uuid, "resize", flavor=BIGGER, flavor_number=2)
    announced = acting.do(uuid, "revertResize")
    assert [(event.event_type, event.publisher_id) for event in announced[1:]] == [
        ("instance.exists", "nova-compute:host2"),
        ("instance.resize_revert.start", "nova-compute:host1"),
        ("instance.resize_revert.end", "nova-compute:host1"),
    ]
    after = acting.record(uuid)
    same = ("vm_state", "task_state", "power_state", "host", "node", "flavor", "flavor_id", "instance_type_id")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert acting.used() == {"host1": 1}


def test_deletion_of_a_resized_instance_confirms_first_and_gives_everything_back(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.do(uuid, "resize", flavor=BIGGER, flavor_number=2)
    announced = [event.event_type for event in acting.do(uuid, "delete")]
    assert announced[1:4] == [*pair("resize_confirm"), "instance.delete.start"]
    assert acting.record(uuid)["deleted"]
    assert acting.used() == {}
    mapping = acting.fleet.mapping_of(uuid)
    assert mapping is not None
    assert mapping.queued_for_delete


def test_resize_without_a_host_leaves_the_instance_as_it_was_with_a_fault(
    engine: Engine, fleet: Fleet, cell: Cell
) -> None:
    acting = ActingCell(engine, fleet, cell, hosts=["host1"])
    uuid = acting.instance(**STOPPED)
    announced = acting.do(uuid, "resize", flavor=BIGGER, flavor_number=2)
    assert announced[-1].event_type == "compute_task.migrate_server.error"
    assert acting.state(uuid) == ("stopped", None, 4)
    assert acting.record(uuid)["fault"]["code"] == 500
    assert acting.used() == {"host1": 1}


def test_evacuation_leaves_the_host_that_is_down(acting: ActingCell) -> None:
    uuid = acting.instance()
    service = acting.nodes.services()[0]
    acting.nodes.update_service(service.uuid, disabled=False, disabled_reason=None, forced_down=True)
    announced = [event.event_type for event in acting.do(uuid, "evacuate")]
    assert announced[:2] == ["instance.evacuate", SELECT[0]]
    assert announced[-1] == "instance.rebuild.end"
    assert acting.record(uuid)["host"] == "host2"
    assert acting.used() == {"host2": 1}


def force_down_first_host(acting: ActingCell) -> None:
    service = acting.nodes.services()[0]
    acting.nodes.update_service(service.uuid, disabled=False, disabled_reason=None, forced_down=True)


def test_evacuation_takes_the_place_of_a_rebuild_that_is_under_way(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.accept(uuid, "rebuild")
    force_down_first_host(acting)
    acting.accept(uuid, "evacuate")
    accepted = len(acting.events())
    acting.accept(uuid, "evacuate")  # changes nothing
    assert len(acting.events()) == accepted
    acting.work()
    assert acting.record(uuid)["host"] == "host2"


@pytest.mark.parametrize(("deletion", "vm_state"), [("delete", "deleted"), ("softDelete", "soft-delete")])
def test_evacuation_stops_no_deletion(acting: ActingCell, deletion: str, vm_state: str) -> None:
    uuid = acting.instance()
    force_down_first_host(acting)
    acting.accept(uuid, deletion)
    acting.accept(uuid, "evacuate")
    acting.work()
    assert acting.record(uuid)["vm_state"] == vm_state


def test_deletion_for_good_takes_the_place_of_a_soft_one(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.accept(uuid, "softDelete")
    acting.accept(uuid, "forceDelete")
    acting.work()
    assert acting.record(uuid)["deleted"]


@pytest.mark.parametrize("action", ["migrate", "os-migrateLive", "evacuate"])
def test_host_that_is_named_has_to_be_in_the_zone_that_the_server_is_pinned_to(acting: ActingCell, action: str) -> None:
    near, far = acting.nodes.services()
    acting.nodes.set_zone(near.uuid, "near")
    acting.nodes.set_zone(far.uuid, "far")
    uuid = acting.instance(availability_zone="near", pinned_availability_zone="near")
    if action == "evacuate":
        force_down_first_host(acting)
    acting.do(uuid, action, host="host2")
    assert acting.record(uuid)["host"] == "host1"
    assert "No valid host" in acting.record(uuid)["fault"]["message"]


@pytest.mark.parametrize("action", ["os-migrateLive", "evacuate"])
def test_forced_host_may_be_in_another_zone(acting: ActingCell, action: str) -> None:
    acting.nodes.set_zone(acting.nodes.services()[0].uuid, "near")
    uuid = acting.instance(availability_zone="near", pinned_availability_zone="near")
    force_down_first_host(acting)
    acting.do(uuid, action, host="host2", is_forced=True)
    assert acting.record(uuid)["host"] == "host2"


def test_moves_keep_to_the_policy_of_the_group(acting: ActingCell, fleet: Fleet) -> None:
    group = fleet.server_groups.create("apart", "anti-affinity", project_id="demo", user_id="ada")
    first = acting.instance(server_groups=[group.uuid])
    second = acting.instance(server_groups=[group.uuid], host="host2", node="host2.example.org")
    fleet.server_groups.add_members(group.uuid, [first, second], limit=2)
    acting.do(first, "migrate")
    assert "No valid host" in acting.record(first)["fault"]["message"]
    assert acting.used() == {"host1": 1, "host2": 1}
    fleet.server_groups.delete(group.uuid, project_id=None)
    acting.do(first, "migrate")
    assert acting.record(first)["host"] == "host2"


def test_deletion_gives_up_what_is_under_way(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.accept(uuid, "resize", flavor=BIGGER, flavor_number=2)
    for _ in range(4):
        acting.worker.run_once()
    assert acting.used() == {"host1": 1, "host2": 1}
    acting.accept(uuid, "delete")
    accepted = len(acting.events())
    acting.accept(uuid, "delete")  # changes nothing
    assert len(acting.events()) == accepted
    acting.work()
    assert acting.record(uuid)["deleted"]
    assert acting.used() == {}


def test_claim_of_an_action_that_is_given_up_is_given_back(acting: ActingCell) -> None:
    uuid = acting.instance(vm_state="shelved_offloaded", host=None, node=None)
    acting.accept(uuid, "unshelve")
    for _ in range(3):
        acting.worker.run_once()
    assert acting.used() == {"host1": 1}
    acting.acceptance.reset_state(uuid, "error", request=REQUEST)
    acting.work()
    assert acting.used() == {}
    assert acting.state(uuid)[:2] == ("error", None)


@pytest.mark.parametrize("under_way", [None, "confirmResize", "revertResize", "delete"])
@pytest.mark.parametrize("vm_state", ["active", "error"])
def test_resize_of_an_instance_that_is_reset_is_over(acting: ActingCell, under_way: str | None, vm_state: str) -> None:
    uuid = acting.instance()
    acting.do(uuid, "migrate")
    assert acting.used() == {"host1": 1, "host2": 1}
    if under_way is not None:
        acting.accept(uuid, under_way)
        acting.worker.run_once()
    acting.acceptance.reset_state(uuid, vm_state, request=REQUEST)
    acting.work()
    assert acting.state(uuid)[:2] == (vm_state, None)
    assert acting.used() == {"host2": 1}
    assert migration_statuses(acting) == ["error"]


@pytest.mark.parametrize("under_way", ["confirmResize", "revertResize"])
def test_end_of_a_resize_that_a_deletion_takes_the_place_of_is_given_up(acting: ActingCell, under_way: str) -> None:
    uuid = acting.instance()
    acting.do(uuid, "migrate")
    acting.accept(uuid, under_way)
    acting.do(uuid, "delete")
    assert acting.used() == {}
    assert migration_statuses(acting) == ["error"]


def test_migration_that_has_ended_is_not_given_up_with_what_is_left_to_do(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.do(uuid, "migrate")
    acting.accept(uuid, "delete")
    wait_for_status(acting, "confirmed")
    acting.acceptance.reset_state(uuid, "active", request=REQUEST)
    acting.work()
    assert migration_statuses(acting) == ["confirmed"]


def wait_for_status(acting: ActingCell, status: str) -> None:
    """Let the worker go on until a migration has this status."""
    while status not in migration_statuses(acting):
        assert acting.worker.run_once()


def migration_statuses(acting: ActingCell) -> list[str]:
    with acting.engine.connect() as connection:
        return list(connection.execute(select(migrations.c.status).order_by(migrations.c.id)).scalars())


def test_host_that_nobody_has_is_told_to_the_log_without_a_trace(acting: ActingCell) -> None:
    with capture_logs() as logs:
        acting.do(acting.instance(), "migrate", host="no-such")
    (failed,) = (entry for entry in logs if entry["event"] == "job.failed")
    assert ("No valid host" in failed["reason"], failed["exc_info"]) == (True, None)


def test_job_of_an_instance_that_somebody_else_deleted_does_nothing(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.accept(uuid, "os-stop")
    acting.operations.delete(uuid)
    announced = len(acting.events())
    acting.work()
    assert acting.record(uuid)["vm_state"] == "deleted"
    assert len(acting.events()) == announced


def test_instance_that_is_on_no_host_cannot_be_stopped(acting: ActingCell) -> None:
    uuid = acting.instance(host=None)
    with pytest.raises(InstanceNotReadyError):
        acting.accept(uuid, "os-stop")


def test_lock_and_unlock_are_announced_by_the_api(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.acceptance.lock(uuid, by="owner", reason="mine", request=REQUEST)
    acting.acceptance.lock(uuid, by="owner", reason="again", request=REQUEST)  # changes nothing
    with pytest.raises(InstanceLockedError):
        acting.accept(uuid, "os-stop")
    assert acting.record(uuid)["locked_reason"] == "mine"
    acting.acceptance.unlock(uuid, request=REQUEST)
    assert [(event.event_type, event.publisher_id) for event in acting.events()[1:]] == [
        ("instance.lock", "nova-api:one"),
        ("instance.unlock", "nova-api:one"),
    ]
