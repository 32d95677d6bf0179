"""What changes instances of a native cell at once, without hosts that have to do something for it.

It fills cells, and stands in for whatever changes them in tests. What callers of the API want to be done takes steps:
see cells.accepting and cells.worker.

Each operation is one transaction: the row is locked, its state is checked, it gets revision + 1, and the change is
appended to the outbox. So revisions are in commit order, and a change and its announcement stand or fall together.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Engine, insert, select, update
from sqlalchemy.exc import IntegrityError

from cells import outbox
from cells.clock import Clock, system_clock
from cells.database import translated_failures, writing
from cells.errors import (
    CellUnreachableError,
    InstanceExistsError,
    InstanceNotFoundError,
    InvalidTransitionError,
    InvalidValueError,
)
from cells.fleet import Fleet, InstanceMapping
from cells.model import Cell, InstanceRow
from cells.new_instance import check_values, completed_flavor, new_record
from cells.placement import allocate_on_their_nodes, release_except
from cells.tables import instances
from notifications import event_types
from query.errors import UnknownFieldError
from query.fields import Record

UPDATABLE_FIELDS = (
    "display_name",
    "display_description",
    "metadata",
    "tags",
    "access_ip_v4",
    "access_ip_v6",
    "hostname",
)
_FIRST_REVISION = 1
_NO_STATE, _RUNNING, _SHUT_DOWN = 0, 1, 4
# What an instance takes up, and of which node, follows from these.
_OF_ITS_NODE = {"node", "flavor", "deleted"}


@dataclass(frozen=True, slots=True)
class Changed:
    """A committed change: which instance, and the revision it has now."""

    uuid: str
    revision: int


class InstanceOperations:
    """Operations on the instances of one native cell.

    They raise InstanceNotFoundError for an unknown or deleted instance, InvalidTransitionError when its state does not
    allow the operation, CellUnreachableError and FleetUnreachableError when a database does not answer.
    """

    def __init__(self, engine: Engine, fleet: Fleet, cell: Cell, clock: Clock = system_clock) -> None:
        self._engine = engine
        self._fleet = fleet
        self._cell = cell
        self._clock = clock

    def create(self, values: Mapping[str, Any]) -> Changed:
        """Create an instance; `values` are fields of its record, the others get Nova's defaults.

        Raises what `create_many` raises.
        """
        return self.create_many([values])[0]

    def create_many(self, instances_values: Sequence[Mapping[str, Any]]) -> tuple[Changed, ...]:
        """Create instances, all or none, in one transaction: the fast way to fill a cell (some hundred at a time).

        Raises UnknownFieldError (query.errors), InvalidValueError, PayloadError (notifications.errors) and
        InstanceExistsError.
        """
        now = self._clock()
        rows = [InstanceRow(self._cell.uuid, _FIRST_REVISION, new_record(values, now)) for values in instances_values]
        uuids = {row.uuid for row in rows}
        if len(uuids) < len(rows):
            raise InvalidValueError("uuid", [row.uuid for row in rows], "another one for each instance")
        # Before anything is written, since it refuses what the contract does not allow.
        announced = outbox.announcements(self._cell, event_types.INSTANCE_CREATE_END, rows, now)
        # The mapping comes first, as in Nova: one without an instance is only looked up in vain, while an instance
        # without a mapping could not be found at all.
        self._fleet.add_mappings([InstanceMapping.of(row, now) for row in rows])
        try:
            with self._failures(), writing(self._engine) as connection:
                connection.execute(insert(instances), [{**row.record, "revision": row.revision} for row in rows])
                allocate_on_their_nodes(connection, [row.record for row in rows])
                outbox.append(connection, announced)
        except IntegrityError as error:
            raise InstanceExistsError(self._existing(uuids)) from error
        return tuple(Changed(row.uuid, row.revision) for row in rows)

    def update(self, uuid: str, values: Mapping[str, Any]) -> Changed:
        """Rename, describe, tag …: set some of UPDATABLE_FIELDS.

        Raises UnknownFieldError (query.errors) for other fields, and InvalidValueError.
        """
        for name in values:
            if name not in UPDATABLE_FIELDS:
                raise UnknownFieldError(name, "update", UPDATABLE_FIELDS)
        check_values(values)
        return self._change(uuid, event_types.INSTANCE_UPDATE, lambda record, now: values)

    def lock(self, uuid: str, *, locked_by: str = "owner", reason: str | None = None) -> Changed:
        """locked_by: "owner" or "admin"."""
        values = {"locked": True, "locked_by": locked_by, "locked_reason": reason}
        return self._change(uuid, "instance.lock", lambda record, now: values)

    def unlock(self, uuid: str) -> Changed:
        values = {"locked": False, "locked_by": None, "locked_reason": None}
        return self._change(uuid, "instance.unlock", lambda record, now: values)

    def start(self, uuid: str) -> Changed:
        def decide(record: Record, now: int) -> Mapping[str, Any]:
            _require_state(record, "start", "stopped")
            return {"vm_state": "active", "power_state": _RUNNING, "launched_at": record["launched_at"] or now}

        return self._change(uuid, event_types.INSTANCE_POWER_ON_END, decide)

    def stop(self, uuid: str) -> Changed:
        def decide(record: Record, now: int) -> Mapping[str, Any]:
            _require_state(record, "stop", "active", "error")
            return {"vm_state": "stopped", "power_state": _SHUT_DOWN}

        return self._change(uuid, event_types.INSTANCE_POWER_OFF_END, decide)

    def move(self, uuid: str, host: str, node: str | None = None) -> Changed:
        """Live-migrate to another host of the same cell; the node is called like the host unless given."""

        def decide(record: Record, now: int) -> Mapping[str, Any]:
            _require_state(record, "os-migrateLive", "active", "paused")
            return {"host": host, "node": node or host}

        return self._change(uuid, event_types.INSTANCE_LIVE_MIGRATION_POST_DEST_END, decide)

    def resize(self, uuid: str, flavor: Mapping[str, Any], flavor_number: int | None = None) -> Changed:
        """Give the instance another `flavor` (fields of Nova's FlavorPayload) in place.

        flavor_number: its `instance_type_id`. Raises InvalidValueError for a flavor without its sizes.
        """
        flavor = completed_flavor(flavor)

        def decide(record: Record, now: int) -> Mapping[str, Any]:
            _require_state(record, "resize", "active", "stopped")
            return {"flavor": flavor, "flavor_id": flavor["flavorid"], "instance_type_id": flavor_number}

        return self._change(uuid, "instance.resize_finish.end", decide)

    def delete(self, uuid: str) -> Changed:
        """Delete for good. The row stays, marked; tags, metadata, volumes and fault go (contracts/nova-db, 1.4)."""

        def decide(record: Record, now: int) -> Mapping[str, Any]:
            return {
                "deleted": True,
                "deleted_at": now,
                "terminated_at": now,
                "vm_state": "deleted",
                "task_state": None,
                "power_state": _NO_STATE,
                "tags": [],
                "metadata": {},
                "block_devices": [],
                "fault": None,
            }

        try:
            changed = self._change(uuid, event_types.INSTANCE_DELETE_END, decide)
        except InstanceNotFoundError:
            # An earlier call may have got as far as the cell, and then not to the fleet database.
            self._fleet.mark_queued_for_delete(self._cell.uuid, [uuid])
            raise
        self._fleet.mark_queued_for_delete(self._cell.uuid, [uuid])
        return changed

    def _change(self, uuid: str, event_type: str, decide: Callable[[Record, int], Mapping[str, Any]]) -> Changed:
        """decide: given the record and the time, returns the fields to set, or raises InvalidTransitionError."""
        with self._failures(), writing(self._engine) as connection:
            row = connection.execute(select(instances).where(instances.c.uuid == uuid).with_for_update()).one_or_none()
            if row is None or row.deleted:
                raise InstanceNotFoundError(uuid)
            record = dict(row._mapping)
            revision = record.pop("revision") + 1
            now = self._clock()
            values = {"updated_at": now, **decide(record, now)}
            connection.execute(
                update(instances).where(instances.c.uuid == uuid).values({**values, "revision": revision})
            )
            changed = InstanceRow(self._cell.uuid, revision, record | values)
            if not _OF_ITS_NODE.isdisjoint(values):
                release_except(connection, uuid, None)
                allocate_on_their_nodes(connection, [changed.record])
            outbox.append(connection, outbox.announcements(self._cell, event_type, [changed], now))
        return Changed(uuid, revision)

    def _existing(self, uuids: Collection[str]) -> list[str]:
        with self._failures(), self._engine.connect() as connection:
            return list(connection.scalars(select(instances.c.uuid).where(instances.c.uuid.in_(uuids))))

    def _failures(self) -> AbstractContextManager[None]:
        return translated_failures(partial(CellUnreachableError, self._cell.name))


def _require_state(record: Record, action: str, *allowed: str) -> None:
    if record["vm_state"] not in allowed:
        raise InvalidTransitionError(record["uuid"], action, record["vm_state"])
