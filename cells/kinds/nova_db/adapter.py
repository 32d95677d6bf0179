"""Reads a cell of Nova from its database and the API database, and never writes.

The revision of such a row is the time before its reading began, in microseconds, so that anything announced meanwhile
is newer (docs/decisions/0013).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Row

from fleetlight.cells.batched import batched
from fleetlight.cells.database.engines import external_cell_failures
from fleetlight.cells.database.statements import Statement, recorded_statements
from fleetlight.cells.errors import CellUnreachableError, UnreadableRowError
from fleetlight.cells.kinds.nova_db.api_database import API_DATABASES
from fleetlight.cells.kinds.nova_db.commit_log.following import follow_commits
from fleetlight.cells.kinds.nova_db.commits_seen import commits_seen
from fleetlight.cells.kinds.nova_db.damage import is_damage, read_damaged, reason_of_damage
from fleetlight.cells.kinds.nova_db.databases import address_of, dialect_of, leave_moment, open_nova_database, read
from fleetlight.cells.kinds.nova_db.deployment import living_in, living_outside
from fleetlight.cells.kinds.nova_db.details import OF_API, OF_CELL, CellDetails, Details
from fleetlight.cells.kinds.nova_db.nodes import host_statuses, read_capacity, read_nodes
from fleetlight.cells.kinds.nova_db.pages import page_statement
from fleetlight.cells.kinds.nova_db.predicates import Predicates
from fleetlight.cells.kinds.nova_db.records import to_record
from fleetlight.cells.kinds.nova_db.tables import instances
from fleetlight.cells.model import (
    NO_INSTANCE,
    Cell,
    ChangeHints,
    CommitHints,
    DamagedRecord,
    InstanceRow,
    Positions,
)
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.query.evaluate import first_of, matcher
from fleetlight.query.filters import EVERYTHING, Eq, Filter, In, Ne, all_of, split_expressible
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.node import NODE
from fleetlight.resources.server_status import WITH_FAULT, status_of

T = TypeVar("T")

# Rows of one statement if Python applies part of the filter.
_RESIDUAL_BATCH_SIZE = 500
# Values in one statement, far below the limit of any of the databases.
_DETAILS_AT_ONCE = 1000
# A deleted row that a migration of Nova once added to each cell database.
_DUMMY = Ne("uuid", "00000000-0000-0000-0000-000000000000")


class NovaDbAdapter:
    """A CellAdapter and ItemsAdapter (fleetlight.cells.model) for a cell of Nova; thread-safe.

    statement_timeout_s: PostgreSQL, MySQL and MariaDB end a statement that takes longer.
    clock: microseconds since the epoch.
    Raises DatabaseUrlError.
    """

    def __init__(self, cell: Cell, *, statement_timeout_s: float | None = None, clock: Clock = system_clock) -> None:
        self._cell = cell
        self._clock = clock
        self._deadline_s = statement_timeout_s
        self._engine = open_nova_database(cell.database_url, statement_timeout_s=statement_timeout_s)
        self._dialect = dialect_of(self._engine.url)
        self._details = CellDetails(self._dialect)
        self._predicates = Predicates(instances, self._dialect)
        self._api = None
        if cell.api_database_url:
            self._api = API_DATABASES.use(cell.api_database_url, statement_timeout_s)

    @property
    def cell(self) -> Cell:
        return self._cell

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        if not self._predicates.can_sort(request.order):
            question, at_one_moment = partial(self._read_sorted_here, request), True
        else:
            batch, residual = self._first_batch(request)
            # Read at one moment, or a row that moves between two batches could be in neither, and a row could be shown
            # with a later fault.
            has_batches = residual != EVERYTHING and not request.order.keeps_places
            fields = request.fields_to_read(residual) or INSTANCE_FIELDS
            at_one_moment = has_batches or not OF_CELL.isdisjoint(fields)
            question = partial(self._read_page, batch, request.limit, residual)
        with external_cell_failures(self._cell.name):
            return read(self._engine, question, at_one_moment=at_one_moment)

    def describe(self, request: PageRequest) -> Mapping[str, Any]:
        is_sorted_here = not self._predicates.can_sort(request.order)
        if is_sorted_here:
            request = replace(request, order=INSTANCES_BY_UUID, after=None)
        batch, residual = self._first_batch(request)
        statement = page_statement(self._dialect, batch, residual)
        compiled = statement.compile(self._engine, compile_kwargs={"render_postcompile": True})
        return {
            "sql": str(compiled),
            "values": dict(compiled.params),
            "filtered_in_python": is_sorted_here or residual != EVERYTHING,
        }

    def find(self, uuid: str) -> InstanceRow | None:
        rows = self.read_page(PageRequest(Eq("uuid", uuid), INSTANCES_BY_UUID, 1))
        return rows[0] if rows else None

    def probe(self) -> None:
        """Query both databases, since a page needs the API database as well."""
        self.find(NO_INSTANCE)
        if self._api is not None:
            with external_cell_failures(self._cell.name):
                self._wait_for(self._api.probe())

    def confirm_here(self, uuids: Collection[str]) -> Collection[str]:
        return living_in(self._homes(uuids), self._uuid_of_nova)

    def living_elsewhere(self, uuids: Collection[str]) -> Mapping[str, str]:
        return living_outside(self._homes(uuids), self._uuid_of_nova)

    @property
    def log_name(self) -> str:
        return address_of(self._engine.url)

    def follow_commits(self, after: Positions) -> CommitHints:
        return follow_commits(self._engines, after, self._clock)

    def poll_changes(self) -> ChangeHints | None:
        return commits_seen(self._cell.name, self._engines, self._clock)

    def host_statuses(self) -> Mapping[str, str]:
        with external_cell_failures(self._cell.name):
            return read(self._engine, partial(host_statuses, now=self._clock()))

    def read_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Sequence[Record]:
        """As fleetlight.cells.model.ItemsAdapter; such a cell has no items other than nodes."""
        if item_type != NODE.name:
            return []
        with external_cell_failures(self._cell.name):
            # Two statements about one node must see the same moment.
            return read(self._engine, partial(self._read_nodes, fields), at_one_moment=True)

    def read_capacity(self) -> Sequence[NodeCapacity]:
        """As fleetlight.cells.model.CapacityAdapter, without zones, which are aggregates and not read."""
        with external_cell_failures(self._cell.name):
            return read(self._engine, read_capacity)

    def describe_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Mapping[str, Any]:
        if item_type != NODE.name:
            return {"statements": []}

        def recorded(connection: Connection) -> Sequence[Statement]:
            with recorded_statements(connection) as statements:
                self._read_nodes(fields, connection)
            return statements

        with external_cell_failures(self._cell.name):
            return {"statements": read(self._engine, recorded)}

    def close(self) -> None:
        self._engine.dispose()
        if self._api is not None:
            API_DATABASES.leave(self._api)

    @property
    def _engines(self) -> Sequence[Engine]:
        return [self._engine] if self._api is None else [self._engine, self._api.engine]

    @property
    def _uuid_of_nova(self) -> str:
        return self._cell.nova_uuid or self._cell.uuid

    def _homes(self, uuids: Collection[str]) -> Mapping[str, str | None]:
        if self._api is None:
            return {}
        with external_cell_failures(self._cell.name):
            return self._wait_for(self._api.begin_locating(uuids))

    def _read_nodes(self, fields: Collection[str], connection: Connection) -> Sequence[Record]:
        return read_nodes(connection, self._dialect, fields)

    def _first_batch(self, request: PageRequest) -> tuple[PageRequest, Filter]:
        """The first request to the database, and the part of the filter to apply to rows."""
        wanted = all_of(request.filter, _DUMMY)
        expressible, residual = split_expressible(wanted, self._predicates.can_express)
        size = request.limit if residual == EVERYTHING else max(request.limit, _RESIDUAL_BATCH_SIZE)
        return replace(request, filter=expressible, limit=size), residual

    def _read_page(
        self, batch: PageRequest, limit: int, residual: Filter, connection: Connection
    ) -> Sequence[InstanceRow]:
        return list(islice(self._matching(batch, residual, connection), limit))

    def _read_sorted_here(self, request: PageRequest, connection: Connection) -> Sequence[InstanceRow]:
        """The first rows in an order that the database lacks: reads all matching rows, and keeps the first."""
        everything = replace(
            request, fields=request.fields_to_read(), order=INSTANCES_BY_UUID, after=None, limit=_RESIDUAL_BATCH_SIZE
        )
        batch, residual = self._first_batch(everything)
        try:
            return first_of(self._matching(batch, residual, connection), request, lambda row: row.record)
        except UnreadableRowError as error:
            raise CellUnreachableError(self._cell.name, f"a damaged row has no place in the order: {error}") from error

    def _matching(self, batch: PageRequest, residual: Filter, connection: Connection) -> Iterator[InstanceRow]:
        """Yield the matching rows, batch after batch."""
        matches = matcher(residual, INSTANCE_FIELDS)
        is_whole = residual == EVERYTHING
        # One moment for the whole reading, since all batches may see the moment of the first.
        started = self._clock()
        while True:
            rows = self._read(connection, batch, residual, started)
            yield from (row for row in rows if is_whole or matches(row.record))
            if len(rows) < batch.limit:
                return
            batch = replace(batch, after=batch.order.values(rows[-1].record))

    def _read(self, connection: Connection, request: PageRequest, residual: Filter, started: int) -> list[InstanceRow]:
        try:
            return self._read_whole(connection, request, residual, started)
        except Exception as error:
            if not is_damage(error):
                raise
        leave_moment(connection)
        page = page_statement(self._dialect, request, residual)
        uuid = page.selected_columns["uuid"]
        uuids = list(dict.fromkeys(connection.scalars(page.with_only_columns(uuid, maintain_column_froms=True))))
        fields = request.fields_to_read(residual)
        rows = {row.uuid: row for row in self._read_each(connection, uuids, started, fields)}
        return [rows[uuid] for uuid in uuids if uuid in rows]

    def _read_each(
        self, connection: Connection, uuids: Sequence[str], started: int, fields: tuple[str, ...] | None
    ) -> Iterator[InstanceRow]:
        """Yield these rows, in any order; halves the uuids until damaged rows stand alone."""
        these = PageRequest(In("uuid", tuple(uuids)), INSTANCES_BY_UUID, len(uuids), fields=fields)
        try:
            yield from self._read_whole(connection, these, EVERYTHING, started)
        except Exception as error:
            if not is_damage(error):
                raise
            if len(uuids) == 1:
                readable = read_damaged(connection, page_statement(self._dialect, these, EVERYTHING), uuids[0])
                damaged = DamagedRecord(self._cell.name, readable, reason_of_damage(error))
                yield InstanceRow(self._cell.uuid, started, damaged)
                return
            middle = len(uuids) // 2
            yield from self._read_each(connection, uuids[:middle], started, fields)
            yield from self._read_each(connection, uuids[middle:], started, fields)

    def _read_whole(
        self, connection: Connection, request: PageRequest, residual: Filter, started: int
    ) -> list[InstanceRow]:
        found = connection.execute(page_statement(self._dialect, request, residual)).all()
        # An instance may have a second row of extras: the newest that is not deleted counts.
        rows: dict[str, Row[Any]] = {row.uuid: row for row in found}
        details = {uuid: Details() for uuid in rows}
        fields = request.fields_to_read(residual) or INSTANCE_FIELDS
        for uuids in batched(rows, _DETAILS_AT_ONCE):
            part = {uuid: details[uuid] for uuid in uuids}
            # Both databases at once: they set different attributes of the same details.
            of_api = None if self._api is None or OF_API.isdisjoint(fields) else self._api.begin(part)
            if not OF_CELL.isdisjoint(fields):
                self._details.read(
                    connection,
                    part,
                    deleted={uuid for uuid in uuids if rows[uuid].deleted != 0},
                    failed=[uuid for uuid in uuids if _shows_fault(rows[uuid])],
                )
            if of_api is not None:
                self._wait_for(of_api)
        records = (to_record(row, details[uuid]) for uuid, row in rows.items())
        return [InstanceRow(self._cell.uuid, started, {name: record[name] for name in fields}) for record in records]

    def _wait_for(self, of_api: Future[T]) -> T:
        try:
            return of_api.result(self._deadline_s)
        except TimeoutError:
            of_api.cancel()
            raise CellUnreachableError(self._cell.name, "the API database of its deployment does not answer") from None


def _shows_fault(row: Row[Any]) -> bool:
    return status_of(row.vm_state, row.task_state, deleted=bool(row.deleted)) in WITH_FAULT
