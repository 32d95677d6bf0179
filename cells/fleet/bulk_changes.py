"""Bulk changes: an action on each instance that a user saw in a preview (docs/decisions/0035).

An item leaves WAITING once, by one statement, before its action is submitted. So nothing is submitted twice, whatever
happens to the process that carries out the change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Row, and_, bindparam, delete, func, insert, null, select, update

from fleetlight.cells.database.locks import wait_for_lock
from fleetlight.cells.errors import QuotaExceededError, ResourceNotFoundError
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.failures import storable
from fleetlight.cells.fleet.tables import bulk_changes, bulk_items
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

MAX_ITEMS = 5000
MAX_OF_USER = 20
KEPT_US = 24 * 60 * 60 * MICROSECONDS_PER_SECOND
YOUNG_US = 60 * MICROSECONDS_PER_SECOND
"""How long a preview is surely kept for those who have just been told of it."""
IN_DOUBT = "the process ended while it was submitted: look at it"
"""The reason of an item that was SUBMITTING when its run ended, and so is UNKNOWN."""
_SHOWN_ITEMS = 100


class BulkState(StrEnum):
    """The stored state; RUNNING may also mean that the process which ran it was killed."""

    PREVIEWED = "previewed"
    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"


class ItemState(StrEnum):
    """RUNNING: the cell has accepted the action, and its job goes on. UNKNOWN: it was being submitted when the process
    ended, or its cell does not know its result any more.
    """

    WAITING = "waiting"
    SUBMITTING = "submitting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an item. reason: why it was not, or may not have been, carried out, as a sentence."""

    state: ItemState
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FrozenInstance:
    """An instance as in the preview. revision: None if its cell does not number changes. cell: a name."""

    uuid: str
    revision: int | None
    name: str
    project_id: str
    cell: str


@dataclass(frozen=True, slots=True)
class BulkItem:
    """position: in the preview, from 0."""

    position: int
    instance: FrozenInstance
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class NewBulk:
    """The owner's request. project_id: of the owner at that time, or None. filter: a text, empty for none.

    as_of: when the instances were read, in microseconds. is_complete: whether all cells answered in full.
    left_out: for each cell that did not answer, its name (`cell`), how many of its instances were left out
        (`instances`), and the age of its data in the index in seconds (`age_s`); both None if the index has no data.
    """

    user_id: str
    project_id: str | None
    action: str
    filter: str
    as_of: int
    is_complete: bool
    left_out: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class BulkChange:
    """One bulk change. run: how often it was begun; a process writes only for its own run.

    reason: why it was stopped, unless by its owner. counts: number of items by project, cell and state.
    """

    id: str
    content: NewBulk
    created_at: int
    state: BulkState
    run: int
    reason: str | None
    counts: Mapping[tuple[str, str, ItemState], int]

    @property
    def expires_at(self) -> int:
        """When it is removed, in microseconds."""
        return self.created_at + KEPT_US

    def count(self, *states: ItemState) -> int:
        """The number of items in one of these states."""
        return sum(count for (_, _, state), count in self.counts.items() if state in states)


_BULK, _ITEM = bulk_changes.c, bulk_items.c
_CONTENT = NewBulk.__dataclass_fields__
_INSTANCE = FrozenInstance.__dataclass_fields__


