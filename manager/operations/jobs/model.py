"""The model of jobs: a list of operations that run one after the other, with statuses and stages."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fleetlight.cells import job_words
from fleetlight.cells.model import NO_REQUEST, RequestContext


class Status(StrEnum):
    """The status of a job, and of each of its operations, in Ganeti's words."""

    QUEUED = "queued"
    WAITING = "waiting"  # for locks or for other jobs
    CANCELING = "canceling"
    RUNNING = "running"
    CANCELED = "canceled"
    SUCCESS = "success"
    ERROR = "error"


ENDED = frozenset(map(Status, job_words.ENDED))


class Stage(StrEnum):
    """The next phase of a job's current operation."""

    DEPENDENCIES = "dependencies"  # it waits for the end of other jobs
    REQUEST = "request"  # it must request its locks
    LOCKS = "locks"  # it has requested its locks, and holds none
    STEPS = "steps"  # it holds its locks


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that an operation needs, exclusive unless `is_shared`.

    level, name: as in "instance" and a uuid, "node" and a name.
    """

    level: str
    name: str
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class NewOperation:
    """An operation to queue. name: in the vocabulary. parameters: JSON.

    instance_uuid: its instance, whose row each step locks. instance_action_id, migration_id: records that end with the
        operation. summary: the operation in a few words, for lists of jobs.
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

    priority: lower values go first; 10 is low, -10 is high. depends_on: numbers of other jobs, and the statuses in
        which they must end.
    """

    operations: Sequence[NewOperation]
    request: RequestContext = NO_REQUEST
    priority: int = 0
    depends_on: Mapping[int, Collection[Status]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobPosition:
    """The next step and operation of a job. A worker only continues a job that still is at this position."""

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
        """The key of a call at this position, unique even if a restored cell repeats numbers of jobs."""
        return f"{self.job_id}-{self.received_at}-{self.position}-{self.next_step}"


@dataclass(slots=True)
class Job:
    """A job whose row the transaction has locked, with its current operation.

    parameters: as accepted. notes: JSON; data of steps for later steps. result: JSON; results of steps for the caller.
        has_instance: whether the row of its instance exists.
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
