"""One instance inside a transaction that changes it: its row is locked, and each change is counted and announced."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from cells.errors import InstanceNotFoundError
from cells.kinds.native import outbox
from cells.kinds.native.instance_rows import change_row
from cells.model import NO_REQUEST, Cell, InstanceRow, Request
from cells.tables import instances
from resources.fields import Record

# Made once: to make a statement costs as much as to carry it out.
_WANTED = "wanted"
_LOCK = select(instances).where(instances.c.uuid == bindparam(_WANTED)).with_for_update()


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
        row = InstanceRow(self.cell.uuid, self.revision, self.record)
        change_row(self.connection, row, changed)
        announced = outbox.announcements(self.cell, event_type, [row], now, publisher_id=publisher_id, request=request)
        outbox.append(self.connection, announced)
