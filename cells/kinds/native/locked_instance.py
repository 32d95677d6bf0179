"""One instance inside a transaction that changes it: its row is locked, and each change is counted and announced."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from cells.errors import InstanceNotFoundError
from cells.kinds.native import outbox
from cells.kinds.native.instance_rows import change_row, read_row
from cells.model import NO_REQUEST, Cell, InstanceRow, Request


class LockedInstance:
    """An instance of `cell` whose row the transaction of `connection` has locked."""

    def __init__(self, connection: Connection, cell: Cell, row: InstanceRow) -> None:
        self.connection = connection
        self.cell = cell
        self.revision = row.revision
        self.record = row.record

    @classmethod
    def lock(cls, connection: Connection, cell: Cell, uuid: str) -> "LockedInstance":
        """Wait for the row and lock it.

        Raises InstanceNotFoundError for an unknown or deleted instance. Of a damaged row the record raises
        UnreadableRowError for what cannot be read, and so does a change.
        """
        row = read_row(connection, cell, uuid, locks=True)
        if row is None or row.record["deleted"]:
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
