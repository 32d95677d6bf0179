"""Failures: messages from any bus that could not be indexed, in the fleet database until they are solved or dropped.

No producer can fill the database: the newest failures of each cell are kept, within FailureLimits, and older ones only
counted. fleetlight.indexer.writing.dead_letters adds failures, and fleetlight.indexer.reconcile.dead_letter_retries
retries them. Texts are escaped, since PostgreSQL stores neither a zero character nor half a surrogate pair.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import Connection, Row, case, delete, func, or_, select, update
from sqlalchemy.sql import tuple_

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import dropped_failures, failures
from fleetlight.cells.settings import FailureLimits

_log = structlog.get_logger(__name__)

# The most characters of a reason, sentence or trace, whatever the message contained.
_MAX_TEXT = 10_000
_BATCH = 500


@dataclass(frozen=True, slots=True)
class FailureSummary:
    """A failure without its message.

    id: the same each time the same message of the cell fails. reason: one word. detail: a sentence.
    instance_uuid: the instance of the message; None if it could not be read.
    first_at, last_at: microseconds since the epoch. times: how often it failed.
    reread_at: when the instance was last read from its cell instead, and indexed; None if it was not (yet).
    """

    id: str
    cell_uuid: str
    reason: str
    detail: str
    instance_uuid: str | None
    first_at: int
    last_at: int
    times: int = 1
    reread_at: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A message that could not be indexed, with everything that a retry needs.

    trace: the traceback of an unforeseen error.
    """

    summary: FailureSummary
    routing_key: str
    headers: Mapping[str, int | str]
    body: bytes
    trace: str | None = None

    @property
    def id(self) -> str:
        return self.summary.id


_SUMMARY = [failures.c[name] for name in FailureSummary.__dataclass_fields__]


def failure_id(source: str, body: bytes, about: str = "") -> str:
    """The id of a failure: the same each time a message fails, so that the message is stored once.

    source: of the message: the uuid of a cell, or a name for cells that receive the same messages. about: what else
    distinguishes it from messages with the same body.
    """
    return str(UUID(bytes=sha256(b"\0".join((source.encode(), about.encode(), body))).digest()[:16]))


def storable(text: str) -> str:
    """`text` as every database can store it, truncated to a readable length."""
    shown = text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode()
    return shown.replace("\0", "\\x00")