class BulkChanges:
    """All bulk changes. Calls block, and raise FleetUnreachableError. now: Unix time in microseconds."""

    def __init__(self, database: FleetDatabase) -> None:
        self._database = database

    def add(self, content: NewBulk, instances: Sequence[FrozenInstance], now: int) -> str:
        """Store a preview and return its id. If its owner has too many, the oldest one never begun is removed.

        Raises QuotaExceededError if none of those is YOUNG_US old.
        """
        bulk_id = str(uuid4())
        values = {"id": bulk_id, **asdict(content), "created_at": now, "state": BulkState.PREVIEWED.value, "run": 0}
        rows = [
            {
                "bulk_id": bulk_id,
                "position": position,
                **asdict(each),
                "state": ItemState.WAITING.value,
                "changed_at": 0,
            }
            for position, each in enumerate(instances)
        ]
        with self._database.writing() as connection:
            wait_for_lock(connection, f"bulk changes of user {content.user_id}")
            expired = list(connection.scalars(select(_BULK.id).where(_BULK.created_at <= now - KEPT_US)))
            own = connection.execute(
                select(_BULK.id, _BULK.state, _BULK.created_at)
                .where(_BULK.user_id == content.user_id, _BULK.id.not_in(expired))
                .order_by(_BULK.created_at)
            ).all()
            if len(own) >= MAX_OF_USER:
                old = now - YOUNG_US
                unused = [row.id for row in own if row.state == BulkState.PREVIEWED.value and row.created_at <= old]
                if not unused:
                    raise QuotaExceededError("bulk_changes", requested=1, in_use=len(own), limit=MAX_OF_USER)
                expired.append(unused[0])
            connection.execute(delete(bulk_items).where(_ITEM.bulk_id.in_(expired)))
            connection.execute(delete(bulk_changes).where(_BULK.id.in_(expired)))
            connection.execute(insert(bulk_changes).values(values))
            if rows:
                connection.execute(insert(bulk_items), rows)
        return bulk_id

    def seen_by(self, user_id: str, project_id: str | None, now: int) -> list[BulkChange]:
        """The changes of a user in a project, newest first."""
        return self._select(user_id, project_id, now, None)

    def find(self, bulk_id: str, user_id: str, project_id: str | None, now: int) -> BulkChange:
        """One of a user's changes in a project. Raises ResourceNotFoundError."""
        found = self._select(user_id, project_id, now, bulk_id)
        if not found:
            raise ResourceNotFoundError("Bulk change", bulk_id)
        return found[0]

    def last_items(self, bulk_id: str) -> list[BulkItem]:
        """At most 100 items, the most recently changed first."""
        return self._items(_ITEM.bulk_id == bulk_id, _ITEM.changed_at.desc(), limit=_SHOWN_ITEMS)

    def items_of(self, bulk_id: str, state: ItemState) -> list[BulkItem]:
        """All items in a state."""
        return self._items(and_(_ITEM.bulk_id == bulk_id, _ITEM.state == state.value))

    def begin(self, bulk_id: str, now: int) -> int:
        """Begin a run, and return its number. The caller holds the lease of the bulk change.

        Items that an earlier run was submitting become UNKNOWN.
        """
        doubtful = and_(_ITEM.bulk_id == bulk_id, _ITEM.state == ItemState.SUBMITTING.value)
        with self._database.writing() as connection:
            connection.execute(
                update(bulk_items)
                .where(doubtful)
                .values(state=ItemState.UNKNOWN.value, reason=IN_DOUBT, changed_at=now)
            )
            begun = {"state": BulkState.RUNNING.value, "run": _BULK.run + 1, "reason": null()}
            connection.execute(update(bulk_changes).where(_BULK.id == bulk_id).values(**begun))
            run: int = connection.execute(select(_BULK.run).where(_BULK.id == bulk_id)).scalar_one()
        return run

    def leave_waiting(self, bulk_id: str, run: int, position: int, outcome: Outcome, now: int) -> bool:
        """Move an item from WAITING to another state; False if it is not waiting, or the run has to end."""
        is_running = select(_BULK.id).where(
            _BULK.id == bulk_id, _BULK.run == run, _BULK.state == BulkState.RUNNING.value
        )
        waits = and_(_ITEM.state == ItemState.WAITING.value, is_running.exists())
        return self._change(bulk_id, position, waits, outcome, now)

    def is_running(self, bulk_id: str, run: int) -> bool:
        """Whether the run may go on: it was neither stopped, nor replaced by another one, nor is it expired."""
        its = select(_BULK.id).where(_BULK.id == bulk_id, _BULK.run == run, _BULK.state == BulkState.RUNNING.value)
        with self._database.reading() as connection:
            return connection.execute(its).first() is not None

    def record(self, bulk_id: str, position: int, outcome: Outcome, now: int) -> None:
        """Record the result of a submitted item, even if it became UNKNOWN meanwhile."""
        submitted = _ITEM.state.in_([ItemState.SUBMITTING.value, ItemState.UNKNOWN.value])
        self._change(bulk_id, position, submitted, outcome, now)

    def end_items(self, bulk_id: str, outcomes: Mapping[int, Outcome], now: int) -> None:
        """Record the results of items whose jobs were RUNNING, by position."""
        its = update(bulk_items).where(
            _ITEM.bulk_id == bulk_id, _ITEM.position == bindparam("at"), _ITEM.state == ItemState.RUNNING.value
        )
        values = [{"at": position, **_values(outcome, now)} for position, outcome in sorted(outcomes.items())]
        with self._database.writing() as connection:
            connection.execute(its, values)

    def stop(self, bulk_id: str) -> None:
        """Let the run end between two items; without effect if none runs."""
        runs = and_(_BULK.id == bulk_id, _BULK.state == BulkState.RUNNING.value)
        with self._database.writing_once() as connection:
            connection.execute(update(bulk_changes).where(runs).values(state=BulkState.STOPPED.value))

    def end(self, bulk_id: str, run: int, reason: str | None) -> None:
        """Record the end of a run: DONE if no item waits, otherwise STOPPED. reason: see BulkChange."""
        waits = select(_ITEM.uuid).where(_ITEM.bulk_id == bulk_id, _ITEM.state == ItemState.WAITING.value)
        with self._database.writing() as connection:
            is_done = connection.execute(waits.limit(1)).first() is None
            values = (
                {"state": BulkState.DONE.value} if is_done else {"state": BulkState.STOPPED.value, "reason": reason}
            )
            connection.execute(update(bulk_changes).where(_BULK.id == bulk_id, _BULK.run == run).values(**values))

    def _change(self, bulk_id: str, position: int, condition: ColumnElement[bool], outcome: Outcome, now: int) -> bool:
        its = and_(_ITEM.bulk_id == bulk_id, _ITEM.position == position, condition)
        with self._database.writing_once() as connection:
            return connection.execute(update(bulk_items).where(its).values(**_values(outcome, now))).rowcount > 0

    def _select(self, user_id: str, project_id: str | None, now: int, bulk_id: str | None) -> list[BulkChange]:
        its = [_BULK.user_id == user_id, _BULK.project_id.is_not_distinct_from(project_id)]
        its += [_BULK.created_at > now - KEPT_US, *(() if bulk_id is None else (_BULK.id == bulk_id,))]
        with self._database.reading() as connection:
            rows = connection.execute(
                select(bulk_changes).where(*its).order_by(_BULK.created_at.desc(), _BULK.id)
            ).all()
            groups = (_ITEM.bulk_id, _ITEM.project_id, _ITEM.cell, _ITEM.state)
            counted = select(*groups, func.count()).where(_ITEM.bulk_id.in_([row.id for row in rows]))
            counts: dict[str, dict[tuple[str, str, ItemState], int]] = {row.id: {} for row in rows}
            for each, project, cell, state, count in connection.execute(counted.group_by(*groups)):
                counts[each][project, cell, ItemState(state)] = count
        return [_bulk(row, counts[row.id]) for row in rows]

    def _items(
        self, condition: ColumnElement[bool], *order: ColumnElement[int], limit: int | None = None
    ) -> list[BulkItem]:
        statement = select(bulk_items).where(condition).order_by(*order, _ITEM.position).limit(limit)
        with self._database.reading() as connection:
            return [_item(row) for row in connection.execute(statement)]


def _bulk(row: Row[Any], counts: Mapping[tuple[str, str, ItemState], int]) -> BulkChange:
    values = row._mapping
    content = NewBulk(**{name: values[name] for name in _CONTENT})
    state = BulkState(values["state"])
    return BulkChange(values["id"], content, values["created_at"], state, values["run"], values["reason"], counts)


def _values(outcome: Outcome, now: int) -> dict[str, Any]:
    reason = None if outcome.reason is None else storable(outcome.reason)
    return {"state": outcome.state.value, "reason": reason, "changed_at": now}


def _item(row: Row[Any]) -> BulkItem:
    values = row._mapping
    instance = FrozenInstance(**{name: values[name] for name in _INSTANCE})
    return BulkItem(values["position"], instance, Outcome(ItemState(values["state"]), values["reason"]))
