"""Changelogs of cells that keep none, Nova's: what indexers have found to have changed, numbered in the fleet database.

They are what watches of lists follow (docs/decisions/0004). An entry is the newest state of one instance, so a journal
is no longer than the number of instances that have changed, and never longer than `KEPT`. A journal has an epoch,
as the numbers of a native cell have: a new one begins when it is not known any more what has changed since the last
one.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import uuid4

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from fleetlight.cells.epochs import Position
from fleetlight.cells.fleet.announced_instances import AnnouncedInstances, remove_announced
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import journal_entries, journals
from fleetlight.resources.fields import Record

KEPT = 5_000
"""Numbers that a journal goes back: a follower that knows less has to list again."""


@dataclass(frozen=True, slots=True)
class DetectedChange:
    """What an indexer has found of one instance.

    version: of its document (fleetlight.indexer.backends.base.Document). is_gone: the cell does not have the instance
        any more; the record is what was known of it.
    """

    instance_uuid: str
    version: int
    record: Record
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class JournalReading:
    """What a journal says, as of one moment.

    now: up to where it goes. followed_at: when an indexer last said that it follows the cell; microseconds.
    entries: number and finding, in the order in which they were asked for.
    """

    now: Position
    followed_at: int
    entries: Sequence[tuple[int, DetectedChange]]


class Journals:
    """The journals of all cells. Every call raises FleetUnreachableError.

    announced: what only notifications from outside tell of, which journals keep however old it is.
    """

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database
        self.announced = AnnouncedInstances(database)

    def position(self, cell_uuid: str) -> Position | None:
        """Up to where the journal goes; None while there is none."""
        statement = select(journals.c.epoch, journals.c.sequence).where(journals.c.cell_uuid == cell_uuid)
        with self._database.reading() as connection:
            row = connection.execute(statement).one_or_none()
        return None if row is None else Position(row.epoch, row.sequence)

    def start_over(self, cell_uuid: str) -> str:
        """Begin an empty one in the place of what there is; returns its epoch."""
        epoch = str(uuid4())
        with self._database.writing() as connection:
            row = {"cell_uuid": cell_uuid, "epoch": epoch, "sequence": 0, "followed_at": 0}
            # Another indexer of the cell may begin one at the same moment: the later one counts.
            new = self._database.insert(journals)
            connection.execute(new.on_conflict_do_update(index_elements=[journals.c.cell_uuid], set_=row), row)
            # Now that no process can append to the one before.
            connection.execute(delete(journal_entries).where(journal_entries.c.cell_uuid == cell_uuid))
        return epoch

    def append(self, cell_uuid: str, detected_changes: Sequence[DetectedChange]) -> Position | None:
        """Number what was found; returns up to where the journal goes then, and None where there is none.

        What is not newer than what the journal has is left out.
        """
        columns, entries = journals.c, journal_entries.c
        advanced = (
            update(journals)
            .where(columns.cell_uuid == cell_uuid)
            .values(sequence=columns.sequence + len(detected_changes))
            .returning(columns.epoch, columns.sequence)
        )
        with self._database.writing() as connection:
            # It locks the row, so numbers are in the order of commits.
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
                    }
                    for number, each in zip(numbers, newer, strict=True)
                ]
                connection.execute(insert(journal_entries), rows)
            is_old = entries.sequence <= last - KEPT
            connection.execute(delete(journal_entries).where(entries.cell_uuid == cell_uuid, is_old))
        return Position(row.epoch, last)

    def confirm(self, cell_uuid: str, at: int) -> None:
        """Say that the cell is followed at the moment `at`, microseconds."""
        with self._database.writing() as connection:
            connection.execute(update(journals).where(journals.c.cell_uuid == cell_uuid).values(followed_at=at))

    def read(self, cell_uuid: str, after: int, limit: int) -> JournalReading | None:
        """At most `limit` entries with a higher number than `after`; None while there is no journal."""
        sequence = journal_entries.c.sequence
        return self._read(cell_uuid, sequence > after, sequence.asc(), limit)

    def read_back(self, cell_uuid: str, before: int, limit: int) -> JournalReading | None:
        """As `read`, of the entries with a lower number than `before`, the newest first."""
        sequence = journal_entries.c.sequence
        return self._read(cell_uuid, sequence < before, sequence.desc(), limit)

    def _read(
        self, cell_uuid: str, is_asked: ColumnElement[bool], order: ColumnElement[int], limit: int
    ) -> JournalReading | None:
        columns, entries = journals.c, journal_entries.c
        statement = (
            # In one statement, since two would see two moments.
            select(columns.epoch, columns.sequence.label("last"), columns.followed_at, journal_entries)
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
            (row.sequence, DetectedChange(row.instance_uuid, row.version, msgspec.json.decode(row.record), row.is_gone))
            for row in rows
            if row.sequence is not None
        ]
        return JournalReading(Position(rows[0].epoch, rows[0].last), rows[0].followed_at, found)


def remove_journal(connection: Connection, cell_uuid: str) -> None:
    """Forget all of a cell."""
    for table in (journal_entries, journals):
        connection.execute(delete(table).where(table.c.cell_uuid == cell_uuid))
    remove_announced(connection, cell_uuid)


def _remove_entries(connection: Connection, cell_uuid: str, instance_uuids: Collection[str]) -> None:
    entries = journal_entries.c
    connection.execute(
        delete(journal_entries).where(entries.cell_uuid == cell_uuid, entries.instance_uuid.in_(instance_uuids))
    )
