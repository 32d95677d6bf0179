import pytest

from fleetlight.resources.server_status import DEFAULT_STATUS, TASK_STATUS, states_of, status_of


@pytest.mark.parametrize(
    ("vm_state", "task_state", "deleted", "status"),
    [
        ("active", None, False, "ACTIVE"),
        ("active", "rebooting", False, "REBOOT"),
        ("active", "spawning", False, "ACTIVE"),
        ("stopped", "resize_prep", False, "RESIZE"),
        ("error", "rebuilding", False, "REBUILD"),
        ("soft-delete", None, False, "SOFT_DELETED"),
        ("active", None, True, "DELETED"),
        (None, None, False, "UNKNOWN"),
        ("strange", None, False, "UNKNOWN"),
    ],
)
def test_status_follows_from_the_states(
    vm_state: str | None, task_state: str | None, deleted: bool, status: str
) -> None:
    assert status_of(vm_state, task_state, deleted=deleted) == status


def test_default_status_selects_every_task() -> None:
    assert states_of(["active"]) == (frozenset({"active"}), None)


def test_status_of_a_task_selects_only_its_tasks() -> None:
    reboot = frozenset({"rebooting", "reboot_pending", "reboot_started"})
    assert states_of(["REBOOT"]) == (frozenset({"active"}), reboot)


def test_unknown_status_selects_no_state() -> None:
    vm_states, _ = states_of(["nonsense"])
    assert not vm_states


def test_every_shown_status_selects_the_states_it_is_shown_for() -> None:
    for vm_state in DEFAULT_STATUS:
        for task_state in (None, *TASK_STATUS.get(vm_state, {})):
            vm_states, task_states = states_of([status_of(vm_state, task_state, deleted=False)])
            assert vm_state in vm_states
            assert task_states is None or task_state in task_states
