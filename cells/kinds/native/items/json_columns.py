"""Columns that may be damaged in single rows, by a disk or by hand: JSON, and numbers on SQLite."""

from typing import Any, TypeVar

import msgspec
from sqlalchemy import Column, Label, Text, cast

from fleetlight.resources.query_fields.definitions import ResultStatus

T = TypeVar("T")
_decode = msgspec.json.Decoder().decode


def as_text(column: Column[Any]) -> Label[str]:
    """The column as text under its name, for `decoded`."""
    return cast(column, Text).label(column.name)


def decoded(text: str | None) -> Any:
    """The value of a JSON text; None without one, and ResultStatus.NO_DATA if it is damaged."""
    if text is None:
        return None
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return ResultStatus.NO_DATA


def decoded_or(text: str | None, otherwise: Any) -> Any:
    """As `decoded`, but `otherwise` for None, or a value of another type."""
    value = decoded(text)
    return value if isinstance(value, type(otherwise)) else otherwise


def decoded_list(text: str | None, of: type[T]) -> list[T]:
    """The members of a list that have this type; empty if the value is not a list."""
    return [member for member in decoded_or(text, []) if isinstance(member, of)]


def is_number(value: object) -> bool:
    """Whether the value of a column of integers is one."""
    return isinstance(value, int) and not isinstance(value, bool)
