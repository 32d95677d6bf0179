"""Declares the exchanges and queues of a cell's bus, and names its headers.

Publishers and receivers both declare everything, so that no message is lost because the other side never ran.
"""

from contextlib import nullcontext
from threading import Lock
from typing import Any

from kombu import Exchange, Queue

from fleetlight.bus.external_exchange import Binding

CELL_HEADER = "fleetlight-cell"
SEQUENCE_HEADER = "fleetlight-sequence"
EPOCH_HEADER = "fleetlight-epoch"
REVISION_HEADER = "fleetlight-revision"
RESOURCE_HEADER = "fleetlight-resource"
SIGNATURE_HEADER = "fleetlight-signature"
PRODUCER_HEADER = "fleetlight-producer"
REASON_HEADER = "fleetlight-reason"
DETAIL_HEADER = "fleetlight-detail"
TRACE_HEADER = "traceparent"
"""W3C Trace Context of a traced request (fleetlight.bus.traces). It is unsigned, since it only informs."""

TOPIC = "versioned_notifications"
_DELIVERY_LIMIT = 1_000_000
MOST_WAITING = 1_000_000
_MOST_BYTES = 4 * 1024**3
_LONGEST_WAIT_MS = 24 * 3600 * 1000
_LONGEST_DEAD_MS = 14 * _LONGEST_WAIT_MS

# The in-memory broker checks before it inserts, so two threads would bind a queue twice.
_declaring = Lock()


def routing_key(priority: str) -> str:
    """The routing key of notifications with a `priority` such as `INFO`."""
    return f"{TOPIC}.{priority.lower()}"


def exchange_name(cell_uuid: str) -> str:
    return f"fleetlight.{cell_uuid}"


def work_queue_name(cell_uuid: str) -> str:
    return f"fleetlight.{cell_uuid}.index"


def dead_name(cell_uuid: str) -> str:
    """The name of both the exchange and the queue of dead letters."""
    return f"fleetlight.{cell_uuid}.dead"


def work_queue(cell_uuid: str, *, has_quorum_queues: bool) -> Queue:
    """The queue that the indexer reads: one consumer is active, and another takes over when it is gone.

    While no indexer reads it, the oldest messages are dropped, so that it does not fill its broker. If the cell numbers
    its changes, the gap shows and the indexer reads the missing ones from the cell; any other cell is compared.
    """
    arguments: dict[str, Any] = {}
    if has_quorum_queues:
        arguments = {
            "x-queue-type": "quorum",
            "x-single-active-consumer": True,
            # By default RabbitMQ 4 drops a message after 20 deliveries, and a lost connection counts as one for every
            # prefetched message, although only the network is at fault.
            "x-delivery-limit": _DELIVERY_LIMIT,
            **_bounds(_LONGEST_WAIT_MS),
        }
    exchange = Exchange(exchange_name(cell_uuid), type="topic", durable=True)
    return Queue(
        work_queue_name(cell_uuid), exchange, routing_key=f"{TOPIC}.*", durable=True, queue_arguments=arguments
    )


def dead_queue(cell_uuid: str, *, has_quorum_queues: bool) -> Queue:
    """The queue for messages that can never be indexed."""
    name = dead_name(cell_uuid)
    arguments = {"x-queue-type": "quorum", **_bounds(_LONGEST_DEAD_MS)} if has_quorum_queues else {}
    return Queue(
        name, Exchange(name, type="topic", durable=True), routing_key="#", durable=True, queue_arguments=arguments
    )


def _bounds(longest_ms: int) -> dict[str, Any]:
    """Limits of a queue, of which the first to be reached applies. A policy of the broker can lower them."""
    return {
        "x-max-length": MOST_WAITING,
        "x-max-length-bytes": _MOST_BYTES,
        "x-message-ttl": longest_ms,
        "x-overflow": "drop-head",
    }


def declare(channel: Any, cell_uuid: str, *, has_quorum_queues: bool) -> None:
    """Declare all exchanges and queues of a cell on `channel`; idempotent.

    has_quorum_queues: true for a broker, false for the in-memory bus.
    """
    with nullcontext() if has_quorum_queues else _declaring:
        for queue in (
            dead_queue(cell_uuid, has_quorum_queues=has_quorum_queues),
            work_queue(cell_uuid, has_quorum_queues=has_quorum_queues),
        ):
            queue(channel).declare()


def remove(channel: Any, cell_uuid: str) -> None:
    """Remove all that `declare` declares, with its bindings; idempotent."""
    for queue in (work_queue_name(cell_uuid), dead_name(cell_uuid)):
        channel.queue_delete(queue)
    for exchange in (exchange_name(cell_uuid), dead_name(cell_uuid)):
        channel.exchange_delete(exchange)


def remove_work_queue(channel: Any, cell_uuid: str) -> None:
    """Remove the queue that indexers read, with its messages; idempotent. Dead letters stay."""
    channel.queue_delete(work_queue_name(cell_uuid))


def bind(channel: Any, cell_uuid: str, binding: Binding) -> None:
    """Bind the cell's work queue to an exchange of other software, in addition to its own; idempotent.

    The exchange must exist, and `declare` must have been called. The other software's queues and bindings stay as they
    are.
    """
    for topic in binding.topics:
        channel.queue_bind(work_queue_name(cell_uuid), exchange=binding.exchange, routing_key=f"{topic}.*")
