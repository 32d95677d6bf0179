"""Compiles filter, order, position and counts to SQL (SQLAlchemy Core) with bound values.

Columns are given by field, with the types of the store. Text compares by code point: on SQLite by default (BINARY), on
PostgreSQL by `COLLATE "C"`, and on MySQL if the columns are bytes. On PostgreSQL an index serves an order only if it is
declared in the same way: with `COLLATE "C"`, and for nullable columns ASC NULLS FIRST or DESC NULLS LAST. SQLite
connections need fleetlight.query.sqlite_functions.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Integer,
    Select,
    Text,
    and_,
    case,
    cast,
    column,
    distinct,
    false,
    func,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by
from sqlalchemy.sql.selectable import TableValuedAlias

from fleetlight.query.counts import CountRequest
from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import (
    EVERYTHING,
    NOTHING,
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    IsNotNull,
    IsNull,
    Le,
    Lt,
    Or,
    all_of,
    any_of,
    fit,
    leaves,
    lower,
)
from fleetlight.query.sort import (
    ESCAPE,
    NO_DIGITS,
    NUMBER,
    SURROGATES,
    SURROGATES_END,
    Collation,
    Direction,
    SortKey,
    SortOrder,
    nice_key,
)
from fleetlight.query.sql import TEXT, Predicate, SqlColumn, SqlDialect, SqliteFunction
from fleetlight.resources.fields import ItemType

_NUMBER_OR_TEXT = "([0-9]+)|[^0-9]+"


class FieldColumns(Protocol):
    """Columns by field: a mapping, or the `c` of a table whose columns have the names of fields."""

    def __getitem__(self, name: str, /) -> ColumnElement[Any]: ...

    def __contains__(self, name: str, /) -> bool: ...


def to_sql(node: Filter, columns: FieldColumns, fields: ItemType, dialect: SqlDialect) -> Predicate:
    """The predicate of exactly the rows that match `node`, which has passed `check`.

    Raises NotExpressibleError for a pattern without an equivalent in PostgreSQL. For MySQL, see `can_express`.
    """
    return _compile(lower(node, fields, dialect), columns, fields, dialect)


def columns_by_unique(columns: Mapping[str, ColumnElement[Any]]) -> Mapping[str, ColumnElement[Any]]:
    """The columns for the filter of a page that SQLite orders by the unique field: no index serves a `deleted`.

    SQLite keeps no statistics: it would take the index that begins with `deleted`, and sort nearly all rows.
    """
    return {**columns, "deleted": cast(columns["deleted"], Integer)}


def can_express(node: Filter, dialect: SqlDialect) -> bool:
    """Whether `to_sql` has an exact predicate; see fleetlight.query.filters.split_expressible.

    MySQL has neither our patterns nor our lists.
    """
    return all(leaf.fits_sql(dialect) for leaf in leaves(node))


def order_by(order: SortOrder, columns: FieldColumns, dialect: SqlDialect) -> list[ColumnElement[Any]]:
    """The terms of ORDER BY; without a place of nulls for a column that is not nullable, so that a plain index serves.

    Raises NotExpressibleError for a nice order on MySQL.
    """
    order, by_name = _by_code_point(order, columns, dialect)
    terms: list[ColumnElement[Any]] = []
    for key in order.keys:
        is_ascending = key.direction is Direction.ASC
        column = SqlColumn(by_name[key.field], dialect, None)
        term = column.ordered.asc() if is_ascending else column.ordered.desc()
        if dialect == "postgresql" and column.is_nullable:
            term = term.nulls_first() if is_ascending else term.nulls_last()
        terms.append(term)
    return terms


def after(order: SortOrder, position: Sequence[Any], columns: FieldColumns, dialect: SqlDialect) -> Predicate:
    """The predicate of the rows after a position.

    position: stored values of the order's keys (PageRequest.after).
    With the chain of keys alone the database would read from the start, so a range on the first key precedes it.
    Raises NotExpressibleError for a nice order on MySQL.
    """
    position = order.by_code_point(position)
    order, by_name = _by_code_point(order, columns, dialect)
    start = _compile(fit(not_before(order.keys[0], position[0]), dialect), by_name, None, dialect)
    return and_(start, _compile(fit(beyond(order, position), dialect), by_name, None, dialect))


def next_after(
    order: SortOrder, position: Sequence[Any], columns: FieldColumns, dialect: SqlDialect
) -> Predicate | None:
    """The predicate of the first rows after a position that are one range of an index; None if all of them are."""
    position = order.by_code_point(position)
    order, by_name = _by_code_point(order, columns, dialect)
    part = next_beyond(order, position)
    return None if part is None else _compile(fit(part, dialect), by_name, None, dialect)


def in_nice_order(field: str) -> str:
    """The name of a store's column with the nice key of `field` (fleetlight.query.sort.nice_key)."""
    # No field has a space in its name.
    return f"{field} in nice order"


def _by_code_point(
    order: SortOrder, columns: FieldColumns, dialect: SqlDialect
) -> tuple[SortOrder, Mapping[str, ColumnElement[Any]]]:
    """The same order by columns that all compare by code point, and these columns by the names of the new keys."""
    keys: list[SortKey] = []
    by_name: dict[str, ColumnElement[Any]] = {}
    for key in order.keys:
        name = key.field if key.collation is Collation.CODE_POINT else in_nice_order(key.field)
        keys.append(SortKey(name, key.direction))
        # Only some stores have a column for the nice key.
        by_name[name] = columns[name] if name in columns else nice_column(columns[key.field], dialect)
    return SortOrder(order.item_type, tuple(keys)), by_name


