"""Recent changes of instances, which the processes of an API announce to each other (docs/decisions/0003)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, delete, exists, insert, literal, literal_column, select, update

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.tables import listening_processes, recent_changes
from fleetlight.resources.clock import system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_NOW_OF_POSTGRESQL: ColumnElement[int] = literal_column(
    "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS bigint)"
)
_COLUMNS, _PROCESSES = recent_changes.c, listening_processes.c
_LISTENS_FOR_US = 20_000_000


@dataclass(frozen=True, slots=True)
class RecentChange:
    """A revision of an instance that lists of `reader`, a project or a user without one, must include.

    noted_at: by the clock of the database, in microseconds; 0 before it is stored.
    """

    reader: str
    cell_uuid: str
    instance_uuid: str
    revision: int
    noted_at: int = 0


class RecentChanges:
    """The recent changes of all processes. Calls block, and raise FleetUnreachableError. Times are the database's; on
    SQLite the machine's, which runs all processes of the fleet.
    """

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database
        self._is_postgresql = database.engine.dialect.name == "postgresql"

    def add(self, process: str, changes: Sequence[RecentChange], forget_after_s: float | None = None) -> bool:
        """Announce changes to the other processes; returns whether any of them listens.

        forget_after_s: remove older changes than this; None removes none.
        """
        with self._database.writing() as connection:
            now = self._now()
            rows: list[dict[str, Any]] = [
                {
                    "id": str(uuid4()),
                    "process": process,
                    "reader": change.reader,
                    "cell_uuid": change.cell_uuid,
                    "instance_uuid": change.instance_uuid,
                    "revision": change.revision,
                    "noted_at": now,
                }
                for change in changes
            ]
            connection.execute(insert(recent_changes).values(rows))
            if forget_after_s is not None:
                connection.execute(
                    delete(recent_changes).where(
                        _COLUMNS.noted_at < now - round(forget_after_s * MICROSECONDS_PER_SECOND)
                    )
                )
        # Look after the commit: a process that begins to listen later reads these changes.
        others = exists().where(_PROCESSES.uuid != process, _PROCESSES.listened_at > self._now() - _LISTENS_FOR_US)
        with self._database.reading() as connection:
            return bool(connection.scalar(select(others)))

    def listen(self, process: str) -> None:
        """Tell the other processes that this one listens. Repeat it every few seconds, before `newer_than`."""
        with self._database.writing() as connection:
            now = self._now()
            known = connection.execute(
                update(listening_processes).where(_PROCESSES.uuid == process).values(listened_at=now)
            )
            if not known.rowcount:
                connection.execute(
                    delete(listening_processes).where(_PROCESSES.listened_at < now - 10 * _LISTENS_FOR_US)
                )
                # An earlier call, which its caller gave up, may insert the same row.
                new = self._database.insert(listening_processes).values(uuid=process, listened_at=now)
                connection.execute(new.on_conflict_do_nothing())

    def newer_than(self, age_s: float, process: str) -> Sequence[RecentChange]:
        """The changes that other processes announced within the last `age_s` seconds, in order."""
        wanted = (_COLUMNS.reader, _COLUMNS.cell_uuid, _COLUMNS.instance_uuid, _COLUMNS.revision, _COLUMNS.noted_at)
        statement = select(*wanted).where(
            _COLUMNS.noted_at > self._now() - round(age_s * MICROSECONDS_PER_SECOND), _COLUMNS.process != process
        )
        with self._database.reading() as connection:
            return [RecentChange(*row) for row in connection.execute(statement.order_by(_COLUMNS.noted_at))]

    def _now(self) -> ColumnElement[int]:
        return _NOW_OF_POSTGRESQL if self._is_postgresql else literal(system_clock())
