"""Functions that SQLite lacks, registered on each connection that runs what `to_sql` makes."""

import sqlite3

# Operators and orders make the functions that they call.
import fleetlight.query.filters
import fleetlight.query.to_sql  # noqa: F401
from fleetlight.query.sql import SqliteFunction


def register_functions(dbapi_connection: sqlite3.Connection) -> None:
    """Register what operators call (fleetlight.query.sql.SqliteFunction)."""
    SqliteFunction.register_all(dbapi_connection)
