"""Fakes with behaviour for the indexer: an index, a bus and a cell that live in memory and can be made to fail."""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any
from uuid import uuid4

import msgspec

from cells.clock import system_clock
from cells.digests import RangeDigest, digests_of
from cells.errors import CellUnreachableError, FleetUnreachableError
from cells.fleet.failures import Failure
from cells.fleet.journals import Finding
from cells.lineage import Lineage, Position
from cells.model import NO_REVISION, Cell, CellKind, Change, InstanceRow
from cells.native.instance_payload import to_payload
from cells.native.new_instance import new_record
from cells.native.outbox import heartbeat_message
from indexer.backends.base import OLDEST_TIME_VERSION, CellProgress, Document, Rejection, WriteResult, ignore_removed
from indexer.errors import IndexPausedError, IndexReplacedError, IndexUnavailableError
from notifications.bus import Delivery, Message
from notifications.envelope import Notification, encode
from notifications.errors import BusUnavailableError
from notifications.topology import (
    DETAIL_HEADER,
    REASON_HEADER,
    RESOURCE_HEADER,
    REVISION_HEADER,
    SEQUENCE_HEADER,
)
from query.evaluate import matcher
from query.fields import from_microseconds
from query.instances import INSTANCE_FIELDS
from query.page import PageRequest
from query.retention import forgotten, remembered

CELL_UUID = "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b11"
ROUTING_KEY = "versioned_notifications.info"
NOW = 1_790_000_000_000_000
LONG_AGO = 1_600_000_000_000_000
"""Before now by the clock of any machine."""


@dataclass
class MemoryIndex:
    """An IndexWriter.

    failures: how many of the next calls fail. is_blocked: writes fail. refused: uuid -> why it is rejected.
    """

    documents: dict[str, Document] = field(default_factory=dict)
    searchable: dict[str, Document] = field(default_factory=dict)
    saved: dict[str, CellProgress] = field(default_factory=dict)
    state: dict[str, dict[str, Any]] = field(default_factory=dict)
    writes: list[int] = field(default_factory=list)
    reads: list[set[str]] = field(default_factory=list)
    failures: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    before_write: Callable[[], object] | None = None
    is_replaced: bool = False
    is_blocked: bool = False
    _lock: Any = field(default_factory=Lock)

    def prepare(self) -> None:
        self._maybe_fail()
        self.is_replaced = False

    def replace(self) -> None:
        """Somebody removes the index and makes an empty one."""
        with self._lock:
            self.documents, self.searchable, self.saved, self.state = {}, {}, {}, {}
            self.is_replaced = True

    def write(self, documents: Iterable[Document]) -> WriteResult:
        documents = list(documents)
        if self.before_write is not None:
            self.before_write()
        with self._lock:
            self._maybe_fail()
            if self.is_blocked:
                raise IndexPausedError("writing is paused")
            self.writes.append(len(documents))
            applied, rejected = 0, []
            for document in documents:
                known = self.documents.get(document.id)
                if document.id in self.refused:
                    rejected.append(Rejection(document, self.refused[document.id]))
                elif known is None or document.version > known.version:
                    self.documents[document.id] = document
                    applied += 1
            return WriteResult(applied, len(documents) - applied - len(rejected), tuple(rejected))

    def make_searchable(self) -> None:
        with self._lock:
            self._maybe_fail()
            self.searchable = dict(self.documents)

    def read(self, ids: Collection[str]) -> Mapping[str, Document]:
        with self._lock:
            self._maybe_fail()
            self.reads.append(set(ids))
            return {uuid: self.documents[uuid] for uuid in ids if uuid in self.documents}

    def digests(
        self, cell_uuid: str, prefixes: Sequence[str], length: int, *, horizon: int = 0, foreign: bool = False
    ) -> Mapping[str, RangeDigest]:
        self._maybe_fail()
        return digests_of(self._versions(cell_uuid, horizon, foreign), prefixes, length)

    def revisions(
        self, cell_uuid: str, prefixes: Sequence[str], *, horizon: int = 0, foreign: bool = False
    ) -> Mapping[str, int]:
        versions = self._versions(cell_uuid, horizon, foreign)
        return {uuid: version for uuid, version in versions.items() if uuid.startswith(tuple(prefixes))}

    def count_foreign(self, cell_uuid: str) -> int:
        return len(self._versions(cell_uuid, 0, foreign=True))

    def remove(self, versions: Mapping[str, int]) -> None:
        for uuid, version in versions.items():
            if uuid in self.documents and self.documents[uuid].version <= version:
                del self.documents[uuid]

    def _versions(self, cell_uuid: str, horizon: int, foreign: bool) -> dict[str, int]:
        is_remembered = matcher(remembered(horizon), INSTANCE_FIELDS)
        return {
            uuid: document.version
            for uuid, document in self.searchable.items()
            if document.cell_uuid == cell_uuid
            and (document.version >= OLDEST_TIME_VERSION) == foreign
            and is_remembered(document.record)
        }

    def purge(self, cell_uuid: str, horizon: int, on_batch: Callable[[int], None] = ignore_removed) -> int:
        is_forgotten = matcher(forgotten(horizon), INSTANCE_FIELDS)
        with self._lock:
            self._maybe_fail()
            gone = [
                uuid
                for uuid, document in self.documents.items()
                if document.cell_uuid == cell_uuid and is_forgotten(document.record)
            ]
            for uuid in gone:
                del self.documents[uuid]
            self.searchable = dict(self.documents)
            on_batch(len(gone))
            return len(gone)

    def save_progress(self, progress: Sequence[CellProgress]) -> None:
        with self._lock:
            self._maybe_fail()
            if self.is_replaced:
                raise IndexReplacedError("memory")
            self.saved |= {cell.cell_uuid: cell for cell in progress}

    def load_progress(self) -> Mapping[str, CellProgress]:
        self._maybe_fail()
        return dict(self.saved)

    def count_extra_fields(self) -> Mapping[str, int]:
        extras = [document.extra for document in self.searchable.values() if document.extra is not None]
        return Counter(field for extra in extras for field in extra.fields)

    def find_extra(self, terms: Sequence[str], limit: int) -> Sequence[str]:
        return sorted(
            uuid
            for uuid, document in self.searchable.items()
            if document.extra is not None and not set(terms).isdisjoint(document.extra.terms)
        )[:limit]

    def save_state(self, kind: str, values: Mapping[str, object | None]) -> None:
        with self._lock:
            self._maybe_fail()
            facts = self.state.setdefault(kind, {})
            for name, value in values.items():
                facts.pop(name, None)
                if value is not None:
                    facts[name] = msgspec.json.decode(msgspec.json.encode(value))

    def load_state(self, kind: str) -> Mapping[str, Any]:
        self._maybe_fail()
        return dict(self.state.get(kind, {}))

    def allow_writes(self) -> None:
        with self._lock:
            self.is_blocked = False

    def remove_cell(self, cell_uuid: str, on_batch: Callable[[int], None] = ignore_removed) -> int:
        with self._lock:
            self._maybe_fail()
            self.saved.pop(cell_uuid, None)
            removed = [uuid for uuid, document in self.documents.items() if document.cell_uuid == cell_uuid]
            for uuid in removed:
                del self.documents[uuid]
            self.searchable = dict(self.documents)
            on_batch(len(removed))
            return len(removed)

    def close(self) -> None:
        """Nothing to let go of."""

    def _maybe_fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise IndexUnavailableError("the index is away")


