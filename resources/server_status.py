"""The status of a server, derived from its states (contracts/nova-servers, section 8).

One table serves both directions: rendering a status, and turning a `status` filter into filters on the states.
"""

from collections.abc import Collection

_RESIZE = ("resize_prep", "resize_migrating", "resize_migrated", "resize_finish")
_REBUILD = ("rebuilding", "rebuild_block_device_mapping", "rebuild_spawning")

DELETED = "DELETED"
UNKNOWN = "UNKNOWN"
DEFAULT_STATUS = {
    "active": "ACTIVE",
    "building": "BUILD",
    "stopped": "SHUTOFF",
    "resized": "VERIFY_RESIZE",
    "paused": "PAUSED",
    "suspended": "SUSPENDED",
    "rescued": "RESCUE",
    "error": "ERROR",
    "deleted": DELETED,
    "soft-delete": "SOFT_DELETED",
    "shelved": "SHELVED",
    "shelved_offloaded": "SHELVED_OFFLOADED",
}
TASK_STATUS: dict[str, dict[str, str]] = {
    "active": {
        **dict.fromkeys(("rebooting", "reboot_pending", "reboot_started"), "REBOOT"),
        **dict.fromkeys(("rebooting_hard", "reboot_pending_hard", "reboot_started_hard"), "HARD_REBOOT"),
        "updating_password": "PASSWORD",
        **dict.fromkeys(_REBUILD, "REBUILD"),
        "migrating": "MIGRATING",
        **dict.fromkeys(_RESIZE, "RESIZE"),
    },
    "stopped": {**dict.fromkeys(_RESIZE, "RESIZE"), **dict.fromkeys(_REBUILD, "REBUILD")},
    "resized": {"resize_reverting": "REVERT_RESIZE"},
    "paused": {"migrating": "MIGRATING"},
    "error": dict.fromkeys(_REBUILD, "REBUILD"),
}
# Statuses that show a progress (contracts/nova-servers, section 7.3).
WITH_PROGRESS = frozenset({"ACTIVE", "BUILD", "REBUILD", "RESIZE", "VERIFY_RESIZE", "MIGRATING"})
WITH_FAULT = frozenset({"ERROR", DELETED})


def status_of(vm_state: str | None, task_state: str | None, *, deleted: bool) -> str:
    """The status for these states; UNKNOWN if the table does not have them."""
    if deleted:
        return DELETED
    if vm_state is None:
        return UNKNOWN
    special = TASK_STATUS.get(vm_state, {}).get(task_state or "")
    return special or DEFAULT_STATUS.get(vm_state, UNKNOWN)


def states_of(statuses: Collection[str]) -> tuple[frozenset[str], frozenset[str] | None]:
    """The vm_states and task_states that a `status` filter selects, names compared ignoring case.

    The task_states are None when any task will do, which is so as soon as one status is the default of its vm_state
    (section 8.2): `ACTIVE` therefore also finds servers shown as REBOOT. No vm_state at all: no name was valid.
    """
    wanted = {status.upper() for status in statuses}
    vm_states = {state for state, status in DEFAULT_STATUS.items() if status in wanted}
    any_task = bool(vm_states)
    task_states: set[str] = set()
    for vm_state, tasks in TASK_STATUS.items():
        matching = {task for task, status in tasks.items() if status in wanted}
        if matching:
            vm_states.add(vm_state)
            task_states |= matching
    return frozenset(vm_states), None if any_task else frozenset(task_states)
