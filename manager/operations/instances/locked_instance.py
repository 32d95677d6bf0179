"""One instance in a transaction that has locked its row; each change increases its revision and is announced."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from fleetlight.cells.errors import InstanceNotFoundError
from fleetlight.cells.kinds.native import outbox
from fleetlight.cells.kinds.native.instance_rows import change_row, read_row
from fleetlight.cells.model import NO_REQUEST, Cell, InstanceRow, RequestContext
from fleetlight.resources.derived_fields import DERIVED_FROM, derived_values
from fleetlight.resources.fields import Record


class LockedInstance:
    """An instance of `cell` whose row the transaction of `connection` has locked."""

    def __init__(self, connection: Connection, cell: Cell, row: InstanceRow) -> None:
        self.connection = connection
        self.cell = cell
        self.row = row

    @classmethod
    def lock(cls, connection: Connection, cell: Cell, uuid: str) -> "LockedInstance":
        """Wait for the row and lock it.

        Raises InstanceNotFoundError for an unknown or deleted instance. The record of a damaged row raises
        UnreadableRowError for unreadable fields, and so does a change.
        """
        row = read_row(connection, cell, uuid, locks=True)
        if row is None or row.record["deleted"]:
            raise InstanceNotFoundError(uuid)
        return cls(connection, cell, row)

    @property
    def uuid(self) -> str:
        return self.row.uuid

    @property
    def record(self) -> Record:
        return self.row.record

    def change(
        self,
        event_type: str,
        values: Mapping[str, Any],
        now: int,
        *,
        publisher_id: str | None = None,
        request: RequestContext = NO_REQUEST,
    ) -> None:
        """Set `values`, increase the revision, and announce the changed instance.

        now: microseconds since the epoch. Raises PayloadError (fleetlight.notifications.errors).
        """
        changed = {"updated_at": now, **values}
        if not changed.keys().isdisjoint(DERIVED_FROM):
            changed |= derived_values({**self.record, **changed})
        previous = {name: self.record[name] for name in changed}
        self.row = InstanceRow(self.cell.uuid, self.row.revision + 1, {**self.record, **changed})
        change_row(self.connection, self.row, changed)
        announced = outbox.announcements(
            self.cell, event_type, [self.row], now, publisher_id=publisher_id, request=request
        )
        outbox.append(self.connection, [{**each, "previous": previous} for each in announced])
