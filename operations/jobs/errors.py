"""What ends a job, or keeps a worker from it.

JobError
├── UnknownOperationError
├── DependencyError
├── JobCanceledError
└── NodeCallError
"""


class JobError(Exception):
    """A job ends with it; its text is what callers see of it."""


class UnknownOperationError(JobError):
    """No vocabulary of this worker has the operation: a newer version has accepted it."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"operation {operation} is not known to this worker")


class DependencyError(JobError):
    """A job that this one depends on has ended in a status that it does not go on after, or is not there."""

    def __init__(self, job_id: int, status: str | None) -> None:
        ending = "is not there" if status is None else f"has ended with status {status}"
        super().__init__(f"job {job_id}, which this one depends on, {ending}")


class JobCanceledError(JobError):
    """The job was canceled before the operation began."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"job {job_id} was canceled")


class NodeCallError(JobError):
    """A node could not do what it was called for, or did not answer."""

    def __init__(self, host: str, call: str, reason: str) -> None:
        super().__init__(f"{call} on {host}: {reason}")
