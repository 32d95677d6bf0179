"""What ends a job, or keeps a worker from it.

JobError
├── PrerequisiteError
├── UnknownOperationError
├── DependencyError
├── JobCanceledError
└── NodeCallError

NodeAwayError    keeps a job where it is
"""

from enum import StrEnum
from typing import Any

from sqlalchemy.exc import SQLAlchemyError


class JobError(Exception):
    """A job ends with it; its text is what callers see of it."""


class Reason(StrEnum):
    """Why an operation may not begin, in the words of Ganeti (contracts/ganeti-rapi, 7)."""

    RESOLVER = "resolver_error"
    NO_RESOURCES = "insufficient_resources"
    NO_RESOURCES_NOW = "temp_insufficient_resources"
    WRONG_INPUT = "wrong_input"
    WRONG_STATE = "wrong_state"
    UNKNOWN = "unknown_entity"
    EXISTS = "already_exists"
    NOT_UNIQUE = "resource_not_unique"
    INTERNAL = "internal_error"
    ENVIRONMENT = "environment_error"


class PrerequisiteError(JobError):
    """An operation may not begin: what it needs is not so. Nothing has been changed."""

    def __init__(self, text: str, reason: Reason) -> None:
        super().__init__(text)
        self.reason = reason


class UnknownOperationError(JobError):
    """No vocabulary of this worker has the operation: a newer version has accepted it."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"operation {operation} is not known to this worker")


class DependencyError(JobError):
    """A job that this one depends on has ended in a status that it does not go on after, or is not there.

    number: of that job, in the fleet.
    """

    def __init__(self, number: int, status: str | None) -> None:
        ending = "was not there before it" if status is None else f"has ended with status {status}"
        super().__init__(f"job {number}, which this one depends on, {ending}")


class JobCanceledError(JobError):
    """The job was canceled before the operation began. number: of the job, in the fleet."""

    def __init__(self, number: int) -> None:
        super().__init__(f"job {number} was canceled")


class NodeCallError(JobError):
    """A node could not do what it was called for, or did not answer.

    needs_undo: whether something may be left of the call on nodes. is_certain: whether the node has said so itself;
        otherwise the call may have been carried out.
    """

    def __init__(self, host: str, call: str, reason: str, *, needs_undo: bool = False, is_certain: bool = True) -> None:
        super().__init__(f"{call} on {host}: {reason}")
        self.host = host
        self.call = call
        self.reason = reason
        self.needs_undo = needs_undo
        self.is_certain = is_certain


class NodeAwayError(Exception):
    """What came of the call of a node is not known yet: the job stays where it is, and the call is made again."""


def text_for_callers(error: BaseException) -> str:
    """What callers see of an error. What a database says shows statements and values, and is for the log alone."""
    if isinstance(error, SQLAlchemyError):
        return f"unexpected error of the database ({type(error).__name__}): the log of the worker tells it by this job"
    return _storable(str(error))


def result_of(error: Exception) -> list[Any]:
    """What a job that `error` has ended shows as its result: a class of Ganeti's errors, and what that is made with."""
    text = text_for_callers(error)
    if isinstance(error, PrerequisiteError):
        return ["OpPrereqError", [text, error.reason.value]]
    return ["OpExecError", [text]]


def _storable(text: str) -> str:
    """What a node has said, without characters that PostgreSQL keeps in no text."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()
