"""The loop of one cell: receive a batch, write it, move the watermark, acknowledge.

What becomes of a message: applied, or stale (something newer is there) -> acknowledged; malformed, of an unknown
payload, of a newer major version, or rejected by the index -> dead letter with the reason, and its instance is read
again from the cell; index away -> nothing is acknowledged, and nothing more is received until it is back.
"""

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import structlog

from cells.model import Change
from indexer.backends.base import Document, WriteResult
from indexer.batches import Batch
from indexer.errors import DeadLetterReason, MalformedMessageError
from indexer.messages import interpret
from indexer.metrics import IndexerMetrics
from indexer.progress import ProgressTracker
from indexer.rereading import Rereader
from indexer.settings import IndexerSettings
from indexer.writing import WritesAndReads
from notifications.bus import Delivery, Headers, Message
from notifications.topology import CELL_HEADER, RESOURCE_HEADER, REVISION_HEADER, SEQUENCE_HEADER

_log = structlog.get_logger(__name__)

T = TypeVar("T")

_KEEP_ALIVE_INTERVAL_S = 1.0


class Receives(Protocol):
    """The part of notifications.bus.Receiver that a consumer needs; `receive` and `bury` raise BusError."""

    def receive(self, max_messages: int, max_bytes: int, wait_s: float) -> list[Delivery]: ...
    def keep_alive(self) -> None: ...
    def ack(self, deliveries: Sequence[Delivery]) -> None: ...
    def bury(self, message: Message, reason: str, detail: str) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Pending:
    """A batch whose documents are being written.

    sources: uuid -> the message that its document came from. dead: messages that gave no document, and why.
    """

    deliveries: list[Delivery]
    batch: Batch
    sequences: list[int] = field(default_factory=list)
    sources: dict[str, Delivery] = field(default_factory=dict)
    dead: list[tuple[Delivery, MalformedMessageError]] = field(default_factory=list)
    duplicates: int = 0
    write: Future[WriteResult] | None = None


