"""Reads a native cell: its own database, SQLite or PostgreSQL."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, overload

from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, and_, func, select

from fleetlight.cells.counting import count_by_pages
from fleetlight.cells.database.engines import cell_failures, create_database_engine
from fleetlight.cells.database.statements import recorded_statements
from fleetlight.cells.digests import RangeDigest, select_digests, to_digests, within
from fleetlight.cells.epochs import EpochHistory, Position
from fleetlight.cells.findings import Finding
from fleetlight.cells.kinds.native.capacity import read_capacity
from fleetlight.cells.kinds.native.epochs import read_epoch_history, read_position
from fleetlight.cells.kinds.native.findings import read_findings
from fleetlight.cells.kinds.native.instance_rows import (
    UNDECODABLE,
    FieldsReader,
    dialect_of,
    fields_reader,
    is_damage,
    read_damaged,
    read_row,
)
from fleetlight.cells.kinds.native.instance_versions import versions_since
from fleetlight.cells.kinds.native.items.reading import READERS, ROW_READERS
from fleetlight.cells.kinds.native.past_instances import PastInstances
from fleetlight.cells.kinds.native.report import read_report
from fleetlight.cells.model import NO_REVISION, Cell, CellReport, Change, DamagedRecord, InstanceRow, ItemRows
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.cells.tables import cell_state, changes, instances
from fleetlight.cells.usage import UsagePart, UsageRequest, add_up, next_page
from fleetlight.notifications.event_types import OF_INSTANCES
from fleetlight.query.counts import CountRequest, Counts, limited
from fleetlight.query.evaluate import first_of, matcher
from fleetlight.query.filters import EVERYTHING, Filter, In, split_expressible
from fleetlight.query.page import PageRequest
from fleetlight.query.retention import remembered
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.query.to_sql import after, can_express, columns_by_unique, count_statement, next_after, order_by, to_sql
from fleetlight.resources.fields import Record
from fleetlight.resources.indexed_items import INDEXED_ITEMS
from fleetlight.resources.instance import INSTANCE_FIELDS

_COLUMNS = {name: instances.c[name] for name in INSTANCE_FIELDS}
_COLUMNS_BY_UUID = columns_by_unique(_COLUMNS)
_PLACES = select(instances.c.revision, instances.c.uuid)
_FORGOTTEN_UNTIL = select(cell_state.c.forgotten_until)
# Rows of one statement if Python applies part of the filter: enough that a rare match does not take many statements.
_RESIDUAL_BATCH_SIZE = 500


class NativeAdapter:
    """A ChangelogAdapter, PastAdapter, ItemsAdapter, ReportingAdapter and FindingsAdapter of native cells.

    Also a UsageAdapter (fleetlight.cells.usage). Thread-safe.

    statement_timeout_s: PostgreSQL ends a statement that takes longer, and a transaction without queries for so long,
        so that a process that hangs in one keeps no locks.
    engine: of its database, if that is already open.
    """

    def __init__(self, cell: Cell, *, statement_timeout_s: float | None = None, engine: Engine | None = None) -> None:
        self._cell = cell
        self._engine = engine or create_database_engine(
            cell.database_url,
            cell_uuid=cell.uuid,
            statement_timeout_s=statement_timeout_s,
            idle_transaction_timeout_s=statement_timeout_s,
        )
        self._dialect = dialect_of(self._engine)

    @property
    def cell(self) -> Cell:
        return self._cell

    @property
    def engine(self) -> Engine:
        """The engine of its database, for code that reads or changes other things than rows of instances."""
        return self._engine

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        expressible, residual = split_expressible(request.filter, lambda node: can_express(node, self._dialect))
        wanted = replace(request, filter=expressible, fields=request.fields_to_read(residual))
        # Read all batches at one moment, or a row that moves between two of them could be in neither.
        is_of_one_moment = residual != EVERYTHING and not request.order.keeps_places
        with self._reading(at_one_moment=is_of_one_moment) as connection:
            return self._read_matching(connection, wanted, residual)

    def require_past(self, moment: int) -> None:
        with self._reading() as connection:
            PastInstances(connection, self._cell, moment).require_kept()

    def read_past_page(self, request: PageRequest, moment: int) -> Sequence[InstanceRow]:
        expressible, residual = split_expressible(request.filter, lambda node: can_express(node, self._dialect))
        wanted = replace(request, filter=expressible, fields=request.fields_to_read(residual))
        fields = request.fields_to_read(request.filter)
        with self._reading(at_one_moment=True) as connection:
            past = PastInstances(connection, self._cell, moment)
            past.require_kept()

            def read(uuids: Sequence[str]) -> Sequence[InstanceRow]:
                these = PageRequest(In("uuid", tuple(uuids)), INSTANCES_BY_UUID, len(uuids), fields=fields)
                return self._read(connection, these)

            matches = matcher(request.filter, INSTANCE_FIELDS)
            unchanged = self._read_matching(connection, wanted, residual, past.is_unchanged)
            changed = (row for row in past.changed(read) if matches(row.record))
            return first_of(chain(unchanged, changed), request, lambda row: row.record)

    def read_usage(self, request: UsageRequest, after: tuple[Any, ...] | None) -> UsagePart:
        with self._reading(at_one_moment=True) as connection:
            rows = self._read(connection, request.page(after))
            versions = versions_since(connection, rows, request.start)
            forgotten_until: int = connection.execute(_FORGOTTEN_UNTIL).scalar_one()
        return add_up(request, versions, next_page(rows), exact_from=max(request.start, forgotten_until))

    def scan(self, request: PageRequest) -> Sequence[InstanceRow]:
        if not can_express(request.filter, self._dialect):
            return self.read_page(request)
        reader = fields_reader(request.fields_to_read())
        with self._reading() as connection:
            try:
                rows = self._select(connection, request, reader.statements[self._dialect])
                return _ScannedRows(rows, partial(self._scanned_row, reader))
            except Exception as error:
                if not is_damage(error):
                    raise
                return self._read_around_damage(connection, self._select(connection, request, _PLACES), reader)

    def count(self, request: CountRequest) -> Counts:
        if not can_express(request.filter, self._dialect):
            return count_by_pages(self, request)
        statement = count_statement(instances, _COLUMNS, request, self._dialect)
        with self._reading() as connection:
            try:
                groups = {tuple(values): number for *values, number in connection.execute(statement) if number}
                return limited(groups, request.max_groups)
            except Exception as error:
                if not is_damage(error):
                    raise
        return count_by_pages(self, request)

    def describe(self, request: PageRequest) -> Mapping[str, Any]:
        expressible, residual = split_expressible(request.filter, lambda node: can_express(node, self._dialect))
        rows = fields_reader(request.fields_to_read(residual)).statements[self._dialect]
        compiled = self._statement(replace(request, filter=expressible), rows).compile(
            self._engine, compile_kwargs={"render_postcompile": True}
        )
        return {"sql": str(compiled), "values": dict(compiled.params), "filtered_in_python": residual != EVERYTHING}

    def find(self, uuid: str) -> InstanceRow | None:
        with self._reading() as connection:
            return read_row(connection, self._cell, uuid)

    def position(self) -> Position:
        with self._reading() as connection:
            return read_position(connection)

    def report(self) -> CellReport:
        with self._reading(at_one_moment=True) as connection:
            return read_report(connection)

    def findings(self, limit: int) -> Sequence[Finding]:
        with self._reading(at_one_moment=True) as connection:
            return read_findings(connection, self._cell.name, limit)

    def published_sequence(self) -> int:
        with self._reading() as connection:
            return int(connection.execute(select(cell_state.c.last_sequence)).scalar_one())

    def oldest_kept_sequence(self) -> int:
        # One statement: between two, the relay could number a change or prune the oldest.
        oldest = select(func.min(changes.c.sequence)).scalar_subquery()
        statement = select(func.coalesce(oldest, cell_state.c.last_sequence + 1)).select_from(cell_state)
        with self._reading() as connection:
            return int(connection.execute(statement).scalar_one())

    def forgotten_until(self) -> int:
        with self._reading() as connection:
            return int(connection.execute(_FORGOTTEN_UNTIL).scalar_one())

    def first_external_sequence(self, after: int) -> int | None:
        external = and_(
            changes.c.sequence > after,
            changes.c.revision == NO_REVISION,
            # Notifications of our services about themselves are not in the index.
            changes.c.event_type.startswith(OF_INSTANCES, autoescape=True),
        )
        with self._reading() as connection:
            first: int | None = connection.scalar(select(func.min(changes.c.sequence)).where(external))
            return first

    def changes_after(self, sequence: int, limit: int) -> Sequence[Change]:
        wanted = ("sequence", "instance_uuid", "revision", "routing_key", "message", "previous")
        statement = (
            select(*(changes.c[name] for name in wanted))
            .where(changes.c.sequence > sequence)
            .order_by(changes.c.sequence)
            .limit(limit)
        )
        with self._reading() as connection:
            return [Change(*row) for row in connection.execute(statement)]

    def epoch_history(self) -> EpochHistory:
        with self._reading() as connection:
            return read_epoch_history(connection)

    def unnumbered(self, uuids: Collection[str]) -> Collection[str]:
        statement = select(changes.c.instance_uuid).where(
            changes.c.sequence.is_(None), changes.c.instance_uuid.in_(uuids)
        )
        with self._reading() as connection:
            return set(connection.execute(statement).scalars())

    def unnumbered_since(self) -> int | None:
        is_unnumbered = changes.c.sequence.is_(None)
        statement = select(changes.c.committed_at).where(is_unnumbered).order_by(changes.c.id).limit(1)
        with self._reading() as connection:
            moment: int | None = connection.scalar(statement)
            return moment

    def digests(self, prefixes: Sequence[str], length: int, *, horizon: int = 0) -> Mapping[str, RangeDigest]:
        terms = [self._is_remembered(horizon)]
        statement = select_digests(instances.c.uuid, instances.c.revision, prefixes, length, self._dialect, terms=terms)
        with self._reading() as connection:
            return to_digests(row for row in connection.execute(statement))

    def revisions(self, prefixes: Sequence[str], *, horizon: int = 0) -> Mapping[str, int]:
        statement = select(instances.c.uuid, instances.c.revision).where(
            within(instances.c.uuid, prefixes), self._is_remembered(horizon)
        )
        with self._reading() as connection:
            return {row.uuid: row.revision for row in connection.execute(statement)}

    def read_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Sequence[Record]:
        read = READERS.get(item_type)
        if read is None:
            return []
        # Two statements about one item must see the same moment.
        with self._reading(at_one_moment=True) as connection:
            return read(connection, self.cell, fields, keys)

    def describe_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Mapping[str, Any]:
        read = READERS.get(item_type)
        if read is None:
            return {"statements": []}
        with self._reading(at_one_moment=True) as connection, recorded_statements(connection) as statements:
            read(connection, self._cell, fields, keys)
        return {"statements": statements}

    def item_rows(self, item_type: str) -> ItemRows:
        is_unnumbered = select(changes.c.id).where(
            changes.c.sequence.is_(None),
            changes.c.event_type.startswith(f"{INDEXED_ITEMS[item_type].events}.", autoescape=True),
        )
        with self._reading(at_one_moment=True) as connection:
            rows = ROW_READERS[item_type](connection)
            return ItemRows(rows, connection.execute(is_unnumbered.limit(1)).first() is not None)

    def read_capacity(self) -> Sequence[NodeCapacity]:
        with self._reading(at_one_moment=True) as connection:
            return read_capacity(connection)

    def close(self) -> None:
        self._engine.dispose()

    def _is_remembered(self, horizon: int) -> ColumnElement[bool]:
        return to_sql(remembered(horizon), _COLUMNS, INSTANCE_FIELDS, self._dialect)

    def _read_matching(
        self,
        connection: Connection,
        request: PageRequest,
        residual: Filter,
        among: ColumnElement[bool] | None = None,
    ) -> list[InstanceRow]:
        """The rows of a page that match `residual` as well. among: as for `_read`."""
        if residual == EVERYTHING:
            return self._read(connection, request, among)
        matches = matcher(residual, INSTANCE_FIELDS)
        found: list[InstanceRow] = []
        batch = replace(request, limit=max(request.limit, _RESIDUAL_BATCH_SIZE))
        while True:
            rows = self._read(connection, batch, among)
            found.extend(row for row in rows if matches(row.record))
            if len(found) >= request.limit or len(rows) < batch.limit:
                return found[: request.limit]
            batch = replace(batch, after=request.order.values(rows[-1].record))

    def _read(
        self, connection: Connection, request: PageRequest, among: ColumnElement[bool] | None = None
    ) -> list[InstanceRow]:
        """The rows of a page. among: only these rows of the table; None for all."""
        reader = fields_reader(request.fields_to_read())
        wanted = reader.statements[self._dialect]
        try:
            rows = self._select(connection, request, wanted if among is None else wanted.where(among))
            return [self._row(reader, row) for row in rows]
        except Exception as error:
            if not is_damage(error):
                raise
        places = self._select(connection, request, _PLACES if among is None else _PLACES.where(among))
        return self._read_around_damage(connection, places, reader)

    def _read_around_damage(
        self, connection: Connection, places: Sequence[Row[Any]], reader: FieldsReader
    ) -> list[InstanceRow]:
        """As `_read`, if some row is damaged: returns its readable fields as a DamagedRecord."""
        found = {row.uuid: row for row in self._read_each(connection, places, reader)}
        return [found[place.uuid] for place in places if place.uuid in found]

    def _read_each(
        self, connection: Connection, places: Sequence[Row[Any]], reader: FieldsReader
    ) -> Iterator[InstanceRow]:
        """The rows at these places, in any order; halves the places until damaged rows stand alone."""
        wanted = reader.statements[self._dialect].where(instances.c.uuid.in_([place.uuid for place in places]))
        try:
            yield from [self._row(reader, row) for row in connection.execute(wanted).all()]
        except Exception as error:
            if not is_damage(error):
                raise
            if len(places) == 1:
                damaged = read_damaged(connection, self._cell.name, places[0].uuid)
                yield InstanceRow(self._cell.uuid, places[0].revision, damaged)
                return
            middle = len(places) // 2
            yield from self._read_each(connection, places[:middle], reader)
            yield from self._read_each(connection, places[middle:], reader)

    def _select(self, connection: Connection, request: PageRequest, rows: Select[Any]) -> Sequence[Row[Any]]:
        # Fetch all at once, which takes a fifth less time than row by row.
        if request.after is not None:
            coming = next_after(request.order, request.after, _COLUMNS, self._dialect)
            if coming is not None:
                found = connection.execute(self._matching(request, rows).where(coming)).all()
                if len(found) == request.limit:
                    return found
        # One statement reads the page: between two, a row could have moved in or out.
        return connection.execute(self._statement(request, rows)).all()

    def _statement(self, request: PageRequest, rows: Select[Any]) -> Select[Any]:
        statement = self._matching(request, rows)
        if request.after is not None:
            statement = statement.where(after(request.order, request.after, _COLUMNS, self._dialect))
        return statement

    def _matching(self, request: PageRequest, rows: Select[Any]) -> Select[Any]:
        """The first of `rows`, in order, that match the filter, without regard to where the page starts."""
        is_by_uuid = self._dialect == "sqlite" and request.order.keys[0].field == "uuid"
        columns = _COLUMNS_BY_UUID if is_by_uuid else _COLUMNS
        return (
            rows.where(to_sql(request.filter, columns, INSTANCE_FIELDS, self._dialect))
            .order_by(*order_by(request.order, _COLUMNS, self._dialect))
            .limit(request.limit)
        )

    def _row(self, reader: FieldsReader, row: Sequence[Any]) -> InstanceRow:
        return InstanceRow(self._cell.uuid, row[0], reader.record(row[1]))

    def _scanned_row(self, reader: FieldsReader, row: Sequence[Any]) -> InstanceRow:
        try:
            return self._row(reader, row)
        except UNDECODABLE as error:
            return InstanceRow(self._cell.uuid, row[0], DamagedRecord(self._cell.name, {"uuid": row[2]}, str(error)))

    @contextmanager
    def _reading(self, *, at_one_moment: bool = False) -> Iterator[Connection]:
        """Yield a connection. at_one_moment: all statements see the state at the first one, as always on SQLite."""
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            if at_one_moment and self._dialect == "postgresql":
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection


class _ScannedRows(Sequence[InstanceRow]):
    """Rows that become records when read, since a page of records would not fit in the processor's caches."""

    def __init__(self, rows: Sequence[Row[Any]], to_instance: Callable[[Row[Any]], InstanceRow]) -> None:
        self._rows = rows
        self._to_instance = to_instance

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[InstanceRow]:
        return map(self._to_instance, self._rows)

    @overload
    def __getitem__(self, index: int) -> InstanceRow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[InstanceRow]: ...

    def __getitem__(self, index: int | slice) -> InstanceRow | Sequence[InstanceRow]:
        if isinstance(index, slice):
            return _ScannedRows(self._rows[index], self._to_instance)
        return self._to_instance(self._rows[index])
