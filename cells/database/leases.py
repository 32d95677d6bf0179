"""Leases: locks on a database that one process holds, and that end with it.

A lease with a time limit would have to be longer than any pause of its holder and shorter than any wait of others, and
could end in the middle of the holder's work. These leases end exactly when their holder does, in whatever way.

PostgreSQL: advisory locks, all in one session, whose `application_name` names the holder. SQLite: locks on files beside
the database, whose text names the holder.

A process that hangs has not ended. On PostgreSQL the session of its leases then falls silent, which otherwise shows
signs of life, and a process that wants one of these leases ends the session (docs/decisions/0017). Whatever the holder
does next must be harmless without the lease, since it may wake up at any point.
"""

import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from threading import Event, Lock, Thread
from typing import Protocol

import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from fleetlight.cells.database.file_lock import FileLock
from fleetlight.cells.database.locks import advisory_key, lock_path

_log = structlog.get_logger(__name__)

Failures = Callable[[], AbstractContextManager[None]]

# The limit of identifiers in PostgreSQL, which truncates longer ones.
_MAX_HOLDER_LENGTH = 63
_UNKNOWN_HOLDER = "another process"
# How many signs of life fit in the time after which a holder loses its lease, and how often others check in it.
_SIGNS_OF_LIFE = 4
# The sessions that hold the lock with a key, in two halves. Those of other accounts do not show their last use.
_HOLDERS = text(
    "SELECT a.pid, a.application_name, a.usename = current_user AS is_ours,"
    " EXTRACT(EPOCH FROM clock_timestamp() - a.state_change) AS silent_s"
    " FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND l.classid = CAST(:high AS oid) AND l.objid = CAST(:low AS oid)"
)
_ALL_HOLDERS = text(
    "SELECT l.classid, l.objid, a.application_name FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " ORDER BY a.application_name"
)
_END = text("SELECT pg_terminate_backend(:pid)")


class Leases(Protocol):
    """The leases of one process, by name; threads may share them. Calls raise errors of `failures` (open_leases)."""

    def acquire(self, name: str, *, shared: bool = False) -> bool:
        """Take a lease that this object does not hold. Returns False at once if another process holds it.

        shared: several holders may share it, but not with an exclusive one.
        """
        ...

    def holds(self, name: str) -> bool:
        """Whether the lease is held, and was not lost since it was taken."""
        ...

    def count(self, names: Collection[str]) -> Mapping[str, int]:
        """The number of holders of each lease, without leases that have none.

        With SQLite only leases of this object are counted, since holders of file locks cannot be.
        """
        ...

    def holders(self, names: Collection[str]) -> Mapping[str, Sequence[str]] | None:
        """The holders of each lease as phrases, without leases that have none. None if they cannot be found.

        Holders of file locks cannot be found without taking the lock away for a moment.
        """
        ...

    def release(self, name: str) -> None:
        """Release a lease; without effect if it is not held."""
        ...

    def holder(self, name: str) -> str:
        """The holder of the lease, as a phrase."""
        ...

    def close(self) -> None:
        """Release all leases."""
        ...


def open_leases(
    engine: Engine, purpose: str, failures: Failures = nullcontext, *, takeover_after_s: float | None = None
) -> Leases:
    """Open leases on the database behind `engine`.

    purpose: of the holder, for others to read. failures: translates database errors to the caller's. takeover_after_s:
        a holder without signs of life for this long loses a lease that this object wants; the leases of this object
        give several signs in that time. None: neither applies. On SQLite no process loses a lease.
    """
    holder = f"{purpose} (process {os.getpid()} on {socket.gethostname()})"[:_MAX_HOLDER_LENGTH]
    if engine.dialect.name == "sqlite":
        return _FileLeases(engine, holder, failures)
    return _SessionLeases(engine, holder, failures, takeover_after_s)


