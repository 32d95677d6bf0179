"""Build requests: the servers of a Nova deployment that were accepted and are in no cell yet.

They are few, and stored as JSON, so the adapter reads and filters all of them, as Nova does. It leaves out a request
whose server is in a cell, which shows the server from then on (docs/decisions/0012).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Row, and_, exists, select

from fleetlight.cells.database.engines import external_cell_failures
from fleetlight.cells.kinds.nova_db.commit_log.following import follow_commits
from fleetlight.cells.kinds.nova_db.commits_seen import commits_seen
from fleetlight.cells.kinds.nova_db.damage import MISSHAPEN, reason_of_damage
from fleetlight.cells.kinds.nova_db.databases import address_of, dialect_of, open_nova_database
from fleetlight.cells.kinds.nova_db.deployment import living_in, living_outside, read_homes
from fleetlight.cells.kinds.nova_db.details import ApiDetails, Details
from fleetlight.cells.kinds.nova_db.records import build_request_record, readable_build_request
from fleetlight.cells.kinds.nova_db.tables import build_requests, cell_mappings, instance_mappings
from fleetlight.cells.model import Cell, ChangeHints, CommitHints, DamagedRecord, InstanceRow, PartialRows, Positions
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.query.evaluate import sorted_page
from fleetlight.query.filters import And, Eq
from fleetlight.query.page import PageRequest
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import Record


class NovaBuildRequests:
    """A CellAdapter and ItemsAdapter (fleetlight.cells.model) for servers that are in no cell yet; thread-safe.

    cell: its database is the API database. Other parameters are those of NovaDbAdapter.
    """

    def __init__(self, cell: Cell, *, statement_timeout_s: float | None = None, clock: Clock = system_clock) -> None:
        self._cell = cell
        self._clock = clock
        self._engine = open_nova_database(cell.database_url, statement_timeout_s=statement_timeout_s)
        self._details = ApiDetails(dialect_of(self._engine.url))

    @property
    def cell(self) -> Cell:
        return self._cell

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        started = self._clock()
        records = self._records(_project_of(request))
        page = [InstanceRow(self._cell.uuid, started, record) for record in sorted_page(records, request)]
        lacks = self._lacks()
        return page if lacks is None else PartialRows(page, lacks)

    def find(self, uuid: str) -> InstanceRow | None:
        started = self._clock()
        found = [record for record in self._records() if record["uuid"] == uuid]
        return InstanceRow(self._cell.uuid, started, found[0]) if found else None

    def read_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Sequence[Record]:
        """As fleetlight.cells.model.ItemsAdapter; only servers wait for a cell."""
        return []

    def read_capacity(self) -> Sequence[NodeCapacity]:
        """As fleetlight.cells.model.CapacityAdapter; nodes are in cells."""
        return []

    def confirm_here(self, uuids: Collection[str]) -> Collection[str]:
        return living_in(self._homes(uuids), None)

    def living_elsewhere(self, uuids: Collection[str]) -> Mapping[str, str]:
        return living_outside(self._homes(uuids), None)

    @property
    def log_name(self) -> str:
        return address_of(self._engine.url)

    def follow_commits(self, after: Positions) -> CommitHints:
        # Begin anew each time: whether the fleet lacks a cell of Nova may have changed, which a comparison shows.
        return follow_commits([self._engine], {}, self._clock)

    def poll_changes(self) -> ChangeHints | None:
        return commits_seen(self._cell.name, [self._engine], self._clock)

    def close(self) -> None:
        self._engine.dispose()

    def _lacks(self) -> str | None:
        """Why rows may be missing: cells of the deployment that the fleet lacks; None if it has all."""
        if self._cell.deployment_cells is None:
            return None
        columns = cell_mappings.c
        statement = select(columns.name, columns.uuid).where(columns.uuid.not_in(self._cell.deployment_cells))
        with self._reading() as connection:
            names = [row.name or row.uuid for row in connection.execute(statement.order_by(columns.id))]
        if not names:
            return None
        return f"the fleet lacks {', '.join(names)} of this Nova: `fleetlight cell add-nova` adds what is missing"

    def _homes(self, uuids: Collection[str]) -> Mapping[str, str | None]:
        with self._reading() as connection:
            return read_homes(connection, uuids)

    def _records(self, project_id: str | None = None) -> list[Record]:
        rows, mappings = build_requests.c, instance_mappings.c
        in_cell = exists(
            select(1).where(and_(mappings.instance_uuid == rows.instance_uuid, mappings.cell_id.is_not(None)))
        )
        statement = select(build_requests).where(~in_cell, rows.instance_uuid.is_not(None))
        if project_id is not None:
            # This only reduces the rows; the filter decides.
            statement = statement.where(rows.project_id == project_id)
        with self._reading() as connection:
            found: Sequence[Row[Any]] = connection.execute(statement).all()
            details = {row.instance_uuid: Details() for row in found}
            if details:
                self._details.read(connection, details)
        records = (self._record(row, details[row.instance_uuid]) for row in found)
        return [record for record in records if record is not None]

    def _record(self, row: Row[Any], details: Details) -> Record | None:
        try:
            return build_request_record(row, details)
        except MISSHAPEN as error:
            return DamagedRecord(self._cell.name, readable_build_request(row), reason_of_damage(error))

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with external_cell_failures(self._cell.name), self._engine.connect() as connection:
            yield connection


def _project_of(request: PageRequest) -> str | None:
    terms = request.filter.terms if isinstance(request.filter, And) else (request.filter,)
    projects = [term.value for term in terms if isinstance(term, Eq) and term.field == "project_id"]
    return str(projects[0]) if projects and "\0" not in str(projects[0]) else None
