"""The bus of a cell: publishes with confirms, receives in batches with acknowledgements.

Addresses are kombu's: `amqp://` and `amqps://` for RabbitMQ, `memory://` for threads of one process. One thread at a
time may use a Publisher or Receiver.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from sys import intern
from time import monotonic
from typing import Any

import msgspec

from fleetlight.bus import topology
from fleetlight.bus.external_exchange import Binding
from fleetlight.bus.flow_control import FlowControl, LetGo
from fleetlight.bus.link import Link, bare_channel, body_of, count_messages, is_in_memory
from fleetlight.bus.settings import BusSettings
from fleetlight.notifications.errors import BusUnavailableError

Headers = dict[str, int | str]

# The longest time that `keep_alive` reads.
_LONGEST_READ_S = 0.5


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish.

    body: an envelope (fleetlight.notifications.envelope). headers: see topology; external senders set none.
    """

    body: bytes
    routing_key: str
    headers: Headers


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A received message that waits for its acknowledgement.

    redelivered: the broker may have delivered it before. tag, link: identify it to the broker.
    """

    body: bytes
    routing_key: str
    headers: Headers
    redelivered: bool
    tag: int | str
    link: Link


class Publisher:
    """Publishes to the bus of one cell; connects at the first message, and again after a failure.

    declares: create missing exchanges and queues, which takes all rights to them; without it a broker that does not
        have them refuses the messages.
    """

    def __init__(
        self, transport_url: str, cell_uuid: str, settings: BusSettings | None = None, *, declares: bool = True
    ) -> None:
        self._declares = declares
        self._transport_url = transport_url
        self._cell_uuid = cell_uuid
        self._settings = settings or BusSettings()
        self._link: Link | None = None

    def publish(self, messages: Sequence[Message]) -> None:
        """Publish in order; return when the broker has confirmed all.

        Raises BusUnavailableError if none, some or all messages have arrived; the next call connects anew. Its subclass
        MessageRefusedError means that the broker will never take one of them, without saying which.
        """
        if not messages:
            return
        link = self._open_link()
        try:
            link.publish(
                topology.exchange_name(self._cell_uuid),
                [(message.body, message.routing_key, message.headers) for message in messages],
            )
        except BusUnavailableError:
            self._abandon()
            raise

    def check(self) -> None:
        """Check that the broker accepts our account, and disconnect. Raises BusError, BusUnavailableError."""
        self._open_link()
        self.close()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _open_link(self) -> Link:
        if self._link is not None:
            try:
                # Reads the notice of a broker that closed the connection since the last call.
                while self._link.drain(0):
                    pass
            except BusUnavailableError:
                self._abandon()
        if self._link is None:
            self._link = Link(self._transport_url, self._cell_uuid, self._settings, declares=self._declares)
        return self._link

    def _abandon(self) -> None:
        if self._link is not None:
            self._link.abandon()
            self._link = None


class Receiver:
    """Receives from the work queue of one cell. While another receiver is active, this one stands by.

    prefetch: the number of messages that may be received and not yet acknowledged. prefetch_max_bytes: the size of such
    messages at which reading pauses for some seconds. Messages that the broker sends beyond that are then read and
    dropped, and requested again once some others are acknowledged. binding: an exchange of other software whose
    messages are received too; its own queues still get them. After a broken connection the next call connects anew.
    Unacknowledged messages are delivered again; acknowledging their old deliveries does nothing.
    """

    def __init__(
        self,
        transport_url: str,
        cell_uuid: str,
        prefetch: int,
        settings: BusSettings | None = None,
        *,
        prefetch_max_bytes: int = 32 * 1024 * 1024,
        binding: Binding | None = None,
    ) -> None:
        self._transport_url = transport_url
        self._cell_uuid = cell_uuid
        self._prefetch = prefetch
        self._prefetch_max_bytes = prefetch_max_bytes
        self._settings = settings or BusSettings()
        self._binding = binding
        self._link: Link | None = None
        self._arrived: deque[Delivery] = deque()
        self._flow_control = self._new_flow_control()
        # The largest of all messages received so far, over any link.
        self._largest_bytes = 0
        self._is_active = False

    @property
    def is_active(self) -> bool:
        """Whether this receiver gets the messages, and no other does; False until the first message arrives."""
        return self._is_active

    @property
    def is_durable(self) -> bool:
        """Whether messages survive this process."""
        return not is_in_memory(self._transport_url)

    def receive(
        self, max_messages: int, max_bytes: int, wait_s: float, *, first_within_s: float | None = None
    ) -> list[Delivery]:
        """The next messages: at `max_messages` or `max_bytes`, or `wait_s` after the first one arrived.

        Empty if nothing arrives within `first_within_s`, by default `wait_s`. A single message may be larger than
        `max_bytes`. Call this, or `keep_alive`, every few seconds. Raises BusUnavailableError.
        """
        was_open = self._link is not None
        first_within_s = wait_s if first_within_s is None else first_within_s
        try:
            return self._receive(max_messages, max_bytes, wait_s, first_within_s)
        except BusUnavailableError:
            self._abandon()
            if not was_open:
                raise
        return self._receive(max_messages, max_bytes, wait_s, first_within_s)

    def keep_alive(self) -> None:
        """Keep the connection alive while the caller is busy for long; `receive` replaces a broken one."""
        if self._link is None:
            return
        try:
            deadline = monotonic() + _LONGEST_READ_S
            while not self._reads_nothing(self._link) and self._link.drain(0) and monotonic() < deadline:
                pass
            self._link.heartbeat()
        except BusUnavailableError:
            self._abandon()

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge, in as few calls as possible. If the acknowledgement is lost, the messages just come again."""
        link, tags = self._link, self._known_tags(deliveries)
        if link is None:
            return
        try:
            with link.translated():
                # Not on the in-memory bus, which has no `multiple`; not with dropped messages, which `multiple` would
                # cover too.
                if not link.is_memory and not self._flow_control.has_let_go:
                    leading = self._flow_control.leading(tags)
                    if leading:
                        link.channel.basic_ack(leading[-1], multiple=True)
                    self._flow_control.settle(leading)
                    tags.difference_update(leading)
                for tag in tags:
                    link.channel.basic_ack(tag)
                self._flow_control.settle(tags)
            self._ask_again(link)
        except BusUnavailableError:
            self._abandon()

    def waiting(self) -> int:
        """The number of messages in the queue. Raises BusError, BusUnavailableError."""
        try:
            with self._answering_link() as link:
                return link.waiting(topology.work_queue_name(self._cell_uuid))
        except BusUnavailableError:
            self._abandon()
            raise

    def dead_letter(self, message: Message, reason: str, detail: str) -> None:
        """Publish a message that can never be used as a dead letter; return when the broker has it.

        If the message was delivered, the caller still has to acknowledge the delivery.
        reason: one word for the kind of failure; detail: a sentence. Raises BusError, BusUnavailableError.
        """
        headers = {**message.headers, topology.REASON_HEADER: reason, topology.DETAIL_HEADER: detail}
        try:
            with self._answering_link() as link:
                link.publish(topology.dead_name(self._cell_uuid), [(message.body, message.routing_key, headers)])
        except BusUnavailableError:
            self._abandon()
            raise

    def take_dead(self, keep: Callable[[Sequence[Message]], None], limit: int) -> int:
        """Pass at most `limit` dead letters to `keep`, remove them when it returns, and return their number.

        They are fewer if they exceed `prefetch_max_bytes`; 0 if there are none.
        Raises BusError, BusUnavailableError, and what `keep` raises; the letters then stay.
        """
        try:
            queue = topology.dead_name(self._cell_uuid)
            with self._answering_link() as link, link.taken(queue, limit, self._prefetch_max_bytes) as taken:
                if taken:
                    keep([Message(body, routing_key, headers) for body, routing_key, headers in taken])
            return len(taken)
        except BusUnavailableError:
            self._abandon()
            raise

    def close(self) -> None:
        """Close; unacknowledged messages go back to the queue, for a receiver that stands by.

        The next `receive` connects anew, and this receiver is then the last in line.
        """
        if self._link is None:
            return
        link = self._link
        if link.is_memory:  # a broker does this by itself
            self._give_back(link, [*self._flow_control.outstanding, *(delivery.tag for delivery in self._arrived)])
        # Forget first, since messages that the broker sends before it learns of the end still arrive.
        self._forget()
        link.close()

    def _receive(self, max_messages: int, max_bytes: int, wait_s: float, first_within_s: float) -> list[Delivery]:
        link = self._link or self._open_link()
        batch: list[Delivery] = []
        size = 0
        deadline = monotonic() + first_within_s
        while True:
            while self._arrived and len(batch) < max_messages:
                if batch and size + len(self._arrived[0].body) > max_bytes:
                    break
                if not batch:
                    deadline = monotonic() + wait_s
                delivery = self._arrived.popleft()
                size += len(delivery.body)
                batch.append(delivery)
            remaining_s = deadline - monotonic()
            is_enough = len(batch) >= max_messages or size >= max_bytes or self._flow_control.is_full
            if self._arrived or is_enough or remaining_s <= 0:
                break
            link.drain(remaining_s)
        if self._flow_control.is_overdue:
            raise BusUnavailableError(link.address, "messages that were given back have not come again")
        link.heartbeat()
        self._flow_control.hand_out((delivery.tag, len(delivery.body)) for delivery in batch)
        return batch

    def _reads_nothing(self, link: Link) -> bool:
        # Messages not read from the in-memory bus stay in the same process's memory anyway.
        return self._flow_control.is_full and (link.is_memory or self._flow_control.is_in_pause)

    def _lets_go_of(self, message: Any, size: int) -> bool:
        one = LetGo(message.delivery_tag, size, (message.headers or {}).get(topology.SEQUENCE_HEADER))
        return self._flow_control.lets_go_of(one, redelivered=bool(message.delivery_info.get("redelivered")))

    def _ask_again(self, link: Link) -> None:
        with link.translated():
            for tag in self._flow_control.to_give_back():
                link.channel.basic_reject(tag, requeue=True)

    def _new_flow_control(self) -> FlowControl:
        return FlowControl(self._prefetch_max_bytes, self._settings.heartbeat_s)

    @contextmanager
    def _answering_link(self) -> Iterator[Link]:
        """A link on which the broker's answer is not behind many large messages, all of which would have to be read."""
        if self._largest_bytes * self._prefetch <= self._prefetch_max_bytes:
            yield self._link or self._open_link()
            return
        link = Link(self._transport_url, self._cell_uuid, self._settings)
        try:
            yield link
        finally:
            link.close()

    def _open_link(self) -> Link:
        link = Link(
            self._transport_url,
            self._cell_uuid,
            self._settings,
            heartbeat_s=self._settings.heartbeat_s,
            binding=self._binding,
        )

        def on_message(message: Any) -> None:
            if link is not self._link:
                return
            self._is_active = True
            body = body_of(message)
            self._largest_bytes = max(self._largest_bytes, len(body))
            if not link.is_memory and self._flow_control.is_behind and self._lets_go_of(message, len(body)):
                return
            self._flow_control.add(len(body))
            self._arrived.append(
                Delivery(
                    body=body,
                    routing_key=intern(message.delivery_info["routing_key"]),
                    headers=self._shared(message.headers or {}),
                    redelivered=bool(message.delivery_info.get("redelivered")),
                    tag=message.delivery_tag,
                    link=link,
                )
            )

        queue = topology.work_queue(self._cell_uuid, has_quorum_queues=not link.is_memory)
        self._link = link
        with link.translated():
            link.channel.basic_qos(0, self._prefetch, False)
            # Not kombu's Consumer: creating its messages takes longer than everything else in receiving one.
            link.channel.basic_consume(queue.name, consumer_tag="indexer", no_ack=False, callback=on_message)
        return link

    def _shared(self, headers: Headers) -> Headers:
        """The headers with shared copies of texts that all messages have, which would otherwise fill memory.

        Names that are not text are left out, since ours are.
        """
        shared = {name: value for name, value in headers.items() if type(name) is str}
        if shared.get(topology.CELL_HEADER) == self._cell_uuid:
            shared[topology.CELL_HEADER] = self._cell_uuid
        return shared

    def _known_tags(self, deliveries: Sequence[Delivery]) -> set[int | str]:
        return {delivery.tag for delivery in deliveries if delivery.link is self._link} & self._flow_control.outstanding

    def _give_back(self, link: Link, tags: Sequence[int | str]) -> None:
        with link.translated():
            for tag in reversed(tags):  # each goes to the front of the queue
                link.channel.basic_reject(tag, requeue=True)
        self._flow_control.settle(tags)

    def _abandon(self) -> None:
        if self._link is not None:
            self._link.abandon()
        self._forget()

    def _forget(self) -> None:
        self._link = None
        self._is_active = False
        self._arrived.clear()
        self._flow_control = self._new_flow_control()


def remove_bus(transport_url: str, cell_uuid: str, settings: BusSettings | None = None) -> None:
    """Remove the exchanges and queues of a cell, with their messages; those of other software stay.

    The in-memory bus ends with its process. Raises BusError, BusUnavailableError.
    """
    if is_in_memory(transport_url):
        return
    with bare_channel(transport_url, settings or BusSettings()) as channel:
        topology.remove(channel, cell_uuid)


def remove_work_queue(transport_url: str, cell_uuid: str, settings: BusSettings | None = None) -> None:
    """Remove the queue of a cell that no indexer reads any more, with its messages; the next receiver creates it anew.

    The in-memory bus ends with its process. Raises BusError, BusUnavailableError.
    """
    if is_in_memory(transport_url):
        return
    with bare_channel(transport_url, settings or BusSettings()) as channel:
        topology.remove_work_queue(channel, cell_uuid)


def dead_letters(transport_url: str, cell_uuid: str, settings: BusSettings | None = None) -> int:
    """The number of the cell's messages that could not be used. Raises BusError, BusUnavailableError."""
    return count_messages(transport_url, topology.dead_name(cell_uuid), settings or BusSettings())
