"""The instances of a cell at a past moment: their current rows, with later changes undone.

Each change of the changelog has the values that it replaced, which suffices as far back as changes are kept
(docs/decisions/0024).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, exists, func, select

from fleetlight.cells.batched import batched
from fleetlight.cells.errors import PastNotKeptError
from fleetlight.cells.model import FIRST_REVISION, NO_REVISION, Cell, InstanceRow
from fleetlight.cells.tables import cell_state, changes, instances

MAX_UNDONE = 20_000
"""The most changes that one page undoes in a cell."""

_BATCH = 500

ReadRows = Callable[[Sequence[str]], Sequence[InstanceRow]]
"""Reads the current rows of instances, by uuid."""


_IS_OF_INSTANCE = (changes.c.revision != NO_REVISION) & (changes.c.instance_uuid != "")


def _first_of_too_many(is_later: ColumnElement[bool]) -> Select[int]:
    """Selects the moment after which the cell has as many changes as may be undone."""
    return (
        select(changes.c.committed_at)
        .where(is_later)
        .order_by(changes.c.committed_at.desc())
        .offset(MAX_UNDONE)
        .limit(1)
    )


# One statement, compiled once: consoles run it in each of many cells every few seconds.
_EARLIEST = select(
    cell_state.c.forgotten_until,
    _first_of_too_many(_IS_OF_INSTANCE).scalar_subquery(),
    select(func.min(changes.c.committed_at)).scalar_subquery(),
)


def earliest_kept(connection: Connection) -> int | None:
    """The first moment for which `PastInstances.require_kept` passes; None if the cell has had no change."""
    forgotten_until, after_too_many, first = connection.execute(_EARLIEST).one()
    return max(forgotten_until or 0, after_too_many or 0) or first


class PastInstances:
    """The past instances of one cell, in one transaction. moment: in microseconds, including changes at it."""

    def __init__(self, connection: Connection, cell: Cell, moment: int) -> None:
        self._connection = connection
        self._cell = cell
        self._moment = moment
        self._is_later = (changes.c.committed_at > moment) & _IS_OF_INSTANCE

    @property
    def is_unchanged(self) -> ColumnElement[bool]:
        """The condition that a row of `instances` has not changed since the moment."""
        if self._connection.dialect.name == "sqlite":
            # SQLite evaluates this list once, but EXISTS for each row (240 ms more for 1,000 rows).
            return instances.c.uuid.not_in(select(changes.c.instance_uuid).where(self._is_later))
        return ~exists(select(changes.c.id).where(changes.c.instance_uuid == instances.c.uuid, self._is_later))

    def require_kept(self) -> None:
        """Raises PastNotKeptError if the changes since the moment are not all kept, or are too many to undo."""
        for earliest, reason in self._limits():
            if earliest > self._moment:
                raise PastNotKeptError(self._cell.name, earliest, reason)

    def changed(self, read: ReadRows) -> Iterator[InstanceRow]:
        """Yield the instances that changed since the moment, as they were then, if they existed."""
        columns = changes.c
        statement = (
            select(columns.instance_uuid, columns.revision, columns.previous)
            .where(self._is_later)
            .order_by(columns.instance_uuid, columns.revision.desc())
        )
        found = self._connection.execute(statement, execution_options={"yield_per": _BATCH})
        by_instance = ((uuid, list(later)) for uuid, later in groupby(found, key=lambda row: row.instance_uuid))
        for batch in batched(by_instance, _BATCH):
            later_of = dict(batch)
            for row in read(list(later_of)):
                past = _undone(row, later_of[row.uuid])
                if past is not None:
                    yield past

    def _limits(self) -> Iterator[tuple[int, str]]:
        """Yield the earliest moments for which changes can be undone, with the reason of each limit."""
        for statement, reason in (
            (select(cell_state.c.forgotten_until), "the changes before that are not kept any more"),
            (_first_of_too_many(self._is_later), f"one request undoes at most {MAX_UNDONE:,} changes of a cell"),
        ):
            earliest: int | None = self._connection.scalar(statement)
            if earliest:
                yield earliest, reason


def _undone(row: InstanceRow, later: Sequence[Row[Any]]) -> InstanceRow | None:
    """The row before the changes in `later`, the newest first; None before its first one."""
    record, revision = dict(row.record), row.revision
    for change in later:
        if change.revision != revision:
            # The clock of another host gave a later change an earlier time: then all before it are earlier as well.
            break
        if change.revision == FIRST_REVISION:
            return None
        record |= {name: value for name, value in change.previous.items() if name in record}
        revision -= 1
    return InstanceRow(row.cell_uuid, revision, record)
