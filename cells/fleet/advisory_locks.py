"""Turns: what two must not do to the fleet at the same time, in whatever process, such as counting before adding.

A turn ends with its process, as every lock here does. PostgreSQL: advisory locks of a transaction, on a connection of
its own. SQLite: one lock on a file beside the database, whatever the turn is for; it has one writer at a time anyway.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from cells.database.process_locks import advisory_key, lock_path
from cells.errors import FleetUnreachableError
from cells.fleet.database import translated_fleet_failures

_LONGEST_WAIT_S = 30
_LOOK_AGAIN_AFTER_S = 0.01
# Connections that one process takes for turns: the work in a turn needs some as well.
_MOST_AT_ONCE = 4


class AdvisoryLocks:
    """The turns of one fleet database; any thread may take one, but none inside of another."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._places = BoundedSemaphore(_MOST_AT_ONCE)

    @contextmanager
    def take(self, *names: str) -> Iterator[None]:
        """Wait until nobody has a turn for any of `names`, and keep others out meanwhile.

        Raises FleetUnreachableError after 30 seconds, and when the database does not answer.
        """
        if not self._places.acquire(timeout=_LONGEST_WAIT_S):
            raise FleetUnreachableError("too many requests wait for their turn")
        try:
            if self._engine.dialect.name == "sqlite":
                descriptor = self._locked_file()
                try:
                    yield
                finally:
                    os.close(descriptor)
            else:
                session = self._locked_session(names)
                try:
                    yield
                finally:
                    with suppress(DBAPIError):  # the session may be gone, and the locks with it
                        session.rollback()
                    session.close()
        finally:
            self._places.release()

    def _locked_file(self) -> int:
        deadline = time.monotonic() + _LONGEST_WAIT_S
        with translated_fleet_failures():
            descriptor = os.open(lock_path(self._engine, "turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise FleetUnreachableError("somebody else's turn does not end")
            time.sleep(_LOOK_AGAIN_AFTER_S)

    def _locked_session(self, names: tuple[str, ...]) -> Connection:
        with translated_fleet_failures():
            session = self._engine.connect()
            try:
                session.execute(text(f"SET LOCAL lock_timeout = '{_LONGEST_WAIT_S}s'"))
                # In one order for everybody, so that nobody waits in a circle.
                for name in sorted(set(names)):
                    wait_for_lock(session, f"turn of {name}")
            except BaseException:
                session.close()
                raise
            return session


def wait_for_lock(connection: Connection, name: str) -> None:
    """Take the lock called `name` until the transaction ends; on SQLite that one keeps every other writer out."""
    if connection.dialect.name != "sqlite":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": advisory_key(name)})
