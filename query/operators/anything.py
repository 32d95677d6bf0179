"""Operators on values of any shape (kind `other`), which only Python evaluates, and no store."""

import operator
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.operators.comparison import Not
from fleetlight.query.regex import compile_pattern
from fleetlight.query.sql import Predicate, SqlColumn, SqlDialect
from fleetlight.query.tree import Dsl, Leaf, Matcher
from fleetlight.resources.fields import Field
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class PythonOnlyLeaf(Leaf):
    """An operator that no store can evaluate. It is open for a null, and never fails, whatever the value's shape."""

    def negated(self) -> Leaf:
        return Not(self.field, self)

    def check(self, field: Field) -> None:
        """Accepts every field."""

    @abstractmethod
    def is_true_of(self, value: Any) -> bool:
        """Whether it is true of a value that is not null."""

    def matcher(self, field: Field) -> Matcher:
        name, is_true_of = field.name, self.is_true_of
        return lambda record: record[name] is not None and is_true_of(record[name])

    def fits_sql(self, dialect: SqlDialect) -> bool:
        return False

    def sql(self, column: SqlColumn) -> Predicate:
        raise NotExpressibleError("SQL", f"a look into '{self.field}'")

    def dsl(self, field: Field) -> Dsl:
        raise NotExpressibleError("Elasticsearch", f"a look into '{self.field}'")


@dataclass(frozen=True, slots=True)
class Same(PythonOnlyLeaf):
    """The value is `value`, which may be a list or an object."""

    value: Any

    def is_true_of(self, value: Any) -> bool:
        return bool(value == self.value)


@dataclass(frozen=True, slots=True)
class SameAsOne(PythonOnlyLeaf):
    """The value is one of `values`, texts and numbers."""

    values: tuple[str | float, ...]

    def is_true_of(self, value: Any) -> bool:
        return value in self.values

    def matcher(self, field: Field) -> Matcher:
        name, wanted = field.name, frozenset(self.values)
        return lambda record: isinstance(record[name], str | int | float) and record[name] in wanted


@dataclass(frozen=True, slots=True)
class Contains(PythonOnlyLeaf):
    """The value is a list with the element `value`, or a text that contains it."""

    value: Any

    def is_true_of(self, value: Any) -> bool:
        if isinstance(value, str):
            return isinstance(self.value, str) and self.value in value
        return isinstance(value, list) and any(item == self.value for item in value if item is not None)


@dataclass(frozen=True, slots=True)
class Finds(PythonOnlyLeaf):
    """The value is a text in which `pattern` is found."""

    pattern: str

    def check(self, field: Field) -> None:
        compile_pattern(self.pattern)

    def is_true_of(self, value: Any) -> bool:
        return isinstance(value, str) and compile_pattern(self.pattern).search(value) is not None


@dataclass(frozen=True, slots=True)
class Says(PythonOnlyLeaf):
    """The value is neither false, zero nor empty."""

    def is_true_of(self, value: Any) -> bool:
        return bool(value)


@dataclass(frozen=True, slots=True)
class Compares(PythonOnlyLeaf):
    """The value has that `relation` (RELATIONS) to `value`: numbers to numbers, texts to texts."""

    relation: str
    value: str | float

    def is_true_of(self, value: Any) -> bool:
        is_comparable = _rank(value) is not None and _rank(value) == _rank(self.value)
        return is_comparable and bool(RELATIONS[self.relation](value, self.value))


@dataclass(frozen=True, slots=True)
class AtTime(PythonOnlyLeaf):
    """The value, [seconds, microseconds], has that `relation` to a time in microseconds since the epoch.

    in_seconds: whether only its seconds are compared.
    """

    relation: str
    value: int
    in_seconds: bool = False

    _RELATIONS: ClassVar[Mapping[str, Callable[[Any, Any], Any]]] = {**RELATIONS, "==": operator.eq}

    def is_true_of(self, value: Any) -> bool:
        match value:
            case [int() as seconds, int() as microseconds]:
                moment = seconds * MICROSECONDS_PER_SECOND + (0 if self.in_seconds else microseconds)
                return bool(self._RELATIONS[self.relation](moment, self.value))
        return False


def _rank(value: Any) -> str | None:
    """The rank of a value; only values of the same rank have an order, and None has none."""
    if isinstance(value, str):
        return "text"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else None
