"""However long the index is away: what was not asked for yet stays with the broker, and nothing is lost."""

from contextlib import closing
from functools import partial
from threading import Event

from prometheus_client import CollectorRegistry

from fleetlight.bus import topology
from fleetlight.bus.bus import Publisher, Receiver
from fleetlight.bus.link import count_messages
from fleetlight.bus.settings import BusSettings
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.consumer import Consumer
from fleetlight.indexer.stream.received_batch import MessageReading
from fleetlight.indexer.writing.dead_letters import DeadLetters
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import Rereader, rows_of
from fleetlight.indexer.writing.retrying_writer import RetryingWriter
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.memory.memory_cell import MemoryCell
from tests.support.memory.memory_fleet import MemoryFailures
from tests.support.memory.memory_index import MemoryIndex, versions
from tests.support.waiting import wait_until

MESSAGES, PREFETCH = 300, 60


def test_messages_stay_with_the_broker_while_the_index_is_away(amqp_url: str, amqp_cell: str) -> None:
    cell, index = MemoryCell(amqp_cell), MemoryIndex(failures=1_000_000)
    with closing(Publisher(amqp_url, amqp_cell)) as publisher:
        publisher.publish([cell.create() for _ in range(MESSAGES)])

    def waiting() -> int:
        return count_messages(amqp_url, topology.work_queue_name(amqp_cell), BusSettings())

    wait_until(lambda: waiting() == MESSAGES)
    settings = IndexerSettings(batch_max_messages=20, prefetch=PREFETCH, retry_wait_max_s=0.05)
    metrics = IndexerMetrics(CollectorRegistry())
    tracker = ProgressTracker(CellProgress(amqp_cell, 0, 0, is_complete=True))
    attempts: list[Exception] = []
    writer = RetryingWriter(
        index,
        amqp_cell,
        Event(),
        retry_wait_max_s=settings.retry_wait_max_s,
        metrics=metrics,
        on_wait=attempts.append,
        on_answer=lambda: None,
    )
    receiver = Receiver(amqp_url, amqp_cell, PREFETCH)
    dead_letters = DeadLetters(amqp_cell, MemoryFailures(), receiver, metrics)
    consumer = Consumer(
        amqp_cell,
        receiver=receiver,
        writer=writer,
        tracker=tracker,
        rereader=Rereader(amqp_cell, partial(rows_of, cell), writer, tracker, on_reread=dead_letters.was_reread),
        dead_letters=dead_letters,
        settings=settings,
        metrics=metrics,
        reading=MessageReading(lambda _headers, _body: True),
    )

    def consume(stop: Event) -> None:
        while not stop.is_set():
            consumer.step()

    with closing(consumer), in_thread(consume):
        try:
            wait_until(lambda: attempts and waiting() == MESSAGES - PREFETCH)
            tried = len(attempts)
            wait_until(lambda: len(attempts) > tried + 5)
            assert waiting() == MESSAGES - PREFETCH, "what was handed out is what may be under way, and no more"
            assert tracker.watermark == 0
        finally:
            index.failures = 0
        wait_until(lambda: tracker.watermark == MESSAGES)
    assert versions(index) == cell.versions()
