"""Journals: changelogs, in the fleet database, of the changes that indexers detect in cells without numbered changes.

Watches of lists follow them (docs/decisions/0004). An entry is the newest state of one instance, so a journal has at
most one entry for each changed instance, and at most `KEPT`. A journal has an epoch, like the sequences of a native
cell: a new one begins when changes may be missing from the last one.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, select, update

from fleetlight.cells.epochs import Position
from fleetlight.cells.fleet.announced_instances import AnnouncedInstances, remove_announced
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import journal_entries, journals
from fleetlight.resources.clock import system_clock
from fleetlight.resources.fields import Record

KEPT = 5_000
"""The number of last entries in a journal: a watch that is further behind has to list again."""


@dataclass(frozen=True, slots=True)
class DetectedChange:
    """A change of one instance that an indexer detected.

    version: of its document (fleetlight.indexer.backends.base.Document). is_gone: the cell no longer has the instance,
    and `record` is its last known state. found_at: when the journal got it, in microseconds; 0 before.
    """

    instance_uuid: str
    version: int
    record: Record
    is_gone: bool = False
    found_at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class JournalReading:
    """A part of a journal, at one moment.

    now: its last position. began_at: the moment, in microseconds, until which it may lack what was found. followed_at:
    when an indexer last confirmed that it follows the cell, in microseconds. entries: sequence and change, in the
    requested order.
    """

    now: Position
    began_at: int
    followed_at: int
    entries: Sequence[tuple[int, DetectedChange]]


class Journals:
    """The journals of all cells. Every call raises FleetUnreachableError.

    announced: instances that only notifications from outside announce, which a journal keeps regardless of age.
    """

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database
        self.announced = AnnouncedInstances(database)

    def position(self, cell_uuid: str) -> Position | None:
        """The last position of the journal; None if the cell has no journal."""
        statement = select(journals.c.epoch, journals.c.sequence).where(journals.c.cell_uuid == cell_uuid)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else Position(row.epoch, row.sequence)

    def start_over(self, cell_uuid: str) -> str:
        """Replace the journal by a new, empty one; returns its epoch."""
        epoch = str(uuid4())
        with self._database.writing() as connection:
            row = {"cell_uuid": cell_uuid, "epoch": epoch, "sequence": 0, "began_at": system_clock(), "followed_at": 0}
            # Another indexer of the cell may begin one at the same moment: the later one replaces it.
            new = self._database.insert(journals)
            connection.execute(new.on_conflict_do_update(index_elements=[journals.c.cell_uuid], set_=row), row)
            # Delete entries now that no process can append to the previous journal.
            connection.execute(delete(journal_entries).where(journal_entries.c.cell_uuid == cell_uuid))
        return epoch

    def append(self, cell_uuid: str, detected_changes: Sequence[DetectedChange]) -> Position | None:
        """Append changes, without those that are not newer than the journal's; returns the last position.

        Returns None if the cell has no journal.
        """
        columns, entries = journals.c, journal_entries.c
        advanced = (
            update(journals)
            .where(columns.cell_uuid == cell_uuid)
            .values(sequence=columns.sequence + len(detected_changes))
            .returning(columns.epoch, columns.sequence)
        )
        with self._database.writing() as connection:
            # The update locks the row, so sequences are in the order of commits.
            row = connection.execute(advanced).one_or_none()
            if row is None:
                return None
            last = row.sequence
            uuids = [detected_change.instance_uuid for detected_change in detected_changes]
            there = select(entries.instance_uuid, entries.version).where(
                entries.cell_uuid == cell_uuid, entries.instance_uuid.in_(uuids)
            )
            known = {row.instance_uuid: row.version for row in connection.execute(there)}
            newer = [each for each in detected_changes if each.version > known.get(each.instance_uuid, 0)]
            _remove_entries(connection, cell_uuid, [each.instance_uuid for each in newer])
            now = system_clock()
            numbers = range(last - len(newer) + 1, last + 1)
            if newer:
                rows = [
                    {
                        "cell_uuid": cell_uuid,
                        "sequence": number,
                        "instance_uuid": each.instance_uuid,
                        "version": each.version,
                        "record": msgspec.json.encode(each.record),
                        "is_gone": each.is_gone,
                        "found_at": now,
                    }
                    for number, each in zip(numbers, newer, strict=True)
                ]
                connection.execute(insert(journal_entries), rows)
            is_old = and_(entries.cell_uuid == cell_uuid, entries.sequence <= last - KEPT)
            dropped_at = connection.scalar(select(func.max(entries.found_at)).where(is_old))
            if dropped_at is not None:
                begun = update(journals).where(columns.cell_uuid == cell_uuid).values(began_at=dropped_at)
                connection.execute(begun)
                connection.execute(delete(journal_entries).where(is_old))
        return Position(row.epoch, last)

    def confirm(self, cell_uuid: str, at: int) -> None:
        """Record that an indexer follows the cell at the moment `at`, in microseconds."""
        with self._database.writing() as connection:
            connection.execute(update(journals).where(journals.c.cell_uuid == cell_uuid).values(followed_at=at))

    def read(self, cell_uuid: str, after: int, limit: int) -> JournalReading | None:
        """At most `limit` entries after the sequence `after`; None if the cell has no journal."""
        sequence = journal_entries.c.sequence
        return self._read(cell_uuid, sequence > after, sequence.asc(), limit)

    def read_back(self, cell_uuid: str, before: int, limit: int) -> JournalReading | None:
        """As `read`, for entries before the sequence `before`, newest first."""
        sequence = journal_entries.c.sequence
        return self._read(cell_uuid, sequence < before, sequence.desc(), limit)

    def _read(
        self, cell_uuid: str, is_asked: ColumnElement[bool], order: ColumnElement[int], limit: int
    ) -> JournalReading | None:
        columns, entries = journals.c, journal_entries.c
        statement = (
            # One statement, since two would see two states of the journal.
            select(
                columns.epoch, columns.sequence.label("last"), columns.began_at, columns.followed_at, journal_entries
            )
            .select_from(journals.outerjoin(journal_entries, (entries.cell_uuid == columns.cell_uuid) & is_asked))
            .where(columns.cell_uuid == cell_uuid)
            .order_by(order)
            .limit(limit)
        )
        with self._database.reading() as connection:
            rows = connection.execute(statement).all()
        if not rows:
            return None
        found = [
            (
                row.sequence,
                DetectedChange(
                    row.instance_uuid, row.version, msgspec.json.decode(row.record), row.is_gone, row.found_at
                ),
            )
            for row in rows
            if row.sequence is not None
        ]
        first = rows[0]
        return JournalReading(Position(first.epoch, first.last), first.began_at, first.followed_at, found)


def remove_journal(connection: Connection, cell_uuid: str) -> None:
    """Remove the journal and the announced instances of a cell."""
    for table in (journal_entries, journals):
        connection.execute(delete(table).where(table.c.cell_uuid == cell_uuid))
    remove_announced(connection, cell_uuid)


def _remove_entries(connection: Connection, cell_uuid: str, instance_uuids: Collection[str]) -> None:
    entries = journal_entries.c
    connection.execute(
        delete(journal_entries).where(entries.cell_uuid == cell_uuid, entries.instance_uuid.in_(instance_uuids))
    )
