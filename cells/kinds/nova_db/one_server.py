"""Makes engines keep to one server, although another may answer at the same address, and close idle connections.

Rows of another server may be older than the commits that the first one has reported.
"""

import threading
import time
import weakref
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import ConnectionPoolEntry

from fleetlight.cells.kinds.nova_db.databases import dialect_of

Identity = tuple[object, ...]
"""Distinguishes servers behind the same address."""

_ASKED = {
    "mysql": "SELECT @@hostname, @@port, @@server_id, @@socket",
    "postgresql": "SELECT inet_server_addr()::text, inet_server_port(), pg_postmaster_start_time()::text",
}


def identity_at(connection: Connection) -> Identity:
    """The identity of the server of a connection, MariaDB or PostgreSQL. Raises what SQLAlchemy raises."""
    return tuple(connection.exec_driver_sql(_ASKED[dialect_of(connection.engine.url)]).one())


def keep_to(engine: Engine, identity: Identity | None) -> None:
    """Make an engine refuse connections to another server; None accepts any server."""
    _kept(engine).keep_to(identity)


def times_changed(engine: Engine) -> int:
    """The number of times that any user of an engine has made it keep to another server."""
    return _kept(engine).changes


def close_idle(engine: Engine, after_s: float) -> None:
    """Close the connections of an engine that was not used for so long."""
    _kept(engine).close_idle(after_s)


def _kept(engine: Engine) -> "_OneServer":
    with _guard:
        if engine not in _KEPT:
            _KEPT[engine] = _OneServer(engine)
        return _KEPT[engine]


class _OneServer:
    def __init__(self, engine: Engine) -> None:
        self._engine = weakref.ref(engine)
        self._asked = _ASKED[dialect_of(engine.url)]
        self._identity: Identity | None = None
        self.changes = 0
        self._used_s: float | None = None
        event.listen(engine, "connect", self._check)
        event.listen(engine, "checkout", self._note_use)
        event.listen(engine, "checkin", self._note_use)

    def keep_to(self, identity: Identity | None) -> None:
        if identity != self._identity and (engine := self._engine()) is not None:
            self._identity = identity
            self.changes += 1
            engine.dispose()

    def close_idle(self, after_s: float) -> None:
        is_idle = self._used_s is not None and time.monotonic() - self._used_s > after_s
        if is_idle and (engine := self._engine()) is not None:
            self._used_s = None
            engine.dispose()

    def _note_use(self, *_: object) -> None:
        self._used_s = time.monotonic()

    def _check(self, connection: Any, _entry: ConnectionPoolEntry) -> None:
        if self._identity is None:
            return
        with connection.cursor() as cursor:
            cursor.execute(self._asked)
            answered = tuple(cursor.fetchone())
        if answered != self._identity:
            problem = "another server answers there than the one whose commits are followed"
            raise OperationalError(self._asked, None, Exception(problem))


_KEPT: "weakref.WeakKeyDictionary[Engine, _OneServer]" = weakref.WeakKeyDictionary()
_guard = threading.Lock()
