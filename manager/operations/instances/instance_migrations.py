"""Migrations, Nova's records of moves and resizes (contracts/nova-rest, 3.5 and 4.7)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Engine, and_, insert, or_, select, update

from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.errors import NotResizedError
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.cells.tables import migrations
from fleetlight.resources.fields import Record

FINISHED = "finished"
LIVE = "live-migration"
_FAILED = "error"
_ENDED = ("confirmed", "reverted", "completed", "done", _FAILED)
IN_PROGRESS = ("queued", "preparing", "running", "post-migrating")
"""The statuses of a running live migration."""
_KEPT_OF_THE_INSTANCE = (
    "host",
    "node",
    "availability_zone",
    "flavor",
    "instance_type_id",
    "vm_state",
    "power_state",
)


@dataclass(frozen=True, slots=True)
class Migration:
    """A move or resize of an instance; times in microseconds since the epoch.

    old_instance: earlier fields of the record, which a revert restores.
    """

    id: int
    uuid: str
    instance_uuid: str
    migration_type: str
    status: str
    source_compute: str | None
    source_node: str | None
    dest_compute: str | None
    dest_node: str | None
    dest_host: str | None
    old_instance_type_id: int | None
    new_instance_type_id: int | None
    old_instance: Mapping[str, Any]
    user_id: str | None
    project_id: str | None
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class MigrationQuery:
    """A filter of migrations; None and empty values match all. host: source or destination."""

    instance_uuid: str | None = None
    host: str | None = None
    source_compute: str | None = None
    status: str | None = None
    statuses: Collection[str] = ()
    migration_type: str | None = None
    user_id: str | None = None
    project_id: str | None = None
    changes_since: int | None = None
    changes_before: int | None = None


class MigrationLog:
    """Reads the migrations of one cell. Calls raise CellUnreachableError when its database does not answer."""

    def __init__(self, engine: Engine, cell: Cell) -> None:
        self._engine = engine
        self._cell = cell

    def page(self, query: MigrationQuery, limit: int, after: tuple[int, str] | None = None) -> Sequence[Migration]:
        """Read at most `limit` migrations after `after`, newest first (created_at, then uuid, both descending)."""
        columns = migrations.c
        conditions = _conditions(query)
        if after is not None:
            created_at, uuid = after
            conditions.append(
                or_(columns.created_at < created_at, and_(columns.created_at == created_at, columns.uuid < uuid))
            )
        statement = (
            select(migrations).where(*conditions).order_by(columns.created_at.desc(), columns.uuid.desc()).limit(limit)
        )
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return [Migration(**row._mapping) for row in connection.execute(statement)]

    def find(self, uuid: str) -> Migration | None:
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            row = connection.execute(select(migrations).where(migrations.c.uuid == uuid)).one_or_none()
        return None if row is None else Migration(**row._mapping)


def begin_migration(
    connection: Connection,
    record: Record,
    kind: tuple[str, str],
    request: RequestContext,
    now: int,
    *,
    new_instance_type_id: int | None = None,
) -> int:
    """Record the begin of a move or resize; returns the record's id.

    kind: type of the migration, and its first status. new_instance_type_id: None if the flavor stays the same.
    """
    old_instance_type_id = record["instance_type_id"]
    migration_type, status = kind
    values = {
        "uuid": str(uuid4()),
        "instance_uuid": record["uuid"],
        "migration_type": migration_type,
        "status": status,
        "source_compute": record["host"],
        "source_node": record["node"],
        "old_instance_type_id": old_instance_type_id,
        "new_instance_type_id": old_instance_type_id if new_instance_type_id is None else new_instance_type_id,
        "old_instance": {name: record[name] for name in _KEPT_OF_THE_INSTANCE},
        "user_id": request.user_id,
        "project_id": request.project_id,
        "created_at": now,
        "updated_at": now,
    }
    return int(connection.execute(insert(migrations).values(values).returning(migrations.c.id)).scalar_one())


def update_migration(connection: Connection, migration_id: int, now: int, **values: Any) -> None:
    connection.execute(update(migrations).where(migrations.c.id == migration_id).values(**values, updated_at=now))


def give_up_migration(connection: Connection, migration_id: int, now: int) -> None:
    """Mark a migration as failed, unless it has ended."""
    statement = update(migrations).where(migrations.c.id == migration_id, migrations.c.status.not_in(_ENDED))
    connection.execute(statement.values(status=_FAILED, updated_at=now))


def read_migration(connection: Connection, migration_id: int) -> Migration:
    return Migration(**connection.execute(select(migrations).where(migrations.c.id == migration_id)).one()._mapping)


def finished_migration(connection: Connection, instance_uuid: str) -> Migration:
    """Find the move or resize that waits to be confirmed. Raises NotResizedError if there is none."""
    columns = migrations.c
    statement = (
        select(migrations)
        .where(columns.instance_uuid == instance_uuid, columns.status == FINISHED)
        .order_by(columns.id.desc())
        .limit(1)
    )
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise NotResizedError(instance_uuid)
    return Migration(**row._mapping)


def _conditions(query: MigrationQuery) -> list[ColumnElement[bool]]:
    columns = migrations.c
    conditions: list[ColumnElement[bool]] = []
    for name in ("instance_uuid", "source_compute", "status", "migration_type", "user_id", "project_id"):
        value = getattr(query, name)
        if value is not None:
            conditions.append(columns[name] == value)
    if query.statuses:
        conditions.append(columns.status.in_(query.statuses))
    if query.host is not None:
        conditions.append(or_(columns.source_compute == query.host, columns.dest_compute == query.host))
    if query.changes_since is not None:
        conditions.append(columns.updated_at >= query.changes_since)
    if query.changes_before is not None:
        conditions.append(columns.updated_at <= query.changes_before)
    return conditions
