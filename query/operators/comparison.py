"""Comparisons of a field with one value, several or none: equality, membership, order, null; and their negations.

Also what all operators need: checks of values, and limits of stores.
"""

import json
import operator
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import false, func, literal, not_, or_, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.sql import Predicate, SqlColumn, SqlDialect
from fleetlight.query.tree import EVERYTHING, NOTHING, Dsl, Filter, Leaf, Matcher, Store, any_of, negate
from fleetlight.resources.errors import FilterValueError, UnknownFieldError
from fleetlight.resources.fields import Field, Kind, Scalar

MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**63 - 1
# The longest term of Lucene, in bytes of UTF-8: none is stored, and a query with one is refused.
MAX_TERM_BYTES = 32_766


def require_filterable(field: Field) -> None:
    """Raises UnknownFieldError for a field that can only be read."""
    if field.kind is Kind.UNKNOWN or (field.kind is Kind.OTHER and not field.is_list):
        raise UnknownFieldError(field.name, "filter")


def require_comparable(field: Field, value: Scalar) -> None:
    """Raises UnknownFieldError or FilterValueError unless values of `field` can be compared with `value`."""
    require_filterable(field)
    if field.is_list:
        raise FilterValueError(field.name, value, "an element that the list has or lacks")
    field.stored(value)


def can_hold(store: Store, value: Any) -> bool:
    """Whether a field in the store can have this value; a query must not contain other values either.

    Drivers refuse a number of more than 64 bits, or servers differ; PostgreSQL has no text with a NUL.
    """
    if isinstance(value, int):
        return MIN_INTEGER <= value <= MAX_INTEGER
    if isinstance(value, str):
        if store == "postgresql":
            return "\0" not in value
        if store == "elasticsearch":
            return not is_too_long(value)
    return True


def is_too_long(text: str) -> bool:
    """Whether a text is too long for a term of Lucene."""
    return len(text) * 4 > MAX_TERM_BYTES and len(text.encode()) > MAX_TERM_BYTES


@dataclass(frozen=True, slots=True)
class IsNull(Leaf):
    """`field` has no value; never true of a list, since an absent one is an empty one."""

    def negated(self) -> Leaf:
        return IsNotNull(self.field)

    def check(self, field: Field) -> None:
        require_filterable(field)

    def lowered(self, field: Field) -> Filter:
        return NOTHING if field.is_list else self

    def matcher(self, field: Field) -> Matcher:
        name, is_list = self.field, field.is_list
        return lambda record: record[name] is None and not is_list

    def sql(self, column: SqlColumn) -> Predicate:
        return column.stored.is_(None) if column.is_nullable else false()

    def dsl(self, field: Field) -> Dsl:
        return {"bool": {"must_not": [_exists(field.name)]}}


@dataclass(frozen=True, slots=True)
class IsNotNull(Leaf):
    """`field` has a value; true of every list."""

    def negated(self) -> Leaf:
        return IsNull(self.field)

    def check(self, field: Field) -> None:
        require_filterable(field)

    def lowered(self, field: Field) -> Filter:
        return EVERYTHING if field.is_list else self

    def matcher(self, field: Field) -> Matcher:
        name, is_list = self.field, field.is_list
        return lambda record: record[name] is not None or is_list

    def sql(self, column: SqlColumn) -> Predicate:
        return column.stored.is_not(None) if column.is_nullable else true()

    def dsl(self, field: Field) -> Dsl:
        return _exists(field.name)


def or_missing(leaf: Leaf) -> Filter:
    """The leaf, or a null: Query2 keeps items without data for a condition, and drops them for its negation."""
    return any_of(leaf, IsNull(leaf.field)) if leaf.can_be_open else leaf


@dataclass(frozen=True, slots=True)
class Negation(Leaf):
    """An operator that is derived from the one that it negates."""

    @abstractmethod
    def negated(self) -> Leaf: ...

    def check(self, field: Field) -> None:
        self.negated().check(field)

    def lowered(self, field: Field) -> Filter:
        return self._unless(self.negated().lowered(field))

    def fitted(self, store: Store) -> Filter:
        return self._unless(self.negated().fitted(store))

    def _unless(self, excluded: Filter) -> Filter:
        # A condition that is false for every value is still open for a null.
        if excluded == NOTHING and self.negated().can_be_open:
            return IsNotNull(self.field)
        return negate(excluded)

    def matcher(self, field: Field) -> Matcher:
        negated, name = self.negated(), self.field
        is_true = negated.matcher(field)
        if negated.can_be_open:
            return lambda record: record[name] is not None and not is_true(record)
        return lambda record: not is_true(record)

    def fits_sql(self, dialect: SqlDialect) -> bool:
        return self.negated().fits_sql(dialect)

    def sql(self, column: SqlColumn) -> Predicate:
        return not_(self.negated().sql(column))

    def dsl(self, field: Field) -> Dsl:
        """`must_not` alone would keep documents without the field; as in SQL, the negation is open for a null."""
        negated = self.negated()
        known = {"filter": [_exists(field.name)]} if negated.can_be_open else {}
        return {"bool": known | {"must_not": [negated.dsl(field)]}}


@dataclass(frozen=True, slots=True)
class Not(Negation):
    """The negation of a `leaf` whose operator has no named negation."""

    leaf: Leaf

    def negated(self) -> Leaf:
        return self.leaf


def _exists(name: str) -> Dsl:
    return {"exists": {"field": name}}


# Longer lists are one bound value: SQLite takes 32,766 values by default, PostgreSQL 65,535.
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
        return Eq(self.field, field.stored(self.value))

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
    """`field` is one of `values`; false if there are none."""

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
        return In(self.field, tuple(field.stored(value) for value in self.values))

    def fitted(self, store: Store) -> Filter:
        possible = tuple(value for value in self.values if can_hold(store, value))
        return In(self.field, possible) if possible else NOTHING

    def sql(self, column: SqlColumn) -> Predicate:
        # MySQL's driver writes values into the statement, which may be long.
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
    """`field` is none of `values`; not true for a null, unless there are no values."""

    values: tuple[Scalar, ...]

    def negated(self) -> In:
        return In(self.field, self.values)

    def matcher(self, field: Field) -> Matcher:
        return Negation.matcher(self, field) if self.values else lambda _: True

    def lowered(self, field: Field) -> Filter:
        return Negation.lowered(self, field) if self.values else EVERYTHING


@dataclass(frozen=True, slots=True)
class _Ordered(Leaf):
    """An order comparison. relation: of the field's value to `value`. is_of_lower: whether lower values match."""

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
        return type(self)(self.field, field.stored(self.value))

    def fitted(self, store: Store) -> Filter:
        match self.value:
            case int() as number if not can_hold(store, number):
                # Every stored number, or none, is on that side of it.
                return IsNotNull(self.field) if (number > 0) == self.is_of_lower else NOTHING
            case str() as text if store == "postgresql" and not can_hold(store, text):
                # Texts before "a\\0b" are "a", and those before "a".
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
    """`field` is lower than or equal to `value`."""

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
    """`field` is higher than or equal to `value`."""

    relation = operator.ge
    is_of_lower = False

    def negated(self) -> "Lt":
        return Lt(self.field, self.value)


def _has_nul(value: Any) -> bool:
    return isinstance(value, str) and "\0" in value
