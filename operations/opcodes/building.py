"""Construction of jobs' operations from Ganeti's: a check, and steps behind it, each of which is a transaction.

What keeps an operation from beginning is a PrerequisiteError of the check, which changes nothing. A trial run is the
check alone.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fleetlight.notifications.event_types import INSTANCE_UPDATE
from fleetlight.operations.actions import vocabulary as actions
from fleetlight.operations.actions.host_parameters import guest_of, with_copies
from fleetlight.operations.actions.steps import ActionStep
from fleetlight.operations.jobs.errors import JobError, NodeCallError
from fleetlight.operations.jobs.model import Lock
from fleetlight.operations.jobs.nodes import NodeCall
from fleetlight.operations.jobs.undoing import begin_undoing, is_undoing, settled, undoing
from fleetlight.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.operations.opcodes.opcode import OpCode
from fleetlight.resources.fields import Record

Op = TypeVar("Op", bound=OpCode)


class InstanceLostError(JobError):
    """The instance was deleted while the operation was carried out on it."""

    def __init__(self, uuid: str) -> None:
        super().__init__(f"instance {uuid} was deleted meanwhile")


def _always(_op: OpCode, _task: Task) -> bool:
    return True


def no_locks(_op: OpCode, _instance_uuid: str | None) -> Collection[Lock]:
    return ()


def instance_lock(_op: OpCode, instance_uuid: str | None) -> Collection[Lock]:
    """The same lock as for an action of the compute API, so that neither changes what the other is changing."""
    return () if instance_uuid is None else (Lock("instance", instance_uuid),)


def event_of_update(record: Record) -> str:
    """The event of a change of an instance: what follows servers alone gets nothing of reservations."""
    return "reservation.update" if record["forthcoming"] else INSTANCE_UPDATE


def _show_nothing(_op: OpCode, _task: Task, _error: Exception) -> None:
    """For operations whose failure shows in their job alone."""


@dataclass(frozen=True, slots=True)
class OpStep(Generic[Op]):
    """One transaction of an operation; the rest is as of fleetlight.operations.jobs.vocabulary.Step."""

    run: Callable[[Op, Task], None]
    applies: Callable[[Op, Task], bool] = _always
    call: Callable[[Op, Task], NodeCall | None] | None = None


def host_step(
    name: str,
    applies: Callable[[Op, Task], bool] = _always,
    parameters: Callable[[Op, Task], Mapping[str, Any]] = lambda _op, _task: {},
    *,
    run: Callable[[Op, Task], None] = lambda _op, _task: None,
) -> OpStep[Op]:
    """A step that calls the host of a real instance for something, if it is on one.

    parameters: what the host gets beside the instance. run: what the cell notes then.
    """

    def is_needed(op: Op, task: Task) -> bool:
        record = task.record
        return record["host"] is not None and not record["forthcoming"] and applies(op, task)

    def call(op: Op, task: Task) -> NodeCall:
        about = {"instance_uuid": task.instance.uuid, "guest": guest_of(task.record), **with_copies(task)}
        return NodeCall(task.record["host"], name, {**about, **parameters(op, task)})

    return OpStep(run, is_needed, call)


def as_steps(steps: Collection[ActionStep]) -> tuple[OpStep[Any], ...]:
    """Steps of an action of servers as steps of an operation on an instance: both change it, and announce it, alike."""
    return tuple(_as_step(step) for step in steps)


def only_if(applies: Callable[[Any, Task], bool], *steps: OpStep[Any]) -> tuple[OpStep[Any], ...]:
    """Steps that are passed over unless the condition holds too."""
    return tuple(_only_if(applies, step) for step in steps)


def _only_if(applies: Callable[[Any, Task], bool], step: OpStep[Any]) -> OpStep[Any]:
    return OpStep(step.run, lambda op, task: applies(op, task) and step.applies(op, task), step.call)


def _as_step(step: ActionStep) -> OpStep[Any]:
    call = step.call
    return OpStep(
        lambda _op, task: actions.run_step(step, task),
        lambda _op, task: step.applies(task),
        None if call is None else lambda _op, task: actions.call_of(step, call, task),
    )


def operation(
    opcode: type[Op],
    check: Callable[[Op, Task], None],
    *steps: OpStep[Op],
    locks: Callable[[Op, str | None], Collection[Lock]] = no_locks,
    undo: Callable[[Op, Task], NodeCall | None] | None = None,
    show_failure: Callable[[Op, Task, Exception], None] = _show_nothing,
) -> tuple[str, Operation]:
    """An entry of a vocabulary.

    check: raises PrerequisiteError; what it finds out for the caller it puts into the result of the job.
    undo: what takes from nodes what a call that failed has left there.
    show_failure: what an error behind the check changes, of an instance that is there still.
    """

    def read(task: Task) -> Op:
        return opcode.read(task.parameters)

    def to_step(step: OpStep[Op]) -> Step:
        call = step.call

        def run(task: Task) -> None:
            if task.about is not None and task.record["deleted"]:
                raise InstanceLostError(task.instance.uuid)
            step.run(read(task), task)

        return Step(
            run,
            lambda task: not (op := read(task)).dry_run and step.applies(op, task),
            None if call is None else lambda task: call(read(task), task),
        )

    def show(task: Task, error: Exception) -> None:
        # The first step is the check.
        if task.job.next_step > 0 and not isinstance(error, InstanceLostError):
            show_failure(read(task), task, error)

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
    last = () if undo is None else (undoing(lambda task: undo(read(task), task)),)
    return opcode.OP_ID, Operation((first, *map(to_step, steps), *last), wanted, show_failure=show, recover=recover)
