"""The base of all followers of a cell: they start again after failures, and report how far they are."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from threading import Event, Lock

import structlog

from fleetlight.bus.bus import Headers
from fleetlight.bus.external_exchange import source_of
from fleetlight.cells.epochs import EpochHistory
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress, IndexWriter
from fleetlight.indexer.errors import (
    IndexerError,
    IndexPausedError,
    IndexRequestError,
    IndexUnavailableError,
    StopRequestedError,
)
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.retention import LISTS_DELAY_S
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.cell_assignment import CellAssignment
from fleetlight.indexer.stream.consumer import Consumer, MessageSource
from fleetlight.indexer.stream.liveness import SignOfLife
from fleetlight.indexer.stream.received_batch import MessageReading
from fleetlight.indexer.stream.saved_progress import Reached
from fleetlight.indexer.transform.announcers import KnowsAnnouncers, no_producers
from fleetlight.indexer.transform.batches import ReadsRows
from fleetlight.indexer.writing.dead_letters import DeadLetters, RecordsFailures
from fleetlight.indexer.writing.journaling import JournalStore
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.ownership import KnowsOwners
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import RendersRows, Rereader, render_rows
from fleetlight.indexer.writing.retrying_writer import RetryingWriter, WritesAndReads, WritesDocuments
from fleetlight.notifications.errors import BusError
from fleetlight.resources.clock import Clock, system_clock

_log = structlog.get_logger(__name__)

_FIRST_WAIT_S = 0.2
_LONGEST_EXPONENT = 10
# Until then a rebuild is ending, and nothing is wrong.
_USUAL_PAUSE_S = 5.0


class Activity(StrEnum):
    """What a follower is doing."""

    STARTING = "starting"
    CATCHING_UP = "catching up"
    SYNCING = "syncing"
    FOLLOWING = "following"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class CellHealth:
    """problem: why the cell is not followed at the moment, as a sentence; None while all is well."""

    activity: Activity
    problem: str | None


@dataclass(frozen=True, slots=True)
class Shared:
    """What the followers of an indexer share. open_receiver raises BusError.

    owners: knows which cell an instance lives in. is_of_relay: whether a message on the bus of a cell, with these
        headers and this body, was made by the cell's relay. announcer: finds the producer of any other message.
        failures: keep dead letters. journals: get the changes of cells that number nothing.
    clock: of the fleet, since that of this machine may be wrong. saving: held while progress is saved. lists_delay_s:
        how long a list may still rely on what the index has just taken back.
    """

    open_receiver: Callable[[Cell], MessageSource]
    writer: IndexWriter
    leases: CellLeases
    owners: KnowsOwners
    is_of_relay: Callable[[str, Headers, bytes], bool]
    failures: RecordsFailures
    journals: JournalStore
    settings: IndexerSettings
    metrics: IndexerMetrics
    clock: Clock = system_clock
    saving: Lock = field(default_factory=Lock)
    lists_delay_s: float = LISTS_DELAY_S
    announcer: KnowsAnnouncers = no_producers


class Follower(ABC):
    """Keeps the index equal to one cell. `run` in a thread; the properties may be read by any thread.

    horizon: of the cell (fleetlight.indexer.reconcile.retention), as last read; any thread may set it. sign_of_life:
        whether its work gets done. assignment: whether this indexer gets the messages of the cell.
    """

    def __init__(self, cell: Cell, saved: CellProgress, shared: Shared) -> None:
        self.cell = cell
        self._open_receiver = shared.open_receiver
        self._writer = shared.writer
        self._leases = shared.leases
        self._owners = shared.owners
        self._dead_letter_store = shared.failures
        self._settings = shared.settings
        self._metrics = shared.metrics
        self._clock = shared.clock
        self._saving = shared.saving
        self._lists_delay_s = shared.lists_delay_s
        self._tracker = ProgressTracker(saved, shared.clock)
        self._started_over = 0
        self._reached = Reached(saved)
        self._highest_known = saved.watermark
        self.horizon = 0
        self._reading = MessageReading(
            partial(shared.is_of_relay, cell.uuid), horizon=lambda: self.horizon, clock=shared.clock
        )
        self.sign_of_life = SignOfLife()
        self.assignment = CellAssignment()
        self._activity = Activity.STARTING
        self._problem: str | None = None
        self._failures = 0
        self._paused_since_s: float | None = None

    @property
    def progress(self) -> CellProgress:
        """What has been written; a promise only once the index has been made searchable after reading this."""
        return self._reached.progress

    @property
    def reached(self) -> Reached:
        """The same, with what has to be known to save it."""
        return self._reached

    @property
    def highest_known(self) -> int:
        """The highest known sequence of the cell."""
        return self._highest_known

    @property
    def health(self) -> CellHealth:
        return CellHealth(self._activity, self._problem)

    def run(self, stop: Event) -> None:
        """Follow the cell until `stop` is set; a failure of bus, cell or index is waited out, longer and longer."""
        while not stop.is_set():
            self._activity = Activity.STARTING
            try:
                self._follow(stop)
            except StopRequestedError:
                break
            except (BusError, CellUnreachableError, FleetUnreachableError, IndexerError) as error:
                if stop.is_set():
                    break
                self._failures += 1
                if not isinstance(error, IndexRequestError):
                    self.sign_of_life.give()
                self._metrics.failed(self.cell.uuid, type(error).__name__)
                self._report(error)
                stop.wait(self._wait_s())
        self._activity = Activity.STOPPED

    @abstractmethod
    def _follow(self, stop: Event) -> None:
        """Follow the cell until `stop` is set; raises what `run` waits out."""

    def _open_writer(self, stop: Event) -> RetryingWriter:
        return RetryingWriter(
            self._writer,
            self.cell.uuid,
            stop,
            retry_wait_max_s=self._settings.retry_wait_max_s,
            metrics=self._metrics,
            on_wait=self._waits,
            on_answer=self._recovered,
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
    ) -> Iterator[tuple[Consumer, Rereader]]:
        """The consumer of the cell's bus, and what reads instances again that it could not index.

        rereads_to: writes those; the writer by default. The rest is as of Consumer and Rereader.
        Raises BusError.
        """
        receiver = self._open_receiver(self.cell)
        # What has no relay comes from a broker that several cells may share.
        is_shared = bool(self.cell.transport_url) and not self.cell.can.numbers_changes
        source = source_of(self.cell.transport_url) if is_shared else None
        dead_letters = DeadLetters(
            self.cell.uuid, self._dead_letter_store, receiver, self._metrics, self._clock, source=source
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
            settings=self._settings,
            metrics=self._metrics,
            reading=reading,
            on_done=self.sign_of_life.give,
            assignment=self.assignment,
            on_item_lost=on_item_lost,
        )
        try:
            yield consumer, rereader
        finally:
            consumer.close()

    def _publish_progress(self) -> None:
        self._highest_known = self._tracker.highest_known
        self._reached = Reached(self._tracker.snapshot(), self._started_over, self._epoch_history())

    def _start_over(self) -> None:
        """What was promised is not true any more, so that a lower progress is the right one."""
        self._tracker.start_over()
        self._started_over += 1
        self._publish_progress()

    def _epoch_history(self) -> EpochHistory | None:
        """The epochs of the cell that are known; None where there are none."""
        return None

    def _wait_s(self) -> float:
        exponent = min(self._failures - 1, _LONGEST_EXPONENT)
        return float(min(self._settings.retry_wait_max_s, _FIRST_WAIT_S * 2**exponent))

    def _waits(self, error: IndexUnavailableError) -> None:
        self.sign_of_life.give()
        now_s = time.monotonic()
        if isinstance(error, IndexPausedError):
            self._paused_since_s = self._paused_since_s or now_s
            if now_s - self._paused_since_s < _USUAL_PAUSE_S:
                return
        self._report(error)

    def _report(self, error: Exception) -> None:
        if self._problem is None:
            _log.warning("indexer.cell_waiting", cell=self.cell.name, reason=str(error))
        self._problem = str(error)

    def _recovered(self) -> None:
        self._failures = 0
        self._paused_since_s = None
        if self._problem is not None:
            _log.info("indexer.cell_followed_again", cell=self.cell.name)
            self._problem = None
