"""The times at which reservations expire."""

from sqlalchemy import Connection, delete, exists, func, insert, select

from fleetlight.cells.tables import job_operations, reservation_expiries


def set_expiry(connection: Connection, instance_uuid: str, at: int) -> None:
    """Let a reservation expire at this time, in microseconds since the epoch, unless it is made real before."""
    clear_expiry(connection, instance_uuid)
    connection.execute(insert(reservation_expiries).values(instance_uuid=instance_uuid, expires_at=at))


def clear_expiry(connection: Connection, instance_uuid: str) -> None:
    """Let a reservation never expire."""
    columns = reservation_expiries.c
    connection.execute(delete(reservation_expiries).where(columns.instance_uuid == instance_uuid))


def is_over(connection: Connection, instance_uuid: str, now: int) -> bool:
    """Whether the reservation has expired at `now`."""
    columns = reservation_expiries.c
    at = connection.scalar(select(columns.expires_at).where(columns.instance_uuid == instance_uuid))
    return at is not None and at <= now


def next_expiry(connection: Connection) -> int | None:
    """Return the earliest expiry, in microseconds since the epoch; None if no reservation expires."""
    first: int | None = connection.scalar(select(func.min(reservation_expiries.c.expires_at)))
    return first


def expired(connection: Connection, now: int, limit: int, operation: str) -> list[str]:
    """Lock and return the uuids of expired reservations, at most `limit`, the longest due first.

    Skips reservations that another transaction has locked, or that have an `operation` in the queue already.
    """
    columns, queued = reservation_expiries.c, job_operations.c
    is_queued = exists().where(
        queued.instance_uuid == columns.instance_uuid, queued.operation == operation, queued.ended_at.is_(None)
    )
    is_due = columns.expires_at <= now, ~is_queued
    statement = select(columns.instance_uuid).where(*is_due).order_by(columns.expires_at)
    return list(connection.scalars(statement.limit(limit).with_for_update(skip_locked=True)))
