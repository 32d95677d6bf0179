"""Work on the index that operators order, and indexers or commands carry out (docs/decisions/0034).

An order is a row. A process without the right to write to the index can order work on it, see its progress, and stop
it. A command records its own work as an order, too.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, delete, insert, select, update

from fleetlight.cells.database.locks import wait_for_lock
from fleetlight.cells.errors import WorkRefusedError
from fleetlight.cells.findings import Finding, wrong
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.failures import storable
from fleetlight.cells.fleet.tables import index_work

MAX_OPEN = 20
"""The most orders that have not ended; more are refused."""
_KEPT = 200
_MAX_FINDINGS = 200
_LOCK = "index work"


class WorkKind(StrEnum):
    """Kinds of work. RETRY: failed messages. BACK, DROP_OLD: return to, or drop, the index that a rebuild replaced."""

    SYNC = "sync"
    VERIFY = "verify"
    REPAIR = "repair"
    REBUILD = "rebuild"
    PURGE = "purge"
    BACK = "back"
    DROP_OLD = "drop-old"
    RETRY = "retry"


OF_ALL = frozenset({WorkKind.REBUILD, WorkKind.BACK, WorkKind.DROP_OLD})
"""Kinds of work that always concern all cells."""


class WorkState(StrEnum):
    """States of an order."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


OPEN = (WorkState.WAITING, WorkState.RUNNING)


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """One order. subjects: uuids of cells, or ids of failures; empty for kinds in OF_ALL.

    Moments are microseconds. attempts: number of indexers that have begun it; 0 if a command does it itself. done,
    total: rows; the total is None if unknown. result: a sentence about the result, or the progress. findings: about
    instances, or whole cells.
    """

    id: str
    kind: WorkKind
    subjects: Sequence[str]
    state: WorkState
    ordered_at: int
    ordered_by: str
    started_at: int | None
    ended_at: int | None
    attempts: int
    done: int
    total: int | None
    is_to_stop: bool
    result: str | None
    findings: Sequence[Finding]

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state in OPEN

    @property
    def is_of_command(self) -> bool:
        """Whether a command does it itself."""
        return self.state is WorkState.RUNNING and self.attempts == 0


