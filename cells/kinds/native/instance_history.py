"""The history of an instance, change by change, as far back as the cell keeps its changelog.

The message of each change has the whole state of its instance, so the difference between two shows what changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Engine, select

from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.model import FIRST_REVISION, NO_REVISION, Cell
from fleetlight.cells.payloads.instance_payload import from_payload
from fleetlight.cells.tables import changes
from fleetlight.notifications.envelope import decode
from fleetlight.notifications.payloads.fleetlight import FullInstancePayload
from fleetlight.notifications.registry import parse_payload
from fleetlight.resources.fields import Record

# Every change sets this field.
_SAYS_NOTHING = frozenset({"updated_at"})


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of an instance.

    at: microseconds since the epoch. publisher_id: the service that announced it. request_id, user_id, project_id: of
    its request; None if the cell acted by itself. changed: values before and after, by field; None if the previous
    state is no longer kept.
    """

    revision: int
    at: int
    event_type: str
    publisher_id: str
    request_id: str | None
    user_id: str | None
    project_id: str | None
    changed: Mapping[str, tuple[Any, Any]] | None


@dataclass(frozen=True, slots=True)
class _State:
    """The content of a message: the change without the difference, and the record after it."""

    entry: HistoryEntry
    record: Record


class InstanceHistory:
    """Reads the changelog of one cell. Calls raise CellUnreachableError if its database does not answer."""

    def __init__(self, engine: Engine, cell: Cell) -> None:
        self._engine = engine
        self._cell = cell

    def entries(self, instance_uuid: str, limit: int, *, before: int | None = None) -> Sequence[HistoryEntry]:
        """At most `limit` changes of an instance, newest first, only revisions below `before`. Raises
        CellUnreachableError.
        """
        columns = changes.c
        statement = (
            select(columns.revision, columns.committed_at, columns.event_type, columns.message)
            .where(columns.instance_uuid == instance_uuid, columns.revision != NO_REVISION)
            .order_by(columns.revision.desc())
            # One more, to compare the last one with.
            .limit(limit + 1)
        )
        if before is not None:
            statement = statement.where(columns.revision < before)
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            states = [_state(*row) for row in connection.execute(statement)]
        later, earlier = states[:limit], [*states[1:], None]
        return [_with_difference(state, previous) for state, previous in zip(later, earlier, strict=False)]


def _state(revision: int, committed_at: int, event_type: str, message: bytes) -> _State:
    notification = decode(message)
    payload = parse_payload(notification.payload)
    if not isinstance(payload, FullInstancePayload):
        raise TypeError(f"change {revision}: {event_type} does not have the whole state of its instance")
    entry = HistoryEntry(
        revision,
        committed_at,
        event_type,
        notification.publisher_id,
        payload.request_id,
        payload.action_initiator_user,
        payload.action_initiator_project,
        changed=None,
    )
    return _State(entry, from_payload(payload))


def _with_difference(state: _State, previous: _State | None) -> HistoryEntry:
    entry = state.entry
    if previous is None and entry.revision != FIRST_REVISION:
        return entry
    before: Record = dict.fromkeys(state.record) if previous is None else previous.record
    changed = {
        name: (before[name], value)
        for name, value in state.record.items()
        if name not in _SAYS_NOTHING and value != before[name]
    }
    return replace(entry, changed=changed)
