"""Starting, stopping and rebooting instances, by the steps of the actions that do so in the compute API."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from fleetlight.manager.operations.actions.server_actions import ACTIONS
from fleetlight.manager.operations.actions.steps import origin_of
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task, only_if
from fleetlight.manager.operations.opcodes.building import instance_lock, operation
from fleetlight.manager.operations.opcodes.instances.checks import check_node_online, check_state, real_instance
from fleetlight.manager.operations.opcodes.opcode import InstanceOpCode
from fleetlight.notifications.event_types import INSTANCE_UPDATE
from fleetlight.resources.power_states import RUNNING, SHUT_DOWN

_ON_ITS_NODE = frozenset({"active", "stopped", "error", "paused", "suspended", "rescued", "resized"})
_STARTABLE = frozenset({"active", "stopped", "error"})

Timeout = Annotated[int, Field(ge=0)]


class InstanceStartup(InstanceOpCode):
    """no_remember: whether the instance goes on to be wanted down, although it runs."""

    OP_ID = "OP_INSTANCE_STARTUP"

    force: bool = False
    ignore_offline_nodes: bool = False
    no_remember: bool = False


class InstanceShutdown(InstanceOpCode):
    """timeout: seconds. no_remember: whether the instance goes on to be wanted up, although it does not run."""

    OP_ID = "OP_INSTANCE_SHUTDOWN"

    force: bool = False
    ignore_offline_nodes: bool = False
    timeout: Timeout = 120
    no_remember: bool = False
    admin_state_source: Literal["admin", "user"] | None = None


class InstanceReboot(InstanceOpCode):
    OP_ID = "OP_INSTANCE_REBOOT"

    reboot_type: Literal["soft", "hard", "full"] = "hard"
    ignore_secondaries: bool = False
    shutdown_timeout: Timeout = 120


def task_begins(task_state: str) -> Step:
    """The compute API refuses what would come between from here on."""
    return Step(lambda task: _set(task, {"task_state": task_state}))


def task_ends(task: Task, _error: Exception) -> None:
    """Nothing is under way any more: the failure of an operation shows in its job, and in the instance as it is."""
    _set(task, {"task_state": None})


def _set(task: Task, values: dict[str, Any]) -> None:
    task.instance.change(INSTANCE_UPDATE, values, task.now, request=task.job.request)


def _remembering(opcode: type[InstanceStartup | InstanceShutdown], name: str) -> tuple[Step, ...]:
    """The steps of an action; the last one leaves what is wanted of the instance if it is not to be remembered."""
    *before, last = ACTIONS[name].steps

    def run(task: Task) -> None:
        wanted = task.record["vm_state"]
        last.run(task)
        if opcode.read(task.parameters).no_remember:
            _set(task, {"vm_state": wanted})
        if opcode is InstanceStartup and task.record["launched_at"] is None:
            # It was made without being started: usage counts from its launch on.
            _set(task, {"launched_at": task.now})

    return (*before, replace(last, run=run))


def _check_startup(op: InstanceStartup, task: Task) -> None:
    record = real_instance(op, task)
    check_state(op, record, _STARTABLE, "be started")
    if not op.ignore_offline_nodes:
        check_node_online(task, record["node"])


def _check_shutdown(op: InstanceShutdown, task: Task) -> None:
    record = real_instance(op, task)
    # What should not run is stopped by force alone, and stays offline.
    check_state(op, record, _ON_ITS_NODE, "be shut down", may_be_offline=op.force)
    if not op.ignore_offline_nodes:
        check_node_online(task, record["node"])


def _check_reboot(op: InstanceReboot, task: Task) -> None:
    record = real_instance(op, task)
    check_state(op, record, _ON_ITS_NODE, "be rebooted")
    check_node_online(task, record["node"])


def _is_off(task: Task) -> bool:
    origin = origin_of(task)
    return (origin["power_state"], origin["vm_state"]) != (RUNNING, "active")


def _is_on(task: Task) -> bool:
    origin = origin_of(task)
    return (origin["power_state"], origin["vm_state"]) != (SHUT_DOWN, "stopped")


POWER: tuple[tuple[str, Operation], ...] = (
    operation(
        InstanceStartup,
        _check_startup,
        *only_if(_is_off, task_begins("powering-on"), *_remembering(InstanceStartup, "os-start")),
        locks=instance_lock,
        show_failure=task_ends,
    ),
    operation(
        InstanceShutdown,
        _check_shutdown,
        *only_if(_is_on, task_begins("powering-off"), *_remembering(InstanceShutdown, "os-stop")),
        locks=instance_lock,
        show_failure=task_ends,
    ),
    operation(
        InstanceReboot,
        _check_reboot,
        task_begins("rebooting_hard"),
        *ACTIONS["reboot HARD"].steps,
        locks=instance_lock,
        show_failure=task_ends,
    ),
)