class IndexWork:
    """All orders. Calls raise FleetUnreachableError."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def order(self, kind: WorkKind, subjects: Collection[str], by: str, now: int) -> WorkOrder:
        """Order work. Raises WorkRefusedError if other work of the kind on one of the subjects has not ended, or
        MAX_OPEN orders have not.
        """
        row = _row(kind, subjects, by, now) | {"state": WorkState.WAITING.value}
        with self._database.writing() as connection:
            wait_for_lock(connection, _LOCK)
            unfinished = _select(connection, is_open=True)
            for other in unfinished:
                if other.kind is kind and (not subjects or not set(subjects).isdisjoint(other.subjects)):
                    raise WorkRefusedError(f"{kind} work {other.id} has not ended: stop it, or wait for it")
            if len(unfinished) >= MAX_OPEN:
                raise WorkRefusedError(
                    f"{MAX_OPEN} orders of work have not ended, and no more are taken: try again later"
                )
            _insert(connection, row)
            return _select(connection, row["id"])[0]

    def begin_command(self, kind: WorkKind, subjects: Collection[str], by: str, now: int) -> str:
        """Record work that a command begins itself, whatever else runs; returns its id."""
        row = _row(kind, subjects, by, now) | {"state": WorkState.RUNNING.value, "started_at": now}
        with self._database.writing() as connection:
            _insert(connection, row)
        work_id: str = row["id"]
        return work_id

    def all(self) -> Sequence[WorkOrder]:
        """The orders, newest first; of ended ones only the last."""
        with self._database.reading() as connection:
            return _select(connection)

    def open(self) -> Sequence[WorkOrder]:
        """The orders that have not ended, oldest first."""
        with self._database.reading() as connection:
            return _select(connection, is_open=True)[::-1]

    def find(self, work_id: str) -> WorkOrder | None:
        """The order with this id; None if it does not exist."""
        with self._database.reading() as connection:
            return next(iter(_select(connection, work_id)), None)

    def stop(self, work_id: str, now: int) -> WorkOrder | None:
        """Stop an order, at once if it waits, or by asking the process that runs it; None if it does not exist."""
        columns = index_work.c
        with self._database.writing() as connection:
            its = update(index_work).where(columns.id == work_id)
            waits = its.where(columns.state == WorkState.WAITING.value)
            connection.execute(
                waits.values(state=WorkState.STOPPED.value, ended_at=now, result="stopped before it began")
            )
            connection.execute(its.where(columns.state == WorkState.RUNNING.value).values(is_to_stop=True))
            return next(iter(_select(connection, work_id)), None)

    def begin(self, order: WorkOrder, now: int) -> bool:
        """Mark an order as begun by an indexer, which holds the lease for it; False if it has ended meanwhile."""
        values = {"state": WorkState.RUNNING.value, "started_at": now, "attempts": order.attempts + 1, "done": 0}
        return self._change(order.id, values)

    def record(self, work_id: str, done: int, total: int | None, result: str | None) -> bool:
        """Record the progress; False if the work must stop.

        total: an estimate, since deleted rows that are still kept are compared as well.
        """
        total = None if total is None else max(total, done)
        self._change(work_id, {"done": done, "total": total, "result": result})
        found = self.find(work_id)
        return found is not None and found.is_open and not found.is_to_stop

    def put_back(self, work_id: str) -> None:
        """Let an order wait again, when the indexer that runs it is stopped."""
        self._change(work_id, {"state": WorkState.WAITING.value, "attempts": 0})

    def end(self, work_id: str, state: WorkState, result: str, findings: Sequence[Finding], now: int) -> None:
        """Record the result, with the first findings."""
        shown = [[each.cell, each.about, storable(each.evidence)] for each in findings[:_MAX_FINDINGS]]
        values = {"state": state.value, "result": storable(result), "findings": shown, "ended_at": now}
        self._change(work_id, values)

    def _change(self, work_id: str, values: Mapping[str, object]) -> bool:
        columns = index_work.c
        is_open = columns.state.in_([state.value for state in OPEN])
        with self._database.writing_once() as connection:
            changed = connection.execute(update(index_work).where(columns.id == work_id, is_open).values(**values))
            return changed.rowcount > 0


def _row(kind: WorkKind, subjects: Collection[str], by: str, now: int) -> dict[str, Any]:
    row: dict[str, Any] = {"id": str(uuid4()), "kind": kind.value, "subjects": sorted(subjects), "ordered_at": now}
    return row | {"ordered_by": storable(by), "attempts": 0, "done": 0, "is_to_stop": False, "findings": []}


def _insert(connection: Connection, row: Mapping[str, Any]) -> None:
    """Insert a row, and remove orders that ended long ago."""
    connection.execute(insert(index_work).values(row))
    newest = select(index_work.c.id).order_by(index_work.c.ordered_at.desc(), index_work.c.id).limit(_KEPT)
    is_over = index_work.c.state.not_in([state.value for state in OPEN])
    connection.execute(delete(index_work).where(is_over, index_work.c.id.not_in(newest)))


def _select(connection: Connection, work_id: str | None = None, *, is_open: bool = False) -> list[WorkOrder]:
    columns = index_work.c
    statement = select(index_work).order_by(columns.ordered_at.desc(), columns.id)
    if work_id is not None:
        statement = statement.where(columns.id == work_id)
    if is_open:
        statement = statement.where(columns.state.in_([state.value for state in OPEN]))
    return [_order(dict(row._mapping)) for row in connection.execute(statement)]


def _order(values: Mapping[str, Any]) -> WorkOrder:
    made: dict[str, Any] = {name: values[name] for name in WorkOrder.__dataclass_fields__}
    findings = [wrong(about, evidence, cell=cell) for cell, about, evidence in made["findings"]]
    return WorkOrder(**made | {"kind": WorkKind(made["kind"]), "state": WorkState(made["state"]), "findings": findings})
