"""What a text contains."""

from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Boolean, ColumnElement, Double, Numeric, String, Text, func, literal
from sqlalchemy import cast as sql_cast

from query.errors import NotExpressibleError
from query.operators.fits import require_filterable
from query.operators.negation import Negation
from query.operators.sql import TEXT, Predicate, SqlColumn, SqlDialect, SqliteFunction, ordered
from query.regex import LUCENE_OPTIONS, compile_pattern, to_lucene, to_postgres
from query.text_forms import text_form, time_text
from query.tree import Dsl, Leaf, Matcher
from resources.errors import FilterValueError
from resources.fields import Field, Kind

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Matches(Leaf):
    """The text of `field` contains a match of `pattern` (search, case-sensitive, RE2 syntax; see query.regex).

    Numbers and times have a text too: see query.text_forms.
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
            return ordered(text, column.dialect).bool_op("~")(literal(to_postgres(self.pattern), TEXT))
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


def _text(column: SqlColumn) -> ColumnElement[Any]:
    """The text of a field, as query.text_forms has it."""
    match column.kind:
        case Kind.TEXT:
            return column.stored
        case Kind.TIMESTAMP if column.dialect == "sqlite":
            return _TIME_TEXT(column.stored)
        case Kind.TIMESTAMP:
            seconds = func.floor(sql_cast(column.stored, Numeric) / _MICROSECONDS)
            moment = func.timezone("UTC", func.to_timestamp(sql_cast(seconds, Double)))
            return cast(ColumnElement[Any], func.to_char(moment, "YYYY-MM-DD HH24:MI:SS", type_=String()))
    return sql_cast(column.stored, Text)


def _re2_search(pattern: str, text: str | None) -> bool | None:
    return None if text is None else compile_pattern(pattern).search(text) is not None


def _time_text_or_null(microseconds: int | None) -> str | None:
    return None if microseconds is None else time_text(microseconds)


_RE2_SEARCH = SqliteFunction("re2_search", 2, _re2_search, Boolean())
_TIME_TEXT = SqliteFunction("time_text", 1, _time_text_or_null, TEXT)
