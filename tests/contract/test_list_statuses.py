"""The status of a server, and the `status` filter, by every way of answering (contracts/nova-servers, section 8)."""

import pytest

from tests.contract.answering import Asked
from tests.contract.compute_fleet import CELLS, MEMBER, ComputeFleet, microversion

pytestmark = pytest.mark.no_rerun

LATEST = microversion("2.104")
ALL = "deleted=false&soft_deleted=1"  # soft-deleted servers are not listed otherwise
RESIZES = ("resize_prep", "resize_migrating", "resize_migrated", "resize_finish")
REBUILDS = ("rebuilding", "rebuild_block_device_mapping", "rebuild_spawning")

# Section 8.1: the status of each state without a task, and those of tasks that show.
STATUSES: dict[tuple[str | None, str | None], str] = {
    ("active", None): "ACTIVE",
    ("building", None): "BUILD",
    ("stopped", None): "SHUTOFF",
    ("resized", None): "VERIFY_RESIZE",
    ("paused", None): "PAUSED",
    ("suspended", None): "SUSPENDED",
    ("rescued", None): "RESCUE",
    ("error", None): "ERROR",
    ("deleted", None): "DELETED",
    ("soft-delete", None): "SOFT_DELETED",
    ("shelved", None): "SHELVED",
    ("shelved_offloaded", None): "SHELVED_OFFLOADED",
    (None, None): "UNKNOWN",
    **{("active", task): "REBOOT" for task in ("rebooting", "reboot_pending", "reboot_started")},
    **{("active", f"{task}_hard"): "HARD_REBOOT" for task in ("rebooting", "reboot_pending", "reboot_started")},
    ("active", "updating_password"): "PASSWORD",
    **{(state, task): "REBUILD" for state in ("active", "stopped", "error") for task in REBUILDS},
    **{(state, "migrating"): "MIGRATING" for state in ("active", "paused")},
    **{(state, task): "RESIZE" for state in ("active", "stopped") for task in RESIZES},
    ("resized", "resize_reverting"): "REVERT_RESIZE",
    # Tasks that do not show.
    ("resized", "resize_confirming"): "VERIFY_RESIZE",
    ("active", "deleting"): "ACTIVE",
    ("active", "image_snapshot"): "ACTIVE",
    ("stopped", "powering-on"): "SHUTOFF",
    ("stopped", "migrating"): "SHUTOFF",
    ("paused", "rebuilding"): "PAUSED",
    ("error", "resize_prep"): "ERROR",
    ("building", "spawning"): "BUILD",
    (None, "rebuilding"): "UNKNOWN",
}
NAMES = {states: "/".join(map(str, states)) for states in STATUSES}
PROGRESS = {"ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"}


def fill(fleet: ComputeFleet) -> None:
    for number, (vm_state, task_state) in enumerate(STATUSES):
        name = NAMES[vm_state, task_state]
        fleet.create(CELLS[number % 3], display_name=name, vm_state=vm_state, task_state=task_state)


def named(*pairs: tuple[tuple[str, ...], tuple[str, ...] | None]) -> set[str]:
    """The servers with one of the states and one of the tasks, any task when there are none."""
    return {
        name
        for (vm_state, task_state), name in NAMES.items()
        for states, tasks in pairs
        if vm_state in states and (tasks is None or task_state in tasks)
    }


def test_status_follows_from_the_states(asked: Asked) -> None:
    shown = {server["name"]: server for server in asked.page(ALL, LATEST)}
    assert {name: server["status"] for name, server in shown.items()} == {
        NAMES[states]: status for states, status in STATUSES.items()
    }
    for states, name in NAMES.items():
        server = shown[name]
        assert (server["OS-EXT-STS:vm_state"], server["OS-EXT-STS:task_state"]) == states
        assert ("progress" in server) == (server["status"] in PROGRESS)


