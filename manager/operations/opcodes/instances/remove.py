"""OP_INSTANCE_REMOVE, by the steps of the compute API's deletion; a reservation only loses its row and claims."""

from typing import Annotated

from pydantic import Field

from fleetlight.manager.operations.actions.server_actions import ACTIONS
from fleetlight.manager.operations.actions.values import deleted
from fleetlight.manager.operations.instances.interface_addresses import give_up_interfaces
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task, only_if
from fleetlight.manager.operations.opcodes.building import instance_lock, operation
from fleetlight.manager.operations.opcodes.instances.checks import known_instance
from fleetlight.manager.operations.opcodes.instances.power import task_begins, task_ends
from fleetlight.manager.operations.opcodes.instances.reservation_expiries import clear_expiry
from fleetlight.manager.operations.opcodes.opcode import InstanceOpCode
from fleetlight.manager.operations.scheduling.allocations import release_except


class InstanceRemove(InstanceOpCode):
    """Remove an instance. shutdown_timeout: seconds."""

    OP_ID = "OP_INSTANCE_REMOVE"

    ignore_failures: bool = False
    shutdown_timeout: Annotated[int, Field(ge=0)] = 120


def _check(op: InstanceRemove, task: Task) -> None:
    record = known_instance(op, task)
    task.notes["was_forthcoming"] = record["forthcoming"]


def remove_reservation(task: Task, event_type: str = "reservation.delete.end") -> None:
    """Delete the reservation of a task, with its claims, addresses and expiry."""
    uuid = task.instance.uuid
    release_except(task.connection, uuid, None)
    give_up_interfaces(task.connection, uuid)
    clear_expiry(task.connection, uuid)
    task.instance.change(event_type, deleted(task), task.now, request=task.job.request)
    task.fleet.mark_queued_for_delete(task.cell.uuid, [uuid])


REMOVE: tuple[tuple[str, Operation], ...] = (
    operation(
        InstanceRemove,
        _check,
        Step(remove_reservation, lambda task: task.notes["was_forthcoming"]),
        *only_if(
            lambda task: not task.notes["was_forthcoming"],
            task_begins("deleting"),
            *ACTIONS["delete"].steps,
        ),
        locks=instance_lock,
        show_failure=task_ends,
    ),
)
