"""Construction of jobs' operations from Ganeti's: a check, and steps behind it, each of which is a transaction.

The check changes nothing, and raises PrerequisiteError if the operation cannot begin. A trial run is the check alone.
Steps read the operation from the parameters of their task.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from fleetlight.manager.operations.actions.host_parameters import host_call, with_copies
from fleetlight.manager.operations.jobs.errors import JobError, NodeCallError
from fleetlight.manager.operations.jobs.model import Lock
from fleetlight.manager.operations.jobs.undoing import begin_undoing, is_undoing, settled, undoing
from fleetlight.manager.operations.jobs.vocabulary import MakeCall, Operation, Step, Task, only_if
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.notifications.event_types import INSTANCE_UPDATE
from fleetlight.resources.fields import Record

Op = TypeVar("Op", bound=OpCode)


class InstanceLostError(JobError):
    """The instance was deleted during the operation."""

    def __init__(self, uuid: str) -> None:
        super().__init__(f"instance {uuid} was deleted meanwhile")


def no_locks(_op: OpCode, _instance_uuid: str | None) -> Collection[Lock]:
    """Return the locks of an operation that needs none."""
    return ()


def instance_lock(_op: object, instance_uuid: str | None) -> Collection[Lock]:
    """Return the instance's lock, which actions of the compute API take, too."""
    return () if instance_uuid is None else (Lock("instance", instance_uuid),)


def event_of_update(record: Record) -> str:
    """Return the event type of a change of an instance; reservations have one of their own, as they are no servers."""
    return "reservation.update" if record["forthcoming"] else INSTANCE_UPDATE


def host_step(
    name: str,
    applies: Callable[[Task], bool] = lambda _task: True,
    parameters: Callable[[Task], Mapping[str, Any]] = lambda _task: {},
) -> Step:
    """Return a step that calls the host of an instance; it is skipped for a reservation, and without a host.

    parameters: returns the parameters of the call beside the instance.
    """

    def is_needed(task: Task) -> bool:
        record = task.record
        return record["host"] is not None and not record["forthcoming"] and applies(task)

    return Step(lambda _task: None, is_needed, host_call(name, lambda task: {**with_copies(task), **parameters(task)}))


def operation(
    opcode: type[Op],
    check: Callable[[Op, Task], None],
    *steps: Step,
    locks: Callable[[Op, str | None], Collection[Lock]] = no_locks,
    undo: MakeCall | None = None,
    show_failure: Callable[[Task, Exception], None] = lambda _task, _error: None,
) -> tuple[str, Operation]:
    """Return an entry of a vocabulary.

    check: the first step; raises PrerequisiteError, and may set the result of the job.
    undo: makes a call that removes from nodes what a failed call left there.
    show_failure: shows an error of a later step in the instance, if that still exists.
    """

    def read(task: Task) -> Op:
        return opcode.read(task.parameters)

    def is_in_earnest(task: Task) -> bool:
        return not read(task).dry_run

    def show(task: Task, error: Exception) -> None:
        # Step 0 is the check.
        if task.job.next_step > 0 and not isinstance(error, InstanceLostError):
            show_failure(task, error)

    def wanted(parameters: Mapping[str, Any], instance_uuid: str | None) -> Collection[Lock]:
        return locks(opcode.read(parameters), instance_uuid)

    def recover(task: Task, error: Exception) -> int:
        if is_undoing(task):
            raise settled(task, error)[0]
        if undo is None or not isinstance(error, NodeCallError) or not error.needs_undo:
            raise error
        begin_undoing(task, error, task.job.next_step)
        return 1 + len(steps)

    first = Step(lambda task: check(read(task), task))
    others = only_if(is_in_earnest, *(replace(step, run=partial(_run_unless_lost, step.run)) for step in steps))
    last = () if undo is None else (undoing(undo),)
    return opcode.OP_ID, Operation((first, *others, *last), wanted, show_failure=show, recover=recover)


def _run_unless_lost(run: Callable[[Task], None], task: Task) -> None:
    if task.about is not None and task.record["deleted"]:
        raise InstanceLostError(task.instance.uuid)
    run(task)
