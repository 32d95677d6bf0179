"""Locks that one process holds and that die with it: at most one relay is active per cell.

PostgreSQL: an advisory lock of a session, on a connection of its own. SQLite: a lock on a file beside the database. In
both cases whoever is killed has let go, whatever was in its hands.
"""

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError


class ExclusiveLock(Protocol):
    """A lock that is tried, never waited for. Not for use by several threads."""

    def acquire(self) -> bool:
        """Take the lock, or confirm that it is still held.

        False while another holder has it, and once when it was lost, so that the caller learns of that.
        """
        ...

    def release(self) -> None: ...


def exclusive_lock(engine: Engine, name: str) -> ExclusiveLock:
    """The lock called `name` of the database behind `engine`."""
    if engine.dialect.name == "sqlite":
        return _FileLock(lock_path(engine, name))
    return _AdvisoryLock(engine, name)


def lock_path(engine: Engine, name: str) -> Path:
    """The file that stands for the lock called `name` of a SQLite database."""
    database = str(engine.url.database)
    if "uri" in engine.url.query:  # of a file that is not to be made (cells.database.engines)
        database = unquote(database.removeprefix("file:"))
    return Path(f"{database}.{name}.lock")


def advisory_key(name: str) -> int:
    """The key that stands for the lock called `name` of a PostgreSQL database: 64 bits with a sign."""
    return int.from_bytes(hashlib.sha256(f"fleetlight {name}".encode()).digest()[:8], signed=True)


class _FileLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> bool:
        if self._descriptor is not None:
            return True
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # flock belongs to the open file, so it also keeps two relays of one process apart.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        # The file stays: removing it would let a second holder lock a new file of the same name.
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class _AdvisoryLock:
    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._key = advisory_key(name)
        self._connection: Connection | None = None

    def acquire(self) -> bool:
        if self._connection is not None:
            try:
                # The lock is gone if its session is, and only the session can tell.
                self._connection.execute(text("SELECT 1"))
            except DBAPIError:
                self.release()
                return False
            return True
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        if connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": self._key}).scalar_one():
            self._connection = connection
            return True
        connection.close()
        return False

    def release(self) -> None:
        if self._connection is not None:
            # Closing the session lets go of the lock in every case, but the server notices that a moment later.
            if not self._connection.invalidated:
                with suppress(DBAPIError):
                    self._connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": self._key})
                self._connection.invalidate()
            self._connection.close()
            self._connection = None
