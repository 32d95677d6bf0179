"""A field and a value, or several of them: equal, one of, before, behind."""

import json
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import func, literal, or_, select
from sqlalchemy.dialects.postgresql import ARRAY

from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.operators.fits import (
    MAX_TERM_BYTES,
    can_hold,
    is_too_long,
    require_comparable,
    require_filterable,
)
from fleetlight.query.operators.negation import IsNotNull, Negation
from fleetlight.query.sql import Predicate, SqlColumn
from fleetlight.query.tree import EVERYTHING, NOTHING, Dsl, Filter, Leaf, Matcher, Store
from fleetlight.resources.fields import Field, Scalar

# Longer lists travel as one bound value: SQLite takes 32,766 values by default, PostgreSQL 65,535.
_MAX_BOUND_VALUES = 500
# index.max_terms_count; one more is refused.
_MAX_TERMS = 65_536


@dataclass(frozen=True, slots=True)
class Eq(Leaf):
    """`field` is `value`."""

    value: Scalar

    def negated(self) -> "Ne":
        return Ne(self.field, self.value)

    def check(self, field: Field) -> None:
        require_comparable(field, self.value)

    def matcher(self, field: Field) -> Matcher:
        name = self.field
        wanted = field.stored(self.value)
        return lambda record: record[name] is not None and bool(record[name] == wanted)

    def lowered(self, field: Field) -> "Eq":
        return Eq(self.field, _stored(field, self.value))

    def fitted(self, store: Store) -> Filter:
        return self if can_hold(store, self.value) else NOTHING

    def sql(self, column: SqlColumn) -> Predicate:
        return column.stored == column.bind(self.value)

    def dsl(self, field: Field) -> Dsl:
        return {"term": {field.name: self.value}}


@dataclass(frozen=True, slots=True)
class Ne(Negation):
    """`field` differs from `value`; not true of a null."""

    value: Scalar

    def negated(self) -> Eq:
        return Eq(self.field, self.value)

    def sql(self, column: SqlColumn) -> Predicate:
        # One expression instead of two: every list has such a filter.
        return column.stored != column.bind(self.value)


@dataclass(frozen=True, slots=True)
class In(Leaf):
    """`field` is one of `values`; false when there are none."""

    values: tuple[Scalar, ...]

    def negated(self) -> "NotIn":
        return NotIn(self.field, self.values)

    def check(self, field: Field) -> None:
        require_filterable(field)
        for value in self.values:
            require_comparable(field, value)

    def matcher(self, field: Field) -> Matcher:
        name = self.field
        wanted = {field.stored(value) for value in self.values}
        return lambda record: record[name] is not None and record[name] in wanted

    def lowered(self, field: Field) -> "In":
        return In(self.field, tuple(_stored(field, value) for value in self.values))

    def fitted(self, store: Store) -> Filter:
        possible = tuple(value for value in self.values if can_hold(store, value))
        return In(self.field, possible) if possible else NOTHING

    def sql(self, column: SqlColumn) -> Predicate:
        # The driver for MySQL writes values into the statement, which may be long.
        if len(self.values) <= _MAX_BOUND_VALUES or column.dialect == "mysql":
            return column.stored.in_([column.bind(value) for value in self.values])
        if column.dialect == "postgresql":
            return column.stored == func.any(literal(list(self.values), ARRAY(column.value_type)))
        # json_each ends a text at a NUL character (3.40).
        with_nul = [value for value in self.values if _has_nul(value)]
        without_nul = json.dumps([value for value in self.values if not _has_nul(value)])
        listed = select(func.json_each(without_nul).table_valued("value").c.value)
        return or_(column.stored.in_(listed), column.stored.in_([column.bind(value) for value in with_nul]))

    def dsl(self, field: Field) -> Dsl:
        starts = range(0, len(self.values), _MAX_TERMS)
        chunks = [{"terms": {field.name: list(self.values[start : start + _MAX_TERMS])}} for start in starts]
        return chunks[0] if len(chunks) == 1 else {"bool": {"should": chunks, "minimum_should_match": 1}}


@dataclass(frozen=True, slots=True)
class NotIn(Negation):
    """`field` is none of `values`; not true of a null, unless there are no values."""

    values: tuple[Scalar, ...]

    def negated(self) -> In:
        return In(self.field, self.values)

    def matcher(self, field: Field) -> Matcher:
        return Negation.matcher(self, field) if self.values else lambda _: True

    def lowered(self, field: Field) -> Filter:
        return Negation.lowered(self, field) if self.values else EVERYTHING


@dataclass(frozen=True, slots=True)
class _Ordered(Leaf):
    """relation: of a value of the field with `value`. is_of_lower: whether it is true of what is lower than `value`."""

    value: Scalar
    relation: ClassVar[Callable[[Any, Any], Any]]
    is_of_lower: ClassVar[bool]

    def check(self, field: Field) -> None:
        require_comparable(field, self.value)

    def matcher(self, field: Field) -> Matcher:
        name, relation = self.field, type(self).relation
        bound = field.stored(self.value)
        return lambda record: record[name] is not None and bool(relation(record[name], bound))

    def lowered(self, field: Field) -> Filter:
        return type(self)(self.field, _stored(field, self.value))

    def fitted(self, store: Store) -> Filter:
        match self.value:
            case int() as number if not can_hold(store, number):
                # Every number there is, or none, is on that side of it.
                return IsNotNull(self.field) if (number > 0) == self.is_of_lower else NOTHING
            case str() as text if store == "postgresql" and not can_hold(store, text):
                # What comes before "a\\0b" is what begins before it, and "a" itself.
                before = text.partition("\0")[0]
                return Le(self.field, before) if self.is_of_lower else Gt(self.field, before)
        return self

    def sql(self, column: SqlColumn) -> Predicate:
        predicate: Predicate = type(self).relation(column.ordered, column.bind(self.value))
        return predicate

    def dsl(self, field: Field) -> Dsl:
        if isinstance(self.value, str) and is_too_long(self.value):
            raise NotExpressibleError(
                "Elasticsearch", f"a comparison of '{field.name}' with a text of more than {MAX_TERM_BYTES} bytes"
            )
        return {"range": {field.name: {_RANGES[type(self).relation]: self.value}}}


_RANGES = {operator.lt: "lt", operator.le: "lte", operator.gt: "gt", operator.ge: "gte"}


@dataclass(frozen=True, slots=True)
class Lt(_Ordered):
    """`field` is lower than `value`; texts compare by code point."""

    relation = operator.lt
    is_of_lower = True

    def negated(self) -> "Ge":
        return Ge(self.field, self.value)


@dataclass(frozen=True, slots=True)
class Le(_Ordered):
    """`field` is lower than `value`, or is it."""

    relation = operator.le
    is_of_lower = True

    def negated(self) -> "Gt":
        return Gt(self.field, self.value)


@dataclass(frozen=True, slots=True)
class Gt(_Ordered):
    """`field` is higher than `value`."""

    relation = operator.gt
    is_of_lower = False

    def negated(self) -> "Le":
        return Le(self.field, self.value)


@dataclass(frozen=True, slots=True)
class Ge(_Ordered):
    """`field` is higher than `value`, or is it."""

    relation = operator.ge
    is_of_lower = False

    def negated(self) -> "Lt":
        return Lt(self.field, self.value)


def _stored(field: Field, value: Scalar) -> Any:
    return field.stored(value)


def _has_nul(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value
