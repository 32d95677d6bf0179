"""A page of the SQLite index: from the request to one statement, and from its rows to ours."""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import and_, select
from sqlalchemy.dialects import sqlite

from indexer.backends.base import FoundRow
from indexer.backends.sqlite.schema import DOCUMENTS, piece_column
from indexer.items.view import ItemTemplate
from query.errors import NotExpressibleError
from query.fields import Kind
from query.filters import leaves
from query.instances import INSTANCE_FIELDS
from query.page import PageRequest
from query.to_sql import after, order_by, to_sql

# sqlite3 binds by position; named parameters would be looked up one by one.
_DIALECT = sqlite.dialect(paramstyle="qmark")
COLUMNS = {name: DOCUMENTS.c[name] for name in INSTANCE_FIELDS if name in DOCUMENTS.c}


def select_page(
    connection: sqlite3.Connection, request: PageRequest, cells: Collection[str], template: ItemTemplate
) -> list[FoundRow]:
    """Run one search; `connection` has what query.sqlite_functions registers.

    The rows go from the driver into ours without a stop: SQLAlchemy makes the statement but does not run it. Each is
    made into its item before the next one is read, so that they all pass through the same few pages of memory.
    """
    statement, values = _compile(request, tuple(cells), template.pieces)
    first_piece = len(request.order.keys) + 1
    render = template.render
    rows = [
        FoundRow(row[1:first_piece], render(row[first_piece:], row[0])) for row in connection.execute(statement, values)
    ]
    bools = [
        position for position, key in enumerate(request.order.keys) if INSTANCE_FIELDS[key.field].kind is Kind.BOOL
    ]
    return [_with_bools(row, bools) for row in rows] if bools else rows


def describe_page(request: PageRequest, cells: Collection[str]) -> Mapping[str, Any]:
    """The statement of a search without the pieces, and its values. Raises NotExpressibleError."""
    statement, values = _compile(request, tuple(cells), ())
    return {"sql": statement, "values": list(values)}


@lru_cache(maxsize=256)
def _compile(request: PageRequest, cells: tuple[str, ...], pieces: tuple[str, ...]) -> tuple[str, Sequence[object]]:
    """The statement of a request and its values; first pages are asked for again and again.

    Raises NotExpressibleError for a filter about a field that is not kept.
    """
    for leaf in leaves(request.filter):
        if leaf.field not in COLUMNS:
            raise NotExpressibleError("the SQLite index", f"a filter about '{leaf.field}'")
    terms = [to_sql(request.filter, COLUMNS, INSTANCE_FIELDS, "sqlite")]
    if request.after is not None:
        terms.append(after(request.order, request.after, COLUMNS, "sqlite"))
    # The indexes end with the cell, so this costs no more than a look at the entry, even when all cells are asked for.
    terms.append(DOCUMENTS.c.cell_uuid.in_(cells))
    statement = (
        select(
            DOCUMENTS.c.cell_uuid,
            *(DOCUMENTS.c[key.field] for key in request.order.keys),
            *(DOCUMENTS.c[piece_column(piece)] for piece in pieces),
        )
        .where(and_(*terms))
        .order_by(*order_by(request.order, COLUMNS, "sqlite"))
        .limit(request.limit)
    )
    compiled = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    names = compiled.positiontup or ()
    return compiled.string, [compiled.params[name] for name in names]


def _with_bools(row: FoundRow, positions: Sequence[int]) -> FoundRow:
    """The row with booleans in its position, which SQLite keeps as 0 and 1."""
    position = list(row.position)
    for index in positions:
        if position[index] is not None:
            position[index] = bool(position[index])
    return FoundRow(tuple(position), row.item)
