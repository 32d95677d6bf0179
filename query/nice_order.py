"""Nice order in SQL: what compares by code point as texts do in nice order (fleetlight.query.sort.nice_key), made by
the database.

No index serves it, so such an order costs a look at every row that the filter lets pass. A collation of PostgreSQL's
(ICU, `kn-true`) is not it: that puts case and punctuation in an order of its own.
"""

from typing import Any

from sqlalchemy import ColumnElement, Text, case, cast, column, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.sort import ESCAPE, NO_DIGITS, NUMBER, SURROGATES, SURROGATES_END, nice_key
from fleetlight.query.sql import TEXT, SqlDialect, SqliteFunction

_NUMBER_OR_TEXT = "([0-9]+)|[^0-9]+"


def _key_or_null(text: str | None) -> str | None:
    return None if text is None else nice_key(text)


_sqlite_key = SqliteFunction("fleetlight_nice_key", 1, _key_or_null, TEXT)


def nice_column(stored: ColumnElement[Any], dialect: SqlDialect) -> ColumnElement[Any]:
    """The key of a column of text. Raises NotExpressibleError for MySQL."""
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