def _compile(node: Filter, columns: FieldColumns, fields: ItemType | None, dialect: SqlDialect) -> Predicate:
    """The predicate of a lowered tree (fleetlight.query.tree.lower). fields: None for a position."""
    match node:
        case And(terms):
            return and_(*(_compile(term, columns, fields, dialect) for term in terms)) if terms else true()
        case Or(terms):
            return or_(*(_compile(term, columns, fields, dialect) for term in terms)) if terms else false()
    kind = None if fields is None else fields[node.field].kind
    return node.sql(SqlColumn(columns[node.field], dialect, kind))


def beyond(order: SortOrder, position: Sequence[Any]) -> Filter:
    """The rows after a position, as a lowered tree: the lexicographic chain, where a null is lower than every value.

    position: stored values of the order's keys.
    The chain is written out flat, (a) or (tie a, b) or (tie a, tie b, c): nested in itself it would be as deep as there
    are keys, and thirty keys overflow SQLite's parser stack.
    """
    ties: list[Filter] = []
    chain: list[Filter] = []
    for key, value in zip(order.keys, position, strict=True):
        chain.append(all_of(*ties, _after(key, value)))
        ties.append(IsNull(key.field) if value is None else Eq(key.field, value))
    return any_of(*chain)


def not_before(key: SortKey, value: Any) -> Filter:
    """The rows that `key` alone does not exclude from following `value`: a range that an index can find."""
    match key.direction, value:
        case Direction.ASC, None:
            return EVERYTHING
        case Direction.DESC, None:
            return IsNull(key.field)
        case Direction.ASC, _:
            return Ge(key.field, value)
    return any_of(Le(key.field, value), IsNull(key.field))


def next_beyond(order: SortOrder, position: Sequence[Any]) -> Filter | None:
    """The first rows after a position that an index has in one range; None if it has all of them in one.

    In descending order a value is followed by lower ones, then by nulls. To find both at once PostgreSQL reads its
    index from the start, so that a page would cost as much as all pages before it.
    """
    first, value = order.keys[0], position[0]
    if value is None or first.direction is Direction.ASC or len(order.keys) == 1:
        return None
    return all_of(Le(first.field, value), beyond(order, position))


def _after(key: SortKey, value: Any) -> Filter:
    match key.direction, value:
        case Direction.ASC, None:
            return IsNotNull(key.field)
        case Direction.DESC, None:
            return NOTHING
        case Direction.ASC, _:
            return Gt(key.field, value)
    return any_of(Lt(key.field, value), IsNull(key.field))


def count_statement(
    table: FromClause, columns: FieldColumns, request: CountRequest, dialect: SqlDialect, *leading: ColumnElement[Any]
) -> Select[Any]:
    """Selects groups by GROUP BY, at most one more than the request allows: `leading`, the values, and the count.

    leading: further grouping columns. Raises NotExpressibleError as `to_sql`; MySQL has no lists.
    """
    rows, values, has_lists = table, list(leading), False
    for name in request.by:
        value = columns[name]
        if request.item_type[name].is_list:
            # A row for each member, and one for an empty list. Members may repeat.
            members = _members(value, dialect).alias(f"members_of_{name}")
            rows, value, has_lists = rows.outerjoin(members, true()), members.c.value, True
        values.append(value)
    number = func.count(distinct(columns[request.item_type.unique])) if has_lists else func.count()
    wanted = to_sql(request.filter, columns, request.item_type, dialect)
    counted = select(*values, number).select_from(rows).where(wanted)
    return counted.group_by(*values).limit(request.max_groups + 1) if values else counted


def _members(stored: ColumnElement[Any], dialect: SqlDialect) -> TableValuedAlias:
    if dialect == "postgresql":
        return func.jsonb_array_elements_text(stored).table_valued("value")
    return func.json_each(stored).table_valued("value")


_sqlite_key = SqliteFunction("fleetlight_nice_key", 1, nice_key, TEXT)


def nice_column(stored: ColumnElement[Any], dialect: SqlDialect) -> ColumnElement[Any]:
    """The key of a text column, computed by the database as by fleetlight.query.sort.nice_key.

    No index serves it, so such an order reads every row that matches the filter. PostgreSQL's collation (ICU,
    `kn-true`) is no substitute, since it orders case and punctuation differently.
    Raises NotExpressibleError for MySQL.
    """
    match dialect:
        case "sqlite":
            return _sqlite_key(stored)
        case "postgresql":
            return _postgresql_key(stored)
    raise NotExpressibleError("MySQL", f"a nice order of '{stored.name}'")


def _postgresql_key(stored: ColumnElement[Any]) -> ColumnElement[Any]:
    text = cast(stored, Text)
    parts = (
        func.regexp_matches(text, f"({_NUMBER_OR_TEXT})", "g")
        .table_valued(column("found", ARRAY(Text)), with_ordinality="place")
        .render_derived(name="parts")
    )
    whole, number = parts.c.found[1], parts.c.found[2]
    digits = func.ltrim(number, "0")
    length = func.length(digits) + NO_DIGITS
    character = func.chr(case((length < SURROGATES, length), else_=length + (SURROGATES_END - SURROGATES)))
    key = case((number.is_not(None), literal(NUMBER, Text).concat(character).concat(digits)), else_=_escaped(whole))
    joined = func.string_agg(key, aggregate_order_by(literal("", Text), parts.c.place))
    # Of no text there are no parts.
    return case((stored.is_not(None), func.coalesce(select(joined).scalar_subquery(), "", type_=Text)))


def _escaped(text: ColumnElement[Any]) -> ColumnElement[Any]:
    for mark in (ESCAPE, NUMBER):
        text = func.replace(text, mark, ESCAPE + chr(ord(mark) + 1))
    return text
