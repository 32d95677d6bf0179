"""Undoing of failed calls: removes their remains from nodes before a job goes on elsewhere, or ends.

The undoing is a step of its own after all others. Once it is recorded, the failed step is not called any more, so a
killed worker repeats only the undoing (docs/decisions/0022).
"""

from fleetlight.manager.operations.jobs.errors import JobError, NodeCallError
from fleetlight.manager.operations.jobs.vocabulary import MakeCall, Step, Task

_FAILED = "failed"
"""The note of the failure, until it is undone."""


class UndoneError(JobError):
    """The failed step is undone; `settled` returns the failure."""


def undoing(call: MakeCall) -> Step:
    """Make the last step of an operation, which calls the node that must undo the failure of `begin_undoing`."""
    return Step(_undone, is_undoing, call)


def is_undoing(task: Task) -> bool:
    return _FAILED in task.notes


def begin_undoing(task: Task, error: NodeCallError, place: int) -> None:
    """Note that the step at `place` has failed with `error`."""
    task.notes[_FAILED] = {
        "place": place,
        "host": error.host,
        "call": error.call,
        "reason": error.reason,
    }


def settled(task: Task, error: Exception) -> tuple[NodeCallError, int]:
    """Return the original failure and its place, after the undoing has ended with `error`.

    The failure is certain if nothing remains of it, and needs no undoing any more.
    """
    failed = task.notes.pop(_FAILED)
    reason, is_certain = failed["reason"], isinstance(error, UndoneError)
    if not is_certain:
        reason = f"{reason}; what that may have left could not be undone: {error}"
    return NodeCallError(failed["host"], failed["call"], reason, is_certain=is_certain), failed["place"]


def _undone(_task: Task) -> None:
    raise UndoneError
