"""Read-only connections to Nova's databases: SQLite, PostgreSQL, MySQL and MariaDB.

Nova's own tools may have stored an address with an unquoted password, and with a driver that we do not have.
"""

import re
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, quote, unquote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from fleetlight.cells.database.engines import VANISHED_AFTER_MS, ClosingPool
from fleetlight.cells.errors import DatabaseUrlError
from fleetlight.query.sqlite_functions import register_functions

NovaDialect = Literal["sqlite", "postgresql", "mysql"]
T = TypeVar("T")

_BUSY_TIMEOUT_S = 5
_CONNECT_TIMEOUT_S = 5
# A connection counts as broken after the limit of a statement and this margin.
_READ_MARGIN_S = 5
# Without a limit for statements, a MySQL server must send some byte within this time: such statements read pages in the
# order of an index, whose first rows come at once.
_MYSQL_SILENT_AFTER_S = 120
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5}
# A connection that ended while it was idle fails at once.
_AT_ONCE_S = 1.0
_FAMILIES: dict[str, NovaDialect] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
}
# After this, all statements see the state at the first one. MySQL and MariaDB take the isolation from their session.
_ONE_MOMENT: dict[NovaDialect, str] = {
    "sqlite": "BEGIN",
    "postgresql": "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "mysql": "START TRANSACTION",
}
_DRIVERS: dict[NovaDialect, str] = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
# Other arguments are for drivers that we do not use.
_KNOWN_ARGUMENTS: dict[NovaDialect, re.Pattern[str]] = {
    "sqlite": re.compile("(?!)"),
    "postgresql": re.compile("ssl.*|host|port|application_name|passfile|service"),
    "mysql": re.compile("ssl_.*|unix_socket|read_default_file|read_default_group"),
}
_ADDRESS = re.compile(
    r"(?P<family>[a-z0-9]+)(\+[a-z0-9_]+)?://((?P<account>.*)@)?(?P<host>\[[^\]]*\]|[^:/?@]*)(:(?P<port>\d*))?"
    r"(/(?P<database>[^?@]*))?(\?(?P<arguments>.*))?",
    re.IGNORECASE | re.DOTALL,
)


def parse_nova_url(url: str) -> URL:
    """The address with our driver. Raises DatabaseUrlError, which shows no part of a password."""
    family = _FAMILIES.get(url.partition(":")[0].partition("+")[0].lower())
    if family is None:
        raise DatabaseUrlError("…", "it is not the URL of a database of SQLite, PostgreSQL, MySQL or MariaDB")
    if family == "sqlite":
        return _sqlite_url(url)
    found = _ADDRESS.fullmatch(url)
    if found is None:
        raise DatabaseUrlError("…", f"it is not a URL like {family}://user@host/database")
    username, _, password = (found["account"] or "").partition(":")
    arguments = {
        name: value
        for name, value in parse_qsl(found["arguments"] or "", keep_blank_values=True)
        if _KNOWN_ARGUMENTS[family].fullmatch(name)
    }
    return URL.create(
        _DRIVERS[family],
        username=unquote(username) or None,
        password=unquote(password) or None,
        host=(found["host"] or "").strip("[]") or None,
        # A template without a port leaves nothing after the colon.
        port=int(found["port"]) if found["port"] else None,
        database=unquote(found["database"] or "") or None,
        query=arguments,
    )


def open_nova_database(url: str, *, statement_timeout_s: float | None = None, pool_size: int = 5) -> Engine:
    """An engine of read-only connections; opens none yet.

    statement_timeout_s: the server ends a statement that takes longer; SQLite has no such limit. Even without a limit,
        connections give up a silent server: PostgreSQL by fleetlight.cells.database.silent_servers, MySQL and MariaDB
        after two minutes.
    Raises DatabaseUrlError.
    """
    parsed = parse_nova_url(url)
    dialect = dialect_of(parsed)
    options: dict[str, Any] = {"pool_size": pool_size, "max_overflow": -1, "hide_parameters": True}
    options["poolclass"] = ClosingPool
    try:
        if dialect == "sqlite":
            engine = create_engine(parsed, connect_args={"timeout": _BUSY_TIMEOUT_S}, **options)
            event.listen(engine, "connect", _prepare_sqlite)
            return engine
        # No transaction stays open, which would see old rows for long, or costs a round trip.
        options |= {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True}
        if dialect == "postgresql":
            engine = create_engine(parsed, connect_args=_postgresql_arguments(statement_timeout_s), **options)
            # The driver takes long to load, and other databases do not need it.
            from fleetlight.cells.database.silent_servers import limit_answers  # noqa: PLC0415

            limit_answers(engine)
            return engine
        engine = create_engine(parsed, connect_args=_mysql_arguments(statement_timeout_s), **options)
    except ModuleNotFoundError as error:
        raise DatabaseUrlError(
            repr(parsed), f"its driver {error.name} is not installed: pip install 'fleetlight[nova]'"
        ) from None
    event.listen(engine, "connect", _PrepareMysql(statement_timeout_s))
    return engine


