"""Sessions of browsers that were ended before they expired, for all processes of an API."""

import hashlib

from sqlalchemy import delete, exists, func, or_, select

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import ended_sessions

MOST_OF_USER = 200
_COLUMNS = ended_sessions.c
_EVERY = ""


class EndedSessions:
    """All ended sessions. Calls block, and raise FleetUnreachableError. Times are in microseconds since the epoch."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def add(self, user_id: str, session: str, now: int, lifetime_us: int) -> None:
        """End a session of a user. session: its name. lifetime_us: of any session, after which the row is removed.

        If a user ends more than MOST_OF_USER sessions, all end instead, so that no user can fill the database.
        """
        ended = {"user_id": user_id, "ended_at": now, "expires_at": now + lifetime_us}
        of_user = _COLUMNS.user_id == user_id
        with self._database.writing() as connection:
            connection.execute(delete(ended_sessions).where(_COLUMNS.expires_at <= now))
            count = connection.scalar(select(func.count()).where(of_user)) or 0
            if count >= MOST_OF_USER:
                connection.execute(delete(ended_sessions).where(of_user))
            name = _EVERY if count >= MOST_OF_USER else _digest(session)
            new = self._database.insert(ended_sessions).values(**ended, session=name)
            connection.execute(new.on_conflict_do_nothing())

    def has(self, user_id: str, session: str, begun_at: int) -> bool:
        """Whether a session of a user was ended."""
        every = (_COLUMNS.session == _EVERY) & (_COLUMNS.ended_at >= begun_at)
        found = exists().where(_COLUMNS.user_id == user_id, or_(_COLUMNS.session == _digest(session), every))
        with self._database.reading() as connection:
            return bool(connection.scalar(select(found)))


def _digest(session: str) -> str:
    return hashlib.blake2b(session.encode(), digest_size=16).hexdigest()
