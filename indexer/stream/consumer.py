"""The loop of one cell: receive a batch, write it, move the watermark, acknowledge.

What becomes of a message: applied, or stale (something newer is there) -> acknowledged; malformed, of an unknown
payload, of a newer major version, rejected by the index, or such that this program fails on it -> dead letter with the
reason, and its instance is read again from the cell; index away -> nothing is acknowledged, and nothing more is
received until it is back.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from fleetlight.bus.bus import Delivery, Headers, Message
from fleetlight.bus.topology import CELL_HEADER, RESOURCE_HEADER, REVISION_HEADER, SEQUENCE_HEADER
from fleetlight.cells.fleet.producer_keys import Announcer
from fleetlight.cells.model import Change
from fleetlight.indexer.backends.base import Document, WriteResult
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.cell_assignment import CellAssignment
from fleetlight.indexer.transform.announcers import Announcers
from fleetlight.indexer.transform.batches import Batch, ReadsRows, RowReading, without_known
from fleetlight.indexer.transform.messages import read_headers
from fleetlight.indexer.writing.dead_letters import DeadLetter, DeadLetters, DeadLetterSink
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import Rereader
from fleetlight.indexer.writing.retrying_writer import WritesAndReads
from fleetlight.resources.clock import Clock, system_clock

T = TypeVar("T")

_KEEP_ALIVE_INTERVAL_S = 1.0
_DEAD_LETTERS_INTERVAL_S = 15.0


class MessageSource(DeadLetterSink, Protocol):
    """The part of fleetlight.bus.bus.Receiver that a consumer needs; `receive` raises BusError."""

    @property
    def is_active(self) -> bool: ...
    def receive(self, max_messages: int, max_bytes: int, wait_s: float) -> list[Delivery]: ...
    def keep_alive(self) -> None: ...
    def ack(self, deliveries: Sequence[Delivery]) -> None: ...
    def close(self) -> None: ...


def _nothing() -> None:
    """For callers that need no report."""


@dataclass(slots=True)
class _Pending:
    """A batch whose documents are being written.

    sources: uuid -> the message that its document came from. dead: messages that gave no document, and why.
    refused: why there is no document of an instance after the write, by uuid.
    """

    deliveries: list[Delivery]
    batch: Batch
    sequences: list[int] = field(default_factory=list)
    sources: dict[str, Delivery] = field(default_factory=dict)
    dead: list[tuple[Delivery, MalformedMessageError]] = field(default_factory=list)
    refused: Mapping[str, MalformedMessageError] = field(default_factory=dict)
    duplicates: int = 0
    never_happened: int = 0
    write: Future[WriteResult] | None = None


class Consumer:
    """Consumes the bus of one cell; everything but the writes happens in the caller's thread.

    While there is a backlog, `settings.writes_in_flight` writes are under way at once: the next batch is decoded while
    the index works. Batches are finished, and acknowledged, in the order in which they came.

    horizon: of the cell (fleetlight.indexer.reconcile.retention), as far as it is known at the moment. is_of_relay:
        whether a message with these headers and this body was made by the cell's relay. What was not says nothing of
        sequences and revisions, whatever is in its headers, nor how far the cell is. on_done: called after each batch.
        assignment: whether this indexer gets the messages of the cell.
    announcers: of a cell whose notifications have revisions: which producers may announce instances that it does not
    have.
    rows: how the rows are read of a cell whose notifications have no revisions. own_rows: those of one whose have.
    on_item_lost: called when a message of the cell's about something else than an instance can never be indexed.
    clock: of the fleet.
    """

    def __init__(
        self,
        cell_uuid: str,
        *,
        receiver: MessageSource,
        writer: WritesAndReads,
        tracker: ProgressTracker,
        rereader: Rereader,
        dead_letters: DeadLetters,
        settings: IndexerSettings,
        metrics: IndexerMetrics,
        horizon: Callable[[], int],
        is_of_relay: Callable[[Headers, bytes], bool],
        on_done: Callable[[], None] = _nothing,
        assignment: CellAssignment | None = None,
        accepts: Callable[[Headers], bool] = lambda _: True,
        announcers: Announcers | None = None,
        rows: RowReading | None = None,
        own_rows: ReadsRows | None = None,
        on_item_lost: Callable[[], None] = _nothing,
        clock: Clock = system_clock,
    ) -> None:
        self._cell_uuid = cell_uuid
        self._receiver = receiver
        self._writer = writer
        self._tracker = tracker
        self._rereader = rereader
        self._dead_letters = dead_letters
        self._settings = settings
        self._metrics = metrics
        self._horizon = horizon
        self._on_done = on_done
        self._assignment = assignment or CellAssignment()
        self._is_of_relay = is_of_relay
        self._accepts = accepts
        self._announcers = announcers
        self._rows = rows and replace(rows, read=partial(self._in_thread, rows.read))
        self._own_rows = own_rows and partial(self._in_thread, own_rows)
        self._on_item_lost = on_item_lost
        self._clock = clock
        self._dead_letters_due_s = 0.0
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
        now_s = time.monotonic()
        self._rereader.work(now_s)
        if now_s >= self._dead_letters_due_s:
            self._dead_letters.take_from_bus()
            self._dead_letters_due_s = now_s + _DEAD_LETTERS_INTERVAL_S
        self._share_time()
        return len(deliveries)

    @property
    def is_idle(self) -> bool:
        """Whether everything that was received is dealt with."""
        return not self._pending

    def drain(self) -> None:
        """Finish what has been received; raises what `step` raises."""
        while self._pending:
            self._finish_oldest()

    def give_up(self, changes: Sequence[tuple[Change, MalformedMessageError]]) -> None:
        """Changes of the changelog that can never be indexed: dead letters, as if the bus had brought them."""
        letters = [DeadLetter.of(_message(self._cell_uuid, change), error) for change, error in changes]
        self._keep_dead(letters)
        if any(_is_about_item(letter.message.headers) for letter in letters):
            self._on_item_lost()

    def keep_alive(self) -> None:
        """Call this every few seconds while `step` is not called."""
        self._receiver.keep_alive()

    def close(self) -> None:
        """Let go of the bus; what was not acknowledged goes back. Waits for the writes under way."""
        self._threads.shutdown(cancel_futures=True)
        self._receiver.close()
        self._assignment.is_active = False

    def _share_time(self) -> None:
        assignment = self._assignment
        if assignment.is_to_end:
            self.drain()
            # Another one is active from now on, and this one comes last when it connects again.
            self._receiver.close()
            assignment.end(time.monotonic())
        assignment.is_active = self._receiver.is_active

    def _begin(self, deliveries: list[Delivery]) -> _Pending:
        pending = _Pending(
            deliveries, Batch(self._cell_uuid, self._horizon(), self._rows, self._own_rows, now=self._clock())
        )
        for delivery in deliveries:
            self._take(delivery, pending)
        batch = pending.batch
        kept = without_known(pending.dead, self._own_rows)
        batch.others += len(pending.dead) - len(kept)
        pending.dead = kept
        if batch.to_read:
            # What these messages are merged into may be among the documents that are still being written.
            self.drain()
        documents = batch.documents(self._read)
        if pending.sources:
            pending.write = self._threads.submit(self._writer.write, documents)
        return pending

    def _take(self, delivery: Delivery, pending: _Pending) -> None:
        is_of_relay = self._is_of_relay(delivery.headers, delivery.body)
        if is_of_relay and not self._accepts(delivery.headers):
            pending.never_happened += 1
            return
        try:
            sequence, revision, instance_uuid = read_headers(self._cell_uuid, delivery.headers)
            if not is_of_relay:
                sequence = revision = instance_uuid = None
            if sequence is not None:
                if sequence <= self._tracker.watermark:
                    pending.duplicates += 1
                    return
                pending.sequences.append(sequence)
            # What the relay passes on for another producer has a sequence, and is no heartbeat of the cell.
            reports_progress = is_of_relay and sequence is None
            about = pending.batch.take(
                delivery.body,
                revision,
                instance_uuid,
                reports_progress=reports_progress,
                announcer=self._announcer(delivery, is_of_relay=is_of_relay) if revision is None else None,
            )
        except MalformedMessageError as error:
            pending.dead.append((delivery, error))
            return
        for uuid in about:
            pending.sources[uuid] = delivery

    def _announcer(self, delivery: Delivery, *, is_of_relay: bool) -> Announcer | None:
        if self._announcers is None:
            return None
        if is_of_relay:
            return self._announcers.outbox
        return self._announcers.of_message(delivery.headers, delivery.body)

    def _finish_oldest(self) -> None:
        pending = self._pending[0]
        if pending.write is not None:
            self._finish_write(pending, pending.write)
        for instance_uuid in (*pending.batch.unreadable, *pending.batch.misnamed):
            self._rereader.add(instance_uuid)
        # Acknowledged with their batch. When the connection breaks in between they come again, but then the watermark
        # has passed them, so they have to be among the dead letters now.
        self._keep_dead([DeadLetter.of(_received(delivery), error) for delivery, error in pending.dead])
        # Messages of others cannot make the index distrust the items of the cell.
        if any(_is_about_item(each.headers) and self._is_of_relay(each.headers, each.body) for each, _ in pending.dead):
            self._on_item_lost()
        # Only now, so that a progress seen by others never covers a message that was not dealt with.
        self._tracker.add(pending.sequences)
        for heartbeat in pending.batch.heartbeats:
            self._tracker.heard(heartbeat.sequence, heartbeat.at)
        self._receiver.ack(pending.deliveries)
        self._pending.popleft()
        self._on_done()
        self._count(pending)

    def _finish_write(self, pending: _Pending, write: Future[WriteResult]) -> None:
        result = self._await(write)
        # What was written of them may be older than what could not be: only their cell knows.
        for instance_uuid in self._tracker.unindexed & pending.sources.keys():
            self._rereader.add(instance_uuid)
        pending.refused = pending.batch.failed | {
            rejection.document.id: MalformedMessageError(DeadLetterReason.REJECTED, rejection.reason)
            for rejection in result.rejected
        }
        pending.dead += [(pending.sources[uuid], error) for uuid, error in pending.refused.items()]

    def _keep_dead(self, letters: Sequence[DeadLetter]) -> None:
        for instance_uuid in self._dead_letters.keep(letters):
            self._rereader.add(instance_uuid)

    def _count(self, pending: _Pending) -> None:
        batch = pending.batch
        for outcome, count in (
            ("applied", batch.count_applied(pending.refused)),
            ("superseded", batch.superseded),
            ("duplicate", pending.duplicates),
            ("never happened", pending.never_happened),
            ("heartbeat", len(batch.heartbeats)),
            ("other", batch.others),
            ("elsewhere", batch.elsewhere),
            ("forgotten", batch.forgotten),
        ):
            self._metrics.messages_handled(self._cell_uuid, outcome, count)

    def _read(self, ids: Collection[str]) -> Mapping[str, Document]:
        return self._in_thread(self._writer.read, ids)

    def _in_thread(self, read: Callable[[Collection[str]], T], ids: Collection[str]) -> T:
        return self._await(self._threads.submit(read, ids))

    def _await(self, future: Future[T]) -> T:
        while not wait([future], _KEEP_ALIVE_INTERVAL_S).done:
            self._receiver.keep_alive()
        return future.result()


def _is_about_item(headers: Headers) -> bool:
    """Whether a change of the cell's has a revision, but of no instance."""
    return REVISION_HEADER in headers and RESOURCE_HEADER not in headers


def _received(delivery: Delivery) -> Message:
    return Message(delivery.body, delivery.routing_key, delivery.headers)


def _message(cell_uuid: str, change: Change) -> Message:
    """The message of a change, as the relay has published it."""
    headers: Headers = {CELL_HEADER: cell_uuid, SEQUENCE_HEADER: change.sequence}
    if change.revision:
        headers[REVISION_HEADER] = change.revision
    if change.instance_uuid:
        headers[RESOURCE_HEADER] = change.instance_uuid
    return Message(change.message, change.routing_key, headers)
