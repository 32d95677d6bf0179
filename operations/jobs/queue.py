"""The persistent queue of accepted actions. Jobs of one instance run one after the other, in the order of acceptance.

Whoever changes the jobs of an instance has locked the row of the instance: that lock is the only lease there is, and it
ends with the transaction, so with the process too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, exists, insert, select, update

from cells.model import Request
from cells.tables import instances, jobs
from operations.jobs.steps import Job


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to queue; see operations.jobs.steps.Job."""

    instance_uuid: str
    parameters: Mapping[str, Any]
    instance_action_id: int | None = None
    migration_id: int | None = None


def add_jobs(connection: Connection, action: str, new: Sequence[NewJob], request: Request, now: int) -> None:
    """Queue `action` for some instances."""
    common = {
        "action": action,
        "position": 0,
        "request_id": request.request_id,
        "user_id": request.user_id,
        "project_id": request.project_id,
        "created_at": now,
    }
    rows = [
        {
            "instance_uuid": job.instance_uuid,
            "parameters": job.parameters,
            "instance_action_id": job.instance_action_id,
            "migration_id": job.migration_id,
            **common,
        }
        for job in new
    ]
    if rows:
        connection.execute(insert(jobs), rows)


def has_jobs(connection: Connection) -> bool:
    return connection.execute(select(jobs.c.id).limit(1)).one_or_none() is not None


def lock_next(connection: Connection) -> str | None:
    """The uuid of the instance whose job has waited longest, its row locked; one that is locked already is passed over.

    PostgreSQL passes over locked rows; on SQLite nobody else writes meanwhile. What the row holds is not looked at.
    """
    earlier = jobs.alias()
    is_first = ~exists().where(earlier.c.instance_uuid == jobs.c.instance_uuid, earlier.c.id < jobs.c.id)
    statement = (
        select(instances.c.uuid)
        .join_from(jobs, instances, instances.c.uuid == jobs.c.instance_uuid)
        .where(is_first)
        .order_by(jobs.c.id)
        .limit(1)
        .with_for_update(of=instances, skip_locked=True)
    )
    return connection.execute(statement).scalar_one_or_none()


def first_job(connection: Connection, instance_uuid: str) -> Job | None:
    """The job of a locked instance that comes next."""
    row = connection.execute(_first(instance_uuid, jobs)).one_or_none()
    return None if row is None else _job(row)


def remove_first_job(connection: Connection, instance_uuid: str) -> int | None:
    """Remove the job of a locked instance that comes next, without reading it; the id of its instance action."""
    row = connection.execute(_first(instance_uuid, jobs.c.id, jobs.c.instance_action_id)).one()
    connection.execute(delete(jobs).where(jobs.c.id == row.id))
    action_id: int | None = row.instance_action_id
    return action_id


def jobs_of(connection: Connection, instance_uuid: str) -> list[Job]:
    """Every job of a locked instance, in order."""
    statement = select(jobs).where(jobs.c.instance_uuid == instance_uuid).order_by(jobs.c.id)
    return [_job(row) for row in connection.execute(statement)]


def save_job(connection: Connection, job: Job) -> None:
    """Where the job is now, and what its steps have told later ones."""
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job.id)
        .values(position=job.position, parameters=job.parameters, migration_id=job.migration_id)
    )


def remove_job(connection: Connection, job: Job) -> None:
    connection.execute(delete(jobs).where(jobs.c.id == job.id))


def _first(instance_uuid: str, *columns: Any) -> Select[Any]:
    return select(*columns).where(jobs.c.instance_uuid == instance_uuid).order_by(jobs.c.id).limit(1)


def _job(row: Row[Any]) -> Job:
    return Job(
        id=row.id,
        action=row.action,
        position=row.position,
        parameters=row.parameters,
        request=Request(row.request_id, row.user_id, row.project_id),
        instance_action_id=row.instance_action_id,
        migration_id=row.migration_id,
    )
