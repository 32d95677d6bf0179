"""Filter, order and position -> SQL (SQLAlchemy Core); every value is bound.

Columns come by field name, typed as the store has them. Text compares by code point: on SQLite that is the default
(BINARY), on PostgreSQL `COLLATE "C"` says it, and for MySQL the columns have to be bytes. An index serves an order on
PostgreSQL only if it is declared in the same way: `COLLATE "C"`, and for columns that may be null ASC NULLS FIRST or
DESC NULLS LAST. Connections to SQLite need query.sqlite_functions.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, assert_never, cast

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Double,
    Integer,
    Numeric,
    String,
    Text,
    and_,
    exists,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import TypeEngine

from query.errors import NotExpressibleError
from query.filters import (
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    HasAddress,
    In,
    IsNotNull,
    IsNull,
    Lacks,
    LacksAddress,
    Le,
    Leaf,
    Lt,
    Matches,
    Ne,
    NotIn,
    NotMatches,
    Or,
    leaves,
)
from query.lowering import beyond, lower, next_beyond, not_before, without_values
from query.regex import compile_pattern, to_postgres
from query.sort import Direction, SortOrder
from query.sqlite_functions import HAS_ADDRESS, LIST_HAS, RE2_SEARCH, TIME_TEXT
from resources.fields import Field, FieldSet, Kind

SqlDialect = Literal["sqlite", "postgresql", "mysql"]
Predicate = ColumnElement[bool]

# Longer lists travel as one bound value: SQLite takes 32,766 values by default, PostgreSQL 65,535.
_MAX_BOUND_VALUES = 500
_LARGE_INTEGER = BigInteger()
_TEXT = String()
_MICROSECONDS = 1_000_000
_BEYOND_MYSQL = (Matches, NotMatches, Has, Lacks, HasAddress, LacksAddress)


class Columns(Protocol):
    """Columns by field name: a mapping, or the `c` of a table that is named alike."""

    def __getitem__(self, name: str, /) -> ColumnElement[Any]: ...


def to_sql(node: Filter, columns: Columns, fields: FieldSet, dialect: SqlDialect) -> Predicate:
    """The predicate that is true of exactly the rows that `node`, which has passed query.check, is true of.

    Raises NotExpressibleError for a pattern that PostgreSQL has no equivalent of. For MySQL, see `can_express`.
    """
    return _Compiler(columns, fields, dialect).compile(lower(node, fields))


def can_express(node: Filter, dialect: SqlDialect) -> bool:
    """Whether `to_sql` has an exact predicate; see query.filters.split_expressible.

    MySQL has neither our patterns nor our lists.
    """
    if dialect == "sqlite":
        return True
    if dialect == "mysql":
        return not any(isinstance(leaf, _BEYOND_MYSQL) for leaf in leaves(node))
    try:
        for leaf in leaves(node):
            if isinstance(leaf, Matches | NotMatches):
                to_postgres(leaf.pattern)
    except NotExpressibleError:
        return False
    return True


def order_by(order: SortOrder, columns: Columns, dialect: SqlDialect) -> list[ColumnElement[Any]]:
    """The terms of ORDER BY; a column that cannot be null needs no place for nulls, so a plain index serves it."""
    terms: list[ColumnElement[Any]] = []
    for key in order.keys:
        is_ascending = key.direction is Direction.ASC
        ordered = _ordered(columns[key.field], dialect)
        term = ordered.asc() if is_ascending else ordered.desc()
        if dialect == "postgresql" and _is_nullable(columns[key.field]):
            term = term.nulls_first() if is_ascending else term.nulls_last()
        terms.append(term)
    return terms


def after(order: SortOrder, position: Sequence[Any], columns: Columns, dialect: SqlDialect) -> Predicate:
    """The predicate of the rows behind a position.

    position: stored values of the order's keys (PageRequest.after).
    The chain of keys alone would make the database read from the start, so a range on the first key goes before it.
    """
    compiler = _Compiler(columns, {}, dialect)
    start = compiler.compile(not_before(order.keys[0], position[0]))
    return and_(start, compiler.compile(beyond(order, position)))


def next_after(order: SortOrder, position: Sequence[Any], columns: Columns, dialect: SqlDialect) -> Predicate | None:
    """The predicate of the rows behind a position that come first, one range of an index; None if `after` is one."""
    part = next_beyond(order, position)
    return None if part is None else _Compiler(columns, {}, dialect).compile(part)


class _Compiler:
    """Compiles lowered trees (query.lowering)."""

    def __init__(self, columns: Columns, fields: Mapping[str, Field], dialect: SqlDialect) -> None:
        self._columns = columns
        self._fields = fields
        self._dialect = dialect

    def compile(self, node: Filter) -> Predicate:
        match node:
            case And(terms):
                return and_(*(self.compile(term) for term in terms)) if terms else true()
            case Or(terms):
                return or_(*(self.compile(term) for term in terms)) if terms else false()
            case _ if self._dialect == "postgresql" and (simpler := _without_nul(node)) != node:
                return self.compile(simpler)
            case _:
                return self._leaf(node, self._columns[node.field])

    def _leaf(self, leaf: Leaf, stored: ColumnElement[Any]) -> Predicate:
        match leaf:
            case Eq(_, value):
                return stored == _bind(stored, value)
            case Ne(_, value):
                return stored != _bind(stored, value)
            case In(_, values):
                return self._is_one_of(stored, values)
            case NotIn(_, values):
                return not_(self._is_one_of(stored, values))
            case Lt(_, value):
                return _ordered(stored, self._dialect) < _bind(stored, value)
            case Le(_, value):
                return _ordered(stored, self._dialect) <= _bind(stored, value)
            case Gt(_, value):
                return _ordered(stored, self._dialect) > _bind(stored, value)
            case Ge(_, value):
                return _ordered(stored, self._dialect) >= _bind(stored, value)
            case IsNull():
                return stored.is_(None) if _is_nullable(stored) else false()
            case IsNotNull():
                return stored.is_not(None) if _is_nullable(stored) else true()
            case Matches(_, pattern):
                return self._matches(self._text(leaf.field, stored), pattern)
            case NotMatches(_, pattern):
                return not_(self._matches(self._text(leaf.field, stored), pattern))
            case Has(_, element):
                return self._has(stored, element)
            case Lacks(_, element):
                return not_(self._has(stored, element))
            case HasAddress(_, text):
                return self._has_address(stored, text)
            case LacksAddress(_, text):
                return not_(self._has_address(stored, text))
            case _:
                assert_never(leaf)

    def _is_one_of(self, stored: ColumnElement[Any], values: tuple[Any, ...]) -> Predicate:
        # The driver for MySQL writes values into the statement, which may be long.
        if len(values) <= _MAX_BOUND_VALUES or self._dialect == "mysql":
            return stored.in_([_bind(stored, value) for value in values])
        if self._dialect == "postgresql":
            return stored == func.any(literal(list(values), ARRAY(_value_type(stored))))
        # json_each ends a text at a NUL character (3.40).
        with_nul = [value for value in values if _has_nul(value)]
        listed = func.json_each(json.dumps([value for value in values if not _has_nul(value)])).table_valued("value")
        return or_(stored.in_(select(listed.c.value)), stored.in_([_bind(stored, value) for value in with_nul]))

    def _text(self, name: str, stored: ColumnElement[Any]) -> ColumnElement[Any]:
        """The text of a field, as query.text_forms has it."""
        match self._fields[name].kind:
            case Kind.TEXT:
                return stored
            case Kind.TIMESTAMP if self._dialect == "sqlite":
                return cast(ColumnElement[Any], getattr(func, TIME_TEXT)(stored, type_=String()))
            case Kind.TIMESTAMP:
                seconds = func.floor(sql_cast(stored, Numeric) / _MICROSECONDS)
                moment = func.timezone("UTC", func.to_timestamp(sql_cast(seconds, Double)))
                return cast(ColumnElement[Any], func.to_char(moment, "YYYY-MM-DD HH24:MI:SS", type_=String()))
        return sql_cast(stored, Text)

    def _matches(self, stored: ColumnElement[Any], pattern: str) -> Predicate:
        if self._dialect == "postgresql":
            expression = literal(to_postgres(pattern), _TEXT)
            return _ordered(stored, self._dialect).bool_op("~")(expression)
        compile_pattern(pattern)
        return cast(Predicate, getattr(func, RE2_SEARCH)(literal(pattern, _TEXT), stored, type_=Boolean()))

    def _has(self, stored: ColumnElement[Any], element: str) -> Predicate:
        if self._dialect == "postgresql":
            return func.coalesce(stored.bool_op("?")(literal(element, _TEXT)), false())
        return cast(Predicate, getattr(func, LIST_HAS)(stored, literal(element, _TEXT), type_=Boolean()))

    def _has_address(self, stored: ColumnElement[Any], text: str) -> Predicate:
        part = literal(text, _TEXT)
        if self._dialect == "sqlite":
            return cast(Predicate, getattr(func, HAS_ADDRESS)(stored, part, type_=Boolean()))
        entry = func.jsonb_array_elements(stored).table_valued("value")
        is_fixed = func.coalesce(entry.c.value.op("->>")("type"), "fixed") == "fixed"
        position = func.strpos(entry.c.value.op("->>")("address"), part)
        return exists(select(1).select_from(entry).where(is_fixed, position > 0))


def _without_nul(leaf: Leaf) -> Filter:
    """The same without NUL characters, which no text in PostgreSQL has, and its driver refuses."""
    match leaf:
        case Eq() | Ne() | In() | NotIn():
            return without_values(leaf, _has_nul)
        case Lt(name, str(value)) | Le(name, str(value)) if _has_nul(value):
            # What comes before "a\\0b" is what begins before it, and "a" itself.
            return Le(name, value.partition("\0")[0])
        case Gt(name, str(value)) | Ge(name, str(value)) if _has_nul(value):
            return Gt(name, value.partition("\0")[0])
        case Has(_, element) if _has_nul(element):
            return Or(())
        case Lacks(_, element) if _has_nul(element):
            return And(())
        case HasAddress(_, text) if _has_nul(text):
            return Or(())
        case LacksAddress(_, text) if _has_nul(text):
            return And(())
    return leaf


def _has_nul(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value


def _ordered(stored: ColumnElement[Any], dialect: SqlDialect) -> ColumnElement[Any]:
    if dialect == "postgresql" and isinstance(stored.type, String):
        return stored.collate("C")
    return stored


def _is_nullable(stored: ColumnElement[Any]) -> bool:
    return bool(getattr(stored, "nullable", True))


def _bind(stored: ColumnElement[Any], value: Any) -> ColumnElement[Any]:
    return literal(value, _value_type(stored))


def _value_type(stored: ColumnElement[Any]) -> TypeEngine[Any]:
    """Drivers cast a bound value to this type, so it is wide: not the 32 bits or the length of the column."""
    if isinstance(stored.type, Integer):
        return _LARGE_INTEGER
    return _TEXT if isinstance(stored.type, String) else stored.type
