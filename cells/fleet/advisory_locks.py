"""Locks for work that two processes must not do to the fleet at the same time, such as counting before adding.

As every lock here, they end with their process. PostgreSQL: advisory locks of a transaction, on a connection of its
own. SQLite: one lock on a file beside the database for all purposes, since it has one writer at a time anyway.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from fleetlight.cells.database.file_lock import FileLock
from fleetlight.cells.database.locks import lock_path, wait_for_lock
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.database import translated_fleet_failures

_log = structlog.get_logger(__name__)

_LONGEST_WAIT_S = 30
# The most connections that a process uses for locks, since the work under a lock needs some as well.
_MOST_AT_ONCE = 4


class AdvisoryLocks:
    """The locks of one fleet database. Any thread may take some, but not while it holds others."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._places = BoundedSemaphore(_MOST_AT_ONCE)

    @contextmanager
    def take(self, *names: str) -> Iterator[None]:
        """Wait until no other holder has any of `names`, and hold them during the block.

        Raises FleetUnreachableError after 30 seconds, or if the database does not answer.
        """
        if not self._places.acquire(timeout=_LONGEST_WAIT_S):
            raise FleetUnreachableError("too many requests wait for a lock of the fleet")
        try:
            if self._engine.dialect.name == "sqlite":
                lock = self._locked_file()
                try:
                    yield
                finally:
                    lock.release()
            else:
                session = self._locked_session(names)
                try:
                    yield
                finally:
                    _release(session, names)
        finally:
            self._places.release()

    def _locked_file(self) -> FileLock:
        lock = FileLock(lock_path(self._engine, "advisory"))
        with translated_fleet_failures():
            if lock.wait(_LONGEST_WAIT_S):
                return lock
        raise FleetUnreachableError(f"other work on the same things has not ended within {_LONGEST_WAIT_S} s")

    def _locked_session(self, names: tuple[str, ...]) -> Connection:
        with translated_fleet_failures():
            session = self._engine.connect()
            try:
                session.execute(text(f"SET LOCAL lock_timeout = '{_LONGEST_WAIT_S}s'"))
                # The session is idle during the work, and a process that hangs must lose its locks.
                session.execute(text(f"SET LOCAL idle_in_transaction_session_timeout = '{_LONGEST_WAIT_S}s'"))
                # All callers take them in the same order, so that no two wait for each other.
                for name in sorted(set(names)):
                    wait_for_lock(session, f"lock on {name}")
            except BaseException:
                session.close()
                raise
            return session


def _release(session: Connection, names: tuple[str, ...]) -> None:
    try:
        session.rollback()
    except DBAPIError as error:
        # The work took longer than the session may be idle, or the server was restarted.
        _log.warning("fleet.locks_lost", locks=names, reason=str(error.orig))
    finally:
        session.close()
