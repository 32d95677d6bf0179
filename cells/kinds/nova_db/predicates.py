"""Compiles filters of instances to SQL on Nova's tables (contracts/nova-db, 3 and 6).

The meaning is that of all other sources; Nova's own differs between databases. fleetlight.query.to_sql compiles
predicates of columns; this module has those of other tables, and forms for which Nova's indexes help. A filter without
an exact predicate is applied to the rows that were read, some of which `superset` excludes beforehand.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, FromClause, and_, exists, false, func, literal, not_, or_, select, true

from fleetlight.cells.kinds.nova_db.databases import NovaDialect
from fleetlight.cells.kinds.nova_db.tables import field_columns, instance_extra, instance_info_caches, tags, utf8
from fleetlight.query.filters import And, Eq, Filter, Has, HasAddress, In, Lacks, Matches, NotMatches, Or
from fleetlight.query.sort import Collation, SortOrder
from fleetlight.query.to_sql import can_express, to_sql
from fleetlight.resources.fields import Kind
from fleetlight.resources.instance import INSTANCE_FIELDS

Predicate = ColumnElement[bool]

_INDEXED = frozenset({"uuid", "project_id", "host", "reservation_id", "task_state"})
_PLAIN = re.compile(r"[A-Za-z0-9 ._:-]*")


class Predicates:
    """Compiles filters for one alias of `instances`."""

    def __init__(self, rows: FromClause, dialect: NovaDialect) -> None:
        self._rows = rows
        self._dialect = dialect
        self.columns: Mapping[str, ColumnElement[Any]] = field_columns(rows, dialect)

    def can_express(self, node: Filter) -> bool:
        """Whether `compile` has an exact predicate for `node`."""
        match node:
            case And(terms) | Or(terms):
                return all(self.can_express(term) for term in terms)
            case Has("tags") | Lacks("tags"):
                return True
            case Matches(name) | NotMatches(name) if INSTANCE_FIELDS[name].kind is Kind.TIMESTAMP:
                return False
        return node.field in self.columns and can_express(node, self._dialect)

    def can_sort(self, order: SortOrder) -> bool:
        """Whether the database can sort in this order."""
        return all(
            key.field in self.columns and not (self._dialect == "mysql" and key.collation is Collation.NICE)
            for key in order.keys
        )

    def compile(self, node: Filter) -> Predicate:
        """The predicate of a filter that `can_express`."""
        match node:
            case And(terms):
                return and_(true(), *(self.compile(term) for term in terms))
            case Or(terms):
                return or_(false(), *(self.compile(term) for term in terms))
            case Has("tags", tag):
                return self._has_tag(tag)
            case Lacks("tags", tag):
                return not_(self._has_tag(tag))
            # The first column of Nova's indexes.
            case Eq("deleted", is_deleted):
                return self._rows.c.deleted != 0 if is_deleted else self._rows.c.deleted == 0
        exact = to_sql(node, self.columns, INSTANCE_FIELDS, self._dialect)
        match node:
            case Eq(name, str(value)) if self._dialect == "mysql" and name in _INDEXED:
                return and_(self._rows.c[name] == value, utf8(self._rows.c[name]) == value)
            case In(name, values) if self._dialect == "mysql" and name in _INDEXED and values:
                return and_(self._rows.c[name].in_(values), utf8(self._rows.c[name]).in_(values))
        return exact

    def superset(self, node: Filter) -> Predicate:
        """A predicate that every row which matches `node` fulfils, and perhaps others."""
        match node:
            case And(terms):
                return and_(true(), *(self.superset(term) for term in terms))
            case Or(terms):
                return or_(false(), *(self.superset(term) for term in terms))
            case Eq("flavor_id", str(flavor_id)):
                return self._has_in_flavor(flavor_id)
            case HasAddress("ip_addresses", text):
                return self._has_in_network_info(text)
        return self.compile(node) if self.can_express(node) else true()

    def _has_tag(self, tag: str) -> Predicate:
        if "\0" in tag and self._dialect == "postgresql":
            return false()
        is_tag = tags.c.tag == tag
        if self._dialect == "mysql":
            is_tag = and_(is_tag, utf8(tags.c.tag) == tag)
        return exists(select(1).where(tags.c.resource_id == self._rows.c.uuid, is_tag))

    def _has_in_flavor(self, flavor_id: str) -> Predicate:
        if not _PLAIN.fullmatch(flavor_id):
            # JSON may escape it in several ways.
            return true()
        of_row = instance_extra.c.instance_uuid == self._rows.c.uuid
        return exists(select(1).where(of_row, self._holds(instance_extra.c.flavor, f'"{flavor_id}"')))

    def _has_in_network_info(self, part: str) -> Predicate:
        if not _PLAIN.fullmatch(part):
            return true()
        of_row = instance_info_caches.c.instance_uuid == self._rows.c.uuid
        return exists(select(1).where(of_row, self._holds(instance_info_caches.c.network_info, part)))

    def _holds(self, stored: ColumnElement[Any], text: str) -> Predicate:
        find: Callable[..., ColumnElement[Any]] = func.strpos if self._dialect == "postgresql" else func.instr
        return find(stored, literal(text)) > 0
