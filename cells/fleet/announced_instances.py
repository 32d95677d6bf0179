"""Instances known only from notifications of other software, in the journal of their cell: no cell has rows of them.

An index cannot get them from anywhere else, and lists add them to a cell's rows. For each instance the newest state is
kept, and for each cell the newest `MOST_KEPT` instances; a deleted one is removed when the index forgets it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, delete, exists, func, select

from fleetlight.cells.batched import batched
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import announced_instances, instance_mappings
from fleetlight.cells.model import InstanceRow
from fleetlight.query.evaluate import first_of, matcher
from fleetlight.query.filters import And, Eq, Filter
from fleetlight.query.page import PageRequest
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import BLANK_INSTANCE, INSTANCE_FIELDS

MOST_KEPT = 100_000
_AT_ONCE = 500
_COLUMNS = announced_instances.c


@dataclass(frozen=True, slots=True)
class AnnouncedInstance:
    """version: of its document (fleetlight.indexer.backends.base.Document). extra: fields besides its record, as
    JSON.
    """

    instance_uuid: str
    version: int
    record: Record
    extra: bytes | None = None


@dataclass(frozen=True, slots=True)
class AnnouncedPage:
    """rows: in order; their revisions are the versions of their documents. cut_off: uuids of cells with the maximum
    number of kept instances, of which some may be missing.
    """

    rows: Sequence[InstanceRow] = ()
    cut_off: Collection[str] = field(default=())


class AnnouncedInstances:
    """The announced instances of all cells. Every call raises FleetUnreachableError."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def keep(self, cell_uuid: str, announced: Sequence[AnnouncedInstance]) -> None:
        """Store these states, keeping the newest one of each instance."""
        if not announced:
            return
        new = self._database.insert(announced_instances)
        names = ("version", "deleted_at", "record", "extra")
        statement = new.on_conflict_do_update(
            index_elements=[_COLUMNS.cell_uuid, _COLUMNS.instance_uuid],
            set_={name: new.excluded[name] for name in names},
            where=_COLUMNS.version < new.excluded.version,
        )
        with self._database.writing() as connection:
            connection.execute(statement, [_values(cell_uuid, each) for each in announced])

    def versions(self, cell_uuid: str) -> Mapping[str, int]:
        """The versions of a cell's kept instances, by uuid."""
        statement = select(_COLUMNS.instance_uuid, _COLUMNS.version).where(_COLUMNS.cell_uuid == cell_uuid)
        with self._database.reading() as connection:
            return {row.instance_uuid: row.version for row in connection.execute(statement)}

    def read(self, cell_uuid: str, instance_uuids: Collection[str]) -> list[AnnouncedInstance]:
        """The kept ones among these instances."""
        statement = select(announced_instances).where(
            _COLUMNS.cell_uuid == cell_uuid, _COLUMNS.instance_uuid.in_(sorted(instance_uuids))
        )
        with self._database.reading() as connection:
            rows = connection.execute(statement).all()
        return [
            AnnouncedInstance(row.instance_uuid, row.version, msgspec.json.decode(row.record), row.extra)
            for row in rows
        ]

    def read_page(self, cell_uuids: Collection[str], request: PageRequest) -> AnnouncedPage:
        """A page of the instances announced in these cells, without those mapped to another cell."""
        with self._database.reading() as connection:
            kept = _kept_by_cell(connection, cell_uuids)
            rows = _announced_rows(connection, kept, request.filter) if kept else iter(())
            found = first_of(rows, request, lambda row: row.record)
        return AnnouncedPage(found, [uuid for uuid, number in kept.items() if number >= MOST_KEPT])

    def cells_with_some(self, cell_uuids: Collection[str]) -> Collection[str]:
        """Those of these cells that have announced instances."""
        with self._database.reading() as connection:
            return _kept_by_cell(connection, cell_uuids).keys()

    def forget(self, cell_uuid: str, instance_uuids: Collection[str]) -> None:
        """Remove instances that now have rows, or have left the cell."""
        with self._database.writing() as connection:
            for uuids in batched(sorted(instance_uuids), _AT_ONCE):
                _delete(connection, cell_uuid, _COLUMNS.instance_uuid.in_(uuids))

    def prune(self, cell_uuid: str, horizon: int) -> None:
        """Remove instances deleted before `horizon`, in microseconds, and all but the newest `MOST_KEPT`."""
        with self._database.writing() as connection:
            _delete(connection, cell_uuid, _COLUMNS.deleted_at < horizon)
            of_cell = _COLUMNS.cell_uuid == cell_uuid
            newest = (
                select(_COLUMNS.version).where(of_cell).order_by(_COLUMNS.version.desc()).offset(MOST_KEPT).limit(1)
            )
            last = connection.execute(newest).scalar_one_or_none()
            if last is not None:
                _delete(connection, cell_uuid, _COLUMNS.version <= last)


def remove_announced(connection: Connection, cell_uuid: str) -> None:
    """Remove all announced instances of a cell."""
    connection.execute(delete(announced_instances).where(_COLUMNS.cell_uuid == cell_uuid))


def _kept_by_cell(connection: Connection, cell_uuids: Collection[str]) -> dict[str, int]:
    statement = select(_COLUMNS.cell_uuid, func.count()).group_by(_COLUMNS.cell_uuid)
    rows = connection.execute(statement.where(_COLUMNS.cell_uuid.in_(sorted(cell_uuids))))
    return {row[0]: row[1] for row in rows}


def _announced_rows(connection: Connection, cell_uuids: Collection[str], wanted: Filter) -> Iterator[InstanceRow]:
    """Yield the instances that match a filter, one by one."""
    matches = matcher(wanted, INSTANCE_FIELDS)
    # In batches, since a cell may have many.
    for row in connection.execution_options(yield_per=_AT_ONCE).execute(_of_cells(cell_uuids, wanted)):
        record = {**BLANK_INSTANCE, **msgspec.json.decode(row.record)}
        if matches(record):
            yield InstanceRow(row.cell_uuid, row.version, record)


def _of_cells(cell_uuids: Collection[str], wanted: Filter) -> Select[tuple[str, int, bytes]]:
    mappings = instance_mappings.c
    lives_elsewhere = exists().where(
        mappings.instance_uuid == _COLUMNS.instance_uuid, mappings.cell_uuid != _COLUMNS.cell_uuid
    )
    terms = wanted.terms if isinstance(wanted, And) else (wanted,)
    named = [_COLUMNS.instance_uuid == term.value for term in terms if isinstance(term, Eq) and term.field == "uuid"]
    return select(_COLUMNS.cell_uuid, _COLUMNS.version, _COLUMNS.record).where(
        _COLUMNS.cell_uuid.in_(sorted(cell_uuids)), ~lives_elsewhere, *named
    )


def _delete(connection: Connection, cell_uuid: str, condition: ColumnElement[bool]) -> None:
    connection.execute(delete(announced_instances).where(_COLUMNS.cell_uuid == cell_uuid, condition))


def _values(cell_uuid: str, announced: AnnouncedInstance) -> dict[str, object]:
    record = announced.record
    return {
        "cell_uuid": cell_uuid,
        "instance_uuid": announced.instance_uuid,
        "version": announced.version,
        "deleted_at": record["deleted_at"] if record["deleted"] else None,
        "record": msgspec.json.encode(record),
        "extra": announced.extra,
    }
