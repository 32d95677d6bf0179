"""Part of `scripts/bench ingest`: from RabbitMQ to Elasticsearch, against a bare loop that does the same by hand.

The bare loop consumes the same messages from a queue of the same kind, decodes both layers of JSON with msgspec, and
sends bulk requests of the same documents, which were made beforehand, with as many of them in flight.
"""

import json
import os
import statistics
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import kombu
import msgspec
from elasticsearch import Elasticsearch
from prometheus_client import CollectorRegistry

from bench import fleet as made_up
from bench.measure import Figure, at_least, figure, seconds
from fleetlight.bus import topology
from fleetlight.bus.bus import Message, Publisher, Receiver
from fleetlight.cells.fleet.failures import Failure
from fleetlight.cells.payloads.instance_payload import to_payload
from fleetlight.indexer.backends.base import CellProgress, Document, IndexWriter
from fleetlight.indexer.backends.elasticsearch.documents import to_bulks
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.consumer import Consumer
from fleetlight.indexer.stream.received_batch import MessageReading
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.dead_letters import DeadLetters
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import Rereader
from fleetlight.notifications.envelope import Notification, encode
from fleetlight.resources.fields import from_microseconds

_SETTINGS = IndexerSettings()


def run(quick: bool) -> Iterator[Figure]:
    """quick: 2,000 messages a round instead of 10,000. Nothing without the URLs of both servers."""
    amqp_url = os.environ.get("FLEETLIGHT_TEST_AMQP_URL")
    elasticsearch_url = os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL")
    if not amqp_url or not elasticsearch_url:
        return
    count = 2_000 if quick else 10_000
    rounds = 3 if quick else 6
    records = list(made_up.records(count))
    cells = [str(uuid4()), str(uuid4())]
    with ExitStack() as stack:
        writers = [_open_index(stack, elasticsearch_url) for _ in cells]
        for cell in cells:
            stack.callback(_remove_bus, amqp_url, cell)
        ours = _Ours(stack, amqp_url, cells[0], writers[0][1])
        bare = _Bare(stack, amqp_url, cells[1], elasticsearch_url, writers[1][0])
        bodies = [_body(record) for record in records]
        few = len(records) // 25
        rates: list[tuple[float, float, float]] = []
        for number in range(1, rounds + 2):
            _publish(amqp_url, cells[0], records, bodies, number)
            _publish(amqp_url, cells[1], records, bodies, number)
            # Each round of the bare loop has two versions: one for all documents, and one for some of them again.
            documents = [to_document(cells[1], 2 * number, record) for record in records]
            newer = [to_document(cells[1], 2 * number + 1, record) for record in records[:few]]
            batch = _SETTINGS.batch_max_messages
            bulks = [
                next(to_bulks(documents[start : start + batch], {})).body for start in range(0, len(documents), batch)
            ]
            ours_s = seconds(partial(ours.consume_to, number * count))
            bare_s = seconds(partial(bare.consume, bulks))
            _publish(amqp_url, cells[1], records[:few], bodies[:few], number)
            one_by_one_s = seconds(partial(bare.consume_one_by_one, newer))
            if number > 1:
                rates.append((count / ours_s, count / bare_s, few / one_by_one_s))
    ours_rate, bare_rate, one_by_one_rate = (statistics.median(rate[side] for rate in rates) for side in range(3))
    yield figure(
        "ingest.rabbitmq.elasticsearch",
        statistics.median(one / other for one, other, _ in rates),
        "ratio",
        f"{ours_rate:,.0f} messages/s through one consumer, quorum queue / {bare_rate:,.0f} of a bare loop that "
        f"consumes, decodes and bulk-writes the same, {count} messages of {len(bodies[0])} bytes a round",
        runs=rounds,
        goal=at_least(0.8),
    )
    yield figure(
        "ingest.rabbitmq.per_message",
        statistics.median(one / other for one, _, other in rates),
        "ratio",
        f"{ours_rate:,.0f} messages/s through one consumer / {one_by_one_rate:,.0f} with one request for each message, "
        f"{few} messages a round",
        runs=rounds,
        goal=at_least(25),
    )


class _NoFailures:
    """A dead letter would make the measurement worthless."""

    def add(self, found: Sequence[Failure]) -> None:
        raise AssertionError(f"{found[0].summary.reason}: {found[0].summary.detail}")

    def mark_reread(self, cell_uuid: str, instance_uuids: Collection[str], at: int) -> None:
        raise AssertionError(f"{len(instance_uuids)} instances of cell {cell_uuid} were read again at {at}")


class _Ours:
    """The consumer of the indexer, alone in this process."""

    def __init__(self, stack: ExitStack, amqp_url: str, cell: str, writer: IndexWriter) -> None:
        self._tracker = ProgressTracker(CellProgress(cell, 0, 0, is_complete=True))
        metrics = IndexerMetrics(CollectorRegistry())
        receiver = Receiver(amqp_url, cell, _SETTINGS.prefetch)
        dead_letters = DeadLetters(cell, _NoFailures(), receiver, metrics)
        self._consumer = Consumer(
            cell,
            receiver=receiver,
            writer=writer,
            tracker=self._tracker,
            rereader=Rereader(cell, lambda _: {}, writer, self._tracker, on_reread=dead_letters.was_reread),
            dead_letters=dead_letters,
            settings=_SETTINGS,
            metrics=metrics,
            reading=MessageReading(lambda _headers, _body: True),
        )
        stack.callback(self._consumer.close)

    def consume_to(self, sequence: int) -> None:
        while self._tracker.watermark < sequence:
            self._consumer.step()
        self._consumer.drain()


