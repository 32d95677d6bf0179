"""A page of the SQLite index: from the request to one statement, and from its rows to ours."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, and_, select
from sqlalchemy.dialects import sqlite

from fleetlight.indexer.backends.base import MISSHAPEN, FoundPage, FoundRow, counts_by_cell
from fleetlight.indexer.backends.sqlite.schema import DOCUMENTS, NICE_NAME, field_column, piece_column, reader_of
from fleetlight.indexer.errors import IndexDocumentError
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.counts_in_sql import count_statement
from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import Filter, leaves
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.query.to_sql import after, in_nice_order, order_by, to_sql
from fleetlight.resources.fields import Kind
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.projection import Projection

# sqlite3 binds by position; named parameters would be looked up one by one.
_DIALECT = sqlite.dialect(paramstyle="qmark")
COLUMNS = {name: DOCUMENTS.c[name] for name in INSTANCE_FIELDS if name in DOCUMENTS.c} | {
    in_nice_order("display_name"): DOCUMENTS.c[NICE_NAME]
}


def select_rows(
    connection: sqlite3.Connection, request: PageRequest, cells: Collection[str], projection: Projection
) -> list[FoundRow]:
    """Run one search; `connection` has what fleetlight.query.sqlite_functions registers."""
    render, order = _render_of(projection), request.order
    row: Sequence[Any] = ()
    rows: list[FoundRow] = []
    found, cell = _select(connection, request, cells, projection)
    try:
        for row in found:
            rows.append(FoundRow(_position(row[cell + 1 :], order), render(row, row[cell])))
    except MISSHAPEN as error:
        raise IndexDocumentError.caused_by(error, row[-1]) from error
    return rows


def select_page(
    connection: sqlite3.Connection, request: PageRequest, cells: Collection[str], projection: Projection
) -> FoundPage:
    """Run one search, and join what it finds."""
    render = _render_of(projection)
    row: Sequence[Any] = ()
    items: list[bytes] = []
    found, cell = _select(connection, request, cells, projection)
    try:
        for row in found:
            items.append(render(row, row[cell]))
    except MISSHAPEN as error:
        raise IndexDocumentError.caused_by(error, row[-1]) from error
    last = _position(row[cell + 1 :], request.order) if items else None
    return FoundPage(b",".join(filter(None, items)), len(items), last)


def _select(
    connection: sqlite3.Connection, request: PageRequest, cells: Collection[str], projection: Projection
) -> tuple[Iterable[Sequence[Any]], int]:
    """The rows of a search: what the projection needs, the cell, and the keys; and where the cell is.

    They go from the driver into ours without a stop: SQLAlchemy makes the statement but does not run it. Each is to be
    made into its item before the next one is read, so that they all pass through the same few pages of memory.
    """
    pieces, fields = projection.pieces, () if projection.pieces else projection.fields or ()
    statement, values = _compile(request, tuple(cells), pieces, fields, with_version=projection.shows_revision)
    found: Iterable[Sequence[Any]] = connection.execute(statement, values)
    return found, len(pieces) + len(fields) + projection.shows_revision


def _render_of(projection: Projection) -> Callable[[Sequence[Any], str], bytes]:
    """What makes the item of a row, as SQLite has it, and of its cell."""
    read = None if projection.pieces else reader_of(projection.fields or ())
    return projection.render if read is None else lambda row, cell_uuid: projection.render(read(row), cell_uuid)


def _position(keys: Sequence[Any], order: SortOrder) -> tuple[Any, ...]:
    """The values of sort keys, with booleans, which SQLite keeps as 0 and 1."""
    return tuple(_value(value, order.item_type[key.field].kind) for key, value in zip(order.keys, keys, strict=True))


def _value(value: Any, kind: Kind) -> Any:
    return bool(value) if value is not None and kind is Kind.BOOL else value


def count(connection: sqlite3.Connection, request: CountRequest, cells: Collection[str]) -> dict[str, Counts]:
    """Count rows by cell and group. Raises NotExpressibleError."""
    _require_kept(request.filter)
    cell = DOCUMENTS.c.cell_uuid
    counted = count_statement(DOCUMENTS, COLUMNS, request, "sqlite", cell).where(cell.in_(cells))
    statement, values = _to_text(counted)
    kinds = [request.item_type[name].kind for name in request.by]
    found = (
        (cell_uuid, tuple(map(_value, group, kinds)), number)
        for cell_uuid, *group, number in connection.execute(statement, values)
    )
    return counts_by_cell(found, request.max_groups)


def describe_page(request: PageRequest, cells: Collection[str]) -> Mapping[str, Any]:
    """The statement of a search without what the items are made of, and its values. Raises NotExpressibleError."""
    statement, values = _compile(request, tuple(cells))
    return {"sql": statement, "values": list(values)}


@lru_cache(maxsize=256)
def _compile(
    request: PageRequest,
    cells: tuple[str, ...],
    pieces: tuple[str, ...] = (),
    fields: tuple[str, ...] = (),
    *,
    with_version: bool = False,
) -> tuple[str, Sequence[object]]:
    """The statement of a request and its values; first pages are requested again and again.

    Raises NotExpressibleError for a filter about a field that is not kept.
    """
    _require_kept(request.filter)
    terms = [to_sql(request.filter, COLUMNS, INSTANCE_FIELDS, "sqlite")]
    if request.after is not None:
        terms.append(after(request.order, request.after, COLUMNS, "sqlite"))
    # The indexes end with the cell, so this costs no more than a look at the entry, even when all cells are wanted.
    terms.append(DOCUMENTS.c.cell_uuid.in_(cells))
    statement = (
        select(
            *(DOCUMENTS.c[piece_column(piece)] for piece in pieces),
            *(field_column(name) for name in fields),
            *([DOCUMENTS.c.version] if with_version else []),
            DOCUMENTS.c.cell_uuid,
            *(DOCUMENTS.c[key.field] for key in request.order.keys),
        )
        .where(and_(*terms))
        .order_by(*order_by(request.order, COLUMNS, "sqlite"))
        .limit(request.limit)
    )
    return _to_text(statement)


def _require_kept(node: Filter) -> None:
    for leaf in leaves(node):
        if leaf.field not in COLUMNS:
            raise NotExpressibleError("the SQLite index", f"a filter about '{leaf.field}'")


def _to_text(statement: Select[Any]) -> tuple[str, Sequence[object]]:
    compiled = statement.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    names = compiled.positiontup or ()
    return compiled.string, [compiled.params[name] for name in names]
