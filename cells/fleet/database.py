"""Connections to the fleet database, for everything that keeps something there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, ProgrammingError

from fleetlight.cells.database.engines import UPGRADE, one_statement, translated_failures, writing
from fleetlight.cells.errors import FleetUnreachableError, FleetUnusableError, MixedTablesError, NewerTablesError

_LOOK = "see fleet.database_url"
# An address need not name an account, and then libpq takes it from its own variables.
_LOGIN = f"{_LOOK}, and PGUSER, PGPASSFILE and PGPASSWORD in the environment"
_NEW = f"{_LOOK}; in a new database `fleetlight database upgrade` makes the tables"
# What SQLite and PostgreSQL say where waiting does not help, and what does. When PostgreSQL refuses a login, libpq
# keeps its text and not its code; where that is none of these, it is looked for
# (fleetlight.cells.database.refused_logins).
_REMEDIES = {
    "no such table": UPGRADE,
    "no such column": UPGRADE,
    "unable to open database file": "`fleetlight database upgrade` makes a new one",
    "file is not a database": _LOOK,
    "does not exist": _NEW,
    "authentication failed": _LOGIN,
    "no pg_hba.conf entry": _LOGIN,
}
# SQLSTATEs of PostgreSQL: no such table, no such column, and no right, of which the reason says more already; a wrong
# password, a user that may not log in, and no such database.
_CODES = {"42P01": UPGRADE, "42703": UPGRADE, "42501": "", "28P01": _LOGIN, "28000": _LOGIN, "3D000": _NEW}


@dataclass(frozen=True, slots=True)
class FleetDatabase:
    """Both kinds of connection raise FleetUnreachableError when the database does not answer, or cannot be used."""

    engine: Engine

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that can say what becomes of a row that is there already."""
        return sqlite.insert(table) if self.engine.dialect.name == "sqlite" else postgresql.insert(table)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with translated_fleet_failures(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, which commits at the end."""
        with translated_fleet_failures(), writing(self.engine) as connection:
            yield connection

    @contextmanager
    def writing_once(self) -> Iterator[Connection]:
        """As `writing`, for a single statement."""
        with translated_fleet_failures(), one_statement(self.engine, writes=True) as connection:
            yield connection


@contextmanager
def translated_fleet_failures() -> Iterator[None]:
    """Turn what the database says into FleetUnreachableError, or FleetUnusableError where waiting does not help."""
    try:
        with translated_failures(FleetUnreachableError):
            yield
    except FleetUnreachableError as error:
        remedy = _remedy(error)
        if remedy is None:
            raise
        raise FleetUnusableError("; ".join(filter(None, (error.reason, remedy)))) from error.__cause__


def _remedy(error: FleetUnreachableError) -> str | None:
    """What has to be done, empty where the reason says so already; None where waiting may help."""
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
        # psycopg: an option in the address that there is not.
        return _LOOK
    connection = getattr(cause.orig, "pgconn", None)
    if connection is None or type(cause.orig).__name__ == "ConnectionTimeout":
        return None
    if connection.needs_password:
        return _LOGIN
    # The driver takes long to load, and SQLite needs it not.
    from fleetlight.cells.database.refused_logins import code_of_refusal  # noqa: PLC0415

    code = code_of_refusal(connection.info)
    return None if code is None else _CODES.get(code)
