"""A batch of messages from the bus of one cell: which of them count, and the outcome of each."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from fleetlight.bus.bus import Delivery, Headers, Message
from fleetlight.bus.topology import RESOURCE_HEADER, REVISION_HEADER, TRACE_HEADER
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.producer_keys import Announcer
from fleetlight.indexer.backends.base import WriteResult
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError
from fleetlight.indexer.transform.announcers import Announcers
from fleetlight.indexer.transform.batches import Batch, ReadsRows, RowReading, without_known
from fleetlight.indexer.transform.messages import read_headers
from fleetlight.indexer.writing.dead_letters import DeadLetter, instance_of
from fleetlight.resources.clock import Clock, system_clock

_Dead = tuple[Delivery, MalformedMessageError]


@dataclass(frozen=True, slots=True)
class MessageReading:
    """How to read the messages on the bus of a cell.

    is_of_relay: whether the cell's relay made a message with these headers and this body. Sequences, revisions and
        heartbeats in other messages are ignored.
    horizon: returns the last known horizon of the cell (fleetlight.indexer.reconcile.retention).
    accepts: whether the change of a relay's message is part of the cell's history, by its headers.
    announcers: for a native cell: finds the producers that may announce instances without a row; else None.
    rows: reads rows of a cell whose notifications have no revisions; else None. own_rows: the same for a native cell.
    clock: of the fleet.
    """

    is_of_relay: Callable[[Headers, bytes], bool]
    horizon: Callable[[], int] = lambda: 0
    accepts: Callable[[Headers], bool] = lambda _: True
    announcers: Announcers | None = None
    rows: RowReading | None = None
    own_rows: ReadsRows | None = None
    clock: Clock = system_clock

    def announcer(self, delivery: Delivery, *, is_of_relay: bool) -> Announcer | None:
        """The producer of a message without a revision; None if the cell is not native."""
        if self.announcers is None:
            return None
        if is_of_relay:
            return self.announcers.outbox
        return self.announcers.of_message(delivery.headers, delivery.body)


class ReceivedBatch:
    """A batch of messages, interpreted by the constructor, which may raise CellUnreachableError.

    sequences: of the messages that count. sources: the message of each document, by uuid. dead: messages that gave no
    document, and why. received_at: in microseconds, by the clock of `reading`. write: the write of the documents, after
    it has begun.
    """

    def __init__(
        self, cell_uuid: str, deliveries: Sequence[Delivery], reading: MessageReading, *, watermark: int
    ) -> None:
        self.deliveries = deliveries
        self.received_at = reading.clock()
        self.batch = Batch(cell_uuid, reading.horizon(), reading.rows, reading.own_rows, now=self.received_at)
        self.sequences: list[int] = []
        self.sources: dict[str, Delivery] = {}
        self.dead: list[_Dead] = []
        self._traced: list[Delivery] = []
        self.write: Future[WriteResult] | None = None
        self._cell_uuid = cell_uuid
        self._reading = reading
        self._watermark = watermark
        self._refused: Mapping[str, MalformedMessageError] = {}
        self._duplicates = 0
        self._never_happened = 0
        for delivery in deliveries:
            self._take(delivery)
        kept = without_known(self.dead, reading.own_rows)
        self.batch.others += len(self.dead) - len(kept)
        self.dead = kept if reading.rows is None else self._of_cell(kept, reading.rows)

    def _of_cell(self, dead: list[_Dead], rows: RowReading) -> list[_Dead]:
        """The members of `dead` that are about this cell; other cells on the same broker keep their own."""
        named = [instance_of(_message(delivery)) for delivery, _ in dead]
        uuids = {uuid for uuid in named if uuid is not None}
        try:
            here = rows.read(uuids) if uuids else {}
        except CellUnreachableError:
            return dead
        kept = [each for each, uuid in zip(dead, named, strict=True) if uuid is None or uuid in here]
        self.batch.elsewhere += len(dead) - len(kept)
        return kept

    @property
    def letters(self) -> Sequence[DeadLetter]:
        """A dead letter for each message that gave no document."""
        return [DeadLetter.of(_message(delivery), error) for delivery, error in self.dead]

    @property
    def traced(self) -> Sequence[Delivery]:
        """The messages of the relay that are part of a trace (fleetlight.bus.traces) and not dead. Duplicates count,
        since the indexer may have read the change from the changelog first.
        """
        return [each for each in self._traced if all(each is not dead for dead, _ in self.dead)]

    @property
    def has_lost_item(self) -> bool:
        """Whether a message of the cell itself about an item is dead."""
        return any(
            is_about_item(each.headers) and self._reading.is_of_relay(each.headers, each.body) for each, _ in self.dead
        )

    @property
    def outcomes(self) -> Sequence[tuple[str, int]]:
        """The number of messages by outcome (fleetlight.indexer.metrics), without dead letters."""
        batch = self.batch
        return (
            ("applied", batch.count_applied(self._refused)),
            ("superseded", batch.superseded),
            ("duplicate", self._duplicates),
            ("never happened", self._never_happened),
            ("heartbeat", len(batch.heartbeats)),
            ("other", batch.others),
            ("elsewhere", batch.elsewhere),
            ("forgotten", batch.forgotten),
        )

    def note_result(self, result: WriteResult) -> None:
        """Count documents that the index rejected as dead."""
        self._refused = self.batch.failed | {
            rejection.document.id: MalformedMessageError(DeadLetterReason.REJECTED, rejection.reason)
            for rejection in result.rejected
        }
        self.dead += [(self.sources[uuid], error) for uuid, error in self._refused.items()]

    def _take(self, delivery: Delivery) -> None:
        is_of_relay = self._reading.is_of_relay(delivery.headers, delivery.body)
        if is_of_relay and not self._reading.accepts(delivery.headers):
            self._never_happened += 1
            return
        try:
            sequence, revision, instance_uuid = read_headers(self._cell_uuid, delivery.headers)
            if not is_of_relay:
                sequence = revision = instance_uuid = None
            if sequence is not None:
                if TRACE_HEADER in delivery.headers:
                    self._traced.append(delivery)
                if sequence <= self._watermark:
                    self._duplicates += 1
                    return
                self.sequences.append(sequence)
            about = self.batch.take(
                delivery.body,
                revision,
                instance_uuid,
                # A message that the relay forwards for another producer has a sequence, and is no heartbeat.
                reports_progress=is_of_relay and sequence is None,
                announcer=self._reading.announcer(delivery, is_of_relay=is_of_relay) if revision is None else None,
            )
        except MalformedMessageError as error:
            self.dead.append((delivery, error))
            return
        for uuid in about:
            self.sources[uuid] = delivery


def _message(delivery: Delivery) -> Message:
    return Message(delivery.body, delivery.routing_key, delivery.headers)


def is_about_item(headers: Headers) -> bool:
    """Whether a change of the cell is one of an item: it has a revision, and names no instance."""
    return REVISION_HEADER in headers and RESOURCE_HEADER not in headers
