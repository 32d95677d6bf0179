"""Leases: locks that one process holds on a database, and that die with it.

A lease that runs out by the clock would have to be longer than any pause of its holder and shorter than any
wait of its callers, and could end in the middle of the holder's work. These end exactly when their holder does, however
it ends.

PostgreSQL: advisory locks, all in one session, whose `application_name` names the holder. SQLite: locks on
files beside the database, whose text names the holder.

A process that hangs has not ended. On PostgreSQL the session of its leases falls silent then, in which it shows a sign
of life otherwise, and a process that wants a lease of it ends that session (docs/decisions/0017). What its holder does
next has to be harmless without the lease, since it may wake up anywhere.
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

# The length of an identifier of PostgreSQL, which cuts off what is longer.
_MAX_HOLDER_LENGTH = 63
_UNKNOWN_HOLDER = "another process"
# How many signs of life a holder may miss, and how often it is looked for them in the same time.
_SIGNS_OF_LIFE = 4
# The sessions that hold the lock with a key, in two halves. One of another account does not say when it was last used.
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
    """Leases of one process, by name; threads may share one. Calls raise what `failures` of `open_leases` does."""

    def acquire(self, name: str, *, shared: bool = False) -> bool:
        """Take a lease that this object does not hold; False, at once, while another process holds it.

        shared: any number of holders may have it, as long as none has it alone.
        """
        ...

    def holds(self, name: str) -> bool:
        """Whether the lease is held, and was never lost since it was taken."""
        ...

    def count(self, names: Collection[str]) -> Mapping[str, int]:
        """How many holders some leases have; those without one are left out.

        Holders of files cannot be counted, so SQLite knows of those of this object alone.
        """
        ...

    def holders(self, names: Collection[str]) -> Mapping[str, Sequence[str]] | None:
        """The holders of some leases, as phrases; leases without one are left out. None where they cannot be seen.

        Those of files cannot, without taking the lease away for a moment.
        """
        ...

    def release(self, name: str) -> None:
        """Give it back; nothing happens if it is not held."""
        ...

    def holder(self, name: str) -> str:
        """The holder of the lease, as a phrase."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


def open_leases(
    engine: Engine, purpose: str, failures: Failures = nullcontext, *, takeover_after_s: float | None = None
) -> Leases:
    """Leases on the database behind `engine`.

    purpose: what the holder does, for others to read. failures: turns what the database says into errors of the caller.
    takeover_after_s: a holder that has shown no sign of life for so long loses what this object wants to have; those of
        this object show one several times in that time. None: never, and none. On SQLite no process loses a lease.
    """
    holder = f"{purpose} (process {os.getpid()} on {socket.gethostname()})"[:_MAX_HOLDER_LENGTH]
    if engine.dialect.name == "sqlite":
        return _FileLeases(engine, holder, failures)
    return _SessionLeases(engine, holder, failures, takeover_after_s)


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
    """One session, however many leases: a lease for each cell must not cost a connection each."""

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
            # A session may take the same lock twice, so the server would not refuse it.
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
                # The leases are gone if their session is, and only the session can tell.
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
        """Ask something in the session now and then, until it is over: the server knows when it was asked last.

        In a thread of its own: the work under a lease may wait for long, for a bus for instance, and hangs not.
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
            # Never back to the pool: the next user would hold our leases.
            with suppress(DBAPIError):
                session.invalidate()
            session.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Whatever fails, the session is done for: it is not known what it still holds."""
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
    """The key of a lease as PostgreSQL shows it: in two halves, which are unsigned."""
    key = advisory_key(name) & (2**64 - 1)
    return key >> 32, key & (2**32 - 1)
