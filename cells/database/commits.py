"""Detects commits to databases, for all cells of a process together, and waits for them.

Each database has a query that is much cheaper than a look at its tables, and whose result changes with every commit
that such a look would see: SQLite's data version (https://sqlite.org/pragma.html#pragma_data_version), PostgreSQL's
snapshot (https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-SNAPSHOT).
Why not NOTIFY: docs/decisions/0040.
"""

import time
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, cast
from urllib.parse import unquote

from sqlalchemy import URL, Engine
from sqlalchemy.exc import SQLAlchemyError

from fleetlight.cells.errors import MixedTablesError, NewerTablesError

_LONGEST_WAIT_S = 5.0
_QUESTIONS = {"sqlite": "PRAGMA data_version", "postgresql": "SELECT pg_current_snapshot()::text"}


class Commits:
    """Detects commits to the database of `engine`, by any process, since the last look at its tables.

    longest_rest_s: after this time a look is due in any case, since the files of the database may have been replaced.
    """

    def __init__(self, engine: Engine, longest_rest_s: float = 10.0) -> None:
        self._engine = engine
        self._longest_rest_s = longest_rest_s
        self._database = _database_of(engine.url)
        self._seen = 0
        self._look_due_s = 0.0

    def may_be_new(self) -> bool:
        """Whether anything may have been committed since the last call; call this before the look.

        False is certain unless the files were replaced. Raises nothing: if a database does not answer, the look reports
        it.
        """
        now_s, version = time.monotonic(), self._database.version(self._engine)
        is_new = version != self._seen or now_s >= self._look_due_s
        if is_new:
            self._seen, self._look_due_s = version, now_s + self._longest_rest_s
        return is_new

    def wait(self, stop: Event, interval_s: float, longest_s: float) -> None:
        """Wait until something may be new, checking every `interval_s`; at most `longest_s`, or until `stop` is set.

        `stop` is noticed within the interval.
        """
        self._database.watcher.wait(_Wait(self._database, self._engine, self._seen, stop, interval_s), longest_s)


class _Database:
    """A database to query, over one connection for all its users in this process."""

    def __init__(self, dialect: str, watcher: "_Watcher") -> None:
        self.watcher = watcher
        self._question = _QUESTIONS[dialect]
        self._mutex = Lock()
        self._connection: Any = None
        self._answer: object = None
        self._version = 0
        self._closing: weakref.finalize[..., _Database] | None = None

    def version(self, engine: Engine) -> int:
        """A number that changes if anything may have been committed. engine: for connecting."""
        with self._mutex:
            answer = self._ask(engine)
            if answer is None or answer != self._answer:
                self._version += 1
            self._answer = answer
            return self._version

    def _ask(self, engine: Engine) -> object:
        """The answer of the query; None if there is none."""
        try:
            if self._connection is None:
                self._connect(engine)
            return self._connection.execute(self._question).fetchone()
        except _failures_of(engine):
            self._disconnect()
            return None

    def _connect(self, engine: Engine) -> None:
        pooled = engine.raw_connection()
        self._connection = pooled.driver_connection
        # Detached, since SQLite's answers are relative to the connection, and engines come and go.
        pooled.detach()
        self._closing = weakref.finalize(self, self._connection.close)
        if engine.dialect.name != "sqlite":
            self._connection.autocommit = True

    def _disconnect(self) -> None:
        if self._closing is not None:
            self._closing()
        self._connection = self._closing = None


def _failures_of(engine: Engine) -> tuple[type[Exception], ...]:
    """Errors of the driver, which its own connections raise untranslated, and others of a query."""
    return (
        OSError,
        SQLAlchemyError,
        NewerTablesError,
        MixedTablesError,
        cast("type[Exception]", engine.dialect.loaded_dbapi.Error),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Wait:
    database: _Database
    engine: Engine
    seen: int
    stop: Event
    interval_s: float
    is_over: Event = field(default_factory=Event)


class _Watcher:
    """A thread that queries for all that wait: waking a thousand threads that query themselves takes a processor."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._waits: set[_Wait] = set()
        self._thread: Thread | None = None

    def wait(self, wait: _Wait, longest_s: float) -> None:
        with self._mutex:
            self._waits.add(wait)
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._watch, name="commits", daemon=True)
                self._thread.start()
        try:
            # Limited, since the thread may hang with its server.
            wait.is_over.wait(min(longest_s, _LONGEST_WAIT_S))
        finally:
            with self._mutex:
                self._waits.discard(wait)

    def _watch(self) -> None:
        """Check all waits until none is left."""
        pause = Event()
        while waits := self._waiting():
            engines = {wait.database: wait.engine for wait in waits}
            versions = {database: database.version(engine) for database, engine in engines.items()}
            for wait in waits:
                if wait.stop.is_set() or versions[wait.database] != wait.seen:
                    wait.is_over.set()
            pause.wait(min(wait.interval_s for wait in waits))

    def _waiting(self) -> Sequence[_Wait]:
        with self._mutex:
            if not self._waits:
                self._thread = None
            return list(self._waits)


_files = _Watcher()
# One for each server, so that a server that hangs does not hold up others.
_servers: "weakref.WeakValueDictionary[Hashable, _Watcher]" = weakref.WeakValueDictionary()
_databases: "weakref.WeakValueDictionary[Hashable, _Database]" = weakref.WeakValueDictionary()
_databases_mutex = Lock()


def _database_of(url: URL) -> _Database:
    dialect, name = url.get_backend_name(), str(url.database)
    if dialect == "sqlite":
        is_uri = name.startswith("file:")
        # The same relative name is another file in another folder.
        name = str(Path(unquote(name.removeprefix("file:")) if is_uri else name).absolute())
    # One address may stand for several servers, each with some of the databases.
    server = (url.host, url.port, url.query.get("host"), url.query.get("port"))
    with _databases_mutex:
        watcher = _files if dialect == "sqlite" else _servers.setdefault(server, _Watcher())
        return _databases.setdefault((server, name), _Database(dialect, watcher))