@dataclass
class MemoryLeases:
    """Leases (cells.fleet.leases) of one process among others. taken: name -> who else has it alone."""

    taken: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)

    def acquire(self, name: str, *, shared: bool = False) -> bool:
        if name in self.taken or name in self.held:
            return False
        self.held.add(name)
        return True

    def holds(self, name: str) -> bool:
        return name in self.held

    def count(self, names: Collection[str]) -> Mapping[str, int]:
        return {name: 1 for name in names if self.holds(name)}

    def release(self, name: str) -> None:
        self.held.discard(name)

    def holder(self, name: str) -> str:
        return self.taken[name]

    def close(self) -> None:
        self.held.clear()


@dataclass
class MemoryFailures:
    """The failures of a fleet (cells.fleet.failures). is_away: the fleet database does not answer."""

    kept: dict[str, Failure] = field(default_factory=dict)
    reread: list[str] = field(default_factory=list)
    is_away: bool = False

    def add(self, found: Sequence[Failure]) -> None:
        self._require_database()
        for failure in found:
            known = self.kept.get(failure.id)
            times = failure.summary.times + (known.summary.times if known else 0)
            self.kept[failure.id] = replace(failure, summary=replace(failure.summary, times=times))

    def mark_reread(self, cell_uuid: str, instance_uuids: Collection[str], at: int) -> None:
        self._require_database()
        self.reread += instance_uuids

    def counts(self) -> Mapping[str, int]:
        self._require_database()
        return Counter(failure.summary.cell_uuid for failure in self.kept.values())

    def dropped(self) -> Mapping[str, int]:
        self._require_database()
        return {}

    @property
    def found(self) -> list[tuple[bytes, str, str]]:
        """Of each failure the body, the reason and the detail."""
        return [(each.body, each.summary.reason, each.summary.detail) for each in self.kept.values()]

    def _require_database(self) -> None:
        if self.is_away:
            raise FleetUnreachableError("it is away")


