"""The rows of jobs: queueing, finding, locking and updating them.

A worker locks a job's row, and then that of its instance, and skips rows that another transaction has locked: so it
never waits for an instance while it holds a job. Other code that changes jobs of an instance locks the instance first,
and may wait for the jobs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    Integer,
    Select,
    and_,
    bindparam,
    exists,
    func,
    insert,
    select,
    tuple_,
    update,
)

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.job_numbers import job_number, number_in_cell
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.cells.tables import instances, job_dependencies, job_operations, jobs
from fleetlight.manager.operations.jobs.errors import DependencyError
from fleetlight.manager.operations.jobs.locks import wait_for_ends, want_locks
from fleetlight.manager.operations.jobs.model import ENDED, Job, JobPosition, NewJob, Stage, Status
from fleetlight.manager.operations.jobs.vocabulary import Vocabulary

_LIMIT, _JOB, _PLACES = "most", "of_job", "places"
_HAS_NOT_BEGUN = {Status.QUEUED, Status.WAITING}
_IS_CURRENT = and_(job_operations.c.job_id == jobs.c.id, job_operations.c.position == jobs.c.position)
_PLACE = (
    jobs.c.id,
    jobs.c.priority,
    jobs.c.stage,
    jobs.c.position,
    jobs.c.received_at,
    job_operations.c.operation,
    job_operations.c.next_step,
    job_operations.c.instance_uuid,
)
_PLAIN = (
    jobs.c.id,
    jobs.c.status,
    jobs.c.stage,
    jobs.c.position,
    jobs.c.operation_count,
    jobs.c.request_id,
    jobs.c.user_id,
    jobs.c.project_id,
    job_operations.c.operation,
    job_operations.c.next_step,
    job_operations.c.instance_uuid,
    job_operations.c.instance_action_id,
    job_operations.c.migration_id,
    exists().where(instances.c.uuid == job_operations.c.instance_uuid).label("has_instance"),
)
# Each of these may be damaged on SQLite, where JSON is a text.
_JSON = (job_operations.c.parameters, job_operations.c.notes, job_operations.c.result)


def add_jobs(connection: Connection, vocabulary: Vocabulary, new: Sequence[NewJob], now: int) -> Sequence[int]:
    """Queue jobs; returns their numbers in order. Raises KeyError for an operation that `vocabulary` lacks."""
    if not new:
        return []
    rows = [
        {
            "status": Status.QUEUED,
            "priority": job.priority,
            "is_ready": True,
            "stage": Stage.DEPENDENCIES if job.depends_on else Stage.LOCKS,
            "position": 0,
            "operation_count": len(job.operations),
            "request_id": job.request.request_id,
            "user_id": job.request.user_id,
            "project_id": job.request.project_id,
            "received_at": now,
        }
        for job in new
    ]
    ids = connection.execute(_ADD_JOBS, rows).scalars().all()
    numbered = list(zip(ids, new, strict=True))
    connection.execute(_ADD_OPERATIONS, [row for job_id, job in numbered for row in _operation_rows(job_id, job)])
    wanted = []
    for job_id, job in numbered:
        if job.depends_on:
            _add_dependencies(connection, job_id, job)
        else:
            first = job.operations[0]
            locks = vocabulary[first.name].locks(first.parameters, first.instance_uuid)
            wanted += [(job_id, job.priority, lock) for lock in locks]
    want_locks(connection, wanted, now)
    return ids


def _operation_rows(job_id: int, job: NewJob) -> Iterator[dict[str, Any]]:
    for position, operation in enumerate(job.operations):
        yield {
            "job_id": job_id,
            "position": position,
            "operation": operation.name,
            "parameters": operation.parameters,
            "status": Status.QUEUED,
            "next_step": 0,
            "notes": {},
            "instance_uuid": operation.instance_uuid,
            "instance_action_id": operation.instance_action_id,
            "migration_id": operation.migration_id,
            "summary": operation.summary,
        }


def _add_dependencies(connection: Connection, job_id: int, job: NewJob) -> None:
    rows = [
        {"job_id": job_id, "depends_on": other, "statuses": sorted(statuses)}
        for other, statuses in job.depends_on.items()
    ]
    connection.execute(insert(job_dependencies), rows)


def ready_jobs(connection: Connection, limit: int, after: JobPosition | None = None) -> list[JobPosition]:
    """Read the positions of the first ready jobs, or of those after `after`, without locks."""
    parameters = {_LIMIT: limit}
    if after is not None:
        parameters |= {"priority": after.priority, "job_id": after.job_id}
    return [
        JobPosition(
            job_id=row.id,
            priority=row.priority,
            stage=Stage(row.stage),
            position=row.position,
            operation=row.operation,
            next_step=row.next_step,
            instance_uuid=row.instance_uuid,
            received_at=row.received_at,
        )
        for row in connection.execute(_READY if after is None else _READY_AFTER, parameters)
    ]


def count_unended(connection: Connection) -> tuple[Mapping[str, int], int | None]:
    """Count unended jobs by status; also returns when the oldest job that has not begun was received."""
    statement = (
        select(jobs.c.status, func.count().label("number"), func.min(jobs.c.received_at).label("since"))
        .where(jobs.c.ended_at.is_(None))
        .group_by(jobs.c.status)
    )
    rows = connection.execute(statement).all()
    has_not_begun = [row.since for row in rows if row.status in _HAS_NOT_BEGUN]
    return {row.status: row.number for row in rows}, min(has_not_begun, default=None)


def read_job(connection: Connection, place: JobPosition) -> Job | None:
    """Read a job without locks; None if it is not at `place` any more."""
    return _one(connection, _AT, place)


def lock_first_job(connection: Connection, places: Sequence[JobPosition]) -> Job | None:
    """Lock the first job that is still at its place and not locked by another transaction; None without one."""
    at = [(place.job_id, place.stage, place.position, place.next_step) for place in places]
    row = connection.execute(_FIRST_LOCKED_AT, {_PLACES: at}).one_or_none()
    return None if row is None else _job(row._mapping)


def lock_unread_job(connection: Connection, place: JobPosition) -> Job | None:
    """As `lock_first_job`, for one job, without the fields that may be damaged: parameters, notes and result."""
    return _one(connection, _UNREAD_AT, place)


def fill_in(connection: Connection, job: Job) -> None:
    """Read the fields that `lock_unread_job` leaves out. Raises the errors of SQLite or a decoder for damaged ones."""
    is_current = and_(job_operations.c.job_id == job.id, job_operations.c.position == job.position)
    row = connection.execute(select(*_JSON).where(is_current)).one()
    job.parameters, job.notes, job.result = row.parameters, row.notes, row.result


def begin_job(connection: Connection, job: Job, now: int) -> None:
    """Record that the current operation holds its locks; it goes on in another transaction."""
    connection.execute(_BEGIN, {_JOB: job.id, "stage": job.stage, "status": job.status, "now": now})


def let_wait(connection: Connection, job: Job, stage: Stage) -> None:
    """Let a job wait for locks, or for other jobs, until another transaction makes it ready."""
    waiting = {"status": Status.WAITING}
    connection.execute(update(jobs).where(jobs.c.id == job.id).values(**waiting, stage=stage, is_ready=False))
    connection.execute(update(job_operations).where(_is_operation(job)).values(**waiting))


def jobs_of(connection: Connection, instance_uuid: str) -> dict[int, str]:
    """Return the operations of a locked instance's current jobs, by number, in order."""
    statement = (
        select(jobs.c.id, job_operations.c.operation)
        .join_from(job_operations, jobs, _IS_CURRENT)
        .where(job_operations.c.instance_uuid == instance_uuid, job_operations.c.ended_at.is_(None))
        .order_by(jobs.c.id)
    )
    return {row.id: row.operation for row in connection.execute(statement)}


