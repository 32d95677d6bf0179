"""Reads damaged rows of Nova's databases as far as possible.

Damaged JSON counts as missing (fleetlight.cells.kinds.nova_db.json_columns). This module handles everything else:
impossible times, nulls where Nova writes none, bytes that are not text.
"""

from typing import Any

from sqlalchemy import Connection, Select
from sqlalchemy.exc import DBAPIError

from fleetlight.cells.database.engines import reason_of, tells_of_damage
from fleetlight.cells.kinds.nova_db.tables import PLAIN_COLUMNS
from fleetlight.resources.fields import Record

MISSHAPEN = (ValueError, TypeError, LookupError, AttributeError)
"""The errors that drivers and this package raise for a damaged row."""


def is_damage(error: Exception) -> bool:
    """Whether an error in reading rows comes from the contents of one of them."""
    return isinstance(error, MISSHAPEN) or (isinstance(error, DBAPIError) and tells_of_damage(error))


def reason_of_damage(error: Exception) -> str:
    """Why a row cannot be read, without its contents."""
    if isinstance(error, DBAPIError):
        return reason_of(error.orig).partition(" with text ")[0]
    return f"{type(error).__name__}: {error}"


def read_damaged(connection: Connection, row: Select[Any], uuid: str) -> Record:
    """The readable columns of an instance, read one by one. row: the statement that reads the row."""
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