class FailedMessages:
    """The failures of all cells. Every call raises FleetUnreachableError."""

    def __init__(self, database: FleetDatabase, limits: FailureLimits) -> None:
        self._database = database
        self._limits = limits

    def add(self, found: Sequence[Failure]) -> None:
        """Store failures; an existing one gets the new reason and time.

        A failure of several cells belongs to the first of them, which alone counts its repetitions. If a cell has more
        than the limits allow, those that failed least recently are dropped.
        """
        if not found:
            return
        new = self._database.insert(failures)
        newest = ("reason", "detail", "trace", "last_at")
        statement = new.on_conflict_do_update(
            index_elements=[failures.c.id],
            set_={
                "times": failures.c.times
                + case((failures.c.cell_uuid == new.excluded.cell_uuid, new.excluded.times), else_=0),
                **{name: new.excluded[name] for name in newest},
            },
        )
        with self._database.writing() as connection:
            connection.execute(statement, [_values(failure) for failure in found])
            for cell_uuid in sorted({failure.summary.cell_uuid for failure in found}):
                self._make_room(connection, cell_uuid)

    def summaries(self, cell_uuids: Collection[str], behind: FailureSummary | None = None) -> Iterator[FailureSummary]:
        """Yield the failures of some cells, oldest first in each cell, in batches. behind: begin after this one."""
        columns = failures.c
        position = tuple_(columns.cell_uuid, columns.first_at, columns.id)
        after = None if behind is None else (behind.cell_uuid, behind.first_at, behind.id)
        while True:
            statement = select(*_SUMMARY).where(columns.cell_uuid.in_(sorted(cell_uuids)))
            if after is not None:
                statement = statement.where(position > tuple_(*after))
            with self._database.reading() as connection:
                rows = connection.execute(statement.order_by(*position).limit(_BATCH)).all()
            for row in rows:
                yield FailureSummary(*row)
            if len(rows) < _BATCH:
                return
            after = (rows[-1].cell_uuid, rows[-1].first_at, rows[-1].id)

    def find(self, ids: Collection[str]) -> list[Failure]:
        """The existing failures among `ids`, oldest first."""
        statement = select(failures).where(failures.c.id.in_(sorted(ids)))
        with self._database.reading() as connection:
            rows = connection.execute(statement.order_by(failures.c.first_at, failures.c.id)).all()
        return [_failure(row) for row in rows]

    def counts(self) -> Mapping[str, int]:
        """The number of failures by cell uuid, without cells that have none."""
        statement = select(failures.c.cell_uuid, func.count()).group_by(failures.c.cell_uuid)
        with self._database.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(statement)}

    def dropped(self) -> Mapping[str, int]:
        """The number of failures, by cell uuid, that exceeded the limits and were dropped since `forget_dropped`."""
        with self._database.reading() as connection:
            return {row[0]: row[1] for row in connection.execute(select(dropped_failures))}

    def forget_dropped(self, cell_uuids: Collection[str]) -> None:
        """Reset the counts of dropped failures of these cells, since an operator has noticed them."""
        with self._database.writing() as connection:
            connection.execute(delete(dropped_failures).where(dropped_failures.c.cell_uuid.in_(sorted(cell_uuids))))

    def mark_reread(self, cell_uuid: str, instance_uuids: Collection[str], at: int) -> None:
        """Note that these instances were read from their cell, and are in the index as of the moment `at`."""
        columns = failures.c
        with self._database.writing() as connection:
            connection.execute(
                update(failures)
                .where(columns.cell_uuid == cell_uuid, columns.instance_uuid.in_(sorted(instance_uuids)))
                .where(or_(columns.reread_at.is_(None), columns.reread_at < at))
                .values(reread_at=at)
            )

    def drop(self, ids: Collection[str]) -> int:
        """Remove failures; returns the number of removed ones."""
        with self._database.writing() as connection:
            return connection.execute(delete(failures).where(failures.c.id.in_(sorted(ids)))).rowcount

    def _make_room(self, connection: Connection, cell_uuid: str) -> None:
        columns, of_cell = failures.c, failures.c.cell_uuid == cell_uuid
        count, size = connection.execute(select(func.count(), func.sum(columns.size)).where(of_cell)).one()
        if count <= self._limits.count and (size or 0) <= self._limits.size:
            return
        newest_first = (columns.last_at.desc(), columns.id)
        placed = (
            select(
                columns.id,
                func.row_number().over(order_by=newest_first).label("place"),
                func.sum(columns.size).over(order_by=newest_first).label("size"),
            )
            .where(of_cell)
            .subquery()
        )
        is_too_many = or_(placed.c.place > self._limits.count, placed.c.size > self._limits.size)
        gone = select(placed.c.id).where(placed.c.place > 1, is_too_many)
        dropped = connection.execute(delete(failures).where(columns.id.in_(gone))).rowcount
        _log.warning("failures.dropped", cell=cell_uuid, count=dropped, reason="there are too many")
        new = self._database.insert(dropped_failures)
        count = dropped_failures.c.count + new.excluded.count
        statement = new.on_conflict_do_update(index_elements=[dropped_failures.c.cell_uuid], set_={"count": count})
        connection.execute(statement, {"cell_uuid": cell_uuid, "count": dropped})


def _values(failure: Failure) -> dict[str, Any]:
    headers = {storable(name): _stored(value) for name, value in failure.headers.items()}
    values: dict[str, Any] = {name: _stored(value) for name, value in asdict(failure.summary).items()}
    values |= {"routing_key": storable(failure.routing_key), "headers": headers, "trace": _stored(failure.trace)}
    texts = (*headers, *headers.values(), values["detail"], values["trace"] or "")
    return values | {"body": failure.body, "size": len(failure.body) + sum(len(str(text)) for text in texts)}


def _stored(value: str | int | None) -> str | int | None:
    return storable(value) if isinstance(value, str) else value


def _failure(row: Row[Any]) -> Failure:
    values = row._mapping
    summary = FailureSummary(**{name: values[name] for name in FailureSummary.__dataclass_fields__})
    return Failure(summary, values["routing_key"], values["headers"], values["body"], values["trace"])