def notes_of(connection: Connection, instance_uuid: str) -> Sequence[Mapping[str, Any]]:
    """Return the notes of a locked instance's current jobs."""
    statement = (
        select(job_operations.c.notes)
        .join_from(job_operations, jobs, _IS_CURRENT)
        .where(job_operations.c.instance_uuid == instance_uuid, job_operations.c.ended_at.is_(None))
        .order_by(jobs.c.id)
    )
    return connection.scalars(statement).all()


def save_operation(connection: Connection, job: Job, status: Status, now: int, ended_at: int | None = None) -> None:
    """Save the position of the current, begun operation, and the notes of its steps."""
    parameters = {
        _JOB: job.id,
        "at": job.position,
        "status": status,
        "next_step": job.next_step,
        "notes": job.notes,
        "result": job.result,
        "migration_id": job.migration_id,
        "now": now,
        "ended_at": ended_at,
    }
    connection.execute(_SAVE, parameters)


def _is_operation(job: Job) -> Any:
    return and_(job_operations.c.job_id == job.id, job_operations.c.position == job.position)


def _at(*columns: Any) -> Select[Any]:
    return (
        select(*columns)
        .join_from(jobs, job_operations, _IS_CURRENT)
        .where(
            jobs.c.id == bindparam("job_id"),
            jobs.c.is_ready,
            jobs.c.stage == bindparam("stage"),
            jobs.c.position == bindparam("position"),
            job_operations.c.next_step == bindparam("next_step"),
        )
    )


def _one(connection: Connection, statement: Select[Any], place: JobPosition) -> Job | None:
    names = ("job_id", "stage", "position", "next_step")
    row = connection.execute(statement, {name: getattr(place, name) for name in names}).one_or_none()
    return None if row is None else _job(row._mapping)


