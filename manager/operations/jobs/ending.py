"""The end of operations and jobs, which releases their locks; `pruning` deletes the rows later."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, func, select, update

from fleetlight.cells.tables import job_operations, jobs
from fleetlight.manager.operations.instances.instance_actions import finish_event
from fleetlight.manager.operations.instances.instance_migrations import give_up_migration
from fleetlight.manager.operations.jobs.errors import result_of, text_for_callers
from fleetlight.manager.operations.jobs.locks import give_up_locks
from fleetlight.manager.operations.jobs.model import Job, Stage, Status
from fleetlight.manager.operations.jobs.queue import save_operation

# Parameters of the statement, beside columns of the job.
_JOB, _NOW = "of_job", "now"
_GO_ON = (
    update(jobs)
    .where(jobs.c.id == bindparam(_JOB))
    .values(started_at=func.coalesce(jobs.c.started_at, bindparam(_NOW, type_=BigInteger)))
)


def end_operation(connection: Connection, job: Job, now: int, *, has_locked_names: bool) -> None:
    """End the current operation with success, and go on to the next one, if any.

    has_locked_names: whether the operation has taken its locks in this transaction.
    """
    is_last = job.position + 1 == job.operation_count
    give_up_locks(connection, [job.id], have_ended=is_last, have_locked_names=has_locked_names)
    save_operation(connection, job, Status.SUCCESS, now, ended_at=now)
    finish_event(connection, job.instance_action_id, now)
    if is_last:
        values: dict[str, Any] = {"status": Status.SUCCESS, "stage": Stage.STEPS, "ended_at": now, "is_ready": False}
    else:
        values = {"status": Status.QUEUED, "position": job.position + 1, "stage": Stage.REQUEST, "is_ready": True}
    connection.execute(_GO_ON, {**values, _JOB: job.id, _NOW: now})


def end_jobs(connection: Connection, job_ids: Sequence[int], status: Status, error: Exception, now: int) -> None:
    """End jobs with `error`: their current operations, and those that would follow.

    status: ERROR or CANCELED. The migrations and instance actions of these operations end with `error`, too.
    """
    if not job_ids:
        return
    give_up_locks(connection, job_ids, have_ended=True)
    columns = job_operations.c
    is_left = columns.job_id.in_(job_ids), columns.ended_at.is_(None)
    left = connection.execute(select(columns.instance_action_id, columns.migration_id).where(*is_left)).all()
    for operation in left:
        if operation.migration_id is not None:
            give_up_migration(connection, operation.migration_id, now)
        finish_event(connection, operation.instance_action_id, now, error, text_for_callers(error))
    # In the lock order of a cancellation: the job's row first, and then those of its operations.
    ended = {"status": status, "ended_at": now, "is_ready": False}
    connection.execute(update(jobs).where(jobs.c.id.in_(job_ids)).values(ended))
    connection.execute(
        update(job_operations).where(*is_left).values(status=status, result=result_of(error), ended_at=now)
    )
