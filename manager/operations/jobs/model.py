"""What a job is: a list of operations that run one after the other, and the words for how far it has come."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fleetlight.cells import job_words
from fleetlight.cells.model import NO_REQUEST, RequestContext


class Status(StrEnum):
    """Of a job and of each of its operations, in the words of Ganeti."""

    QUEUED = "queued"
    WAITING = "waiting"  # for locks or for other jobs
    CANCELING = "canceling"
    RUNNING = "running"
    CANCELED = "canceled"
    SUCCESS = "success"
    ERROR = "error"


ENDED = frozenset(map(Status, job_words.ENDED))


class Stage(StrEnum):
    """What comes next for the current operation of a job."""

    DEPENDENCIES = "dependencies"  # the jobs that it depends on have to end
    REQUEST = "request"  # its locks have to be asked for
    LOCKS = "locks"  # it has asked for its locks, and holds none of them
    STEPS = "steps"  # it holds its locks


@dataclass(frozen=True, slots=True)
class Lock:
    """Something that an operation must have for itself, or, if `is_shared`, with others that share it.

    level, name: as in "instance" and a uuid, "node" and a name.
    """

    level: str
    name: str
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class NewOperation:
    """An operation to queue. name: in the vocabulary. parameters: JSON.

    instance_uuid: the instance that it is about, whose row each of its steps locks. instance_action_id, migration_id:
        the records of it that end with the operation. summary: the operation in a few words, for lists of jobs.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    instance_uuid: str | None = None
    instance_action_id: int | None = None
    migration_id: int | None = None
    summary: str | None = None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to queue.

    priority: below goes first; 10 is low, -10 is high. depends_on: numbers of other jobs, and the statuses that it goes
        on after.
    """

    operations: Sequence[NewOperation]
    request: RequestContext = NO_REQUEST
    priority: int = 0
    depends_on: Mapping[int, Collection[Status]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobPosition:
    """Where a job is: which step of which operation comes next. Only a worker that finds it there goes on with it."""

    job_id: int
    priority: int
    stage: Stage
    position: int
    operation: str
    next_step: int
    instance_uuid: str | None
    received_at: int

    @property
    def key(self) -> str:
        """Of a call that is made here; a number of a job comes again when its cell is restored from a backup."""
        return f"{self.job_id}-{self.received_at}-{self.position}-{self.next_step}"


@dataclass(slots=True)
class Job:
    """A job whose row the transaction has locked, with its current operation.

    parameters: as they were accepted. notes: JSON; what steps tell later ones. result: JSON; what steps have found out
        for the caller. has_instance: whether there is a row of the instance that it is about.
    """

    id: int
    status: Status
    stage: Stage
    position: int
    operation_count: int
    operation: str
    next_step: int
    parameters: Mapping[str, Any]
    notes: dict[str, Any]
    request: RequestContext
    instance_uuid: str | None = None
    instance_action_id: int | None = None
    migration_id: int | None = None
    has_instance: bool = False
    result: Any = None
