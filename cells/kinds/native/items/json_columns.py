"""Columns of which a disk or a hand may have damaged what a single row has there: JSON, and numbers on SQLite."""

from typing import Any, TypeVar

import msgspec
from sqlalchemy import Column, Label, Text, cast

from fleetlight.resources.query_fields.definitions import ResultStatus

T = TypeVar("T")
_decode = msgspec.json.Decoder().decode


def as_text(column: Column[Any]) -> Label[str]:
    """The column as the database has it, under its name; to be read with `decoded`."""
    return cast(column, Text).label(column.name)


def decoded(text: str | None) -> Any:
    """What the text says; None without one, and ResultStatus.NO_DATA for a damaged one."""
    if text is None:
        return None
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return ResultStatus.NO_DATA


def decoded_or(text: str | None, otherwise: Any) -> Any:
    """As `decoded`, but `otherwise` where there is nothing, or nothing of its type."""
    value = decoded(text)
    return value if isinstance(value, type(otherwise)) else otherwise


def decoded_list(text: str | None, of: type[T]) -> list[T]:
    """The members of a list that are of a type; none where there is no list."""
    return [member for member in decoded_or(text, []) if isinstance(member, of)]


def is_number(value: object) -> bool:
    """Whether a column of whole numbers has one in this row."""
    return isinstance(value, int) and not isinstance(value, bool)
