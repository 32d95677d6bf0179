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
    """The cell of an instance, and the fields to show while that cell is down.

    created_at: microseconds since the epoch. queued_for_delete: the instance is deleted, or about to be.
    """

    instance_uuid: str
    cell_uuid: str
    project_id: str | None
    user_id: str | None
    created_at: int
    queued_for_delete: bool = False

    FIELDS: ClassVar = ("uuid", "project_id", "user_id", "created_at", "deleted")
    """The fields of an instance that a mapping needs."""

    @classmethod
    def of(cls, row: InstanceRow, now: int) -> "InstanceMapping":
        """The mapping for a row. now: replaces a missing time of creation."""
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
    """The fleet database. Every call raises FleetUnreachableError if it does not answer.

    failures: messages that could not be indexed. journals: changes of cells that do not number them.
    takeover_after_s: of leases, see fleetlight.cells.database.leases.
    cell_keys, producer_keys: signing keys of relays and producers. recent_changes: shared by the processes of an API.
    index_work: orders of operators. audit_rounds: results of audits of the index.
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
        """Register a cell, or update the URLs of the cell with that name, whose uuid stays.

        number: for a new cell, unless another cell has it. api_database_url, nova_uuid: see Cell. Raises
        CellConflictError if the name belongs to a cell of another kind or with another `uuid`.
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
        """The cell with that name or uuid. Raises UnknownCellError with the known names."""
        cells = self.cells()
        for cell in cells:
            if name_or_uuid in {cell.name, cell.uuid}:
                return cell
        raise UnknownCellError(name_or_uuid, tuple(cell.name for cell in cells))

    def set_disabled(self, cell_uuid: str, disabled: bool) -> None:
        """Disable or enable a cell. Indexers and relays leave a disabled cell; lists still query it."""
        with self.database.writing() as connection:
            connection.execute(update(cells_table).where(cells_table.c.uuid == cell_uuid).values(disabled=disabled))

    def set_takes_announcements(self, cell_uuid: str, takes: bool) -> None:
        """Set whether producers may announce instances in a native cell that its database does not have."""
        its = cells_table.c.uuid == cell_uuid
        with self.database.writing() as connection:
            connection.execute(update(cells_table).where(its).values(takes_announcements=takes))

    def remove_cell(self, cell: Cell) -> int:
        """Remove a disabled cell with its mappings, keys, failures and journal; returns the number of mappings.

        The cell's database and bus stay as they are. Raises CellInUseError if the cell is enabled.
        """
        columns = cells_table.c
        with self.database.writing() as connection:
            # Lock the row, so that no process enables the cell before the removal.
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
        """Open leases that all processes of this fleet respect (fleetlight.cells.database.leases)."""
        return open_leases(self._engine, purpose, translated_fleet_failures, takeover_after_s=self._takeover_after_s)

    def lock(self, *names: str) -> AbstractContextManager[None]:
        """Hold locks for work that no two processes may do at once (fleetlight.cells.fleet.advisory_locks)."""
        return self._locks.take(*names)

    def add_mappings(self, mappings: Sequence[InstanceMapping]) -> None:
        """Map new instances, all of them or none; an existing mapping to the same cell stays.

        Raises InstanceExistsError if one of them is mapped to another cell.
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
            # An earlier creation that did not reach the cell left this mapping, unless the cell has the instance.
            self.add_mappings([mapping for mapping in mappings if mapping.instance_uuid not in known])

    def mapping_of(self, instance_uuid: str) -> InstanceMapping | None:
        """The mapping of an instance; None if it has none."""
        with self.database.reading() as connection:
            row = connection.execute(
                select(instance_mappings).where(instance_mappings.c.instance_uuid == instance_uuid)
            ).one_or_none()
        return None if row is None else _mapping(row)

    def mappings_of(self, instance_uuids: Collection[str]) -> Mapping[str, InstanceMapping]:
        """The existing mappings of these instances, by uuid; for hundreds at once."""
        is_asked_for = _is_among(instance_mappings.c.instance_uuid, instance_uuids, self._engine.dialect.name)
        with self.database.reading() as connection:
            rows = connection.execute(select(instance_mappings).where(is_asked_for)).all()
        return {row.instance_uuid: _mapping(row) for row in rows}

    def update_mappings(self, mappings: Sequence[InstanceMapping]) -> None:
        """Update mappings, except those that name another cell by now."""
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
        """The uuid of the cell of each mapped instance. project_id: only instances of this project; None for all."""
        columns = instance_mappings.c
        statement = select(columns.instance_uuid, columns.cell_uuid).where(columns.instance_uuid.in_(instance_uuids))
        if project_id is not None:
            statement = statement.where(columns.project_id == project_id)
        with self.database.reading() as connection:
            return {row.instance_uuid: row.cell_uuid for row in connection.execute(statement)}

    def living_elsewhere(self, cell_uuid: str, instance_uuids: Collection[str]) -> Mapping[str, str]:
        """The instances that are mapped to another cell than this one, with the uuid of that cell.

        For hundreds of instances at once, of which usually none is: they are one parameter of the statement, since
        separate ones take four times as long as all the rest.
        """
        columns = instance_mappings.c
        statement = select(columns.instance_uuid, columns.cell_uuid).where(
            _is_among(columns.instance_uuid, instance_uuids, self._engine.dialect.name),
            columns.cell_uuid != cell_uuid,
        )
        with self.database.reading() as connection:
            return {row.instance_uuid: row.cell_uuid for row in connection.execute(statement)}

    def cells_of_deployment(self, api_database_url: str) -> Mapping[str, str]:
        """The cells of a deployment of Nova in the fleet: their uuids here, by their uuids there."""
        return _of_deployment(self.cells(), api_database_url)

    def cells_of_project(self, project_id: str) -> Set[str]:
        """The uuids of the cells that have, or had, instances of a project."""
        # One lookup in the database's index for each cell, instead of a scan of the project's instances.
        its = select(literal(1)).where(
            instance_mappings.c.cell_uuid == cells_table.c.uuid,
            instance_mappings.c.queued_for_delete.in_([False, True]),
            instance_mappings.c.project_id == project_id,
        )
        with self.database.reading() as connection:
            return set(connection.scalars(select(cells_table.c.uuid).where(its.exists())))

    def mark_queued_for_delete(self, cell_uuid: str, instance_uuids: Sequence[str], *, queued: bool = True) -> None:
        """Mark those instances that are mapped to this cell as deleted, or about to be; or as not `queued` any more."""
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
        """At most `limit` mappings of a cell's instances that are not deleted, ordered by uuid, after `after`; to show
        while the cell is down.
        """
        statement = select(instance_mappings).where(
            _is_live_in(cell_uuid, project_id), instance_mappings.c.instance_uuid > after
        )
        with self.database.reading() as connection:
            rows = connection.execute(statement.order_by(instance_mappings.c.instance_uuid).limit(limit))
            return tuple(_mapping(row) for row in rows)

    def count_mappings(self, cell_uuid: str, *, project_id: str | None = None) -> int:
        """The number of a cell's instances that are not deleted."""
        counted = select(func.count()).select_from(instance_mappings)
        with self.database.reading() as connection:
            return connection.execute(counted.where(_is_live_in(cell_uuid, project_id))).scalar_one()

    def close(self) -> None:
        self._engine.dispose()

    def _insert_mappings(self, mappings: Sequence[InstanceMapping]) -> None:
        # Several mappings are added all or none, which takes a transaction.
        begin = self.database.writing_once if len(mappings) == 1 else self.database.writing
        with begin() as connection:
            connection.execute(_ADD_MAPPINGS, [asdict(mapping) for mapping in mappings])


def _is_among(column: ColumnElement[str], texts: Collection[str], dialect: str) -> ColumnElement[bool]:
    """Whether a column has one of these texts, which must not contain commas."""
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