@dataclass
class MemoryJournals:
    """The journals of a fleet (cells.fleet.journals), which keep everything. is_away: as of MemoryFailures."""

    incarnations: dict[str, str] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)
    followed_at: dict[str, int] = field(default_factory=dict)
    is_away: bool = False

    def incarnation(self, cell_uuid: str) -> str | None:
        self._require_database()
        return self.incarnations.get(cell_uuid)

    def start_over(self, cell_uuid: str) -> str:
        self._require_database()
        self.found.clear()
        self.incarnations[cell_uuid] = str(uuid4())
        return self.incarnations[cell_uuid]

    def append(self, cell_uuid: str, findings: Sequence[Finding]) -> None:
        self._require_database()
        if cell_uuid in self.incarnations:
            self.found.extend(findings)

    def confirm(self, cell_uuid: str, at: int) -> None:
        self._require_database()
        self.followed_at[cell_uuid] = at

    def _require_database(self) -> None:
        if self.is_away:
            raise FleetUnreachableError("it is away")


@dataclass
class MemoryBus:
    """What a receiver receives from, one receiver after the other.

    is_away: the broker cannot be reached. is_durable: as a broker is, and the bus of `fleetlight up` is not.
    """

    waiting: deque[Message] = field(default_factory=deque)
    held: list[Message] = field(default_factory=list)
    buried: list[tuple[Message, str, str]] = field(default_factory=list)
    acknowledged: int = 0
    kept_alive: int = 0
    is_away: bool = False
    is_durable: bool = True

    def receiver(self) -> "MemoryReceiver":
        return MemoryReceiver(self)


class MemoryReceiver:
    """The Receiver of a MemoryBus; never waits."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._tag = 0
        self._held: dict[int, Message] = {}

    @property
    def is_active(self) -> bool:
        return bool(self._tag)

    @property
    def is_durable(self) -> bool:
        return self._bus.is_durable

    def receive(self, max_messages: int, max_bytes: int, wait_s: float) -> list[Delivery]:
        self._require_bus()
        batch: list[Delivery] = []
        size = 0
        while self._bus.waiting and len(batch) < max_messages and size < max_bytes:
            message = self._bus.waiting.popleft()
            self._tag += 1
            self._held[self._tag] = message
            size += len(message.body)
            batch.append(
                Delivery(message.body, message.routing_key, message.headers, False, self._tag, self)  # type: ignore[arg-type]
            )
        return batch

    def keep_alive(self) -> None:
        self._bus.kept_alive += 1

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            del self._held[int(delivery.tag)]
            self._bus.acknowledged += 1

    def bury(self, message: Message, reason: str, detail: str) -> None:
        self._require_bus()
        self._bus.buried.append((message, reason, detail))

    def take_dead(self, keep: Callable[[Sequence[Message]], None], limit: int) -> int:
        self._require_bus()
        taken = [
            Message(
                message.body, message.routing_key, {**message.headers, REASON_HEADER: reason, DETAIL_HEADER: detail}
            )
            for message, reason, detail in self._bus.buried[:limit]
        ]
        if taken:
            keep(taken)
        del self._bus.buried[: len(taken)]
        return len(taken)

    def close(self) -> None:
        self._bus.waiting.extendleft(reversed(self._held.values()))
        self._held.clear()

    def _require_bus(self) -> None:
        if self._bus.is_away:
            raise BusUnavailableError("memory://", "the broker is away")


class MemoryCell:
    """A cell with a changelog: rows, changes, and what the relay would publish. It is its own adapter."""

    def __init__(self, uuid: str = CELL_UUID, name: str = "one") -> None:
        self.cell = Cell(uuid, name, CellKind.NATIVE, "sqlite:///nowhere.db", "memory://")
        self.rows: dict[str, InstanceRow] = {}
        self.changes: list[Change] = []
        self.last_sequence = 0
        self.is_away = False
        self.pages_read = 0
        self.without_number: set[str] = set()

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
        matches = matcher(request.filter, INSTANCE_FIELDS)

        def position(row: InstanceRow) -> tuple[Any, ...]:
            return request.order.comparable(request.order.values(row.record))

        rows = sorted((row for row in self.rows.values() if matches(row.record)), key=position)
        if request.after is not None:
            after = request.order.comparable(request.after)
            rows = [row for row in rows if after < position(row)]
        return rows[: request.limit]

    def scan(self, request: PageRequest) -> Sequence[InstanceRow]:
        return self.read_page(request)

    def find(self, uuid: str) -> InstanceRow | None:
        self._require_cell()
        return self.rows.get(uuid)

    def position(self) -> Position:
        self._require_cell()
        return Position(None, self.last_sequence)

    def published_sequence(self) -> int:
        self._require_cell()
        return self.last_sequence

    def oldest_kept_sequence(self) -> int:
        self._require_cell()
        return self.changes[0].sequence if self.changes else self.last_sequence + 1

    def lineage(self) -> Lineage:
        return Lineage([])

    def first_foreign_sequence(self, after: int) -> int | None:
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
        is_remembered = matcher(remembered(horizon), INSTANCE_FIELDS)
        return {uuid: row.revision for uuid, row in self.rows.items() if is_remembered(row.record)}

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


def versions(index: MemoryIndex) -> dict[str, int]:
    return {uuid: document.version for uuid, document in index.documents.items()}
