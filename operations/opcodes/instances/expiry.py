"""When reservations end by themselves."""

from sqlalchemy import Connection, delete, insert, select

from cells.tables import reservation_expiries


def set_expiry(connection: Connection, instance_uuid: str, at: int) -> None:
    """The reservation ends at this moment, in microseconds since the epoch, unless it is made real before."""
    clear_expiry(connection, instance_uuid)
    connection.execute(insert(reservation_expiries).values(instance_uuid=instance_uuid, expires_at=at))


def clear_expiry(connection: Connection, instance_uuid: str) -> None:
    """It does not end by itself (any more)."""
    columns = reservation_expiries.c
    connection.execute(delete(reservation_expiries).where(columns.instance_uuid == instance_uuid))


def expired(connection: Connection, now: int, limit: int) -> list[str]:
    """The uuids of the reservations that end now or have had to, at most `limit`, the longest due first.

    They are locked; those that another transaction has locked are passed over.
    """
    columns = reservation_expiries.c
    statement = select(columns.instance_uuid).where(columns.expires_at <= now).order_by(columns.expires_at)
    return list(connection.scalars(statement.limit(limit).with_for_update(skip_locked=True)))
