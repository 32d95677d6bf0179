"""The truth of a field, as in Query2 (`?`): neither false, zero, nor empty; open for a null."""

from dataclasses import dataclass
from typing import Any

from fleetlight.query.operators.comparison import Eq, Ne, require_filterable
from fleetlight.query.operators.lists import HasAny, HasNone
from fleetlight.query.sql import Predicate, SqlColumn
from fleetlight.query.tree import Dsl, Leaf, Matcher
from fleetlight.resources.fields import Field, Kind

_FALSE: dict[Kind, Any] = {
    Kind.BOOL: False,
    Kind.TEXT: "",
    Kind.NUMBER: 0,
    Kind.UNIT: 0,
    Kind.FLOAT: 0.0,
    Kind.TIMESTAMP: 0,
}


@dataclass(frozen=True, slots=True)
class _Truth(Leaf):
    """A leaf that is lowered to operators of every store, and so never compiled itself."""

    def check(self, field: Field) -> None:
        require_filterable(field)

    def sql(self, column: SqlColumn) -> Predicate:
        raise AssertionError(f"{self} is not lowered")

    def dsl(self, field: Field) -> Dsl:
        raise AssertionError(f"{self} is not lowered")


@dataclass(frozen=True, slots=True)
class IsTrue(_Truth):
    """`field` is neither false, zero nor empty."""

    def negated(self) -> "IsFalse":
        return IsFalse(self.field)

    def matcher(self, field: Field) -> Matcher:
        return lambda record: bool(record[field.name])

    def lowered(self, field: Field) -> Leaf:
        return HasAny(field.name) if field.is_list else Ne(field.name, _FALSE[field.kind])


@dataclass(frozen=True, slots=True)
class IsFalse(_Truth):
    """`field` is false, zero or empty; not true for a null, but for a missing list."""

    def negated(self) -> IsTrue:
        return IsTrue(self.field)

    def matcher(self, field: Field) -> Matcher:
        return lambda record: not record[field.name] and (record[field.name] is not None or field.is_list)

    def lowered(self, field: Field) -> Leaf:
        return HasNone(field.name) if field.is_list else Eq(field.name, _FALSE[field.kind])
