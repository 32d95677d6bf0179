"""Connections to the fleet database."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, ProgrammingError

from fleetlight.cells.database.engines import UPGRADE, one_statement, translated_failures, writing
from fleetlight.cells.errors import FleetUnreachableError, FleetUnusableError, MixedTablesError, NewerTablesError

_LOOK = "see fleet.database_url"
# If an address names no account, libpq takes one from its own variables.
_LOGIN = f"{_LOOK}, and PGUSER, PGPASSFILE and PGPASSWORD in the environment"
_NEW = f"{_LOOK}; in a new database `fleetlight database upgrade` makes the tables"
# Messages of SQLite and PostgreSQL for failures that do not pass, and remedies. When PostgreSQL refuses a login, libpq
# keeps the message and not the SQLSTATE; for an unknown message, fleetlight.cells.database.refused_logins finds the
# SQLSTATE.
_REMEDIES = {
    "no such table": UPGRADE,
    "no such column": UPGRADE,
    "unable to open database file": "`fleetlight database upgrade` makes a new one",
    "file is not a database": _LOOK,
    "does not exist": _NEW,
    "authentication failed": _LOGIN,
    "no pg_hba.conf entry": _LOGIN,
}
# SQLSTATEs of PostgreSQL: no such table, no such column, and no right (whose reason already has the remedy); a wrong
# password, a user that may not log in, and no such database.
_CODES = {"42P01": UPGRADE, "42703": UPGRADE, "42501": "", "28P01": _LOGIN, "28000": _LOGIN, "3D000": _NEW}


@dataclass(frozen=True, slots=True)
class FleetDatabase:
    """The fleet database. Its connections raise FleetUnreachableError if it does not answer, or cannot be used."""

    engine: Engine

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT of the database's dialect, which can have an ON CONFLICT clause."""
        return sqlite.insert(table) if self.engine.dialect.name == "sqlite" else postgresql.insert(table)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection for queries."""
        with translated_fleet_failures(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a transaction that writes, and commits at the end."""
        with translated_fleet_failures(), writing(self.engine) as connection:
            yield connection

    @contextmanager
    def writing_once(self) -> Iterator[Connection]:
        """As `writing`, for a single statement."""
        with translated_fleet_failures(), one_statement(self.engine, writes=True) as connection:
            yield connection


@contextmanager
def translated_fleet_failures() -> Iterator[None]:
    """Translate errors of the database to FleetUnreachableError, or to FleetUnusableError if waiting does not help."""
    try:
        with translated_failures(FleetUnreachableError):
            yield
    except FleetUnreachableError as error:
        remedy = _remedy(error)
        if remedy is None:
            raise
        raise FleetUnusableError("; ".join(filter(None, (error.reason, remedy)))) from error.__cause__


def _remedy(error: FleetUnreachableError) -> str | None:
    """The remedy of a failure, empty if its reason has one; None if the failure may pass."""
    cause = error.__cause__
    if isinstance(cause, NewerTablesError | MixedTablesError):
        return ""
    if not isinstance(cause, DBAPIError):
        return None
    code = getattr(cause.orig, "sqlstate", None)
    if code is not None:
        return _CODES.get(code)
    for sign, remedy in _REMEDIES.items():
        if sign in error.reason:
            return remedy
    if isinstance(cause, ProgrammingError):
        # psycopg: the address has an unknown option.
        return _LOOK
    connection = getattr(cause.orig, "pgconn", None)
    if connection is None or type(cause.orig).__name__ == "ConnectionTimeout":
        return None
    if connection.needs_password:
        return _LOGIN
    # The driver takes long to load, and SQLite does not need it.
    from fleetlight.cells.database.refused_logins import code_of_refusal  # noqa: PLC0415

    code = code_of_refusal(connection.info)
    return None if code is None else _CODES.get(code)
