"""Nulls, and negations: what is true of a value exactly where another operator is false."""

from abc import abstractmethod
from dataclasses import dataclass

from sqlalchemy import false, not_, true

from fleetlight.query.operators.fits import require_filterable
from fleetlight.query.sql import Predicate, SqlColumn, SqlDialect
from fleetlight.query.tree import EVERYTHING, NOTHING, Dsl, Filter, Leaf, Matcher, Store, negate
from fleetlight.resources.fields import Field


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


@dataclass(frozen=True, slots=True)
class Negation(Leaf):
    """An operator that has all but its name from the one that it negates."""

    @abstractmethod
    def negated(self) -> Leaf: ...

    def check(self, field: Field) -> None:
        self.negated().check(field)

    def lowered(self, field: Field) -> Filter:
        return self._unless(self.negated().lowered(field))

    def fitted(self, store: Store) -> Filter:
        return self._unless(self.negated().fitted(store))

    def _unless(self, excluded: Filter) -> Filter:
        # What is false of every value is still open where there is none.
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
        """`must_not` alone keeps documents without the field; in SQL a null differs from nothing, and SQL decides."""
        negated = self.negated()
        known = {"filter": [_exists(field.name)]} if negated.can_be_open else {}
        return {"bool": known | {"must_not": [negated.dsl(field)]}}


@dataclass(frozen=True, slots=True)
class Not(Negation):
    """The negation of a `leaf` whose operator has none with a name."""

    leaf: Leaf

    def negated(self) -> Leaf:
        return self.leaf


def _exists(name: str) -> Dsl:
    return {"exists": {"field": name}}
