"""One instance inside a transaction that changes it: its row is locked, and each change is counted and announced."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from cells.errors import InstanceNotFoundError
from cells.model import NO_REQUEST, Cell, InstanceRow, Request
from cells.native import outbox
from cells.tables import instances
from query.fields import Record

# Made once: to make a statement costs as much as to carry it out.
_WANTED = "wanted"
_IS_WANTED = instances.c.uuid == bindparam(_WANTED)
_LOCK = select(instances).where(_IS_WANTED).with_for_update()
_CHANGE = update(instances).where(_IS_WANTED)


class LockedInstance:
    """An instance of `cell` whose row the transaction of `connection` has locked."""

    def __init__(self, connection: Connection, cell: Cell, row: Row[Any]) -> None:
        self.connection = connection
        self.cell = cell
        record = dict(row._mapping)
        self.revision: int = record.pop("revision")
        self.record: Record = record

    @classmethod
    def lock(cls, connection: Connection, cell: Cell, uuid: str) -> "LockedInstance":
        """Wait for the row and lock it. Raises InstanceNotFoundError for an unknown or deleted instance."""
        row = connection.execute(_LOCK, {_WANTED: uuid}).one_or_none()
        if row is None or row.deleted:
            raise InstanceNotFoundError(uuid)
        return cls(connection, cell, row)

    @property
    def uuid(self) -> str:
        return str(self.record["uuid"])

    def change(
        self,
        event_type: str,
        values: Mapping[str, Any],
        now: int,
        *,
        publisher_id: str | None = None,
        request: Request = NO_REQUEST,
    ) -> None:
        """Set `values`, with revision + 1, and announce the instance as it is then.

        now: microseconds since the epoch. Raises PayloadError (notifications.errors).
        """
        changed = {"updated_at": now, **values}
        self.revision += 1
        self.record = {**self.record, **changed}
        self.connection.execute(_CHANGE, {**changed, "revision": self.revision, _WANTED: self.uuid})
        row = InstanceRow(self.cell.uuid, self.revision, self.record)
        announced = outbox.announcements(self.cell, event_type, [row], now, publisher_id=publisher_id, request=request)
        outbox.append(self.connection, announced)
