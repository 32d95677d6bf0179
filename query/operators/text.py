"""Operators on texts: patterns, and names of hosts."""

import json
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Double,
    Numeric,
    String,
    Text,
    case,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects.postgresql import ARRAY

from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.operators.comparison import Negation, Not, can_hold, require_filterable
from fleetlight.query.regex import LUCENE_OPTIONS, compile_pattern, to_lucene, to_postgres
from fleetlight.query.sql import TEXT, Predicate, SqlColumn, SqlDialect, SqliteFunction
from fleetlight.query.tree import NOTHING, Dsl, Filter, Leaf, Matcher, Store
from fleetlight.resources.errors import FilterValueError
from fleetlight.resources.fields import Field, Kind, from_microseconds
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


def text_form(kind: Kind) -> Callable[[Any], str] | None:
    """The function that writes a stored value of this kind as text; None for kinds without patterns.

    A time is written as databases show it: UTC, to the second, `YYYY-MM-DD HH:MM:SS`.
    """
    return _FORMS.get(kind)


def time_text(microseconds: int) -> str:
    """The text of a time, as in `text_form`."""
    return from_microseconds(microseconds).replace(microsecond=0, tzinfo=None).isoformat(sep=" ")


_FORMS: dict[Kind, Callable[[Any], str]] = {
    Kind.TEXT: str,
    Kind.NUMBER: str,
    Kind.UNIT: str,
    Kind.TIMESTAMP: time_text,
}


_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# The longest name of a host, of which Elasticsearch builds an automaton.
_MAX_NAME = 255
_MAX_NAMES = 250


@dataclass(frozen=True, slots=True)
class Matches(Leaf):
    """The text of `field` contains a match of `pattern` (search, case-sensitive, RE2 syntax; see
    fleetlight.query.regex).

    Numbers and times have a text too: see fleetlight.query.operators.text.
    """

    pattern: str

    def negated(self) -> "NotMatches":
        return NotMatches(self.field, self.pattern)

    def check(self, field: Field) -> None:
        require_filterable(field)
        if text_form(field.kind) is None:
            raise FilterValueError(field.name, self.pattern, "no pattern: the field has no text")
        compile_pattern(self.pattern)

    def matcher(self, field: Field) -> Matcher:
        name = self.field
        search, text = compile_pattern(self.pattern).search, text_form(field.kind) or str
        return lambda record: record[name] is not None and search(text(record[name])) is not None

    def fits_sql(self, dialect: SqlDialect) -> bool:
        if dialect == "postgresql":
            try:
                to_postgres(self.pattern)
            except NotExpressibleError:
                return False
        return dialect != "mysql"

    def sql(self, column: SqlColumn) -> Predicate:
        text = _text(column)
        if column.dialect == "postgresql":
            return SqlColumn(text, column.dialect, None).ordered.bool_op("~")(literal(to_postgres(self.pattern), TEXT))
        compile_pattern(self.pattern)
        return _RE2_SEARCH(literal(self.pattern, TEXT), text)

    def dsl(self, field: Field) -> Dsl:
        if field.kind is not Kind.TEXT:
            raise NotExpressibleError("Elasticsearch", f"a pattern about '{field.name}', which is no text")
        return {"regexp": {field.name: {"value": to_lucene(self.pattern), **LUCENE_OPTIONS}}}


@dataclass(frozen=True, slots=True)
class NotMatches(Negation):
    """The text of `field` contains no match of `pattern`; not true of a null."""

    pattern: str

    def negated(self) -> Matches:
        return Matches(self.field, self.pattern)


@dataclass(frozen=True, slots=True)
class HasName(Leaf):
    """`field` is the name of a host that equals `name`, or that `name` abbreviates at a dot: `node1` matches
    `node1.example.com`. The case of the letters A to Z is ignored.
    """

    name: str

    def negated(self) -> "HasOtherName":
        return HasOtherName(self.field, self.name)

    def check(self, field: Field) -> None:
        require_filterable(field)
        if field.kind is not Kind.TEXT:
            raise FilterValueError(field.name, self.name, "no name: the field has no text")
        field.stored(self.name)

    def matcher(self, field: Field) -> Matcher:
        return lambda record: record[field.name] is not None and _is_name(record[field.name], self.name)

    def fitted(self, store: Store) -> Filter:
        return self if can_hold(store, self.name) else NOTHING

    def fits_sql(self, dialect: SqlDialect) -> bool:
        return dialect != "mysql"

    def sql(self, column: SqlColumn) -> Predicate:
        if column.dialect == "sqlite":
            return _IS_NAME(column.stored, literal(self.name, TEXT))
        name, full = _folded(self.name), func.lower(column.ordered)
        return or_(full == literal(name, TEXT), func.starts_with(full, literal(f"{name}.", TEXT)))

    def dsl(self, field: Field) -> Dsl:
        if len(self.name) > _MAX_NAME:
            raise NotExpressibleError("Elasticsearch", f"a name of more than {_MAX_NAME} characters in '{field.name}'")
        whole, start = (
            {query: {field.name: {"value": value, "case_insensitive": True}}}
            for query, value in (("term", self.name), ("prefix", f"{self.name}."))
        )
        return {"bool": {"should": [whole, start], "minimum_should_match": 1}}


