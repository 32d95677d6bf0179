"""Registers functions that SQLite lacks on connections that run statements of `to_sql`."""

import sqlite3

# These modules create the functions that operators and orders call.
import fleetlight.query.filters
import fleetlight.query.to_sql  # noqa: F401
from fleetlight.query.sql import SqliteFunction


def register_functions(dbapi_connection: sqlite3.Connection) -> None:
    """Register the functions that operators call (fleetlight.query.sql.SqliteFunction)."""
    SqliteFunction.register_all(dbapi_connection)
