"""Digests and versions from the SQLite index, for comparisons with a cell: one statement each.

None are stored: the digest of a document is computed from its uuid and version when it is read.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, func, literal_column, select
from sqlalchemy.dialects import sqlite

from fleetlight.cells.digests import RangeDigest, select_digests, to_digests, within
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION
from fleetlight.query.filters import Filter
from fleetlight.query.retention import forgotten, remembered
from fleetlight.query.to_sql import to_sql
from fleetlight.resources.instance import INSTANCE_FIELDS

_DIALECT = sqlite.dialect(paramstyle="qmark")


@dataclass(frozen=True, slots=True)
class ComparedDocuments:
    """The documents to compare; see fleetlight.indexer.backends.base.IndexWriter.digests."""

    documents: Table
    cell_uuid: str
    horizon: int
    external: bool

    @property
    def terms(self) -> Sequence[ColumnElement[bool]]:
        is_native = self.documents.c.version < OLDEST_TIME_VERSION
        of_the_cell = self.documents.c.cell_uuid == self.cell_uuid
        is_remembered = _compiled(self.documents, remembered(self.horizon))
        return of_the_cell, ~is_native if self.external else is_native, is_remembered


def read_digests(
    connection: sqlite3.Connection, compared: ComparedDocuments, prefixes: Sequence[str], length: int
) -> dict[str, RangeDigest]:
    """Read digests; `connection` must have the functions of fleetlight.cells.digests.register_digest."""
    columns = compared.documents.c
    statement = select_digests(columns.uuid, columns.version, prefixes, length, "sqlite", terms=compared.terms)
    return to_digests(_execute(connection, statement))


def read_revisions(
    connection: sqlite3.Connection, compared: ComparedDocuments, prefixes: Sequence[str]
) -> Mapping[str, int]:
    columns = compared.documents.c
    statement = select(columns.uuid, columns.version).where(within(columns.uuid, prefixes), *compared.terms)
    return dict(_execute(connection, statement).fetchall())


def count_external(connection: sqlite3.Connection, documents: Table, cell_uuid: str) -> int:
    terms = ComparedDocuments(documents, cell_uuid, 0, True).terms
    return int(_execute(connection, select(func.count()).select_from(documents).where(*terms)).fetchone()[0])


def forgotten_rows(
    connection: sqlite3.Connection, documents: Table, cell_uuid: str, horizon: int, limit: int
) -> list[tuple[int]]:
    """At most `limit` row ids of documents that are forgotten at `horizon`."""
    is_forgotten = _compiled(documents, forgotten(horizon))
    row_id: ColumnElement[int] = literal_column("rowid")
    statement = select(row_id).select_from(documents).where(documents.c.cell_uuid == cell_uuid, is_forgotten)
    return _execute(connection, statement.limit(limit)).fetchall()


def _compiled(documents: Table, node: Filter) -> ColumnElement[bool]:
    columns = {name: documents.c[name] for name in INSTANCE_FIELDS if name in documents.c}
    return to_sql(node, columns, INSTANCE_FIELDS, "sqlite")


def _execute(connection: sqlite3.Connection, statement: Select[Any]) -> sqlite3.Cursor:
    compiled = statement.compile(dialect=_DIALECT)
    return connection.execute(compiled.string, [compiled.params[name] for name in compiled.positiontup or ()])
