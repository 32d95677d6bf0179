"""The fleet registry: the cells, and the cell of each instance."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar
from uuid import uuid4

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Engine,
    Row,
    String,
    and_,
    any_,
    bindparam,
    delete,
    false,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.leases import Leases, open_leases
from fleetlight.cells.database.locks import wait_for_lock
from fleetlight.cells.errors import CellConflictError, CellInUseError, InstanceExistsError, UnknownCellError
from fleetlight.cells.fleet.advisory_locks import AdvisoryLocks
from fleetlight.cells.fleet.audit_rounds import AuditRounds
from fleetlight.cells.fleet.bulk_changes import BulkChanges
from fleetlight.cells.fleet.cell_keys import CellKeys, add_key
from fleetlight.cells.fleet.compared_mappings import ComparedMappingsStore
from fleetlight.cells.fleet.compute.aggregates import Aggregates
from fleetlight.cells.fleet.compute.flavors import Flavors
from fleetlight.cells.fleet.compute.keypairs import Keypairs
from fleetlight.cells.fleet.compute.quotas import Quotas
from fleetlight.cells.fleet.compute.server_groups import ServerGroups
from fleetlight.cells.fleet.database import FleetDatabase, translated_fleet_failures
from fleetlight.cells.fleet.ended_sessions import EndedSessions
from fleetlight.cells.fleet.failures import FailedMessages
from fleetlight.cells.fleet.fleet_clock import FleetClock
from fleetlight.cells.fleet.index_work import IndexWork
from fleetlight.cells.fleet.journals import Journals, remove_journal
from fleetlight.cells.fleet.known_hosts import KnownHosts
from fleetlight.cells.fleet.producer_keys import ProducerKeys
from fleetlight.cells.fleet.recent_changes import RecentChanges
from fleetlight.cells.fleet.restored_cells import RestoredCells
from fleetlight.cells.fleet.saved_views import SavedViews
from fleetlight.cells.fleet.subscriptions import Subscriptions
from fleetlight.cells.fleet.tables import (
    audit_rounds,
    cell_keys,
    compared_mappings,
    dropped_failures,
    failures,
    instance_mappings,
    known_hosts,
    producer_keys,
    restored_cells,
)
from fleetlight.cells.fleet.tables import cells as cells_table
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.settings import FailureLimits
from fleetlight.resources.clock import system_clock

_ADD_MAPPINGS = insert(instance_mappings)


@dataclass(frozen=True, slots=True)
class InstanceMapping:
    """Where an instance lives, and what is known of it while its cell is down.

    created_at: microseconds since the epoch. queued_for_delete: it is deleted, or about to be.
    """

    instance_uuid: str
    cell_uuid: str
    project_id: str | None
    user_id: str | None
    created_at: int
    queued_for_delete: bool = False

    FIELDS: ClassVar = ("uuid", "project_id", "user_id", "created_at", "deleted")
    """Those of an instance that it is made of."""

    @classmethod
    def of(cls, row: InstanceRow, now: int) -> "InstanceMapping":
        """now: stands in for a time of creation that the row does not have."""
        record = row.record
        created_at = record["created_at"]
        return cls(
            row.uuid,
            row.cell_uuid,
            record["project_id"],
            record["user_id"],
            now if created_at is None else created_at,
            queued_for_delete=bool(record["deleted"]),
        )


class Fleet:
    """The fleet database. Every call raises FleetUnreachableError when it does not answer.

    failures: messages that could not be indexed. journals: what has changed in cells that number nothing themselves.
    takeover_after_s: of leases, see fleetlight.cells.database.leases.
    cell_keys: what relays sign with. producer_keys: what producers sign with. recent_changes: what API processes tell
    each other. index_work: what operators have ordered. audit_rounds: what audits of the index have found.
    """

    def __init__(
        self, engine: Engine, failure_limits: FailureLimits | None = None, *, takeover_after_s: float | None = None
    ) -> None:
        self._engine = engine
        self._takeover_after_s = takeover_after_s
        self.database = database = FleetDatabase(engine)
        self.flavors = Flavors(database)
        self.keypairs = Keypairs(database)
        self.quotas = Quotas(database)
        self.server_groups = ServerGroups(database)
        self.known_hosts = KnownHosts(database)
        self.aggregates = Aggregates(database)
        self.failures = FailedMessages(database, failure_limits or FailureLimits())
        self.journals = Journals(database)
        self.cell_keys = CellKeys(database)
        self.producer_keys = ProducerKeys(database)
        self.compared_mappings = ComparedMappingsStore(database)
        self.recent_changes = RecentChanges(database)
        self.saved_views = SavedViews(database)
        self.ended_sessions = EndedSessions(database)
        self.index_work = IndexWork(database)
        self.bulk_changes = BulkChanges(database)
        self.subscriptions = Subscriptions(database)
        self.audit_rounds = AuditRounds(database)
        self.restored_cells = RestoredCells(database)
        self.clock = FleetClock(database)
        self._locks = AdvisoryLocks(engine)

    def add_cell(
        self,
        name: str,
        kind: CellKind,
        database_url: str,
        transport_url: str,
        *,
        uuid: str | None = None,
        number: int | None = None,
        api_database_url: str | None = None,
        nova_uuid: str | None = None,
    ) -> Cell:
        """Register a cell, or bring the URLs of the one with that name up to date; the uuid stays.

        number: that of a new cell, unless another one has it. api_database_url, nova_uuid: see Cell.

        Raises CellConflictError when the name belongs to a cell of another kind or with another `uuid`.
        """
        given = Cell(
            uuid or str(uuid4()),
            name,
            kind,
            database_url,
            transport_url,
            api_database_url=api_database_url,
            nova_uuid=nova_uuid,
        )
        with self.database.writing() as connection:
            row = connection.execute(select(cells_table).where(cells_table.c.name == name)).one_or_none()
            if row is None:
                wait_for_lock(connection, "numbers of cells")
                taken = set(connection.scalars(select(cells_table.c.number)))
                if number is None or number in taken:
                    number = max(taken, default=0) + 1
                given = replace(given, number=number)
                connection.execute(insert(cells_table).values(_columns(given)))
                if given.can.takes_changes:
                    add_key(connection, given.uuid, system_clock())
                return given
            known = _cell(row)
            if known.kind is not kind or uuid not in {None, known.uuid} or nova_uuid != known.nova_uuid:
                raise CellConflictError(name)
            cell = replace(
                given,
                uuid=known.uuid,
                disabled=known.disabled,
                number=known.number,
                takes_announcements=known.takes_announcements,
            )
            connection.execute(update(cells_table).where(cells_table.c.uuid == cell.uuid).values(_columns(cell)))
            return cell

    def cells(self) -> tuple[Cell, ...]:
        """Every cell, by name."""
        with self.database.reading() as connection:
            cells = [_cell(row) for row in connection.execute(select(cells_table).order_by(cells_table.c.name))]
        return tuple(
            replace(cell, deployment_cells=frozenset(_of_deployment(cells, cell.database_url)))
            if cell.is_before_cells
            else cell
            for cell in cells
        )

    def cell(self, name_or_uuid: str) -> Cell:
        """The cell with that name or uuid. Raises UnknownCellError, which names the known ones."""
        cells = self.cells()
        for cell in cells:
            if name_or_uuid in {cell.name, cell.uuid}:
                return cell
        raise UnknownCellError(name_or_uuid, tuple(cell.name for cell in cells))

    def set_disabled(self, cell_uuid: str, disabled: bool) -> None:
        """A disabled cell is not followed by indexers and not relayed; lists still ask it."""
        with self.database.writing() as connection:
            connection.execute(update(cells_table).where(cells_table.c.uuid == cell_uuid).values(disabled=disabled))

    def set_takes_announcements(self, cell_uuid: str, takes: bool) -> None:
        """Whether a native cell takes announcements, of instances that its database does not have, from producers."""
        its = cells_table.c.uuid == cell_uuid
        with self.database.writing() as connection:
            connection.execute(update(cells_table).where(its).values(takes_announcements=takes))

    def remove_cell(self, cell: Cell) -> int:
        """Forget a disabled cell, where its instances live and what failed; returns how many mappings there were.

        Its database and its bus stay as they are. Raises CellInUseError when it is not disabled (any more).
        """
        columns = cells_table.c
        with self.database.writing() as connection:
            # Locked, so that no process enables it between the look and the removal.
            disabled = connection.execute(
                select(columns.disabled).where(columns.uuid == cell.uuid).with_for_update()
            ).scalar_one_or_none()
            if disabled is False:
                raise CellInUseError(cell.name, "it is enabled")
            mappings = connection.execute(delete(instance_mappings).where(instance_mappings.c.cell_uuid == cell.uuid))
            for table in (
                audit_rounds,
                restored_cells,
                compared_mappings,
                failures,
                dropped_failures,
                known_hosts,
                cell_keys,
                producer_keys,
            ):
                connection.execute(delete(table).where(table.c.cell_uuid == cell.uuid))
            remove_journal(connection, cell.uuid)
            connection.execute(delete(cells_table).where(columns.uuid == cell.uuid))
            return mappings.rowcount

    def open_leases(self, purpose: str) -> Leases:
        """Leases that all processes of this fleet respect; see fleetlight.cells.database.leases."""
        return open_leases(self._engine, purpose, translated_fleet_failures, takeover_after_s=self._takeover_after_s)

    def lock(self, *names: str) -> AbstractContextManager[None]:
        """Work that two must not do at once for any of `names`, in any processes; see
        fleetlight.cells.fleet.advisory_locks.
        """
        return self._locks.take(*names)

    def add_mappings(self, mappings: Sequence[InstanceMapping]) -> None:
        """Say where new instances live, all of them or none; what was said already for the same cell stays.

        Raises InstanceExistsError when one of them lives in another cell.
        """
        if not mappings:
            return
        try:
            self._insert_mappings(mappings)
        except IntegrityError:
            known = self.cells_of([mapping.instance_uuid for mapping in mappings])
            elsewhere = [
                mapping.instance_uuid
                for mapping in mappings
                if known.get(mapping.instance_uuid, mapping.cell_uuid) != mapping.cell_uuid
            ]
            if elsewhere:
                raise InstanceExistsError(elsewhere) from None
            if not known:
                raise
            # Left by a creation that did not get as far as the cell, unless the cell says otherwise.
            self.add_mappings([mapping for mapping in mappings if mapping.instance_uuid not in known])

    def mapping_of(self, instance_uuid: str) -> InstanceMapping | None:
        with self.database.reading() as connection:
            row = connection.execute(
                select(instance_mappings).where(instance_mappings.c.instance_uuid == instance_uuid)
            ).one_or_none()
        return None if row is None else _mapping(row)

    def mappings_of(self, instance_uuids: Collection[str]) -> Mapping[str, InstanceMapping]:
        """The mappings of those instances that have one, by their uuids; for hundreds at once."""
        is_asked_for = _is_among(instance_mappings.c.instance_uuid, instance_uuids, self._engine.dialect.name)
        with self.database.reading() as connection:
            rows = connection.execute(select(instance_mappings).where(is_asked_for)).all()
        return {row.instance_uuid: _mapping(row) for row in rows}

    def update_mappings(self, mappings: Sequence[InstanceMapping]) -> None:
        """Bring what is known of instances up to date, of those that still live in the same cell."""
        if not mappings:
            return
        columns = instance_mappings.c
        statement = update(instance_mappings).where(
            columns.instance_uuid == bindparam("uuid"), columns.cell_uuid == bindparam("cell")
        )
        with self.database.writing() as connection:
            connection.execute(
                statement,
                [
                    {
                        "uuid": mapping.instance_uuid,
                        "cell": mapping.cell_uuid,
                        "project_id": mapping.project_id,
                        "user_id": mapping.user_id,
                        "queued_for_delete": mapping.queued_for_delete,
                    }
                    for mapping in mappings
                ],
            )

    def cells_of(self, instance_uuids: Collection[str], *, project_id: str | None = None) -> Mapping[str, str]:
        """The cells of those instances that are known, by their uuids.

        project_id: only those of this project; None: those of any.
        """
        columns = instance_mappings.c
        statement = select(columns.instance_uuid, columns.cell_uuid).where(columns.instance_uuid.in_(instance_uuids))
        if project_id is not None:
            statement = statement.where(columns.project_id == project_id)
        with self.database.reading() as connection:
            return {row.instance_uuid: row.cell_uuid for row in connection.execute(statement)}

    def living_elsewhere(self, cell_uuid: str, instance_uuids: Collection[str]) -> Mapping[str, str]:
        """The cells of those instances that live in another cell than this one, by their uuids.

        For hundreds at once, of which most often none does: they are one value of the statement, since to put in so
        many takes four times as long as all the rest.
        """
        columns = instance_mappings.c
        statement = select(columns.instance_uuid, columns.cell_uuid).where(
            _is_among(columns.instance_uuid, instance_uuids, self._engine.dialect.name),
            columns.cell_uuid != cell_uuid,
        )
        with self.database.reading() as connection:
            return {row.instance_uuid: row.cell_uuid for row in connection.execute(statement)}

    def cells_of_deployment(self, api_database_url: str) -> Mapping[str, str]:
        """The cells of a deployment of Nova that are in the fleet, by the uuids that they have there."""
        return _of_deployment(self.cells(), api_database_url)

    def cells_of_project(self, project_id: str) -> Set[str]:
        """The uuids of the cells that have, or had, instances of a project."""
        # One look into the index for each cell, and no walk through all instances of the project.
        its = select(literal(1)).where(
            instance_mappings.c.cell_uuid == cells_table.c.uuid,
            instance_mappings.c.queued_for_delete.in_([False, True]),
            instance_mappings.c.project_id == project_id,
        )
        with self.database.reading() as connection:
            return set(connection.scalars(select(cells_table.c.uuid).where(its.exists())))

    def mark_queued_for_delete(self, cell_uuid: str, instance_uuids: Sequence[str], *, queued: bool = True) -> None:
        """Of the instances, those that live in this cell are deleted, or about to be; or not any more."""
        with self.database.writing() as connection:
            connection.execute(
                update(instance_mappings)
                .where(
                    instance_mappings.c.cell_uuid == cell_uuid,
                    instance_mappings.c.instance_uuid.in_(instance_uuids),
                )
                .values(queued_for_delete=queued)
            )

    def mappings_of_cell(
        self, cell_uuid: str, *, project_id: str | None = None, after: str = "", limit: int
    ) -> tuple[InstanceMapping, ...]:
        """At most `limit` instances of a cell that are not deleted, by their uuids, those behind the uuid `after`.

        That is what is known of them while the cell is down.
        """
        statement = select(instance_mappings).where(
            _is_live_in(cell_uuid, project_id), instance_mappings.c.instance_uuid > after
        )
        with self.database.reading() as connection:
            rows = connection.execute(statement.order_by(instance_mappings.c.instance_uuid).limit(limit))
            return tuple(_mapping(row) for row in rows)

    def count_mappings(self, cell_uuid: str, *, project_id: str | None = None) -> int:
        """How many instances of a cell are not deleted."""
        counted = select(func.count()).select_from(instance_mappings)
        with self.database.reading() as connection:
            return connection.execute(counted.where(_is_live_in(cell_uuid, project_id))).scalar_one()

    def close(self) -> None:
        self._engine.dispose()

    def _insert_mappings(self, mappings: Sequence[InstanceMapping]) -> None:
        # Of several, all or none.
        begin = self.database.writing_once if len(mappings) == 1 else self.database.writing
        with begin() as connection:
            connection.execute(_ADD_MAPPINGS, [asdict(mapping) for mapping in mappings])


def _is_among(column: ColumnElement[str], texts: Collection[str], dialect: str) -> ColumnElement[bool]:
    """texts: without commas."""
    if dialect == "postgresql":
        return column == any_(func.string_to_array(",".join(texts), ",", type_=ARRAY(String)))
    return column.in_(select(func.json_each(json.dumps(list(texts))).table_valued("value").c.value))


def _is_live_in(cell_uuid: str, project_id: str | None) -> ColumnElement[bool]:
    columns = instance_mappings.c
    live = and_(columns.cell_uuid == cell_uuid, columns.queued_for_delete == false())
    return live if project_id is None else and_(live, columns.project_id == project_id)


def _cell(row: Row[tuple[object, ...]]) -> Cell:
    return Cell(**{**row._mapping, "kind": CellKind(row.kind)})


def _columns(cell: Cell) -> Mapping[str, Any]:
    values = asdict(cell) | {"kind": cell.kind.value}
    return {column.name: values[column.name] for column in cells_table.columns}


def _of_deployment(cells: Iterable[Cell], api_database_url: str) -> Mapping[str, str]:
    its = (cell for cell in cells if cell.api_database_url == api_database_url)
    return {cell.nova_uuid: cell.uuid for cell in its if cell.nova_uuid is not None}


def _mapping(row: Row[Any]) -> InstanceMapping:
    # The columns are in the order of the fields.
    values: tuple[Any, ...] = tuple(row)
    return InstanceMapping(*values)
