"""Columns, dialects and functions for the SQL of operators."""

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
    """A field in a statement. kind: None for the field of a position, which is only compared."""

    stored: ColumnElement[Any]
    dialect: SqlDialect
    kind: Kind | None

    @property
    def ordered(self) -> ColumnElement[Any]:
        """The column, compared by code point."""
        if self.dialect == "postgresql" and isinstance(self.stored.type, String):
            return self.stored.collate("C")
        return self.stored

    @property
    def is_nullable(self) -> bool:
        """Whether the column may be null."""
        return bool(getattr(self.stored, "nullable", True))

    @property
    def value_type(self) -> TypeEngine[Any]:
        """The type to which drivers cast a bound value, without the column's limits of 32 bits or length."""
        if isinstance(self.stored.type, Integer):
            return _LARGE_INTEGER
        return TEXT if isinstance(self.stored.type, String) else self.stored.type

    def bind(self, value: Any) -> ColumnElement[Any]:
        """`value` as a bound parameter, to compare with the column."""
        return literal(value, self.value_type)


class SqliteFunction:
    """A function that SQLite lacks. Create it once, beside the operator that calls it.

    of_null: its value if an argument is null. Use names of our own: SQLAlchemy registers Python's `re` as REGEXP on
    every connection, and a connection without our functions must fail instead of matching differently.
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
        """Register every created function on a connection."""
        for name, made in cls._made.items():
            dbapi_connection.create_function(name, made._arguments, made._of_values, deterministic=True)

    def _of_values(self, *values: Any) -> Any:
        return self._of_null if None in values else self._function(*values)
