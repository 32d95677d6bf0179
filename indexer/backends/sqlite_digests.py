"""What is compared with a cell, out of the SQLite index: from the question to one statement, and back.

Nothing is stored for it: the digest of a document is computed from its uuid and version when it is asked for.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal_column, select
from sqlalchemy.dialects import sqlite

from cells.digests import RangeDigest, select_digests, to_digests, within
from indexer.backends.base import OLDEST_TIME_VERSION
from indexer.backends.sqlite_schema import DOCUMENTS
from indexer.backends.sqlite_search import COLUMNS
from query.instances import INSTANCE_FIELDS
from query.retention import forgotten, remembered
from query.to_sql import to_sql

_DIALECT = sqlite.dialect(paramstyle="qmark")
_IS_NATIVE = DOCUMENTS.c.version < OLDEST_TIME_VERSION


def read_digests(
    connection: sqlite3.Connection, cell_uuid: str, prefixes: Sequence[str], length: int, horizon: int
) -> dict[str, RangeDigest]:
    """`connection` has what cells.digests.register_digest registers."""
    statement = select_digests(DOCUMENTS.c.uuid, DOCUMENTS.c.version, prefixes, length, "sqlite")
    return to_digests(_execute(connection, statement.where(*_compared(cell_uuid, horizon))))


def read_revisions(
    connection: sqlite3.Connection, cell_uuid: str, prefixes: Sequence[str], horizon: int
) -> Mapping[str, int]:
    statement = select(DOCUMENTS.c.uuid, DOCUMENTS.c.version).where(
        within(DOCUMENTS.c.uuid, prefixes), *_compared(cell_uuid, horizon)
    )
    return dict(_execute(connection, statement).fetchall())


def count_foreign(connection: sqlite3.Connection, cell_uuid: str) -> int:
    statement = select(func.count()).where(DOCUMENTS.c.cell_uuid == cell_uuid, ~_IS_NATIVE)
    return int(_execute(connection, statement).fetchone()[0])


def forgotten_rows(connection: sqlite3.Connection, cell_uuid: str, horizon: int, limit: int) -> list[tuple[int]]:
    """At most `limit` row ids of documents that are forgotten at `horizon`."""
    is_forgotten = to_sql(forgotten(horizon), COLUMNS, INSTANCE_FIELDS, "sqlite")
    row_id: ColumnElement[int] = literal_column("rowid")
    statement = select(row_id).select_from(DOCUMENTS).where(DOCUMENTS.c.cell_uuid == cell_uuid, is_forgotten)
    return _execute(connection, statement.limit(limit)).fetchall()


def _compared(cell_uuid: str, horizon: int) -> Sequence[ColumnElement[bool]]:
    is_remembered = to_sql(remembered(horizon), COLUMNS, INSTANCE_FIELDS, "sqlite")
    return DOCUMENTS.c.cell_uuid == cell_uuid, _IS_NATIVE, is_remembered


def _execute(connection: sqlite3.Connection, statement: Select[Any]) -> sqlite3.Cursor:
    compiled = statement.compile(dialect=_DIALECT)
    return connection.execute(compiled.string, [compiled.params[name] for name in compiled.positiontup or ()])