def _job(row: Mapping[Any, Any]) -> Job:
    return Job(
        id=row["id"],
        status=Status(row["status"]),
        stage=Stage(row["stage"]),
        position=row["position"],
        operation_count=row["operation_count"],
        operation=row["operation"],
        next_step=row["next_step"],
        parameters=row.get("parameters", {}),
        notes=row.get("notes", {}),
        request=RequestContext(row["request_id"], row["user_id"], row["project_id"]),
        instance_uuid=row["instance_uuid"],
        instance_action_id=row["instance_action_id"],
        migration_id=row["migration_id"],
        has_instance=row["has_instance"],
        result=row.get("result"),
    )


# Built once, since building statements takes as long as executing them.
_ADD_JOBS = insert(jobs).returning(jobs.c.id, sort_by_parameter_order=True)
_ADD_OPERATIONS = insert(job_operations)
_READY = (
    select(*_PLACE)
    .join_from(jobs, job_operations, _IS_CURRENT)
    # Skip unknown values, which a later version, or a damaged disk, has written.
    .where(jobs.c.is_ready, jobs.c.stage.in_(list(Stage)), jobs.c.status.in_(list(Status)))
    .order_by(jobs.c.priority, jobs.c.id)
    .limit(bindparam(_LIMIT))
)
_READY_AFTER = _READY.where(
    tuple_(jobs.c.priority, jobs.c.id)
    > tuple_(bindparam("priority", type_=Integer), bindparam("job_id", type_=BigInteger))
)
_AT, _PLAIN_AT = _at(*_PLAIN, *_JSON), _at(*_PLAIN)
_FIRST_LOCKED_AT = (
    select(*_PLAIN, *_JSON)
    .join_from(jobs, job_operations, _IS_CURRENT)
    .where(
        jobs.c.is_ready,
        tuple_(jobs.c.id, jobs.c.stage, jobs.c.position, job_operations.c.next_step).in_(
            bindparam(_PLACES, expanding=True)
        ),
    )
    .order_by(jobs.c.priority, jobs.c.id)
    .limit(1)
    .with_for_update(skip_locked=True)
)
_UNREAD_AT = _PLAIN_AT.with_for_update(skip_locked=True)
_BEGIN = (
    update(jobs)
    .where(jobs.c.id == bindparam(_JOB))
    .values(
        stage=bindparam("stage"),
        status=bindparam("status"),
        is_ready=True,
        started_at=func.coalesce(jobs.c.started_at, bindparam("now", type_=BigInteger)),
    )
)
_SAVE = (
    update(job_operations)
    .where(job_operations.c.job_id == bindparam(_JOB), job_operations.c.position == bindparam("at"))
    .values(
        status=bindparam("status"),
        next_step=bindparam("next_step"),
        notes=bindparam("notes"),
        result=bindparam("result"),
        migration_id=bindparam("migration_id"),
        started_at=func.coalesce(job_operations.c.started_at, bindparam("now", type_=BigInteger)),
        ended_at=bindparam("ended_at"),
    )
)


def cancel_job(engine: Engine, cell: Cell, number: int) -> tuple[bool, str]:
    """Cancel the operations of a job that have not begun; returns whether there were any, and a sentence.

    number: of the job in the fleet. This only marks the job's row; a worker ends the job after the running operation.
    Raises CellUnreachableError.
    """
    job_id = number_in_cell(cell, number)
    if job_id is None:
        return False, f"Job {number} not found in queue"
    with cell_failures(cell.name), writing(engine) as connection:
        row = connection.execute(select(jobs).where(jobs.c.id == job_id).with_for_update()).one_or_none()
        if row is None or row.status in ENDED:
            return False, f"Job {number} not found in queue"
        is_running = row.stage == Stage.STEPS
        first = row.position + 1 if is_running else row.position
        if first == row.operation_count:
            return False, f"Job {number} is no longer waiting in the queue"
        canceling = {"status": Status.CANCELING}
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(**canceling, is_ready=True))
        columns = job_operations.c
        connection.execute(
            update(job_operations).where(columns.job_id == job_id, columns.position >= first).values(canceling)
        )
        return True, f"Job {number} will be canceled"


def check_dependencies(connection: Connection, cell: Cell, job: Job) -> None:
    """Let a job go on, or wait for the end of the next job that it depends on. Raises DependencyError.

    Until these have ended it requests no locks, and so blocks no job.
    """
    wait_for_ends(connection, job.id)
    columns = job_dependencies.c
    statement = (
        select(columns.depends_on, columns.statuses, jobs.c.status)
        .outerjoin_from(job_dependencies, jobs, jobs.c.id == columns.depends_on)
        .where(columns.job_id == job.id)
    )
    found = connection.execute(statement).all()
    for row in found:
        # Ignore later jobs, and itself, on which waiting could be a deadlock.
        status = row.status if row.depends_on < job.id else None
        if status is None or (status in ENDED and status not in row.statuses):
            raise DependencyError(job_number(cell, row.depends_on), status)
    if all(row.status in ENDED for row in found):
        connection.execute(update(jobs).where(jobs.c.id == job.id).values(stage=Stage.REQUEST))
    else:
        let_wait(connection, job, Stage.DEPENDENCIES)
