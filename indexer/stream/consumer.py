"""The loop of one cell: receive a batch, write it, move the watermark, acknowledge.

Outcomes of a message: applied, or stale (the index has something newer) -> the consumer acknowledges it; malformed, of
an unknown payload or a newer major version, rejected by the index, or one on which this program fails -> it becomes a
dead letter with the reason, and its instance is read again from the cell; index down -> the consumer acknowledges
nothing, and receives nothing more until the index is back.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from fleetlight.bus.bus import Delivery, Headers, Message
from fleetlight.bus.topology import CELL_HEADER, RESOURCE_HEADER, REVISION_HEADER, SEQUENCE_HEADER
from fleetlight.cells.model import Change
from fleetlight.indexer.errors import MalformedMessageError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.cell_assignment import CellAssignment
from fleetlight.indexer.stream.received_batch import MessageReading, ReceivedBatch, is_about_item
from fleetlight.indexer.writing.dead_letters import DeadLetter, DeadLetters, DeadLetterSink
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import Rereader
from fleetlight.indexer.writing.retrying_writer import WritesAndReads

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces

T = TypeVar("T")

_KEEP_ALIVE_INTERVAL_S = 1.0
_DEAD_LETTERS_INTERVAL_S = 15.0
# The consumer waits so many times longer for a first message than for others behind it, so that a cell without changes
# costs no processor time: a little longer than the heartbeat interval. A stop may take as long.
_IDLE_WAITS = 11


class MessageSource(DeadLetterSink, Protocol):
    """The part of fleetlight.bus.bus.Receiver that a consumer uses; `receive` raises BusError."""

    @property
    def is_active(self) -> bool: ...
    def receive(
        self, max_messages: int, max_bytes: int, wait_s: float, *, first_within_s: float | None = None
    ) -> list[Delivery]: ...
    def keep_alive(self) -> None: ...
    def waiting(self) -> int: ...
    def ack(self, deliveries: Sequence[Delivery]) -> None: ...
    def close(self) -> None: ...


def _nothing() -> None:
    """For callers that ignore finished batches."""


class Consumer:
    """Consumes the bus of one cell in the caller's thread; reads and writes of cell and index run in other threads.

    During a backlog, `settings.writes_in_flight` writes are under way at once, so that the next batch is decoded while
    the index works. Batches are finished and acknowledged in the order in which they arrived.

    on_done: called after each batch. assignment: whether this indexer gets the messages of the cell.
    on_item_lost: called if a message of the cell itself about an item can never be indexed. traces: of the process;
    None if it makes none.
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
        reading: MessageReading,
        on_done: Callable[[], None] = _nothing,
        assignment: CellAssignment | None = None,
        on_item_lost: Callable[[], None] = _nothing,
        traces: "Traces | None" = None,
    ) -> None:
        self._cell_uuid = cell_uuid
        self._receiver = receiver
        self._writer = writer
        self._tracker = tracker
        self._rereader = rereader
        self._dead_letters = dead_letters
        self._settings = settings
        self._metrics = metrics
        rows, own_rows = reading.rows, reading.own_rows
        self._reading = replace(
            reading,
            rows=rows and replace(rows, read=partial(self._in_thread, rows.read)),
            own_rows=own_rows and partial(self._in_thread, own_rows),
        )
        self._on_done = on_done
        self._assignment = assignment or CellAssignment()
        self._on_item_lost = on_item_lost
        self._traces = traces
        self._dead_letters_due_s = 0.0
        self._is_resting = True
        self._pending: deque[ReceivedBatch] = deque()
        self._threads = ThreadPoolExecutor(settings.writes_in_flight, thread_name_prefix="index-write")

    def step(self) -> int:
        """Receive and write at most one batch; returns the number of its messages.

        Raises BusUnavailableError, IndexRequestError, and IndexUnavailableError if stopped while the index is down.
        After an error the consumer is unusable: close it, and the bus redelivers what was not acknowledged.
        """
        settings = self._settings
        deliveries = self._receiver.receive(
            settings.batch_max_messages,
            settings.batch_max_bytes,
            # The first message after a rest waits for no others, so that a change is searchable sooner.
            0.0 if self._is_resting else settings.batch_wait_s,
            first_within_s=settings.batch_wait_s * (_IDLE_WAITS if self.is_idle else 1),
        )
        self._is_resting = True
        if deliveries:
            self._metrics.batch_messages.labels(self._cell_uuid).observe(len(deliveries))
            self._pending.append(received := self._begin(deliveries))
            self._is_resting = len(received.batch.heartbeats) == len(deliveries)
        has_backlog = len(deliveries) == settings.batch_max_messages
        while self._pending and (not has_backlog or len(self._pending) >= settings.writes_in_flight):
            self._finish_oldest()
        now_s = time.monotonic()
        self._rereader.work(now_s)
        if now_s >= self._dead_letters_due_s:
            self._dead_letters.take_from_bus()
            self._metrics.waiting.labels(self._cell_uuid).set(self._receiver.waiting())
            self._dead_letters_due_s = now_s + _DEAD_LETTERS_INTERVAL_S
        self._share_time()
        return len(deliveries)

    @property
    def is_idle(self) -> bool:
        """Whether every received message is finished."""
        return not self._pending

    def drain(self) -> None:
        """Finish every received message. Raises as `step`."""
        while self._pending:
            self._finish_oldest()

    def give_up(self, changes: Sequence[tuple[Change, MalformedMessageError]]) -> None:
        """Make dead letters of changes in the changelog that can never be indexed. Raises as `step`."""
        letters = [DeadLetter.of(_message(self._cell_uuid, change), error) for change, error in changes]
        self._keep_dead(letters)
        if any(is_about_item(letter.message.headers) for letter in letters):
            self._on_item_lost()

    def keep_alive(self) -> None:
        """Call this every few seconds while `step` is not called."""
        self._receiver.keep_alive()

    def close(self) -> None:
        """Wait for the writes under way, then close the receiver; messages that were not acknowledged go back."""
        self._threads.shutdown(cancel_futures=True)
        self._receiver.close()
        self._assignment.is_active = False

    def _share_time(self) -> None:
        assignment = self._assignment
        if assignment.is_to_end:
            self.drain()
            # The broker makes another consumer active; this one is the last in the line when it connects again.
            self._receiver.close()
            assignment.end(time.monotonic())
        assignment.is_active = self._receiver.is_active

    def _begin(self, deliveries: list[Delivery]) -> ReceivedBatch:
        received = ReceivedBatch(self._cell_uuid, deliveries, self._reading, watermark=self._tracker.watermark)
        if received.batch.to_read:
            # These messages are merged into documents whose writes may still be under way.
            self.drain()
        documents = received.batch.documents(partial(self._in_thread, self._writer.read))
        if received.sources:
            received.write = self._threads.submit(self._writer.write, documents)
        return received

    def _finish_oldest(self) -> None:
        received = self._pending[0]
        if received.write is not None:
            result = self._await(received.write)
            # This document may be older than the change that could not be indexed: read the row in the cell.
            for instance_uuid in self._tracker.unindexed & received.sources.keys():
                self._rereader.add(instance_uuid)
            received.note_result(result)
        for instance_uuid in (*received.batch.unreadable, *received.batch.misnamed):
            self._rereader.add(instance_uuid)
        # Keep dead letters before the watermark moves: if the connection breaks before the acknowledgement, redelivered
        # messages count as duplicates.
        self._keep_dead(received.letters)
        # Messages of others cannot make the index distrust the items of the cell.
        if received.has_lost_item:
            self._on_item_lost()
        # Only now, so that the progress never covers an unfinished message.
        self._tracker.add(received.sequences)
        for heartbeat in received.batch.heartbeats:
            self._tracker.heard(heartbeat.sequence, heartbeat.at)
        self._receiver.ack(received.deliveries)
        self._pending.popleft()
        if self._traces is not None:
            self._traces.written(self._cell_uuid, received.traced, received.received_at, self._reading.clock())
        self._on_done()
        for outcome, count in received.outcomes:
            self._metrics.messages_handled(self._cell_uuid, outcome, count)

    def _keep_dead(self, letters: Sequence[DeadLetter]) -> None:
        for instance_uuid in self._dead_letters.keep(letters):
            self._rereader.add(instance_uuid)

    def _in_thread(self, read: Callable[[Collection[str]], T], ids: Collection[str]) -> T:
        return self._await(self._threads.submit(read, ids))

    def _await(self, future: Future[T]) -> T:
        while not wait([future], _KEEP_ALIVE_INTERVAL_S).done:
            self._receiver.keep_alive()
        return future.result()


def _message(cell_uuid: str, change: Change) -> Message:
    """The message of a change, as the relay published it."""
    headers: Headers = {CELL_HEADER: cell_uuid, SEQUENCE_HEADER: change.sequence}
    if change.revision:
        headers[REVISION_HEADER] = change.revision
    if change.instance_uuid:
        headers[RESOURCE_HEADER] = change.instance_uuid
    return Message(change.message, change.routing_key, headers)