def read(engine: Engine, question: Callable[[Connection], T], *, at_one_moment: bool = False) -> T:
    """The result of `question`, which may be called twice. Raises what SQLAlchemy raises.

    at_one_moment: all its statements see the state at the first one, at the price of two round trips.

    A connection of the pool may have ended in the meantime. To find that out when it fails, and ask again on a new one,
    spares each question the round trip of trying the connection first.
    """
    began = time.monotonic()
    try:
        with _connected(engine, at_one_moment) as connection:
            return question(connection)
    except DBAPIError as error:
        if not error.connection_invalidated or time.monotonic() - began > _AT_ONCE_S:
            raise
    with _connected(engine, at_one_moment) as connection:
        return question(connection)


@contextmanager
def _connected(engine: Engine, at_one_moment: bool) -> Iterator[Connection]:
    with engine.connect() as connection:
        if at_one_moment:
            connection.exec_driver_sql(_ONE_MOMENT[dialect_of(engine.url)])
        try:
            yield connection
        except BaseException:
            if at_one_moment:
                # The state of its transaction is unknown.
                connection.invalidate()
            raise
        if at_one_moment:
            leave_moment(connection)


def leave_moment(connection: Connection) -> None:
    """End the transaction of `read`, if any, so that each later statement sees what is committed when it begins.

    After an error PostgreSQL refuses other statements of the transaction. SQLite accepts them, and its transaction ends
    when the connection returns to the pool.
    """
    if dialect_of(connection.engine.url) != "sqlite":
        connection.exec_driver_sql("ROLLBACK")


def dialect_of(url: URL) -> NovaDialect:
    return _FAMILIES[url.get_backend_name()]


def address_of(url: URL) -> str:
    """Host and port of a server, without secrets."""
    return f"{url.host or url.query.get('unix_socket') or 'localhost'}:{url.port or ''}"


def _sqlite_url(url: str) -> URL:
    try:
        database = make_url(url).database
    except (ArgumentError, ValueError):
        database = None
    if not database or database == ":memory:":
        raise DatabaseUrlError("…", "it names no file: sqlite:////path/of/file")
    return URL.create("sqlite", database=f"file:{quote(database)}", query={"mode": "ro", "uri": "true"})


def _prepare_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA query_only=ON")
    register_functions(connection)


def _postgresql_arguments(statement_timeout_s: float | None) -> dict[str, Any]:
    # PostgreSQL overestimates the cost of a page: JIT compilation or parallel workers take longer than reading it.
    settings = ["-c default_transaction_read_only=on", "-c jit=off", "-c max_parallel_workers_per_gather=0"]
    # A generic plan, which PostgreSQL uses after some executions, reads the whole cell for a page of a few rows.
    settings.append("-c plan_cache_mode=force_custom_plan")
    arguments: dict[str, Any] = {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "tcp_user_timeout": VANISHED_AFTER_MS,
        **_KEEPALIVES,
    }
    if statement_timeout_s is not None:
        timeout_ms = round(statement_timeout_s * 1000)
        settings.append(f"-c statement_timeout={timeout_ms}")
        arguments["tcp_user_timeout"] = timeout_ms
    return arguments | {"options": " ".join(settings)}


def _give_up_vanished(server: socket.socket) -> None:
    """Set the keepalives of libpq on a socket, whose driver would only begin with them after two hours."""
    if server.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    for option, value in (
        ("TCP_KEEPIDLE", _KEEPALIVES["keepalives_idle"]),
        ("TCP_KEEPINTVL", _KEEPALIVES["keepalives_interval"]),
        ("TCP_USER_TIMEOUT", VANISHED_AFTER_MS),
    ):
        # Not every system has all of these options.
        if hasattr(socket, option):
            server.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _mysql_arguments(statement_timeout_s: float | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "charset": "utf8mb4",
        "init_command": "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        "read_timeout": _MYSQL_SILENT_AFTER_S,
    }
    if statement_timeout_s is not None:
        arguments["read_timeout"] = max(1, round(statement_timeout_s + _READ_MARGIN_S))
    return arguments


class _PrepareMysql:
    """Limits statements as the server requires: MariaDB counts seconds, MySQL milliseconds; and sees to
    it that one which vanished is noticed, as libpq does by itself.
    """

    def __init__(self, statement_timeout_s: float | None) -> None:
        self._timeout_s = statement_timeout_s

    def __call__(self, connection: Any, _entry: ConnectionPoolEntry) -> None:
        _give_up_vanished(connection._sock)
        if self._timeout_s is None:
            return
        with connection.cursor() as cursor:
            if "mariadb" in connection.get_server_info().lower():
                cursor.execute("SET SESSION max_statement_time = %s", (self._timeout_s,))
            else:
                cursor.execute("SET SESSION max_execution_time = %s", (round(self._timeout_s * 1000),))
