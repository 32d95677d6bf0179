"""However long the index is away: what was not asked for yet stays with the broker, and nothing is lost."""

from contextlib import closing
from functools import partial
from threading import Event

from fleetlight.bus import topology
from fleetlight.bus.bus import Publisher, Receiver
from fleetlight.bus.link import count_messages
from fleetlight.bus.settings import BusSettings
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.writing.rereading import rows_of
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.memory.memory_cell import MemoryCell
from tests.support.memory.memory_consumer import MemoryConsumer
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
    receiver = Receiver(amqp_url, amqp_cell, PREFETCH)
    consumer = MemoryConsumer(amqp_cell, index, receiver, settings, partial(rows_of, cell))

    def consume(stop: Event) -> None:
        while not stop.is_set():
            consumer.step()

    with closing(consumer), in_thread(consume):
        try:
            wait_until(lambda: consumer.waits and waiting() == MESSAGES - PREFETCH)
            tried = len(consumer.waits)
            wait_until(lambda: len(consumer.waits) > tried + 5)
            assert waiting() == MESSAGES - PREFETCH, "what was handed out is what may be under way, and no more"
            assert consumer.tracker.watermark == 0
        finally:
            index.failures = 0
        wait_until(lambda: consumer.tracker.watermark == MESSAGES)
    assert versions(index) == cell.versions()
