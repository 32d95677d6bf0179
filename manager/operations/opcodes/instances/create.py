"""OP_INSTANCE_CREATE: create or reserve an instance, or make a reservation real (contracts/ganeti-reservations, 3).

One transaction takes the name, the addresses and the claims, so of two operations that want the same, one fails.
It completes a reservation. A host builds a real instance; if that fails, the operation removes the instance again.
"""

from collections.abc import Mapping
from typing import Any

from fleetlight.manager.operations.actions.host_parameters import destination_host, host_call, with_copies
from fleetlight.manager.operations.actions.values import deleted
from fleetlight.manager.operations.instances.interface_addresses import give_up_interfaces
from fleetlight.manager.operations.jobs.errors import NodeCallError, text_for_callers
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.manager.operations.opcodes.building import instance_lock, operation
from fleetlight.manager.operations.opcodes.instances.add_instance import add_instance
from fleetlight.manager.operations.opcodes.instances.commit import commit_reservation, reserve_again
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate, check_input
from fleetlight.manager.operations.opcodes.instances.reservation_expiries import clear_expiry
from fleetlight.manager.operations.scheduling.allocations import release_except
from fleetlight.notifications.event_types import INSTANCE_CREATE_END, INSTANCE_DELETE_END, INSTANCE_UPDATE
from fleetlight.resources.power_states import RUNNING, SHUT_DOWN


def _create(op: InstanceCreate, task: Task) -> None:
    """Create the instance; the result is the uuid of a reservation, or the names of an instance's nodes."""
    if not op.dry_run:
        _make(op, task)
        return
    attempt = task.connection.begin_nested()
    try:
        _make(op, task)
    finally:
        attempt.rollback()


def _make(op: InstanceCreate, task: Task) -> None:
    check_input(op)
    places = commit_reservation(op, task) if op.commit else add_instance(op, task, task.job.instance_uuid)
    if op.forthcoming:
        task.job.result = task.job.instance_uuid
    elif places is not None:
        task.job.result = places.names
        task.notes["destination"] = {
            "host": places.primary.host,
            "node": places.primary.name,
            "availability_zone": places.primary.zone,
        }


def _new_guest(task: Task) -> Mapping[str, Any]:
    return {**with_copies(task), "start": _starts(InstanceCreate.read(task.parameters))}


def _built(task: Task) -> None:
    """Show the built instance; only now clear the expiry of its reservation, which a failure would have restored."""
    op = InstanceCreate.read(task.parameters)
    if op.commit:
        clear_expiry(task.connection, task.instance.uuid)
    state = (
        {"vm_state": "active", "power_state": RUNNING}
        if _starts(op)
        else {"vm_state": "stopped", "power_state": SHUT_DOWN}
    )
    task.instance.change(
        INSTANCE_CREATE_END,
        {
            **state,
            "task_state": None,
            "launched_at": task.now if _starts(op) else None,
            "launched_on": task.record["host"] if _starts(op) else None,
        },
        task.now,
        request=task.job.request,
    )


def _starts(op: InstanceCreate) -> bool:
    return op.start and not op.no_install


def _give_up(task: Task, error: Exception) -> None:
    """Remove an instance that could not be built with its claims, or turn it back into its reservation.

    If the outcome of the host's call is unknown, the instance stays, in the state `error`.
    """
    if isinstance(error, NodeCallError) and not error.is_certain:
        task.instance.change(
            INSTANCE_UPDATE, {"vm_state": "error", "task_state": None}, task.now, request=task.job.request
        )
        return
    if InstanceCreate.read(task.parameters).commit:
        reserve_again(task)
        return
    release_except(task.connection, task.instance.uuid, None)
    give_up_interfaces(task.connection, task.instance.uuid)
    task.instance.change(INSTANCE_DELETE_END, deleted(task), task.now, request=task.job.request)
    task.fleet.mark_queued_for_delete(task.cell.uuid, [task.instance.uuid])
    task.log(f"the instance was removed: {text_for_callers(error)}")


CREATE: tuple[tuple[str, Operation], ...] = (
    operation(
        InstanceCreate,
        _create,
        Step(
            _built,
            lambda task: not InstanceCreate.read(task.parameters).forthcoming,
            host_call("create", _new_guest, destination_host),
        ),
        locks=instance_lock,
        undo=host_call("undo_create", with_copies, destination_host),
        show_failure=_give_up,
    ),
)