class Consumer:
    """Consumes the bus of one cell; everything but the writes happens in the caller's thread.

    While there is a backlog, `settings.writes_in_flight` writes are under way at once: the next batch is decoded while
    the index works. Batches are finished, and acknowledged, in the order in which they came.
    """

    def __init__(
        self,
        cell_uuid: str,
        *,
        receiver: Receives,
        writer: WritesAndReads,
        tracker: ProgressTracker,
        rereader: Rereader,
        settings: IndexerSettings,
        metrics: IndexerMetrics,
    ) -> None:
        self._cell_uuid = cell_uuid
        self._receiver = receiver
        self._writer = writer
        self._tracker = tracker
        self._rereader = rereader
        self._settings = settings
        self._metrics = metrics
        self._pending: deque[_Pending] = deque()
        self._threads = ThreadPoolExecutor(settings.writes_in_flight, thread_name_prefix="index-write")

    def step(self) -> int:
        """Receive and write at most one batch; returns the number of its messages.

        Raises BusUnavailableError, IndexRequestError, and IndexUnavailableError when stopped while the index is away.
        Then the consumer is done for: close it, and what was not acknowledged will be delivered again.
        """
        settings = self._settings
        deliveries = self._receiver.receive(
            settings.batch_max_messages, settings.batch_max_bytes, settings.batch_wait_s
        )
        if deliveries:
            self._metrics.batch_received(self._cell_uuid, len(deliveries))
            self._pending.append(self._begin(deliveries))
        has_backlog = len(deliveries) == settings.batch_max_messages
        while self._pending and (not has_backlog or len(self._pending) >= settings.writes_in_flight):
            self._finish_oldest()
        self._rereader.work(time.monotonic())
        return len(deliveries)

    def drain(self) -> None:
        """Finish what has been received; raises what `step` raises."""
        while self._pending:
            self._finish_oldest()

    def bury(self, change: Change, reason: DeadLetterReason, detail: str) -> None:
        """A change of the changelog that can never be indexed: to the dead letters, as if the bus had brought it."""
        headers: Headers = {CELL_HEADER: self._cell_uuid, SEQUENCE_HEADER: change.sequence}
        if change.revision:
            headers[REVISION_HEADER] = change.revision
        if change.instance_uuid:
            headers[RESOURCE_HEADER] = change.instance_uuid
        self._bury(Message(change.message, change.routing_key, headers), reason, detail)

    def keep_alive(self) -> None:
        """Call this every few seconds while `step` is not called."""
        self._receiver.keep_alive()

    def close(self) -> None:
        """Let go of the bus; what was not acknowledged goes back. Waits for the writes under way."""
        self._threads.shutdown(cancel_futures=True)
        self._receiver.close()

    def _begin(self, deliveries: list[Delivery]) -> _Pending:
        pending = _Pending(deliveries, Batch(self._cell_uuid))
        for delivery in deliveries:
            self._take(delivery, pending)
        batch = pending.batch
        if batch.to_read:
            # What these messages are merged into may be among the documents that are still being written.
            self.drain()
        documents = batch.documents(self._read)
        if documents:
            pending.write = self._threads.submit(self._writer.write, documents)
        return pending

    def _take(self, delivery: Delivery, pending: _Pending) -> None:
        sequence = _number(delivery, SEQUENCE_HEADER)
        if sequence is not None:
            if sequence <= self._tracker.watermark:
                pending.duplicates += 1
                return
            pending.sequences.append(sequence)
        try:
            instance_uuid = pending.batch.add(interpret(delivery.body, _number(delivery, REVISION_HEADER)))
        except MalformedMessageError as error:
            pending.dead.append((delivery, error))
            return
        if instance_uuid is not None:
            pending.sources[instance_uuid] = delivery

    def _finish_oldest(self) -> None:
        pending = self._pending[0]
        if pending.write is not None:
            self._finish_write(pending, pending.write)
        for delivery, error in pending.dead:
            self._dead_letter(delivery, error.reason, str(error))
        # Only now, so that a progress seen by others never covers a message that was not dealt with.
        self._tracker.add(pending.sequences)
        for heartbeat in pending.batch.heartbeats:
            self._tracker.heard(heartbeat.sequence, heartbeat.at)
        self._receiver.ack(pending.deliveries)
        self._pending.popleft()
        self._count(pending)

    def _finish_write(self, pending: _Pending, write: Future[WriteResult]) -> None:
        result = self._await(write)
        self._tracker.mark_indexed(pending.sources)
        for rejection in result.rejected:
            self._dead_letter(pending.sources[rejection.document.id], DeadLetterReason.REJECTED, rejection.reason)

    def _dead_letter(self, delivery: Delivery, reason: DeadLetterReason, detail: str) -> None:
        # Acknowledged with its batch. When the connection broke in between it comes again, but then the watermark has
        # passed it, so it has to be among the dead letters now.
        self._bury(Message(delivery.body, delivery.routing_key, delivery.headers), reason, detail)

    def _bury(self, message: Message, reason: DeadLetterReason, detail: str) -> None:
        self._receiver.bury(message, reason.value, detail)
        _log.error(
            "indexer.dead_letter",
            cell=self._cell_uuid,
            reason=reason.value,
            detail=detail,
            sequence=message.headers.get(SEQUENCE_HEADER),
        )
        self._metrics.messages_handled(self._cell_uuid, reason.value, 1)
        instance_uuid = message.headers.get(RESOURCE_HEADER)
        if isinstance(instance_uuid, str):
            self._rereader.add(instance_uuid)

    def _count(self, pending: _Pending) -> None:
        batch = pending.batch
        for outcome, count in (
            ("applied", batch.changes),
            ("duplicate", pending.duplicates),
            ("heartbeat", len(batch.heartbeats)),
            ("other", batch.others),
        ):
            self._metrics.messages_handled(self._cell_uuid, outcome, count)

    def _read(self, ids: Collection[str]) -> Mapping[str, Document]:
        return self._await(self._threads.submit(self._writer.read, ids))

    def _await(self, future: Future[T]) -> T:
        while not wait([future], _KEEP_ALIVE_INTERVAL_S).done:
            self._receiver.keep_alive()
        return future.result()


def _number(delivery: Delivery, header: str) -> int | None:
    value = delivery.headers.get(header)
    return value if isinstance(value, int) else None
