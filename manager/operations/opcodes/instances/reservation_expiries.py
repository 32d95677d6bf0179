"""Moments at which reservations end by themselves."""

from sqlalchemy import Connection, delete, exists, func, insert, select

from fleetlight.cells.tables import job_operations, reservation_expiries


def set_expiry(connection: Connection, instance_uuid: str, at: int) -> None:
    """The reservation ends at this moment, in microseconds since the epoch, unless it is made real before."""
    clear_expiry(connection, instance_uuid)
    connection.execute(insert(reservation_expiries).values(instance_uuid=instance_uuid, expires_at=at))


def clear_expiry(connection: Connection, instance_uuid: str) -> None:
    """It does not end by itself (any more)."""
    columns = reservation_expiries.c
    connection.execute(delete(reservation_expiries).where(columns.instance_uuid == instance_uuid))


def is_over(connection: Connection, instance_uuid: str, now: int) -> bool:
    """Whether the reservation was to end now, or before."""
    columns = reservation_expiries.c
    at = connection.scalar(select(columns.expires_at).where(columns.instance_uuid == instance_uuid))
    return at is not None and at <= now


def next_expiry(connection: Connection) -> int | None:
    """The first moment at which a reservation ends, in microseconds since the epoch; None if none ends by itself."""
    first: int | None = connection.scalar(select(func.min(reservation_expiries.c.expires_at)))
    return first


def expired(connection: Connection, now: int, limit: int, operation: str) -> list[str]:
    """The uuids of the reservations that end now or have had to, at most `limit`, the longest due first.

    They are locked; those that another transaction has locked are passed over, as are those that such an `operation` is
    to end that was queued already.
    """
    columns, queued = reservation_expiries.c, job_operations.c
    is_queued = exists().where(
        queued.instance_uuid == columns.instance_uuid, queued.operation == operation, queued.ended_at.is_(None)
    )
    is_due = columns.expires_at <= now, ~is_queued
    statement = select(columns.instance_uuid).where(*is_due).order_by(columns.expires_at)
    return list(connection.scalars(statement.limit(limit).with_for_update(skip_locked=True)))
