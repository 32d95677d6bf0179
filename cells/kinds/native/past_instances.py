"""The instances of a cell at a past moment: as they are now, without what was changed since.

Each change of the changelog has the values that it replaced, so as far back as changes are kept nothing else is needed
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
"""So many changes one page undoes in a cell, and no more."""

_BATCH = 500

ReadRows = Callable[[Sequence[str]], Sequence[InstanceRow]]
"""The rows of instances, by their uuids, as they are now."""


_IS_OF_INSTANCE = (changes.c.revision != NO_REVISION) & (changes.c.instance_uuid != "")


def _first_of_too_many(is_later: ColumnElement[bool]) -> Select[int]:
    """The moment after which there are as many changes as may be undone."""
    return (
        select(changes.c.committed_at)
        .where(is_later)
        .order_by(changes.c.committed_at.desc())
        .offset(MAX_UNDONE)
        .limit(1)
    )


# In one statement, which is made once: consoles ask it of each of many cells every few seconds.
_EARLIEST = select(
    cell_state.c.forgotten_until,
    _first_of_too_many(_IS_OF_INSTANCE).scalar_subquery(),
    select(func.min(changes.c.committed_at)).scalar_subquery(),
)


def earliest_kept(connection: Connection) -> int | None:
    """The first moment for which `PastInstances.require_kept` passes; None where nothing was ever changed."""
    forgotten_until, after_too_many, first = connection.execute(_EARLIEST).one()
    return max(forgotten_until or 0, after_too_many or 0) or first


class PastInstances:
    """Of one cell, as one transaction sees it. moment: microseconds; changes that were made up to then are in."""

    def __init__(self, connection: Connection, cell: Cell, moment: int) -> None:
        self._connection = connection
        self._cell = cell
        self._moment = moment
        self._is_later = (changes.c.committed_at > moment) & _IS_OF_INSTANCE

    @property
    def is_unchanged(self) -> ColumnElement[bool]:
        """Of a row of `instances`: whether it was then what it is now."""
        if self._connection.dialect.name == "sqlite":
            # It makes a list of them once; by EXISTS it would look at each row (1,000 rows: 240 ms more).
            return instances.c.uuid.not_in(select(changes.c.instance_uuid).where(self._is_later))
        return ~exists(select(changes.c.id).where(changes.c.instance_uuid == instances.c.uuid, self._is_later))

    def require_kept(self) -> None:
        """Raise PastNotKeptError where the changes that were made since cannot all be undone, or are too many."""
        for earliest, reason in self._limits():
            if earliest > self._moment:
                raise PastNotKeptError(self._cell.name, earliest, reason)

    def changed(self, read: ReadRows) -> Iterator[InstanceRow]:
        """The instances that were changed since, as they were then; without those that were not there yet."""
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
        """Moments before which changes cannot be undone, and why."""
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
            # By the clock of another host a later one was made earlier: then so was everything before it.
            break
        if change.revision == FIRST_REVISION:
            return None
        record |= {name: value for name, value in change.previous.items() if name in record}
        revision -= 1
    return InstanceRow(row.cell_uuid, revision, record)
