"""Operators on members of a list, and on addresses of networks. These are never null: a missing list is empty."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, exists, false, func, literal, select
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects.postgresql import JSONB

from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.operators.comparison import Negation, can_hold, require_filterable
from fleetlight.query.sql import TEXT, Predicate, SqlColumn, SqlDialect, SqliteFunction
from fleetlight.query.tree import NOTHING, Dsl, Filter, Leaf, Matcher, Store
from fleetlight.resources.errors import FilterValueError
from fleetlight.resources.fields import Field, Kind


@dataclass(frozen=True, slots=True)
class Has(Leaf):
    """The list `field` contains `value`."""

    value: str
    can_be_open = False

    def negated(self) -> "Lacks":
        return Lacks(self.field, self.value)

    def check(self, field: Field) -> None:
        require_filterable(field)
        if not field.is_list:
            raise FilterValueError(field.name, self.value, "no element: the field is not a list")
        field.stored(self.value)

    def matcher(self, field: Field) -> Matcher:
        name, element = field.name, self.value
        return lambda record: element in (record[name] or ())

    def fitted(self, store: Store) -> Filter:
        return self if can_hold(store, self.value) else NOTHING

    def fits_sql(self, dialect: SqlDialect) -> bool:
        return dialect != "mysql"

    def sql(self, column: SqlColumn) -> Predicate:
        element = literal(self.value, TEXT)
        if column.dialect == "postgresql":
            return func.coalesce(column.stored.bool_op("?")(element), false())
        return _LIST_HAS(column.stored, element)

    def dsl(self, field: Field) -> Dsl:
        return {"term": {field.name: self.value}}


@dataclass(frozen=True, slots=True)
class Lacks(Negation):
    """The list `field` does not contain `value`; true for an empty list."""

    value: str
    can_be_open = False

    def negated(self) -> Has:
        return Has(self.field, self.value)


@dataclass(frozen=True, slots=True)
class HasAny(Leaf):
    """The list `field` is not empty."""

    can_be_open = False

    def negated(self) -> "HasNone":
        return HasNone(self.field)

    def check(self, field: Field) -> None:
        require_filterable(field)
        if not field.is_list:
            raise FilterValueError(field.name, "", "no element: the field is not a list")

    def matcher(self, field: Field) -> Matcher:
        return lambda record: bool(record[field.name])

    def fits_sql(self, dialect: SqlDialect) -> bool:
        return dialect != "mysql"

    def sql(self, column: SqlColumn) -> Predicate:
        if column.dialect == "postgresql":
            empty = [sql_cast(literal(text, TEXT), JSONB) for text in ("[]", "null")]
            return func.coalesce(column.stored.not_in(empty), false())
        return func.coalesce(func.json_array_length(column.stored), 0) > 0

    def dsl(self, field: Field) -> Dsl:
        return {"exists": {"field": field.name}}


@dataclass(frozen=True, slots=True)
class HasNone(Negation):
    """The list `field` is empty."""

    can_be_open = False

    def negated(self) -> HasAny:
        return HasAny(self.field)


def _list_has(json_list: str, text: str) -> bool:
    """Whether a list contains a text. SQLite's json_each would suffice, but ends a text at a NUL character (3.40)."""
    return text in (json.loads(json_list) or ())


_LIST_HAS = SqliteFunction("list_has", 2, _list_has, Boolean(), of_null=False)


def fixed_addresses(addresses: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    """The fixed addresses in an instance's `ip_addresses`; an entry without a type is fixed."""
    return (str(entry["address"]) for entry in addresses or () if entry.get("type", "fixed") == "fixed")


@dataclass(frozen=True, slots=True)
class HasAddress(Leaf):
    """A fixed address in `field` contains `text`."""

    text: str
    can_be_open = False

    def negated(self) -> "LacksAddress":
        return LacksAddress(self.field, self.text)

    def check(self, field: Field) -> None:
        if field.kind is not Kind.OTHER or field.is_list:
            raise FilterValueError(field.name, self.text, "no address: the field holds none")
        try:
            self.text.encode()
        except UnicodeEncodeError:
            raise FilterValueError(field.name, self.text, "text of valid Unicode") from None

    def matcher(self, field: Field) -> Matcher:
        name, part = field.name, self.text
        return lambda record: any(part in address for address in fixed_addresses(record[name]))

    def fitted(self, store: Store) -> Filter:
        return self if can_hold(store, self.text) else NOTHING

    def fits_sql(self, dialect: SqlDialect) -> bool:
        return dialect != "mysql"

    def sql(self, column: SqlColumn) -> Predicate:
        part = literal(self.text, TEXT)
        if column.dialect == "sqlite":
            return _HAS_ADDRESS(column.stored, part)
        entry = func.jsonb_array_elements(column.stored).table_valued("value")
        is_fixed = func.coalesce(entry.c.value.op("->>")("type"), "fixed") == "fixed"
        position = func.strpos(entry.c.value.op("->>")("address"), part)
        return exists(select(1).select_from(entry).where(is_fixed, position > 0))

    def dsl(self, field: Field) -> Dsl:
        raise NotExpressibleError("Elasticsearch", f"a part of an address in '{field.name}'")


@dataclass(frozen=True, slots=True)
class LacksAddress(Negation):
    """No fixed address in `field` contains `text`; true if it has none."""

    text: str
    can_be_open = False

    def negated(self) -> HasAddress:
        return HasAddress(self.field, self.text)


def _has_address(json_addresses: str, text: str) -> bool:
    return any(text in address for address in fixed_addresses(json.loads(json_addresses)))


_HAS_ADDRESS = SqliteFunction("has_address", 2, _has_address, Boolean(), of_null=False)