class _Bare:
    """kombu, msgspec and the Elasticsearch client, and nothing between them."""

    def __init__(self, stack: ExitStack, amqp_url: str, cell: str, elasticsearch_url: str, prefix: str) -> None:
        self._connection = stack.enter_context(kombu.Connection(amqp_url))
        self._client = stack.enter_context(Elasticsearch(elasticsearch_url))
        self._threads = stack.enter_context(ThreadPoolExecutor(_SETTINGS.writes_in_flight))
        self._index = f"{prefix}-instances-write"
        self._path = f"/{self._index}/_bulk"
        self._arrived: list[Any] = []
        self._channel = self._connection.channel()
        consumer = kombu.Consumer(
            self._channel,
            [topology.work_queue(cell, has_quorum_queues=True)],
            on_message=self._arrived.append,
            prefetch_count=_SETTINGS.prefetch,
        )
        consumer.consume()

    def consume(self, bulks: Sequence[bytes]) -> None:
        batch = _SETTINGS.batch_max_messages
        writing: list[tuple[Future[None], int]] = []
        for bulk in bulks:
            while len(self._arrived) < batch:
                self._connection.drain_events(timeout=10)
            messages = self._arrived[:batch]
            del self._arrived[:batch]
            for message in messages:
                msgspec.json.decode(msgspec.json.decode(message.body)["oslo.message"])
            writing.append((self._threads.submit(self._write, bulk), messages[-1].delivery_tag))
            if len(writing) == _SETTINGS.writes_in_flight:
                self._finish(*writing.pop(0))
        for pending in writing:
            self._finish(*pending)

    def consume_one_by_one(self, documents: Sequence[Document]) -> None:
        """As programs do that begin with the example of the client."""
        for document in documents:
            while not self._arrived:
                self._connection.drain_events(timeout=10)
            message = self._arrived.pop(0)
            msgspec.json.decode(msgspec.json.decode(message.body)["oslo.message"])
            self._client.index(
                index=self._index,
                id=document.id,
                version=document.version,
                version_type="external",
                document=json.loads(next(to_bulks([document], {})).body.splitlines()[1]),
            )
            message.ack()

    def _write(self, bulk: bytes) -> None:
        headers = {"content-type": "application/x-ndjson", "accept": "application/json"}
        assert self._client.perform_request("POST", self._path, headers=headers, body=bulk).meta.status == 200

    def _finish(self, write: Future[None], tag: int) -> None:
        write.result()
        self._channel.basic_ack(tag, multiple=True)


def _open_index(stack: ExitStack, url: str) -> tuple[str, IndexWriter]:
    prefix = f"fleetlight-bench-{uuid4().hex}"
    writer = open_writer(IndexSettings(backend="elasticsearch", urls=(url,), prefix=prefix))
    writer.prepare()
    stack.callback(_remove_index, url, prefix)
    stack.callback(writer.close)
    return prefix, writer


def _remove_index(url: str, prefix: str) -> None:
    with Elasticsearch(url) as client:
        client.indices.delete(index=list(client.indices.get(index=f"{prefix}*").body))


def _remove_bus(url: str, cell: str) -> None:
    with kombu.Connection(url) as connection, connection.channel() as channel:
        for queue in (topology.work_queue_name(cell), topology.dead_name(cell)):
            channel.queue_delete(queue)
        for exchange in (topology.exchange_name(cell), topology.dead_name(cell)):
            channel.exchange_delete(exchange)


def _body(record: dict[str, Any]) -> bytes:
    return encode(
        Notification(
            event_type="instance.update",
            payload=to_payload(record).wrap(),
            publisher_id="fleetlight-cell:bench",
            priority="INFO",
            timestamp=from_microseconds(record["created_at"]),
            message_id=str(uuid4()),
        )
    )


def _publish(
    url: str, cell: str, records: Sequence[dict[str, Any]], bodies: Sequence[bytes], round_number: int
) -> None:
    """Publish revision `round_number` of every record, numbered on from the round before."""
    first = (round_number - 1) * len(records) + 1
    template = Message(b"", topology.routing_key("INFO"), {topology.CELL_HEADER: cell})
    messages = [
        replace(
            template,
            body=body,
            headers={
                **template.headers,
                topology.SEQUENCE_HEADER: first + number,
                topology.REVISION_HEADER: round_number,
                topology.RESOURCE_HEADER: record["uuid"],
            },
        )
        for number, (record, body) in enumerate(zip(records, bodies, strict=True))
    ]
    publisher = Publisher(url, cell)
    publisher.publish(messages)
    publisher.close()
