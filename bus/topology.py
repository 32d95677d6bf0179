"""Exchanges, queues and headers of a cell's bus, all declared here.

Publishers and receivers both declare everything, so that no message is lost because the other side never ran.
"""

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

TOPIC = "versioned_notifications"
_DELIVERY_LIMIT = 1_000_000

# The in-memory broker checks and then inserts, so that two threads would bind the same queue twice.
_declaring = Lock()


def routing_key(priority: str) -> str:
    """The routing key of notifications of a `priority` such as `INFO`."""
    return f"{TOPIC}.{priority.lower()}"


def exchange_name(cell_uuid: str) -> str:
    return f"fleetlight.{cell_uuid}"


def work_queue_name(cell_uuid: str) -> str:
    return f"fleetlight.{cell_uuid}.index"


def dead_name(cell_uuid: str) -> str:
    """The name of both the exchange and the queue of the dead letters."""
    return f"fleetlight.{cell_uuid}.dead"


def work_queue(cell_uuid: str, *, has_quorum_queues: bool) -> Queue:
    """The queue that the indexer reads: one consumer at a time, the next one takes over when it is gone."""
    arguments: dict[str, Any] = {}
    if has_quorum_queues:
        arguments = {
            "x-queue-type": "quorum",
            "x-single-active-consumer": True,
            # By default RabbitMQ 4 gives up after 20 deliveries, and each lost connection counts as one of
            # everything that was prefetched: messages that nothing is wrong with but the network.
            "x-delivery-limit": _DELIVERY_LIMIT,
            # A broker that gives up on a message after too many deliveries must not drop it.
            "x-dead-letter-exchange": dead_name(cell_uuid),
        }
    exchange = Exchange(exchange_name(cell_uuid), type="topic", durable=True)
    return Queue(
        work_queue_name(cell_uuid), exchange, routing_key=f"{TOPIC}.*", durable=True, queue_arguments=arguments
    )


def dead_queue(cell_uuid: str, *, has_quorum_queues: bool) -> Queue:
    """Where messages go that can never be indexed."""
    name = dead_name(cell_uuid)
    arguments = {"x-queue-type": "quorum"} if has_quorum_queues else {}
    return Queue(
        name, Exchange(name, type="topic", durable=True), routing_key="#", durable=True, queue_arguments=arguments
    )


def declare(channel: Any, cell_uuid: str, *, has_quorum_queues: bool) -> None:
    """Declare all of a cell's exchanges and queues on `channel`; idempotent."""
    with _declaring:
        for queue in (
            dead_queue(cell_uuid, has_quorum_queues=has_quorum_queues),
            work_queue(cell_uuid, has_quorum_queues=has_quorum_queues),
        ):
            queue(channel).declare()


def remove(channel: Any, cell_uuid: str) -> None:
    """Remove all that `declare` has declared, and with it what is bound to it; idempotent."""
    for queue in (work_queue_name(cell_uuid), dead_name(cell_uuid)):
        channel.queue_delete(queue)
    for exchange in (exchange_name(cell_uuid), dead_name(cell_uuid)):
        channel.exchange_delete(exchange)


def unbind(channel: Any, cell_uuid: str, binding: Binding) -> None:
    """Take back what `bind` did; idempotent."""
    for topic in binding.topics:
        channel.queue_unbind(work_queue_name(cell_uuid), exchange=binding.exchange, routing_key=f"{topic}.*")


def bind(channel: Any, cell_uuid: str, binding: Binding) -> None:
    """Have the work queue of the cell get what is sent to an exchange of other software, besides its own; idempotent.

    The exchange has to be there, and `declare` must have been called. Theirs stay with all that is bound to them.
    """
    for topic in binding.topics:
        channel.queue_bind(work_queue_name(cell_uuid), exchange=binding.exchange, routing_key=f"{topic}.*")
