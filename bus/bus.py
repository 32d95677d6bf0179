"""The bus of a cell: publish with confirms, receive in batches with acknowledgements.

Addresses are kombu's: `amqp://` and `amqps://` for RabbitMQ, `memory://` for threads of one process. One Publisher or
Receiver belongs to one thread at a time.
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

# Of a call that is only to keep the connection.
_LONGEST_READ_S = 0.5


@dataclass(frozen=True, slots=True)
class Message:
    """What is published.

    body: an envelope (fleetlight.notifications.envelope). headers: see topology; external senders have none.
    """

    body: bytes
    routing_key: str
    headers: Headers


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message that was received and waits for its acknowledgement.

    redelivered: it may have been received before. tag, link: what the broker knows it by.
    """

    body: bytes
    routing_key: str
    headers: Headers
    redelivered: bool
    tag: int | str
    link: Link


class Publisher:
    """Publishes to the bus of one cell; connects at the first message, and again after a failure.

    declares: make the exchanges and queues that are missing, which takes all rights to them; without it a broker that
        does not have them refuses what is published.
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

        Raises BusUnavailableError: then none, some or all of them have arrived, and the next call connects anew. If the
        broker never takes one of them that is a MessageRefusedError, which does not say which.
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
        """See whether the broker lets us in, and leave again. Raises BusError, BusUnavailableError."""
        self._open_link()
        self.close()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _open_link(self) -> Link:
        if self._link is not None:
            try:
                # A broker that closed the connection since the last call has said so.
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

    prefetch: messages that may be received and not yet acknowledged. prefetch_max_bytes: so many bytes of them; then
        nothing more is read for some seconds. What a broker has sent beyond that is then read and let go of, and asked
        for again once some are acknowledged.
    binding: an exchange of other software whose messages are received too; it has none of its queues taken away.
    After a broken connection the next call connects anew; whatever was not acknowledged comes again, and acknowledging
    it by its old delivery does nothing.
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
        # Of all messages that have come, over whatever link.
        self._largest_bytes = 0
        self._is_active = False

    @property
    def is_active(self) -> bool:
        """Whether messages come to this receiver, and so to no other one; False until the first one has come."""
        return self._is_active

    @property
    def is_durable(self) -> bool:
        """Whether messages outlive this process."""
        return not is_in_memory(self._transport_url)

    def receive(
        self, max_messages: int, max_bytes: int, wait_s: float, *, first_within_s: float | None = None
    ) -> list[Delivery]:
        """The next messages: as soon as they are `max_messages` or `max_bytes`, or `wait_s` after the first one.

        Empty if nothing arrived within `first_within_s`, which is `wait_s` unless given. A single message may be larger
        than `max_bytes`. Call it, or `keep_alive`, every few seconds. Raises BusUnavailableError.
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
        """Keep the connection while the caller does something else for long; a broken one is left for `receive`."""
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
        """Acknowledge, with as few messages to the broker as possible. A lost acknowledgement is no error."""
        link, tags = self._link, self._known_tags(deliveries)
        if link is None:
            return
        try:
            with link.translated():
                # The in-memory bus has no `multiple`, which would be about what was let go of as well.
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
        """How many messages wait in the queue. Raises BusError, BusUnavailableError."""
        try:
            with self._answering_link() as link:
                return link.waiting(topology.work_queue_name(self._cell_uuid))
        except BusUnavailableError:
            self._abandon()
            raise

    def dead_letter(self, message: Message, reason: str, detail: str) -> None:
        """Put a message that can never be used among the dead letters; return when it is there.

        The delivery that it came with, if it came with one, is still to be acknowledged.
        reason: one word for the kind of failure; detail: the sentence. Raises BusError, BusUnavailableError.
        """
        headers = {**message.headers, topology.REASON_HEADER: reason, topology.DETAIL_HEADER: detail}
        try:
            with self._answering_link() as link:
                link.publish(topology.dead_name(self._cell_uuid), [(message.body, message.routing_key, headers)])
        except BusUnavailableError:
            self._abandon()
            raise

    def take_dead(self, keep: Callable[[Sequence[Message]], None], limit: int) -> int:
        """Hand at most `limit` dead letters to `keep`, and forget them when it returns; returns how many they were.

        Large ones are fewer: no more after `prefetch_max_bytes`. 0 if there is none.
        Raises BusError, BusUnavailableError, and what `keep` raises; then they stay.
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
        """Close; what was not acknowledged goes back to the queue, for a receiver that stands by.

        The next call of `receive` connects anew, and then this one is the last in the line.
        """
        if self._link is None:
            return
        link = self._link
        if link.is_memory:  # a broker does this by itself
            self._give_back(link, [*self._flow_control.outstanding, *(delivery.tag for delivery in self._arrived)])
        # First, since what the broker has sent before it learns of the end still arrives.
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
        # What is not read from the in-memory bus stays in the memory of the same process.
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
        """A link over which the broker answers before any number of large messages, which would all have to be read."""
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
            # Without kombu's Consumer, whose messages cost more than all else that is done to receive one.
            link.channel.basic_consume(queue.name, consumer_tag="indexer", no_ack=False, callback=on_message)
        return link

    def _shared(self, headers: Headers) -> Headers:
        """The same with the text that all messages have, which would be a part of what waits in memory.

        Names that are no text are left out: none of them is ours.
        """
        shared = {name: value for name, value in headers.items() if type(name) is str}
        if shared.get(topology.CELL_HEADER) == self._cell_uuid:
            shared[topology.CELL_HEADER] = self._cell_uuid
        return shared

    def _known_tags(self, deliveries: Sequence[Delivery]) -> set[int | str]:
        return {delivery.tag for delivery in deliveries if delivery.link is self._link} & self._flow_control.outstanding

    def _give_back(self, link: Link, tags: Sequence[int | str]) -> None:
        with link.translated():
            for tag in reversed(tags):  # each goes to the front
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
    """Remove the exchanges and queues of a cell, with what is in them; those of others stay.

    Those inside of a process end with it. Raises BusError, BusUnavailableError.
    """
    if is_in_memory(transport_url):
        return
    with bare_channel(transport_url, settings or BusSettings()) as channel:
        topology.remove(channel, cell_uuid)


def remove_work_queue(transport_url: str, cell_uuid: str, settings: BusSettings | None = None) -> None:
    """Remove the queue of a cell that no indexer reads any more, with what is in it; the next receiver makes it anew.

    One inside of a process ends with it. Raises BusError, BusUnavailableError.
    """
    if is_in_memory(transport_url):
        return
    with bare_channel(transport_url, settings or BusSettings()) as channel:
        topology.remove_work_queue(channel, cell_uuid)


def dead_letters(transport_url: str, cell_uuid: str, settings: BusSettings | None = None) -> int:
    """How many messages of the cell could not be used; raises BusError, BusUnavailableError."""
    return count_messages(transport_url, topology.dead_name(cell_uuid), settings or BusSettings())
