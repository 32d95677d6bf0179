"""What a call has left on nodes when it failed is undone before its job goes on elsewhere, or ends.

The undoing is a step of its own behind all others: from the moment at which it is recorded, nothing of what failed is
asked for any more, so that a worker that is killed repeats the undoing and nothing else (docs/decisions/0022).
"""

from fleetlight.manager.operations.jobs.errors import JobError, NodeCallError
from fleetlight.manager.operations.jobs.vocabulary import MakeCall, Step, Task

_FAILED = "failed"
"""The note of what has failed, as long as it is not undone."""


class UndoneError(JobError):
    """What had failed is undone; what that was, `settled` says."""


def undoing(call: MakeCall) -> Step:
    """The last step of an operation, which calls the node that has to undo what `begin_undoing` was given."""
    return Step(_undone, is_undoing, call)


def is_undoing(task: Task) -> bool:
    return _FAILED in task.notes


def begin_undoing(task: Task, error: NodeCallError, place: int) -> None:
    """Remember that the step at `place` has failed with `error`."""
    task.notes[_FAILED] = {
        "place": place,
        "host": error.host,
        "call": error.call,
        "reason": error.reason,
    }


def settled(task: Task, error: Exception) -> tuple[NodeCallError, int]:
    """What failed in the first place, and at which place, when the undoing has ended with `error`.

    It is certain if nothing is left of it, and needs no undoing any more.
    """
    failed = task.notes.pop(_FAILED)
    reason, is_certain = failed["reason"], isinstance(error, UndoneError)
    if not is_certain:
        reason = f"{reason}; what that may have left could not be undone: {error}"
    return NodeCallError(failed["host"], failed["call"], reason, is_certain=is_certain), failed["place"]


def _undone(_task: Task) -> None:
    raise UndoneError