# Section 8.2.
@pytest.mark.parametrize(
    ("statuses", "states", "tasks"),
    [
        ("ACTIVE", ("active",), None),
        ("active", ("active",), None),
        ("AcTiVe", ("active",), None),
        ("BUILD", ("building",), None),
        ("SHUTOFF", ("stopped",), None),
        ("VERIFY_RESIZE", ("resized",), None),
        ("PAUSED", ("paused",), None),
        ("SUSPENDED", ("suspended",), None),
        ("RESCUE", ("rescued",), None),
        ("ERROR", ("error",), None),
        ("SOFT_DELETED", ("soft-delete",), None),
        ("SHELVED", ("shelved",), None),
        ("SHELVED_OFFLOADED", ("shelved_offloaded",), None),
        ("REBOOT", ("active",), ("rebooting", "reboot_pending", "reboot_started")),
        ("HARD_REBOOT", ("active",), ("rebooting_hard", "reboot_pending_hard", "reboot_started_hard")),
        ("PASSWORD", ("active",), ("updating_password",)),
        ("RESIZE", ("active", "stopped"), RESIZES),
        ("REBUILD", ("active", "stopped", "error"), REBUILDS),
        ("MIGRATING", ("active", "paused"), ("migrating",)),
        ("REVERT_RESIZE", ("resized",), ("resize_reverting",)),
        # Of several, the states and the tasks are united, each by itself.
        ("REBOOT MIGRATING", ("active", "paused"), ("rebooting", "reboot_pending", "reboot_started", "migrating")),
        ("RESIZE REBUILD", ("active", "stopped", "error"), RESIZES + REBUILDS),
        # One that stands for a state lets every task through.
        ("SHUTOFF REBOOT", ("stopped", "active"), None),
        ("PAUSED nonsense", ("paused",), None),
        ("reboot UNKNOWN", ("active",), ("rebooting", "reboot_pending", "reboot_started")),
    ],
)
@pytest.mark.parametrize("role", ["admin", "member"])
def test_status_filter_selects_states_and_tasks(
    asked: Asked, statuses: str, states: tuple[str, ...], tasks: tuple[str, ...] | None, role: str
) -> None:
    query = "&".join(f"status={status}" for status in statuses.split())
    if role == "admin":
        query += f"&{ALL}"
    elif "soft-delete" in states:
        query += "&changes-since=1970"
        states = ()  # they never changed
    assert set(asked.names(query, LATEST, {"X-Roles": role})) == named((states, tasks))


@pytest.mark.parametrize(
    "query", ["foo", "UNKNOWN", "", "%20active", "active%0A", "foo&status=bar", "soft-delete", "active,error"]
)
def test_no_valid_status_is_an_error_from_2_38_and_finds_nothing_before(asked: Asked, query: str) -> None:
    for path in ("servers", "servers/detail"):
        for headers in ({}, MEMBER):
            before = asked.get(f"/v2.1/{path}?status={query}", microversion("2.37"), headers)
            assert (before.status_code, before.json()) == (200, {"servers": []})
            since = asked.get(f"/v2.1/{path}?status={query}", microversion("2.38"), headers)
            assert since.status_code == 400
            assert set(since.json()) == {"badRequest"}


@pytest.mark.parametrize("status", ["UNKNOWN", "", "nonsense"])
def test_status_that_is_none_is_judged_before_the_rest_of_the_request(asked: Asked, status: str) -> None:
    for rest, headers in (
        ("marker=70a599e0-31e7-49b7-b260-868f441e862b", {}),
        ("all_tenants=1", MEMBER),
        ("sort_key=host", MEMBER),
        ("sort_dir=up", {}),
        ("changes-since=2026-01-02&changes-before=2026-01-01", {}),
    ):
        url = f"/v2.1/servers?status={status}&{rest}"
        if "before" not in rest:
            old = asked.get(url, microversion("2.37"), headers)
            assert (old.status_code, old.json()) == (200, {"servers": []}), rest
        new = asked.get(url, microversion("2.66"), headers)
        assert (new.status_code, new.json()["badRequest"]["message"]) == (400, "Invalid status value"), rest
    for rest in ("sort_key=nonsense", "limit=x"):
        assert asked.get(f"/v2.1/servers?status={status}&{rest}", microversion("2.37")).status_code == 400, rest
