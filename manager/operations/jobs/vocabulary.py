"""Vocabularies: the operations that jobs may consist of, by name (docs/decisions/0018).

The engine imports none of them. That of the actions of servers is fleetlight.manager.operations.actions.vocabulary.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import Connection, func, insert, literal, select

from fleetlight.cells.errors import InstanceNotFoundError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import job_log
from fleetlight.manager.operations.instances.locked_instance import LockedInstance
from fleetlight.manager.operations.jobs.model import Job, Lock
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.resources.fields import Record


@dataclass(frozen=True, slots=True)
class Task:
    """A running step with its job and instance, both locked.

    now: microseconds since the epoch. about: the instance; None without one, or if it does not exist.
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
        """The instance. Raises InstanceNotFoundError if it does not exist."""
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
        """Add an entry to the log of the job; its serials rise over all operations."""
        columns, job_id = job_log.c, self.job.id
        last = select(func.coalesce(func.max(columns.serial), 0) + 1).where(columns.job_id == job_id).scalar_subquery()
        values = select(
            literal(job_id, columns.job_id.type),
            last,
            literal(self.job.position, columns.position.type),
            literal(self.now, columns.logged_at.type),
            literal("message", columns.type.type),
            literal(text, columns.data.type),
        )
        names = ["job_id", "serial", "position", "logged_at", "type", "data"]
        self.connection.execute(insert(job_log).from_select(names, values))


def _always(_task: Task) -> bool:
    return True


def _never(_task: Task) -> bool:
    return False


def _end_with(_task: Task, error: Exception) -> int:
    """End the job with `error`: the default recovery."""
    raise error


def _show_nothing(_task: Task, _error: Exception) -> None:
    """Do nothing, for operations whose failure shows only in their job."""


MakeCall = Callable[[Task], NodeCall | None]
"""Makes the call of a step, or None; it reads the instance without a lock."""


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction of an operation.

    applies: whether the step is needed; otherwise it is skipped. call: makes the call of a node before the transaction;
        None for no call.
    """

    run: Callable[[Task], None]
    applies: Callable[[Task], bool] = _always
    call: MakeCall | None = None


def only_if(applies: Callable[[Task], bool], *steps: Step) -> tuple[Step, ...]:
    """Add a condition to steps, which are skipped unless it holds."""
    return tuple(replace(step, applies=partial(_both, applies, step.applies)) for step in steps)


def _both(first: Callable[[Task], bool], second: Callable[[Task], bool], task: Task) -> bool:
    return first(task) and second(task)


@dataclass(frozen=True, slots=True)
class Operation:
    """An entry of a vocabulary.

    locks: returns its locks, held from its first step to its last, by its parameters and its instance's uuid.
    is_over: whether no step is needed any more. show_failure: shows an error, in the transaction that ends the job; a
        canceled job ends with JobCanceledError here.
    recover: recovers from a failed step, and returns the place in `steps` where a new round begins; or raises the error
        that ends the job, which undoes its changes.
    Steps are numbered through all rounds, so that the same step has another number in each round.
    """

    steps: tuple[Step, ...]
    locks: Callable[[Mapping[str, Any], str | None], Collection[Lock]]
    is_over: Callable[[Task], bool] = _never
    show_failure: Callable[[Task, Exception], None] = _show_nothing
    recover: Callable[[Task, Exception], int] = _end_with

    def next_step(self, task: Task) -> int | None:
        """Return the number of the next step, or None."""
        if self.is_over(task):
            return None
        began, first = divmod(task.job.next_step, self._round)
        left = range(first, len(self.steps))
        place = next((place for place in left if self.steps[place].applies(task)), None)
        return None if place is None else began * self._round + place

    def step(self, number: int) -> Step | None:
        """Return the step with a number, or None."""
        place = self.place(number)
        return self.steps[place] if place < len(self.steps) else None

    def place(self, number: int) -> int:
        """Return the place in `steps` of the step with a number."""
        return number % self._round

    def in_next_round(self, number: int, place: int) -> int:
        """Return the number of the step at `place` in the round after that of step `number`."""
        return (number // self._round + 1) * self._round + place

    @property
    def _round(self) -> int:
        """Return the count of numbers in a round: one more than its steps, for the end after the last."""
        return len(self.steps) + 1


Vocabulary = Mapping[str, Operation]
