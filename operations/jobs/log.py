"""The log of a job: entries whose serials rise over all of its operations."""

from sqlalchemy import Connection, func, insert, literal, select

from fleetlight.cells.tables import job_log

_MESSAGE = "message"


def add_entry(connection: Connection, job_id: int, position: int, now: int, text: str) -> None:
    """Add an entry; the transaction has locked the row of the job."""
    columns = job_log.c
    last = select(func.coalesce(func.max(columns.serial), 0) + 1).where(columns.job_id == job_id).scalar_subquery()
    values = select(
        literal(job_id, columns.job_id.type),
        last,
        literal(position, columns.position.type),
        literal(now, columns.logged_at.type),
        literal(_MESSAGE, columns.type.type),
        literal(text, columns.data.type),
    )
    names = ["job_id", "serial", "position", "logged_at", "type", "data"]
    connection.execute(insert(job_log).from_select(names, values))
