"""A native cell that lives in memory and can be made to fail."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import uuid4

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import RESOURCE_HEADER, REVISION_HEADER, SEQUENCE_HEADER
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.digests import RangeDigest, digests_of
from fleetlight.cells.epochs import EpochHistory, Position
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.native.outbox import heartbeat_message
from fleetlight.cells.model import NO_REVISION, Cell, Change, InstanceRow, ItemRow, ItemRows
from fleetlight.cells.payloads.instance_payload import to_payload
from fleetlight.manager.operations.actions.new_instance import new_record
from fleetlight.notifications.envelope import Notification, encode
from fleetlight.query.page import PageRequest
from fleetlight.query.retention import remembered
from fleetlight.resources.clock import system_clock
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.oracles.filter_oracle import expected_page, is_kept

CELL_UUID = "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b11"
OTHER_UUID = "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b22"
ROUTING_KEY = "versioned_notifications.info"
NOW = 1_790_000_000_000_000
LONG_AGO = 1_600_000_000_000_000
"""Before now by the clock of any machine."""


class MemoryCell:
    """A cell with a changelog: rows, changes, and what the relay would publish. It is its own adapter.

    instances: how many are created at first. epochs: those of its relay, each with the last sequence before it.
    """

    def __init__(self, uuid: str = CELL_UUID, name: str = "one", *, instances: int = 0) -> None:
        self.cell = Cell(uuid, name, CellKind.NATIVE, "sqlite:///nowhere.db", "memory://", takes_announcements=True)
        self.rows: dict[str, InstanceRow] = {}
        self.changes: list[Change] = []
        self.last_sequence = 0
        self.epochs: list[tuple[str, int]] = []
        self.is_away = False
        self.pages_read = 0
        self.without_number: set[str] = set()
        self.items: dict[str, dict[str, ItemRow]] = {}
        self.create_many(instances)

    def create_many(self, count: int) -> None:
        for _ in range(count):
            self.create()

    def create(self, **values: Any) -> Message:
        record = new_record(values, NOW)
        return self._change(InstanceRow(self.cell.uuid, 1, record))

    def update(self, uuid: str, **values: Any) -> Message:
        row = self.rows[uuid]
        return self._change(InstanceRow(self.cell.uuid, row.revision + 1, {**row.record, **values}))

    def delete(self, uuid: str) -> Message:
        return self.update(uuid, deleted=True, deleted_at=NOW, vm_state="deleted")

    def heartbeat(self, at: int = NOW) -> Message:
        return heartbeat_message(self.cell, self.last_sequence, at)

    def damage(self, sequence: int) -> None:
        """Make the message of a change unreadable."""
        change = self.changes[sequence - self.changes[0].sequence]
        self.changes[sequence - self.changes[0].sequence] = Change(
            change.sequence, change.instance_uuid, change.revision, change.routing_key, b"{"
        )

    def prune(self, up_to: int) -> None:
        """The changelog forgets the changes up to this sequence."""
        self.changes = [change for change in self.changes if change.sequence > up_to]

    def message_of(self, change: Change) -> Message:
        headers: dict[str, int | str] = {
            SEQUENCE_HEADER: change.sequence,
            RESOURCE_HEADER: change.instance_uuid,
        }
        if change.revision != NO_REVISION:
            headers[REVISION_HEADER] = change.revision
        return Message(change.message, change.routing_key, headers)

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        self._require_cell()
        self.pages_read += 1
        page = expected_page([row.record for row in self.rows.values()], request, INSTANCE_FIELDS)
        return [self.rows[record["uuid"]] for record in page]

    def scan(self, request: PageRequest) -> Sequence[InstanceRow]:
        return self.read_page(request)

    def find(self, uuid: str) -> InstanceRow | None:
        self._require_cell()
        return self.rows.get(uuid)

    def position(self) -> Position:
        self._require_cell()
        return Position(self.epoch_history().current, self.last_sequence)

    def published_sequence(self) -> int:
        self._require_cell()
        return self.last_sequence

    def oldest_kept_sequence(self) -> int:
        self._require_cell()
        return self.changes[0].sequence if self.changes else self.last_sequence + 1

    def forgotten_until(self) -> int:
        return 0

    def unnumbered_since(self) -> int | None:
        return None

    def epoch_history(self) -> EpochHistory:
        return EpochHistory(tuple(self.epochs))

    def first_external_sequence(self, after: int) -> int | None:
        self._require_cell()
        return min(
            (change.sequence for change in self.changes if change.sequence > after and not change.revision),
            default=None,
        )

    def changes_after(self, sequence: int, limit: int) -> Sequence[Change]:
        self._require_cell()
        return [change for change in self.changes if change.sequence > sequence][:limit]

    def unnumbered(self, uuids: Collection[str]) -> Collection[str]:
        self._require_cell()
        return self.without_number.intersection(uuids)

    def digests(self, prefixes: Sequence[str], length: int, *, horizon: int = 0) -> Mapping[str, RangeDigest]:
        self._require_cell()
        return digests_of(self._remembered(horizon), prefixes, length)

    def revisions(self, prefixes: Sequence[str], *, horizon: int = 0) -> Mapping[str, int]:
        self._require_cell()
        versions = self._remembered(horizon)
        return {uuid: revision for uuid, revision in versions.items() if uuid.startswith(tuple(prefixes))}

    def _remembered(self, horizon: int) -> dict[str, int]:
        kept = remembered(horizon)
        return {uuid: row.revision for uuid, row in self.rows.items() if is_kept(kept, row.record, INSTANCE_FIELDS)}

    def item_rows(self, item_type: str) -> ItemRows:
        self._require_cell()
        return ItemRows(list(self.items.get(item_type, {}).values()), has_unnumbered=False)

    def close(self) -> None:
        """Nothing to let go of."""

    def versions(self) -> dict[str, int]:
        return {uuid: row.revision for uuid, row in self.rows.items()}

    def pass_on(self, message: Message, instance_uuid: str) -> Message:
        """A notification of somebody else goes through this cell's outbox."""
        self.last_sequence += 1
        change = Change(self.last_sequence, instance_uuid, NO_REVISION, ROUTING_KEY, message.body)
        self.changes.append(change)
        return self.message_of(change)

    def _change(self, row: InstanceRow) -> Message:
        self.rows[row.uuid] = row
        self.last_sequence += 1
        body = encode(
            Notification(
                event_type="instance.update",
                payload=to_payload(row.record).wrap(),
                publisher_id="fleetlight-cell:one",
                priority="INFO",
                timestamp=from_microseconds(system_clock()),
                message_id=str(uuid4()),
            )
        )
        change = Change(self.last_sequence, row.uuid, row.revision, ROUTING_KEY, body)
        self.changes.append(change)
        return self.message_of(change)

    def _require_cell(self) -> None:
        if self.is_away:
            raise CellUnreachableError(self.cell.name, "it is away")
