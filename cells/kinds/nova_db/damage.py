"""Rows of Nova's databases that hold what Nova never writes, and what can still be read of them.

JSON that says something else than it should is as good as none (fleetlight.cells.kinds.nova_db.json_columns). What is
told here is all
else: times that no calendar has, nulls where Nova has none, bytes that are no text.
"""

from typing import Any

from sqlalchemy import Connection, Select
from sqlalchemy.exc import DBAPIError

from fleetlight.cells.database.engines import reason_of, tells_of_damage
from fleetlight.cells.kinds.nova_db.tables import PLAIN_COLUMNS
from fleetlight.resources.fields import Record

MISSHAPEN = (ValueError, TypeError, LookupError, AttributeError)
"""What reading such a row raises, of drivers and of what is here."""


def is_damage(error: Exception) -> bool:
    """Whether what went wrong with the reading of rows is about what one of them holds."""
    return isinstance(error, MISSHAPEN) or (isinstance(error, DBAPIError) and tells_of_damage(error))


def reason_of_damage(error: Exception) -> str:
    """Why a row cannot be read, without what a database says that it holds."""
    if isinstance(error, DBAPIError):
        return reason_of(error.orig).partition(" with text ")[0]
    return f"{type(error).__name__}: {error}"


def read_damaged(connection: Connection, row: Select[Any], uuid: str) -> Record:
    """What can be read of the columns of an instance, one by one. row: the statement that reads it."""
    readable: dict[str, Any] = {"forthcoming": False}
    for name in (*PLAIN_COLUMNS, "deleted"):
        column = row.selected_columns[name]
        try:
            readable[name] = connection.scalars(row.with_only_columns(column, maintain_column_froms=True)).first()
        except Exception as error:
            if not is_damage(error):
                raise
    if "deleted" in readable:
        readable["deleted"] = bool(readable["deleted"])
    return {**readable, "uuid": uuid}