class ExclusiveLock:
    """One lease that is tried repeatedly: that of a cell's relay, which is active while it holds it."""

    def __init__(self, leases: Leases, name: str) -> None:
        self._leases = leases
        self._name = name
        self._is_held = False

    def acquire(self) -> bool:
        """Take the lock, or confirm that it is still held.

        Returns False while another holder has it, and once after it was lost, so that the caller notices.
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

    def holders(self, names: Collection[str]) -> None:
        return None

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
    """All leases in one session, so that a lease for each cell does not cost a connection each."""

    def __init__(self, engine: Engine, holder: str, failures: Failures, takeover_after_s: float | None) -> None:
        self._engine = engine
        self._holder = holder
        self._failures = failures
        self._takeover_after_s = takeover_after_s
        self._mutex = Lock()
        self._session: Connection | None = None
        self._session_is_over = Event()
        self._held: dict[str, str] = {}
        self._look_due: dict[str, float] = {}

    def acquire(self, name: str, *, shared: bool = False) -> bool:
        mode = "_shared" if shared else ""
        with self._mutex, self._translated():
            # The server would not refuse it, since a session may take the same lock twice.
            if name in self._held:
                return False
            taken = self._opened().execute(
                text(f"SELECT pg_try_advisory_lock{mode}(:key)"),
                {"key": advisory_key(name)},
            )
            if taken.scalar_one():
                self._held[name] = mode
            else:
                self._end_silent_holders(name)
            return name in self._held

    def holds(self, name: str) -> bool:
        with self._mutex:
            if name not in self._held or self._session is None:
                return False
            try:
                # Leases end with their session, so a query in the session shows whether they are held.
                self._session.execute(text("SELECT 1"))
            except DBAPIError:
                self._forget()
            return name in self._held

    def count(self, names: Collection[str]) -> Mapping[str, int]:
        return {name: len(holders) for name, holders in self.holders(names).items()}

    def holders(self, names: Collection[str]) -> Mapping[str, Sequence[str]]:
        found: dict[tuple[int, int], list[str]] = {}
        with self._failures(), self._engine.connect() as connection:
            for high, low, holder in connection.execute(_ALL_HOLDERS):
                found.setdefault((int(high), int(low)), []).append(holder or _UNKNOWN_HOLDER)
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
        with self._failures(), self._engine.connect() as connection:
            found = connection.execute(_HOLDERS, _key_of(name)).first()
        return str(found.application_name) if found and found.application_name else _UNKNOWN_HOLDER

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
            if self._takeover_after_s is not None:
                self._session_is_over = is_over = Event()
                interval_s = self._takeover_after_s / _SIGNS_OF_LIFE
                Thread(
                    target=self._show_life, args=(interval_s, is_over), name="lease-sign-of-life", daemon=True
                ).start()
        return self._session

    def _show_life(self, interval_s: float, is_over: Event) -> None:
        """Query in the session regularly until it is over, because the server records its last query.

        A separate thread does this: work under a lease may wait for long, for example for a bus, without hanging.
        """
        while not is_over.wait(interval_s):
            with self._mutex:
                if is_over.is_set() or self._session is None:
                    return
                try:
                    self._session.execute(text("SELECT 1"))
                except DBAPIError:
                    self._forget()

    def _end_silent_holders(self, name: str) -> None:
        if self._takeover_after_s is None or time.monotonic() < self._look_due.get(name, 0.0):
            return
        self._look_due[name] = time.monotonic() + self._takeover_after_s / _SIGNS_OF_LIFE
        session = self._opened()
        for holder in session.execute(_HOLDERS, _key_of(name)).all():
            if holder.is_ours and holder.silent_s is not None and holder.silent_s > self._takeover_after_s:
                session.execute(_END, {"pid": holder.pid})
                silent_s = round(float(holder.silent_s), 1)
                _log.warning("lease.holder_hangs", lease=name, holder=holder.application_name, silent_s=silent_s)

    def _forget(self) -> None:
        self._session_is_over.set()
        self._held.clear()
        session, self._session = self._session, None
        if session is not None:
            # Never return it to the pool, or else its next user would hold our leases.
            with suppress(DBAPIError):
                session.invalidate()
            session.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate errors, and drop the session after any, since it is unknown which locks it still holds."""
        try:
            with self._failures():
                yield
        except Exception:
            self._forget()
            raise


def _key_of(name: str) -> dict[str, str]:
    high, low = _halves(name)
    return {"high": str(high), "low": str(low)}


def _halves(name: str) -> tuple[int, int]:
    """The key of a lease as PostgreSQL shows it: in two unsigned halves."""
    key = advisory_key(name) & (2**64 - 1)
    return key >> 32, key & (2**32 - 1)
