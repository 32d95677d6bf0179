"""Leases: locks that one process holds on a database, and that die with it.

A lease that runs out by the clock would have to be longer than any pause of its holder and shorter than anybody's
patience, and could end in the middle of the holder's work. These end exactly when their holder does, however it ends.

PostgreSQL: advisory locks, all in one session, which says by its `application_name` who holds them. SQLite: locks on
files beside the database, whose text says who holds them.
"""

import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from threading import Lock
from typing import Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from cells.database.file_lock import FileLock
from cells.database.locks import advisory_key, lock_path

Failures = Callable[[], AbstractContextManager[None]]

# The length of an identifier of PostgreSQL, which cuts off what is longer.
_MAX_HOLDER_LENGTH = 63
_UNKNOWN_HOLDER = "another process"


class Leases(Protocol):
    """Leases of one process, by name; threads may share one. Calls raise what `failures` of `open_leases` does."""

    def acquire(self, name: str, *, shared: bool = False) -> bool:
        """Take a lease that this object does not hold; False, at once, while somebody else holds it.

        shared: any number of holders may have it, as long as nobody has it alone.
        """
        ...

    def holds(self, name: str) -> bool:
        """Whether the lease is held, and was never lost since it was taken."""
        ...

    def count(self, names: Collection[str]) -> Mapping[str, int]:
        """How many hold each of some leases; those that nobody holds are left out.

        Of files nobody can count the holders, so SQLite knows of those of this object alone.
        """
        ...

    def release(self, name: str) -> None:
        """Give it back; nothing happens if it is not held."""
        ...

    def holder(self, name: str) -> str:
        """Who has the lease, as a phrase."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


def open_leases(engine: Engine, purpose: str, failures: Failures = nullcontext) -> Leases:
    """Leases on the database behind `engine`.

    purpose: what the holder does, for others to read. failures: turns what the database says into errors of the caller.
    """
    holder = f"{purpose} (process {os.getpid()} on {socket.gethostname()})"[:_MAX_HOLDER_LENGTH]
    if engine.dialect.name == "sqlite":
        return _FileLeases(engine, holder, failures)
    return _SessionLeases(engine, holder, failures)


class ExclusiveLock:
    """One lease, tried again and again: that of the relay of a cell, which is active while it has it."""

    def __init__(self, leases: Leases, name: str) -> None:
        self._leases = leases
        self._name = name
        self._is_held = False

    def acquire(self) -> bool:
        """Take the lock, or confirm that it is still held.

        False while another holder has it, and once when it was lost, so that the caller learns of that.
        """
        self._is_held = self._leases.holds(self._name) if self._is_held else self._leases.acquire(self._name)
        return self._is_held

    def release(self) -> None:
        self._leases.close()
        self._is_held = False


class _FileLeases:
    def __init__(self, engine: Engine, holder: str, failures: Failures) -> None:
        self._engine = engine
        self._holder = holder
        self._failures = failures
        self._mutex = Lock()
        self._held: dict[str, FileLock] = {}

    def acquire(self, name: str, *, shared: bool = False) -> bool:
        with self._mutex, self._failures():
            if name in self._held:
                return False
            lock = FileLock(lock_path(self._engine, name))
            if not lock.acquire(shared=shared):
                return False
            try:
                lock.write_note(self._holder)
            except BaseException:
                lock.release()
                raise
            self._held[name] = lock
            return True

    def holds(self, name: str) -> bool:
        return name in self._held

    def count(self, names: Collection[str]) -> Mapping[str, int]:
        return {name: 1 for name in names if self.holds(name)}

    def release(self, name: str) -> None:
        with self._mutex:
            lock = self._held.pop(name, None)
            if lock is not None:
                lock.release()

    def holder(self, name: str) -> str:
        with self._failures():
            return FileLock(lock_path(self._engine, name)).read_note() or _UNKNOWN_HOLDER

    def close(self) -> None:
        for name in list(self._held):
            self.release(name)


class _SessionLeases:
    """One session, however many leases: a lease for each cell must not cost a connection each."""

    def __init__(self, engine: Engine, holder: str, failures: Failures) -> None:
        self._engine = engine
        self._holder = holder
        self._failures = failures
        self._mutex = Lock()
        self._session: Connection | None = None
        self._held: dict[str, str] = {}

    def acquire(self, name: str, *, shared: bool = False) -> bool:
        mode = "_shared" if shared else ""
        with self._mutex, self._translated():
            # A session may take the same lock twice, so the server would not refuse it.
            if name in self._held:
                return False
            taken = self._opened().execute(
                text(f"SELECT pg_try_advisory_lock{mode}(:key)"),
                {"key": advisory_key(name)},
            )
            if taken.scalar_one():
                self._held[name] = mode
            return name in self._held

    def holds(self, name: str) -> bool:
        with self._mutex:
            if name not in self._held or self._session is None:
                return False
            try:
                # The leases are gone if their session is, and only the session can tell.
                self._session.execute(text("SELECT 1"))
            except DBAPIError:
                self._forget()
            return name in self._held

    def count(self, names: Collection[str]) -> Mapping[str, int]:
        statement = text(
            "SELECT classid, objid, count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) GROUP BY classid, objid"
        )
        with self._failures(), self._engine.connect() as connection:
            found = {(int(high), int(low)): int(count) for high, low, count in connection.execute(statement)}
        return {name: found[_halves(name)] for name in names if _halves(name) in found}

    def release(self, name: str) -> None:
        with self._mutex:
            mode = self._held.pop(name, None)
            if mode is None or self._session is None:
                return
            try:
                self._session.execute(text(f"SELECT pg_advisory_unlock{mode}(:key)"), {"key": advisory_key(name)})
            except DBAPIError:
                self._forget()

    def holder(self, name: str) -> str:
        high, low = _halves(name)
        statement = text(
            "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
            " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
            " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND l.classid = CAST(:high AS oid) AND l.objid = CAST(:low AS oid) LIMIT 1"
        )
        with self._failures(), self._engine.connect() as connection:
            found = connection.execute(statement, {"high": str(high), "low": str(low)}).scalar()
        return str(found) if found else _UNKNOWN_HOLDER

    def close(self) -> None:
        for name in list(self._held):
            self.release(name)
        with self._mutex:
            self._forget()

    def _opened(self) -> Connection:
        if self._session is None:
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            session.execute(text("SELECT set_config('application_name', :holder, false)"), {"holder": self._holder})
            self._session = session
        return self._session

    def _forget(self) -> None:
        self._held.clear()
        session, self._session = self._session, None
        if session is not None:
            # Never back to the pool: the next user would hold our leases.
            with suppress(DBAPIError):
                session.invalidate()
            session.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Whatever fails, the session is done for: nobody knows what it still holds."""
        try:
            with self._failures():
                yield
        except Exception:
            self._forget()
            raise


def _halves(name: str) -> tuple[int, int]:
    """The key of a lease as PostgreSQL shows it: in two halves, which are unsigned."""
    key = advisory_key(name) & (2**64 - 1)
    return key >> 32, key & (2**32 - 1)
