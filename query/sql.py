"""Columns, dialects and functions that operators need for SQL."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from sqlalchemy import BigInteger, ColumnElement, Integer, String, func, literal
from sqlalchemy.types import TypeEngine

from fleetlight.resources.fields import Kind

SqlDialect = Literal["sqlite", "postgresql", "mysql"]
Predicate = ColumnElement[bool]

TEXT = String()
_LARGE_INTEGER = BigInteger()


@dataclass(slots=True)
class SqlColumn:
    """A field as a statement has it. kind: None for that of a position, which is only ever compared."""

    stored: ColumnElement[Any]
    dialect: SqlDialect
    kind: Kind | None

    @property
    def ordered(self) -> ColumnElement[Any]:
        """The column as it compares by code point."""
        if self.dialect == "postgresql" and isinstance(self.stored.type, String):
            return self.stored.collate("C")
        return self.stored

    @property
    def is_nullable(self) -> bool:
        return bool(getattr(self.stored, "nullable", True))

    @property
    def value_type(self) -> TypeEngine[Any]:
        """Drivers cast a bound value to this type, so it is wide: not the 32 bits or the length of the column."""
        if isinstance(self.stored.type, Integer):
            return _LARGE_INTEGER
        return TEXT if isinstance(self.stored.type, String) else self.stored.type

    def bind(self, value: Any) -> ColumnElement[Any]:
        return literal(value, self.value_type)


class SqliteFunction:
    """A function that SQLite does not bring itself: to be made once, beside the operator that calls it.

    of_null: its value where an argument is null.

    The names are our own: SQLAlchemy registers Python's `re` as REGEXP on every connection, and a connection that was
    forgotten must fail instead of quietly meaning something else.
    """

    _made: dict[str, "SqliteFunction"] = {}  # noqa: RUF012  # ours alone

    def __init__(
        self,
        name: str,
        arguments: int,
        function: Callable[..., Any],
        returns: TypeEngine[Any],
        *,
        of_null: bool | None = None,
    ) -> None:
        self._name = name
        self._arguments = arguments
        self._function = function
        self._returns = returns
        self._of_null = of_null
        self._made[name] = self

    def __call__(self, *arguments: ColumnElement[Any]) -> ColumnElement[Any]:
        return cast(ColumnElement[Any], getattr(func, self._name)(*arguments, type_=self._returns))

    @classmethod
    def register_all(cls, dbapi_connection: sqlite3.Connection) -> None:
        """Let statements on this connection call every function that was made."""
        for name, made in cls._made.items():
            dbapi_connection.create_function(name, made._arguments, made._of_values, deterministic=True)

    def _of_values(self, *values: Any) -> Any:
        return self._of_null if None in values else self._function(*values)
