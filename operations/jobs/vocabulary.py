"""What a vocabulary is made of: the operations that jobs may consist of, by name (docs/decisions/0110).

The engine knows none of them. One for the actions of servers is operations.actions.vocabulary.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from cells.errors import InstanceNotFoundError
from cells.fleet.fleet import Fleet
from cells.kinds.native.locked_instance import LockedInstance
from cells.model import Cell
from operations.jobs.log import add_entry
from operations.jobs.model import Job, Lock
from operations.jobs.nodes import NodeCall
from resources.fields import Record


@dataclass(frozen=True, slots=True)
class Task:
    """A step that runs: its job, and the instance that this is about, both locked.

    now: microseconds since the epoch. about: None of an operation about no instance, or about one that is not there.
    answer: of the node that the step has called.
    """

    job: Job
    connection: Connection
    cell: Cell
    fleet: Fleet
    now: int
    about: LockedInstance | None = None
    answer: Any = None

    @property
    def instance(self) -> LockedInstance:
        """Raises InstanceNotFoundError."""
        if self.about is None:
            raise InstanceNotFoundError(self.job.instance_uuid or "")
        return self.about

    @property
    def record(self) -> Record:
        return self.instance.record

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.job.parameters

    @property
    def notes(self) -> dict[str, Any]:
        return self.job.notes

    def log(self, text: str) -> None:
        """Add to the log of the job."""
        add_entry(self.connection, self.job.id, self.job.position, self.now, text)


def _always(_task: Task) -> bool:
    return True


def _never(_task: Task) -> bool:
    return False


def _show_nothing(_task: Task, _error: Exception) -> None:
    """For operations whose failure shows in their job alone."""


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction of an operation.

    applies: whether the step is needed; otherwise it is passed over. call: what is asked of a node before the
        transaction; it sees the instance without a lock.
    """

    run: Callable[[Task], None]
    applies: Callable[[Task], bool] = _always
    call: Callable[[Task], NodeCall] | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """An entry of a vocabulary.

    locks: what it needs from its first step to its last, by its parameters and the uuid of its instance.
    is_over: whether no step is needed any more. show_failure: what an error changes, in the transaction that ends the
        job; a job that is canceled ends with JobCanceledError here.
    """

    steps: tuple[Step, ...]
    locks: Callable[[Mapping[str, Any], str | None], Collection[Lock]]
    is_over: Callable[[Task], bool] = _never
    show_failure: Callable[[Task, Exception], None] = _show_nothing

    def next_step(self, task: Task) -> int | None:
        """The number of the step that comes next; None: of none."""
        if self.is_over(task):
            return None
        left = range(task.job.next_step, len(self.steps))
        return next((number for number in left if self.steps[number].applies(task)), None)


Vocabulary = Mapping[str, Operation]
