"""Operations that start, stop and reboot instances, by the steps of the compute API's actions."""

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
    """Start an instance. no_remember: whether its wanted state stays down, although it runs."""

    OP_ID = "OP_INSTANCE_STARTUP"

    force: bool = False
    ignore_offline_nodes: bool = False
    no_remember: bool = False


class InstanceShutdown(InstanceOpCode):
    """Stop an instance. timeout: seconds. no_remember: whether its wanted state stays up, although it is down."""

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
    """Return a step that sets the task state, so that the compute API refuses conflicting actions from then on."""
    return Step(lambda task: _set(task, {"task_state": task_state}))


def task_ends(task: Task, _error: Exception) -> None:
    """Clear the task state of the instance after a failure, which the job shows."""
    _set(task, {"task_state": None})


def _set(task: Task, values: dict[str, Any]) -> None:
    task.instance.change(INSTANCE_UPDATE, values, task.now, request=task.job.request)


def _remembering(opcode: type[InstanceStartup | InstanceShutdown], name: str) -> tuple[Step, ...]:
    """Return the steps of an action; the last one keeps the wanted state if the operation says `no_remember`."""
    *before, last = ACTIONS[name].steps

    def run(task: Task) -> None:
        wanted = task.record["vm_state"]
        last.run(task)
        if opcode.read(task.parameters).no_remember:
            _set(task, {"vm_state": wanted})
        if opcode is InstanceStartup and task.record["launched_at"] is None:
            # Usage counts from the first start of an instance that was created without one.
            _set(task, {"launched_at": task.now})

    return (*before, replace(last, run=run))


def _check_startup(op: InstanceStartup, task: Task) -> None:
    record = real_instance(op, task)
    check_state(op, record, _STARTABLE, "be started")
    if not op.ignore_offline_nodes:
        check_node_online(task, record["node"])


def _check_shutdown(op: InstanceShutdown, task: Task) -> None:
    record = real_instance(op, task)
    # Force alone stops an instance that is marked offline, and leaves the mark.
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
