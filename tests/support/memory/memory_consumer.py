"""The consumer of a cell as an indexer has it, into an index in memory."""

from collections.abc import Callable
from threading import Event
from typing import Any

from prometheus_client import CollectorRegistry

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.consumer import Consumer, MessageSource
from fleetlight.indexer.stream.received_batch import MessageReading
from fleetlight.indexer.transform.batches import ReadsRows
from fleetlight.indexer.writing.dead_letters import DeadLetters
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import RendersRows, Rereader, render_rows
from fleetlight.indexer.writing.retrying_writer import RetryingWriter
from fleetlight.resources.clock import Clock, system_clock
from tests.support.memory.memory_fleet import MemoryFailures
from tests.support.memory.memory_index import MemoryIndex


class MemoryConsumer(Consumer):
    """waits: the failures of the index after which it was asked again. stop: ends such waits."""

    def __init__(
        self,
        cell_uuid: str,
        index: MemoryIndex,
        receiver: MessageSource,
        settings: IndexerSettings,
        read_rows: ReadsRows,
        *,
        reading: MessageReading | None = None,
        renders: Callable[[RetryingWriter], RendersRows] = lambda _writer: render_rows,
        failures: MemoryFailures | None = None,
        registry: CollectorRegistry | None = None,
        watermark: int = 0,
        clock: Clock = system_clock,
        **options: Any,
    ) -> None:
        """read_rows: for what has to be read again from the cell. renders: given the writer, what renders such rows.

        reading: as if the relay had sent every message, if it is not said. options: of Consumer.
        """
        self.waits: list[Exception] = []
        self.stop = Event()
        metrics = IndexerMetrics(registry or CollectorRegistry())
        self.tracker = ProgressTracker(CellProgress(cell_uuid, watermark, 0, is_complete=True), clock)
        self.writer = RetryingWriter(
            index,
            cell_uuid,
            self.stop,
            retry_wait_max_s=settings.retry_wait_max_s,
            metrics=metrics,
            on_wait=self.waits.append,
            on_answer=lambda: None,
        )
        dead_letters = DeadLetters(cell_uuid, failures or MemoryFailures(), receiver, metrics, clock)
        self.rereader = Rereader(
            cell_uuid,
            read_rows,
            self.writer,
            self.tracker,
            on_reread=dead_letters.was_reread,
            render=renders(self.writer),
        )
        super().__init__(
            cell_uuid,
            receiver=receiver,
            writer=self.writer,
            tracker=self.tracker,
            rereader=self.rereader,
            dead_letters=dead_letters,
            settings=settings,
            metrics=metrics,
            reading=reading or MessageReading(lambda _headers, _body: True),
            **options,
        )
