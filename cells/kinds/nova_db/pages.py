"""The statement that reads a page of a cell database (contracts/nova-db, 7)."""

from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Subquery, null, select, union_all

from fleetlight.cells.kinds.nova_db import tables
from fleetlight.cells.kinds.nova_db.databases import NovaDialect
from fleetlight.cells.kinds.nova_db.predicates import Predicates
from fleetlight.cells.kinds.nova_db.records import columns_for
from fleetlight.query.filters import Filter
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction
from fleetlight.query.to_sql import after, order_by
from fleetlight.resources.instance import INSTANCE_FIELDS

# Times by which an index of Nova orders the rows of a list.
_INDEXED_TIMES = frozenset({"created_at", "updated_at"})


@lru_cache(maxsize=64)
def page_statement(dialect: NovaDialect, request: PageRequest, residual: Filter) -> Select[Any]:
    """The statement for a page: a derived table sorts ids alone, then other tables with one row each are joined.

    residual: the filter that is applied to rows later; the statement may leave out rows that cannot match it.
    A fan-out asks all its cells the same, and to build the statement takes longer than to run it for a few rows.
    """
    return _pages(dialect).statement(request, residual)


@lru_cache
def _pages(dialect: NovaDialect) -> "_Pages":
    return _Pages(dialect)


class _Pages:
    def __init__(self, dialect: NovaDialect) -> None:
        self._dialect = dialect
        self._inner = tables.instances.alias("o")
        self._outer = tables.instances.alias("i")
        self._predicates = Predicates(self._inner, dialect)
        self._outer_columns = Predicates(self._outer, dialect).columns

    def statement(self, request: PageRequest, residual: Filter) -> Select[Any]:
        ids = self._ids(request, residual)
        rows, extra, cache = self._outer, tables.instance_extra.alias("x"), tables.instance_info_caches.alias("n")
        columns = (
            *tables.read_columns(rows, self._dialect),
            extra.c.flavor,
            extra.c.trusted_certs,
            cache.c.network_info,
        )
        needed = columns_for(request.fields_to_read(residual) or INSTANCE_FIELDS)
        joined = ids.join(rows, rows.c.id == ids.c.id)
        order = order_by(request.order, self._outer_columns, self._dialect)
        if not needed.isdisjoint({"flavor", "trusted_certs"}):
            joined = joined.outerjoin(extra, extra.c.instance_uuid == rows.c.uuid)
            living_last = (extra.c.deleted == 0).asc()
            order += [living_last, extra.c.id.asc()]
        if "network_info" in needed:
            joined = joined.outerjoin(cache, cache.c.instance_uuid == rows.c.uuid)
        read = [column if column.name in needed else null().label(column.name) for column in columns]
        return select(*read).select_from(joined).order_by(*order)

    def _ids(self, request: PageRequest, residual: Filter) -> Subquery:
        first = request.order.keys[0]
        if self._dialect == "postgresql" and first.field in _INDEXED_TIMES:
            return self._ids_by_time(request, residual)
        columns = self._predicates.columns
        order = order_by(request.order, columns, self._dialect)
        return self._matching(request, residual).order_by(*order).subquery("p")

    def _ids_by_time(self, request: PageRequest, residual: Filter) -> Subquery:
        """The ids of a page that is ordered by time, on PostgreSQL.

        Its indexes have nulls at the other end than our order, so it would sort all rows. This reads rows with a time
        in the order of the index, and looks up those without one.
        """
        columns = self._predicates.columns
        first = request.order.keys[0]
        time: ColumnElement[Any] = columns[first.field]
        is_ascending = first.direction is Direction.ASC
        later_keys = order_by(request.order, columns, self._dialect)[1:]
        # An order may have a field twice, in both collations.
        keys = [columns[name].label(name) for name in dict.fromkeys(key.field for key in request.order.keys)]
        timed = self._matching(request, residual).add_columns(*keys).where(time.is_not(None))
        if request.after is not None and request.after[0] is not None:
            start = request.after[0]
            timed = timed.where(time >= start if is_ascending else time <= start)
        timed = timed.order_by(time.asc() if is_ascending else time.desc(), *later_keys)
        timeless = self._matching(request, residual).add_columns(*keys).where(time.is_(None)).order_by(*later_keys)
        both = union_all(timed.subquery().select(), timeless.subquery().select()).subquery()
        found = select(both.c.id).order_by(*order_by(request.order, both.c, self._dialect)).limit(request.limit)
        return found.subquery("p")

    def _matching(self, request: PageRequest, residual: Filter) -> Select[Any]:
        compiled = self._predicates
        found = select(self._inner.c.id).where(compiled.compile(request.filter), compiled.superset(residual))
        if request.after is not None:
            found = found.where(after(request.order, request.after, compiled.columns, self._dialect))
        return found.limit(request.limit)
