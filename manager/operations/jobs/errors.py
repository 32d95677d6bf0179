"""Errors that end a job, or make it wait.

JobError
├── PrerequisiteError
├── UnknownOperationError
├── DependencyError
├── JobCanceledError
└── NodeCallError

NodeAwayError    the job waits, and the call is repeated
"""

from enum import StrEnum
from typing import Any

from sqlalchemy.exc import SQLAlchemyError


class JobError(Exception):
    """An error that ends a job; callers see its text."""


class Reason(StrEnum):
    """Why an operation may not begin, in Ganeti's words (contracts/ganeti-rapi, 7)."""

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
    """An operation may not begin, since a prerequisite is not met. It has changed nothing."""

    def __init__(self, text: str, reason: Reason) -> None:
        super().__init__(text)
        self.reason = reason


class UnknownOperationError(JobError):
    """No vocabulary of this worker has the operation: a newer version has accepted it."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"operation {operation} is not known to this worker")


class DependencyError(JobError):
    """A job that this one depends on does not exist, or has ended with another status than required.

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
    """A node could not carry out a call, or did not answer.

    needs_undo: whether the call may have left something on nodes. is_certain: whether the node itself has answered;
        otherwise it may have carried out the call.
    """

    def __init__(self, host: str, call: str, reason: str, *, needs_undo: bool = False, is_certain: bool = True) -> None:
        super().__init__(f"{call} on {host}: {reason}")
        self.host = host
        self.call = call
        self.reason = reason
        self.needs_undo = needs_undo
        self.is_certain = is_certain


class NodeAwayError(Exception):
    """The outcome of a call of a node is not known yet: the job waits, and the worker repeats the call."""


def text_for_callers(error: BaseException) -> str:
    """Return the text of an error for callers; texts of databases, with statements and values, are only logged."""
    if isinstance(error, SQLAlchemyError):
        return f"unexpected error of the database ({type(error).__name__}): the log of the worker tells it by this job"
    return _storable(str(error))


def result_of(error: Exception) -> list[Any]:
    """Return the result of a job that ended with `error`: a class of Ganeti's errors, and its arguments."""
    text = text_for_callers(error)
    if isinstance(error, PrerequisiteError):
        return ["OpPrereqError", [text, error.reason.value]]
    return ["OpExecError", [text]]


def _storable(text: str) -> str:
    """Remove characters that PostgreSQL cannot store from a node's text."""
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()
