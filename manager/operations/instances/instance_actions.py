"""The record of actions on instances (contracts/nova-rest, 3.4), which outlives them.

An action belongs to a request, and is found by the request's id; its events are the parts of the work.
"""

import traceback as tracebacks
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Row, and_, exists, insert, select, update

from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.cells.tables import instance_action_events, instance_actions, job_operations

SUCCESS = "Success"
ERROR = "Error"


@dataclass(frozen=True, slots=True)
class InstanceAction:
    """One action; times in microseconds since the epoch. message: ERROR if it failed."""

    id: int
    instance_uuid: str
    request_id: str
    action: str
    user_id: str | None
    project_id: str | None
    start_time: int
    updated_at: int
    message: str | None


@dataclass(frozen=True, slots=True)
class InstanceActionEvent:
    """A part of the work. result: SUCCESS or ERROR, None while it runs, as is finish_time."""

    action_id: int
    event: str
    host: str | None
    start_time: int
    finish_time: int | None
    result: str | None
    traceback: str | None
    details: str | None


@dataclass(frozen=True, slots=True)
class ActionProgress:
    """The progress of an action. is_under_way: its job has not ended. details: the failure as shown to callers."""

    is_under_way: bool
    has_failed: bool
    details: str | None


class InstanceActionLog:
    """Reads the actions of one cell. Calls raise CellUnreachableError when its database does not answer."""

    def __init__(self, engine: Engine, cell: Cell) -> None:
        self._engine = engine
        self._cell = cell

    def actions(self, instance_uuid: str) -> Sequence[InstanceAction]:
        """Read the actions of an instance, by time of the request, newest first."""
        columns = instance_actions.c
        statement = select(instance_actions).where(columns.instance_uuid == instance_uuid).order_by(columns.id.desc())
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return [_read(InstanceAction, row) for row in connection.execute(statement)]

    def find(self, instance_uuid: str, request_id: str) -> tuple[InstanceAction, Sequence[InstanceActionEvent]] | None:
        """Find the action of a request with its events, newest first; the last action if the request has several."""
        columns = instance_actions.c
        wanted = (
            select(instance_actions)
            .where(columns.instance_uuid == instance_uuid, columns.request_id == request_id)
            .order_by(columns.id.desc())
            .limit(1)
        )
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            row = connection.execute(wanted).one_or_none()
            if row is None:
                return None
            events = (
                select(instance_action_events)
                .where(instance_action_events.c.action_id == row.id)
                .order_by(instance_action_events.c.id.desc())
            )
            return _read(InstanceAction, row), [
                _read(InstanceActionEvent, event) for event in connection.execute(events)
            ]

    def progress(self, instance_uuids: Collection[str], request_id: str) -> Mapping[str, ActionProgress]:
        """Read the progress of a request's actions, by instance."""
        action, event, job = instance_actions.c, instance_action_events.c, job_operations.c
        is_under_way = exists().where(
            job.instance_uuid == action.instance_uuid, job.instance_action_id == action.id, job.ended_at.is_(None)
        )
        failed = and_(event.action_id == action.id, event.result == ERROR)
        details = select(event.details).where(failed).order_by(event.id.desc()).limit(1).scalar_subquery()
        statement = (
            select(action.instance_uuid, is_under_way, action.message, details)
            .where(action.instance_uuid.in_(instance_uuids), action.request_id == request_id)
            .order_by(action.id)
        )
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            found = connection.execute(statement)
            return {uuid: ActionProgress(goes_on, message == ERROR, why) for uuid, goes_on, message, why in found}


def begin_actions(
    connection: Connection, instance_uuids: Sequence[str], action: str, request: RequestContext, now: int
) -> Sequence[int | None]:
    """Record that `request` asked for `action`; returns the ids of the records, None for NO_REQUEST."""
    if request.request_id is None:
        return [None] * len(instance_uuids)
    common = {
        "request_id": request.request_id,
        "action": action,
        "user_id": request.user_id,
        "project_id": request.project_id,
        "start_time": now,
        "updated_at": now,
    }
    rows = [{"instance_uuid": uuid, **common} for uuid in instance_uuids]
    returning = insert(instance_actions).returning(instance_actions.c.id, sort_by_parameter_order=True)
    return connection.execute(returning, rows).scalars().all() if rows else []


def begin_event(connection: Connection, action_id: int | None, event: str, host: str | None, now: int) -> None:
    """Begin an event of an action; a running event has succeeded then."""
    if action_id is None:
        return
    finish_event(connection, action_id, now)
    connection.execute(
        insert(instance_action_events).values(action_id=action_id, event=event, host=host, start_time=now)
    )


def finish_event(
    connection: Connection,
    action_id: int | None,
    now: int,
    failure: BaseException | None = None,
    details: str = "",
    *,
    goes_on: bool = False,
) -> None:
    """End the running event of an action, with success or a `failure`, whose `details` callers see.

    goes_on: whether the action goes on, on another host: then, as in Nova, the action has not failed.
    """
    if action_id is None:
        return
    values: dict[str, Any] = {"finish_time": now, "result": SUCCESS}
    updated: dict[str, Any] = {"updated_at": now}
    if failure is not None:
        text = "".join(tracebacks.format_exception(failure))
        values |= {"result": ERROR, "traceback": text, "details": details}
        if not goes_on:
            updated["message"] = ERROR
    events = instance_action_events.c
    connection.execute(
        update(instance_action_events).where(events.action_id == action_id, events.finish_time.is_(None)).values(values)
    )
    connection.execute(update(instance_actions).where(instance_actions.c.id == action_id).values(updated))


def _read(kind: Any, row: Row[Any]) -> Any:
    return kind(**{name: row._mapping[name] for name in kind.__dataclass_fields__})
