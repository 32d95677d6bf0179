"""Engines for fleet and cell databases, SQLite and PostgreSQL, and transactions that write.

SQLite runs in WAL mode, so that readers and the writer do not wait for each other. `synchronous` is FULL: with NORMAL a
power failure could undo commits that the relay has announced, and the index would then hold revisions newer than the
truth, which nothing could ever overwrite. A killed process loses nothing either way.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from fleetlight.cells.database.sqlite_files import make_private, use_write_ahead_log
from fleetlight.cells.digests import register_digest
from fleetlight.cells.errors import CellUnreachableError, DatabaseUrlError, MixedTablesError, NewerTablesError
from fleetlight.query.sqlite_functions import register_functions

# SQLSTATEs of PostgreSQL.
_INSUFFICIENT_PRIVILEGE = "42501"
_NO_SUCH_TABLE = "42P01"
_NO_SUCH_THING = (_NO_SUCH_TABLE, "42703")  # table, column
_NO_SUCH_THING_OF_SQLITE = ("no such table", "no such column", "has no column named")
# SQLite's messages for a row without text, or without JSON, where it should have some.
_DAMAGE = ("Could not decode to UTF-8", "JSON cannot hold BLOB values", "malformed JSON")
_WHO_MAY = (
    "what a process may do, `fleetlight accounts postgresql`, run by the owner, lets it do, and what changes cells, "
    "accounts or tables is run by the owner itself"
)
UPGRADE = "`fleetlight database upgrade` brings its tables to this version"
_RESTORE = "restore it from a backup"
_BUSY_TIMEOUT_S = 30
_WRITES = "fleetlight_writes"
_FILE = "fleetlight_file"
_LOOKED_AT = "fleetlight_looked_at"
_LOOK_AGAIN_S = 1.0
VANISHED_AFTER_MS = 30_000
"""How long data sent to a PostgreSQL server may stay unacknowledged before the connection is given up."""


def create_database_engine(
    url: str,
    *,
    must_exist: bool = False,
    cell_uuid: str | None = None,
    statement_timeout_s: float | None = None,
    answer_timeout_s: float | None = None,
    idle_transaction_timeout_s: float | None = None,
    pool_size: int = 5,
) -> Engine:
    """Create an engine for `sqlite:///file` or `postgresql://…`, without connecting.

    Error messages show statements without their values, some of which are secrets. A PostgreSQL URL may have libpq's
    parameters (`?sslrootcert=FILE` turns on TLS with verification). libpq takes a missing user or password from its own
    variables and files (PGUSER, PGPASSFILE). must_exist: do not create a missing SQLite file (PostgreSQL databases are
    never created). Only commands that add a cell or a fleet create one, since an empty database would look like one
    that has nothing. cell_uuid: the registered native cell to which the database must belong, and so exist. Each
    connection checks this when it opens, and again when used a second later, since a database may be replaced while it
    is open. statement_timeout_s: PostgreSQL ends a statement that takes longer; SQLite has no such limit.
    answer_timeout_s: how long to wait for any answer from PostgreSQL. Without it, silent servers are given up, but long
    statements are not (fleetlight.cells.database.silent_servers). idle_transaction_timeout_s: PostgreSQL ends a
    transaction without queries for this long, so that a process that hangs in one keeps no locks. Raises
    DatabaseUrlError, which does not show the password.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The text of a malformed URL may have a password anywhere, so none of it is shown.
        raise DatabaseUrlError("…", "it is not a URL like sqlite:///file or postgresql://user@host/database") from None
    match parsed.get_backend_name():
        case "sqlite":
            engine = _sqlite_engine(parsed, must_exist or cell_uuid is not None, pool_size)
        case "postgresql":
            engine = _postgresql_engine(parsed, statement_timeout_s, idle_transaction_timeout_s, pool_size)
            # Only here, since the driver takes long to load, and SQLite does not need it.
            from fleetlight.cells.database.silent_servers import limit_answers  # noqa: PLC0415

            limit_answers(engine, answer_timeout_s)
        case other:
            raise DatabaseUrlError(repr(parsed), f"'{other}' is not supported, only sqlite and postgresql")
    if cell_uuid is not None:
        _require_cell(engine, cell_uuid)
        if engine.dialect.name == "sqlite":
            _watch_file(engine, Path(str(parsed.database)))
    return engine


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes; it commits at the end, or rolls back on an error.

    On SQLite it takes the write lock at once: a transaction that reads first and then meets another writer would fail,
    however long it waited.
    """
    # Options of the connection: changing those of an engine would copy it, with slower listeners.
    with engine.connect().execution_options(**{_WRITES: True}) as connection, connection.begin():
        yield connection


@contextmanager
def one_statement(engine: Engine, *, writes: bool = False) -> Iterator[Connection]:
    """A transaction of one statement; PostgreSQL needs no separate calls to begin and end it."""
    options: dict[str, Any] = {_WRITES: writes}
    if engine.dialect.name != "sqlite":
        options["isolation_level"] = "AUTOCOMMIT"
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def translated_failures(unreachable: Callable[[str], Exception], *, when_older: str = "") -> Iterator[None]:
    """Translate database errors to `unreachable(reason)`; the reason shows no statement, value or password.

    An IntegrityError passes, since the database did answer. when_older: ends the reason if the database lacks tables or
    columns that this program knows.
    """
    try:
        yield
    except IntegrityError:
        raise
    except DBAPIError as error:
        remedy = when_older if _lacks_something(error) else None
        raise unreachable("; ".join(filter(None, (reason_of(error.orig), remedy)))) from error
    except PoolTimeoutError as error:
        raise unreachable("every connection to its database is in use") from error
    except (NewerTablesError, MixedTablesError) as error:
        raise unreachable(str(error)) from error
    except OSError as error:  # of the lock beside a SQLite file
        raise unreachable(str(error)) from error


def reason_of(error: BaseException | None) -> str:
    """The driver's message in one line; for a missing right, also which account has it."""
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    is_refusal = getattr(error, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE
    return f"{reason}; {_WHO_MAY}" if is_refusal else reason


def tells_of_damage(error: DBAPIError) -> bool:
    """Whether SQLite failed because of the contents of a row, and not of the statement or the file."""
    return str(error.orig).startswith(_DAMAGE)


def cell_failures(cell: str) -> AbstractContextManager[None]:
    """Translate errors of a native cell's database to CellUnreachableError. cell: its name."""
    return translated_failures(partial(CellUnreachableError, cell), when_older=UPGRADE)


def external_cell_failures(cell: str) -> AbstractContextManager[None]:
    """The same for a cell with tables of other software."""
    return translated_failures(partial(CellUnreachableError, cell))


def needs_an_operator(error: BaseException) -> bool:
    """Whether the database lacks tables, or its account a right, so that an operator has to act.

    The same request is then to be tried again later. SQLite reports this as an OperationalError, like everything that
    may pass; PostgreSQL as an error of the statement.
    """
    if not isinstance(error, DBAPIError):
        return False
    return _lacks_something(error) or getattr(error.orig, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE


def _lacks_something(error: DBAPIError) -> bool:
    """Whether the database reported a missing table or column."""
    code = getattr(error.orig, "sqlstate", None)
    return code in _NO_SUCH_THING if code else any(words in str(error.orig) for words in _NO_SUCH_THING_OF_SQLITE)


class ClosingPool(QueuePool):
    """Closes connections that return after it was disposed of, which would otherwise stay open until garbage
    collection.

    A connection returns late from a thread that was left behind because its query did not answer in time.
    """

    # Loggers are named by the class, and this one has to be as quiet as the library's.
    __module__ = QueuePool.__module__
    _is_disposed = False

    def dispose(self) -> None:
        self._is_disposed = True
        super().dispose()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        # Check after the return, since the pool may be disposed of during it.
        if self._is_disposed:
            super().dispose()


def _sqlite_engine(url: URL, must_exist: bool, pool_size: int) -> Engine:
    if not url.database or url.database == ":memory:":
        raise DatabaseUrlError(repr(url), "a database in memory is not shared by threads; name a file")
    path = Path(url.database)
    if must_exist:
        url = url.set(database=f"file:{quote(url.database)}", query={"mode": "rw", "uri": "true"})
    engine = create_engine(
        url.set(drivername="sqlite"),
        connect_args={"timeout": _BUSY_TIMEOUT_S},
        hide_parameters=True,
        poolclass=ClosingPool,
        pool_size=pool_size,
        max_overflow=-1,
        json_serializer=_to_json,
        json_deserializer=msgspec.json.decode,
    )
    if not must_exist:
        event.listen(engine, "do_connect", lambda *_: make_private(path))
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _watch_file(engine: Engine, path: Path) -> None:
    """Open and use only the file that exists at the path: a deleted file could be read for long."""

    def require(*_: object) -> None:
        # Clearer than SQLite, which takes an empty file for a database without tables.
        if (found := _file_at(path)) is None:
            raise sqlite3.OperationalError("the file of its database is not there")
        if not found.st_size:
            raise sqlite3.OperationalError("the file of its database is empty")

    def note(_connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        entry.info[_FILE] = _file_at(path)

    def compare(_connection: DBAPIConnection, entry: ConnectionPoolEntry, _proxy: object) -> None:
        found, opened = _file_at(path), entry.info[_FILE]
        if found is None or opened is None or not os.path.samestat(found, opened):
            # Makes the pool open another connection.
            raise DisconnectionError

    event.listen(engine, "do_connect", require)
    event.listen(engine, "connect", note)
    event.listen(engine, "checkout", compare)


def _file_at(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _require_cell(engine: Engine, cell_uuid: str) -> None:
    """Open and use only the database of this cell."""
    driver = engine.dialect.loaded_dbapi

    def require(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        _look_for_cell(driver.OperationalError, cell_uuid, connection)
        entry.info[_LOOKED_AT] = time.monotonic()

    def look_again(connection: DBAPIConnection, entry: ConnectionPoolEntry, _proxy: object) -> None:
        if time.monotonic() - entry.info[_LOOKED_AT] < _LOOK_AGAIN_S:
            return
        try:
            require(connection, entry)
        except driver.Error as error:
            # The pool opens another connection, which reports what is wrong.
            raise DisconnectionError from error

    # Insert it first, so that nothing is changed in a database that is not ours.
    event.listen(engine, "connect", require, insert=True)
    event.listen(engine, "checkout", look_again)


def _look_for_cell(error_type: type[Exception], cell_uuid: str, connection: DBAPIConnection) -> None:
    """Raise `error_type`, an error of the driver, if a new connection is not to the database of this cell.

    A database without the cell's uuid passes, since a cell is registered before the uuid is stored.
    """
    cursor = connection.cursor()
    try:
        cursor.execute("SELECT uuid FROM cell_state")
        found = cursor.fetchone()
    except Exception as error:
        sqlstate = getattr(error, "sqlstate", None)
        if sqlstate == _INSUFFICIENT_PRIVILEGE:
            return
        if sqlstate == _NO_SUCH_TABLE or str(error).startswith(_NO_SUCH_THING_OF_SQLITE[0]):
            raise error_type(f"its database has no tables of a cell: {_RESTORE}") from error
        raise
    finally:
        cursor.close()
        connection.rollback()
    if found is None:
        raise error_type(f"its database is empty: {_RESTORE}")
    if found[0] not in (None, cell_uuid):
        raise error_type(f"its database is that of another cell, {found[0]}")


def _prepare_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    # Otherwise the driver begins transactions itself, and only before some statements.
    connection.isolation_level = None
    use_write_ahead_log(connection, _BUSY_TIMEOUT_S)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
    register_functions(connection)
    register_digest(connection)


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql_engine(
    url: URL, statement_timeout_s: float | None, idle_transaction_timeout_s: float | None, pool_size: int
) -> Engine:
    # A peer that vanished without closing must not block a thread for the hours that TCP would wait, nor, without
    # keepalives, for the quarter of an hour in which it resends what was never received.
    arguments: dict[str, Any] = {
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "tcp_user_timeout": VANISHED_AFTER_MS,
    }
    options = {
        "statement_timeout": statement_timeout_s,
        "idle_in_transaction_session_timeout": idle_transaction_timeout_s,
    }
    if any(options.values()):
        set_s = {name: value for name, value in options.items() if value is not None}
        arguments["options"] = " ".join(f"-c {name}={round(value * 1000)}" for name, value in set_s.items())
    if statement_timeout_s is not None:
        arguments["tcp_user_timeout"] = round(statement_timeout_s * 1000)
    if "sslrootcert" in url.query and "sslmode" not in url.query:
        # libpq alone would continue without TLS if the server says that it has none.
        arguments["sslmode"] = "verify-full"
    return create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args=arguments,
        hide_parameters=True,
        poolclass=ClosingPool,
        pool_size=pool_size,
        pool_pre_ping=True,
        json_serializer=_to_json,
        json_deserializer=msgspec.json.decode,
    )


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
