"""Parts of the addresses of networks: `ip_addresses` of an instance. They are never null: absent ones are none."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Boolean, exists, func, literal, select

from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.operators.comparison import Negation, can_hold
from fleetlight.query.sql import TEXT, Predicate, SqlColumn, SqlDialect, SqliteFunction
from fleetlight.query.tree import NOTHING, Dsl, Filter, Leaf, Matcher, Store
from fleetlight.resources.errors import FilterValueError
from fleetlight.resources.fields import Field, Kind


def fixed_addresses(addresses: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    """The fixed ones of an instance's `ip_addresses`; those without a type are."""
    return (str(entry["address"]) for entry in addresses or () if entry.get("type", "fixed") == "fixed")


@dataclass(frozen=True, slots=True)
class HasAddress(Leaf):
    """Among the addresses of networks in `field` is a fixed one that contains `text`."""

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
    """Among the addresses of networks in `field` is no fixed one that contains `text`; true when there are none."""

    text: str
    can_be_open = False

    def negated(self) -> HasAddress:
        return HasAddress(self.field, self.text)


def _has_address(json_addresses: str | None, text: str) -> bool:
    entries = (json.loads(json_addresses) or ()) if json_addresses is not None else ()
    return any(entry.get("type", "fixed") == "fixed" and text in entry["address"] for entry in entries)


_HAS_ADDRESS = SqliteFunction("has_address", 2, _has_address, Boolean())
