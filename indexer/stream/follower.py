"""The base of the followers of cells, which restart after failures and report their progress."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING

import structlog

from fleetlight.bus.bus import Headers
from fleetlight.bus.external_exchange import source_of
from fleetlight.cells.epochs import EpochHistory
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.fleet.restored_cells import RestoredCell
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress, IndexWriter
from fleetlight.indexer.errors import IndexerError, StopRequestedError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.retention import LISTS_DELAY_S
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.bus_releases import ReleasesBus, release_nothing
from fleetlight.indexer.stream.cell_assignment import CellAssignment
from fleetlight.indexer.stream.cell_health import Activity, CellHealth, FollowerHealth
from fleetlight.indexer.stream.consumer import Consumer, MessageSource
from fleetlight.indexer.stream.liveness import SignOfLife
from fleetlight.indexer.stream.received_batch import MessageReading
from fleetlight.indexer.stream.saved_progress import ReachedProgress
from fleetlight.indexer.transform.announcers import KnowsAnnouncers, no_producers
from fleetlight.indexer.transform.batches import ReadsRows
from fleetlight.indexer.writing.dead_letters import DeadLetters, KeepsFailures
from fleetlight.indexer.writing.journaling import JournalStore
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.ownership import KnowsOwners
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import RendersRows, Rereader, render_rows
from fleetlight.indexer.writing.retrying_writer import RetryingWriter, WritesAndReads, WritesDocuments
from fleetlight.notifications.errors import BusError
from fleetlight.resources.clock import Clock, system_clock

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces

_log = structlog.get_logger(__name__)


def note_nothing(_cell_uuid: str, _restored: RestoredCell) -> None:
    """For callers that keep no log of restored cells."""


@dataclass(frozen=True, slots=True)
class FollowerParts:
    """The parts that all followers of an indexer share. open_receiver raises BusError.

    owners: knows the cell of each instance. is_of_relay: whether the relay of a cell made a message with these headers
    and this body. announcer: finds the producer of any other message. failures: keeps dead letters. journals: receive
    the changes of cells without numbers. clock: of the fleet, since this machine's may be wrong. saving: held while
    progress is saved. lists_delay_s: how long a list may rely on a promise that was just withdrawn. release_bus:
    removes the queue of a cell whose log is followed. traces: of the process; None if it makes none. note_restored:
    records that the cell with this uuid was restored from a backup.
    """

    open_receiver: Callable[[Cell], MessageSource]
    writer: IndexWriter
    leases: CellLeases
    owners: KnowsOwners
    is_of_relay: Callable[[str, Headers, bytes], bool]
    failures: KeepsFailures
    journals: JournalStore
    settings: IndexerSettings
    metrics: IndexerMetrics
    clock: Clock = system_clock
    saving: Lock = field(default_factory=Lock)
    lists_delay_s: float = LISTS_DELAY_S
    announcer: KnowsAnnouncers = no_producers
    traces: "Traces | None" = None
    release_bus: ReleasesBus = release_nothing
    note_restored: Callable[[str, RestoredCell], None] = note_nothing


class Follower(ABC):
    """Keeps the index equal to one cell; `run` needs a thread, and any thread may read the properties.

    horizon: the last known one of the cell (fleetlight.indexer.reconcile.retention); any thread may set it.
    assignment: whether this indexer gets the messages of the cell.
    """

    def __init__(self, cell: Cell, saved: CellProgress, parts: FollowerParts) -> None:
        self.cell = cell
        self._parts = parts
        self._tracker = ProgressTracker(saved, parts.clock)
        self._started_over = 0
        self._reached = ReachedProgress(saved)
        self._highest_known = saved.watermark
        self.horizon = 0
        self._reading = MessageReading(
            partial(parts.is_of_relay, cell.uuid), horizon=lambda: self.horizon, clock=parts.clock
        )
        self.assignment = CellAssignment()
        self._health = FollowerHealth(cell.name, parts.settings.retry_wait_max_s)

    @property
    def progress(self) -> CellProgress:
        """What the follower has written; it may be saved only after a refresh of the index that follows this call."""
        return self._reached.progress

    @property
    def reached(self) -> ReachedProgress:
        """`progress`, with everything that SavedProgress needs."""
        return self._reached

    @property
    def highest_known(self) -> int:
        """The highest known sequence of the cell."""
        return self._highest_known

    @property
    def health(self) -> CellHealth:
        """What the follower is doing now, and its problem if it has one."""
        return self._health.now

    @property
    def sign_of_life(self) -> SignOfLife:
        """Tells whether the thread of the follower hangs."""
        return self._health.sign_of_life

    def run(self, stop: Event) -> None:
        """Follow the cell until `stop` is set; after a failure of bus, cell or index, wait and begin again."""
        while not stop.is_set():
            self._health.activity = Activity.STARTING
            try:
                self._follow(stop)
            except StopRequestedError:
                break
            except (BusError, CellUnreachableError, FleetUnreachableError, IndexerError) as error:
                if stop.is_set():
                    break
                self._parts.metrics.failures.labels(self.cell.uuid, type(error).__name__).inc()
                stop.wait(self._health.failed(error))
        self._health.activity = Activity.STOPPED

    @abstractmethod
    def _follow(self, stop: Event) -> None:
        """Follow the cell until `stop` is set. Raises the errors after which `run` begins again."""

    def _open_writer(self, stop: Event) -> RetryingWriter:
        return RetryingWriter(
            self._parts.writer,
            self.cell.uuid,
            stop,
            retry_wait_max_s=self._parts.settings.retry_wait_max_s,
            metrics=self._parts.metrics,
            on_wait=self._health.waits,
            on_answer=self._health.recovered,
        )

    @contextmanager
    def _consuming(
        self,
        writer: WritesAndReads,
        read_rows: ReadsRows,
        reading: MessageReading,
        *,
        rereads_to: WritesDocuments | None = None,
        render: RendersRows = render_rows,
        on_item_lost: Callable[[], None] = lambda: None,
        receiver: MessageSource | None = None,
    ) -> Iterator[tuple[Consumer, Rereader]]:
        """Yield the consumer of the cell's bus, and the rereader of instances that it could not index.

        rereads_to: writer of the rereader; `writer` by default. receiver: instead of the cell's bus. Other parameters
        are those of Consumer and Rereader. Raises BusError.
        """
        receiver = receiver or self._parts.open_receiver(self.cell)
        # Several cells without a relay may share a broker.
        is_shared = bool(self.cell.transport_url) and not self.cell.can.numbers_changes
        source = source_of(self.cell.transport_url) if is_shared else None
        dead_letters = DeadLetters(
            self.cell.uuid, self._parts.failures, receiver, self._parts.metrics, self._parts.clock, source=source
        )
        rereader = Rereader(
            self.cell.uuid,
            read_rows,
            rereads_to or writer,
            self._tracker,
            on_reread=dead_letters.was_reread,
            render=render,
        )
        consumer = Consumer(
            self.cell.uuid,
            receiver=receiver,
            writer=writer,
            tracker=self._tracker,
            rereader=rereader,
            dead_letters=dead_letters,
            settings=self._parts.settings,
            metrics=self._parts.metrics,
            reading=reading,
            on_done=self.sign_of_life.give,
            assignment=self.assignment,
            on_item_lost=on_item_lost,
            traces=self._parts.traces,
        )
        try:
            yield consumer, rereader
        finally:
            consumer.close()

    def _publish_progress(self) -> None:
        self._highest_known = self._tracker.highest_known
        self._reached = ReachedProgress(self._tracker.snapshot(), self._started_over, self._epoch_history())

    def _start_over(self) -> None:
        """Withdraw the promise of the saved progress, so that a lower one replaces it."""
        self._tracker.start_over()
        self._started_over += 1
        self._publish_progress()

    def _epoch_history(self) -> EpochHistory | None:
        """The known epochs of the cell; None if it has none."""
        return None
