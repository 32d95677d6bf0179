"""Reading a cell of Nova: its database, and what the API database says of its instances. Nothing is ever written.

The revision of such a row is the time before the reading of it began, in microseconds: whatever was announced meanwhile
is newer (DESIGN, "The write path", 7).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, select

from cells.clock import Clock, system_clock
from cells.database import translated_failures
from cells.errors import CellUnreachableError
from cells.model import Cell, InstanceRow
from cells.nova import tables
from cells.nova.databases import dialect_of, open_nova_database
from cells.nova.details import ApiDetails, CellDetails, Details
from cells.nova.predicates import Predicates
from cells.nova.records import to_record
from query.evaluate import matcher
from query.filters import EVERYTHING, Eq, Filter, Ne, all_of, split_expressible
from query.instances import INSTANCE_FIELDS
from query.page import PageRequest
from query.server_status import WITH_FAULT, status_of
from query.sort import SortOrder
from query.to_sql import after, order_by

# Rows of one statement when some of the filter is left for Python.
_RESIDUAL_BATCH_SIZE = 500
# Values that one statement takes: far below what any of the databases allows.
_DETAILS_AT_ONCE = 1000
# A deleted row that a migration of Nova's once put into each of its databases.
_DUMMY = Ne("uuid", "00000000-0000-0000-0000-000000000000")
_BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())


class NovaDbAdapter:
    """A CellAdapter (cells.model) for a cell of Nova; may be used by several threads.

    statement_timeout_s: PostgreSQL, MySQL and MariaDB end a statement that takes longer.
    clock: microseconds since the epoch.
    Raises DatabaseUrlError.
    """

    def __init__(self, cell: Cell, *, statement_timeout_s: float | None = None, clock: Clock = system_clock) -> None:
        self._cell = cell
        self._clock = clock
        self._engine = open_nova_database(cell.database_url, statement_timeout_s=statement_timeout_s)
        self._dialect = dialect_of(self._engine.url)
        self._details = CellDetails(self._dialect)
        self._api = _Api(cell.api_database_url, statement_timeout_s) if cell.api_database_url else None
        self._inner = tables.instances.alias("o")
        self._outer = tables.instances.alias("i")
        self._predicates = Predicates(self._inner, self._dialect)
        self._outer_columns = Predicates(self._outer, self._dialect).columns

    @property
    def cell(self) -> Cell:
        return self._cell

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        unsortable = [key.field for key in request.order.keys if key.field not in self._predicates.columns]
        if unsortable:
            raise CellUnreachableError(self._cell.name, f"Nova's databases cannot sort by {unsortable[0]}")
        wanted = all_of(request.filter, _DUMMY)
        expressible, residual = split_expressible(wanted, self._predicates.can_express)
        matches = matcher(residual, INSTANCE_FIELDS)
        is_whole = residual == EVERYTHING
        batch = replace(
            request, filter=expressible, limit=request.limit if is_whole else max(request.limit, _RESIDUAL_BATCH_SIZE)
        )
        found: list[InstanceRow] = []
        # Of the whole reading, not of each batch: MySQL shows all of them the moment of the first.
        started = self._clock()
        with self._reading() as connection:
            while True:
                rows = self._read(connection, batch, residual, started)
                found.extend(row for row in rows if is_whole or matches(row.record))
                if len(found) >= request.limit or len(rows) < batch.limit:
                    return found[: request.limit]
                batch = replace(batch, after=request.order.values(rows[-1].record))

    def find(self, uuid: str) -> InstanceRow | None:
        rows = self.read_page(PageRequest(Eq("uuid", uuid), _BY_UUID, 1))
        return rows[0] if rows else None

    def close(self) -> None:
        self._engine.dispose()
        if self._api is not None:
            self._api.close()

    def _read(self, connection: Connection, request: PageRequest, residual: Filter, started: int) -> list[InstanceRow]:
        found = connection.execute(self._page(request, residual)).all()
        # Nothing forbids a second row of extras: the living and newest of them counts.
        rows: dict[str, Row[Any]] = {row.uuid: row for row in found}
        details = {uuid: Details() for uuid in rows}
        for uuids in _in_parts(list(rows)):
            part = {uuid: details[uuid] for uuid in uuids}
            self._details.read(
                connection,
                part,
                deleted={uuid for uuid in uuids if rows[uuid].deleted != 0},
                failed=[uuid for uuid in uuids if _shows_fault(rows[uuid])],
            )
            if self._api is not None:
                self._api.read(part)
        return [InstanceRow(self._cell.uuid, started, to_record(row, details[uuid])) for uuid, row in rows.items()]

    def _page(self, request: PageRequest, residual: Filter) -> Select[Any]:
        """The page alone in a derived table, so that nothing but ids is sorted; then what its rows have once each."""
        compiled = self._predicates
        page = (
            select(self._inner.c.id)
            .where(compiled.compile(request.filter), compiled.superset(residual))
            .order_by(*order_by(request.order, compiled.columns, self._dialect))
            .limit(request.limit)
        )
        if request.after is not None:
            page = page.where(after(request.order, request.after, compiled.columns, self._dialect))
        ids = page.subquery("p")
        rows, extra, cache = self._outer, tables.instance_extra.alias("x"), tables.instance_info_caches.alias("n")
        joined = (
            ids.join(rows, rows.c.id == ids.c.id)
            .outerjoin(extra, extra.c.instance_uuid == rows.c.uuid)
            .outerjoin(cache, cache.c.instance_uuid == rows.c.uuid)
        )
        columns = (
            *tables.read_columns(rows, self._dialect),
            extra.c.flavor,
            extra.c.trusted_certs,
            cache.c.network_info,
        )
        living_last = (extra.c.deleted == 0).asc()
        order = order_by(request.order, self._outer_columns, self._dialect)
        return select(*columns).select_from(joined).order_by(*order, living_last, extra.c.id)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with translated_failures(partial(CellUnreachableError, self._cell.name)), self._engine.connect() as connection:
            yield connection


class _Api:
    """The API database, for what it has of the instances of a page."""

    def __init__(self, url: str, statement_timeout_s: float | None) -> None:
        self._engine: Engine = open_nova_database(url, statement_timeout_s=statement_timeout_s)
        self._details = ApiDetails(dialect_of(self._engine.url))

    def read(self, details: dict[str, Details]) -> None:
        with self._engine.connect() as connection:
            self._details.read(connection, details)

    def close(self) -> None:
        self._engine.dispose()


def _shows_fault(row: Row[Any]) -> bool:
    return status_of(row.vm_state, row.task_state, deleted=bool(row.deleted)) in WITH_FAULT


def _in_parts(uuids: Sequence[str]) -> Iterator[list[str]]:
    remaining = iter(uuids)
    while part := list(islice(remaining, _DETAILS_AT_ONCE)):
        yield part