@dataclass(frozen=True, slots=True)
class HasOtherName(Negation):
    """`field` is a name that HasName does not match; not true for a null."""

    name: str

    def negated(self) -> HasName:
        return HasName(self.field, self.name)


@dataclass(frozen=True, slots=True)
class HasOneName(Leaf):
    """`field` matches one of these `names` of hosts, as HasName does."""

    names: tuple[str, ...]

    def negated(self) -> Not:
        return Not(self.field, self)

    def check(self, field: Field) -> None:
        # Check all at once, and one by one only to find the wrong one.
        try:
            HasName(self.field, "".join(self.names)).check(field)
        except FilterValueError:
            for name in self.names:
                HasName(self.field, name).check(field)

    def matcher(self, field: Field) -> Matcher:
        wanted = set(map(_folded, self.names))
        return lambda record: record[field.name] is not None and not wanted.isdisjoint(_short(record[field.name]))

    def fitted(self, store: Store) -> Filter:
        possible = tuple(name for name in self.names if can_hold(store, name))
        return HasOneName(self.field, possible) if possible else NOTHING

    def fits_sql(self, dialect: SqlDialect) -> bool:
        return dialect != "mysql"

    def sql(self, column: SqlColumn) -> Predicate:
        # One bound value, and one evaluation for each row, for any number of names.
        names = sorted(set(map(_folded, self.names)))
        if column.dialect == "sqlite":
            wanted = select(func.json_each(_as_json(names)).table_valued("value").c.value)
            short = func.json_each(_SHORT_NAMES(column.stored)).table_valued("value").alias("short")
            found = exists(select(literal_column("1")).select_from(short).where(short.c.value.in_(wanted)))
            return case((column.stored.is_not(None), found))
        full = func.lower(column.ordered)
        listed = select(func.unnest(literal(names, ARRAY(TEXT)), type_=TEXT))
        parts = func.string_to_array(full, ".", type_=ARRAY(TEXT))
        series = func.generate_series(1, func.cardinality(parts) - 1).table_valued("count").render_derived(name="dots")
        start = func.array_to_string(parts[literal_column("1") : series.c.count], ".", type_=TEXT)
        found = exists(select(literal_column("1")).select_from(series).where(start.in_(listed)))
        return or_(full.in_(listed), found)

    def dsl(self, field: Field) -> Dsl:
        # Each name is an automaton, and the clauses of a query are limited. For more names the cells answer.
        if len(self.names) > _MAX_NAMES:
            raise NotExpressibleError("Elasticsearch", f"more than {_MAX_NAMES} names in '{field.name}'")
        clauses = [HasName(self.field, name).dsl(field) for name in self.names]
        return {"bool": {"should": clauses, "minimum_should_match": 1}}


def _short(full: str) -> Iterator[str]:
    """Yield the name, and all its abbreviations at a dot."""
    full = _folded(full)
    yield full
    for number, character in enumerate(full):
        if character == ".":
            yield full[:number]


def _folded(name: str) -> str:
    """The name with the letters A to Z in lower case."""
    return name.lower() if name.isascii() else name.translate(_LOWER)


def _is_name(full: str, name: str) -> bool:
    full, name = _folded(full), _folded(name)
    return full == name or full.startswith(f"{name}.")


def _as_json(names: Iterable[str]) -> str:
    """A JSON list of the names with NUL characters escaped, at which json_each ends a text (3.40)."""
    return json.dumps([name.replace("\\", "\\\\").replace("\0", "\\0") for name in names])


def _text(column: SqlColumn) -> ColumnElement[Any]:
    """The text of a column, as in `text_form`."""
    match column.kind:
        case Kind.TEXT:
            return column.stored
        case Kind.TIMESTAMP if column.dialect == "sqlite":
            return _TIME_TEXT(column.stored)
        case Kind.TIMESTAMP:
            seconds = func.floor(sql_cast(column.stored, Numeric) / MICROSECONDS_PER_SECOND)
            moment = func.timezone("UTC", func.to_timestamp(sql_cast(seconds, Double)))
            return cast(ColumnElement[Any], func.to_char(moment, "YYYY-MM-DD HH24:MI:SS", type_=String()))
    return sql_cast(column.stored, Text)


def _re2_search(pattern: str, text: str) -> bool:
    return compile_pattern(pattern).search(text) is not None


_IS_NAME = SqliteFunction("is_name", 2, _is_name, Boolean())
_SHORT_NAMES = SqliteFunction("short_names", 1, lambda full: _as_json(_short(full)), TEXT)
_RE2_SEARCH = SqliteFunction("re2_search", 2, _re2_search, Boolean())
_TIME_TEXT = SqliteFunction("time_text", 1, time_text, TEXT)
