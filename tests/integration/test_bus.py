"""One suite for both kinds of bus: what a relay and an indexer rely on."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from struct import pack
from threading import BoundedSemaphore, Event, Thread, Timer
from urllib.parse import urlsplit
from uuid import uuid4

import amqp  # type: ignore[import-untyped]  # as kombu, which it belongs to
import kombu
import pytest

from bench.faults.proxy import tcp_proxy
from fleetlight.bus import link as link_module
from fleetlight.bus import topology
from fleetlight.bus.bus import Delivery, Message, Publisher, Receiver, dead_letters
from fleetlight.bus.link import queue_states
from fleetlight.bus.memory_transport import MemoryTransport
from fleetlight.bus.settings import BusSettings
from fleetlight.notifications.errors import BusError, BusUnavailableError
from tests.support.waiting import wait_until

ROUTING_KEY = topology.routing_key("INFO")
LARGE = 10**9


def _messages(*numbers: int) -> list[Message]:
    return [Message(b"%d" % number, ROUTING_KEY, {topology.SEQUENCE_HEADER: number}) for number in numbers]


def _numbers(deliveries: list[Delivery]) -> list[int]:
    return [int(delivery.body) for delivery in deliveries]


class Bus:
    """A cell's bus, with what a test opened on it."""

    def __init__(self, url: str, cell: str) -> None:
        self.url = url
        self.cell = cell
        self._opened = ExitStack()

    def publisher(self, settings: BusSettings | None = None) -> Publisher:
        publisher = Publisher(self.url, self.cell, settings)
        self._opened.callback(publisher.close)
        return publisher

    def receiver(
        self, prefetch: int = 100, prefetch_max_bytes: int = LARGE, settings: BusSettings | None = None
    ) -> Receiver:
        receiver = Receiver(self.url, self.cell, prefetch, settings, prefetch_max_bytes=prefetch_max_bytes)
        self._opened.callback(receiver.close)
        return receiver

    def close(self) -> None:
        self._opened.close()


@pytest.fixture(params=["memory", pytest.param("amqp", marks=pytest.mark.rabbitmq)])
def bus(request: pytest.FixtureRequest) -> Iterator[Bus]:
    if request.param == "memory":
        bus = Bus("memory://", str(uuid4()))
    else:
        bus = Bus(request.getfixturevalue("amqp_url"), request.getfixturevalue("amqp_cell"))
    yield bus
    bus.close()


@pytest.fixture
def amqp_bus(amqp_url: str, amqp_cell: str) -> Iterator[Bus]:
    bus = Bus(amqp_url, amqp_cell)
    yield bus
    bus.close()


def _drain(receiver: Receiver, count: int) -> list[Delivery]:
    """The next `count` messages, however many calls it takes."""
    found: list[Delivery] = []

    def all_there() -> bool:
        found.extend(receiver.receive(count - len(found), LARGE, 0.1))
        return len(found) >= count

    wait_until(all_there)
    return found


def test_messages_arrive_in_order_with_headers_and_bytes(bus: Bus) -> None:
    bus.publisher().publish([Message("ä".encode(), ROUTING_KEY, {topology.CELL_HEADER: bus.cell}), *_messages(1, 2)])
    first, *others = _drain(bus.receiver(), 3)
    assert (first.body, first.routing_key, first.headers) == (
        "ä".encode(),
        ROUTING_KEY,
        {topology.CELL_HEADER: bus.cell},
    )
    assert not first.redelivered
    assert _numbers(others) == [1, 2]
    assert others[0].headers == {topology.SEQUENCE_HEADER: 1}


def test_errors_reach_the_same_queue_as_other_priorities(bus: Bus) -> None:
    bus.publisher().publish([Message(b"1", topology.routing_key("ERROR"), {}), *_messages(2)])
    assert _numbers(_drain(bus.receiver(), 2)) == [1, 2]


def test_messages_published_before_there_was_a_receiver_are_kept(bus: Bus) -> None:
    publisher = bus.publisher()
    publisher.publish(_messages(1))
    publisher.close()
    assert _numbers(_drain(bus.receiver(), 1)) == [1]


def test_more_messages_than_a_confirm_window_are_confirmed(bus: Bus) -> None:
    count = 2 * link_module.CONFIRM_WINDOW + 1
    bus.publisher().publish(_messages(*range(count)))
    assert _numbers(_drain(bus.receiver(prefetch=2 * count), count)) == list(range(count))


def test_batch_ends_at_its_number_of_messages(bus: Bus) -> None:
    bus.publisher().publish(_messages(1, 2, 3))
    receiver = bus.receiver()
    assert _numbers(receiver.receive(2, LARGE, 5)) == [1, 2]
    assert _numbers(receiver.receive(1, LARGE, 5)) == [3]


def test_batch_ends_before_it_is_larger_than_its_bytes(bus: Bus) -> None:
    bus.publisher().publish([Message(b"x" * 60, ROUTING_KEY, {})] * 3)
    receiver = bus.receiver()
    assert [len(receiver.receive(10, 130, 1)) for _ in range(2)] == [2, 1]


def test_single_message_larger_than_the_batch_is_received(bus: Bus) -> None:
    bus.publisher().publish([Message(b"x" * 1000, ROUTING_KEY, {})])
    assert len(bus.receiver().receive(10, 100, 5)) == 1


@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_messages_of_any_size_arrive_whole_and_in_order(bus: Bus, size: int) -> None:
    bodies = [b"first", b"x" * size, b"last"]
    bus.publisher().publish([Message(body, ROUTING_KEY, {}) for body in bodies])
    assert [delivery.body for delivery in _drain(bus.receiver(), 3)] == bodies


def test_message_that_claims_to_be_compressed_is_received_as_it_is(bus: Bus) -> None:
    bus.publisher().publish([Message(b"{}", ROUTING_KEY, {"compression": "application/x-nothing"}), *_messages(1)])
    assert [delivery.body for delivery in _drain(bus.receiver(), 2)] == [b"{}", b"1"]


def test_nothing_to_receive_is_an_empty_batch_after_the_wait(bus: Bus) -> None:
    receiver = bus.receiver()
    receiver.receive(1, LARGE, 0.01)
    started = time.monotonic()
    assert receiver.receive(1, LARGE, 0.2) == []
    assert 0.15 < time.monotonic() - started < 5


def test_first_message_may_be_waited_for_longer_than_others_behind_it(bus: Bus) -> None:
    receiver = bus.receiver()
    receiver.receive(1, LARGE, 0.01)
    later = Timer(0.2, bus.publisher().publish, [_messages(1)])
    later.start()
    started = time.monotonic()
    assert _numbers(receiver.receive(2, LARGE, 0.01, first_within_s=30)) == [1]
    assert time.monotonic() - started < 20
    later.join()


def test_prefetch_bounds_what_is_received_without_acknowledgement(bus: Bus) -> None:
    bus.publisher().publish(_messages(*range(10)))
    receiver = bus.receiver(prefetch=4)
    held = _drain(receiver, 4)
    assert receiver.receive(10, LARGE, 0.1) == []
    receiver.ack(held)
    assert _numbers(_drain(receiver, 4)) == [4, 5, 6, 7]


LARGE_BODY, LARGE_COUNT = 1_000_000, 40


def _publish_large(bus: Bus) -> None:
    large = [Message(b"x" * LARGE_BODY, ROUTING_KEY, {topology.SEQUENCE_HEADER: n}) for n in range(LARGE_COUNT)]
    bus.publisher().publish(large)


def _sequences(deliveries: list[Delivery]) -> list[int | str]:
    return [delivery.headers[topology.SEQUENCE_HEADER] for delivery in deliveries]


def _hold(receiver: Receiver, age_s: float) -> None:
    """Acknowledge nothing until what is held is as old as that: there is nothing else to see it by."""
    begun = time.monotonic()

    def is_old() -> bool:
        receiver.keep_alive()
        return time.monotonic() >= begun + age_s

    wait_until(is_old)


def test_large_messages_are_held_only_up_to_a_number_of_bytes(amqp_bus: Bus) -> None:
    _publish_large(amqp_bus)
    receiver = amqp_bus.receiver(prefetch_max_bytes=3 * LARGE_BODY, settings=BusSettings(heartbeat_s=2))
    with traced_memory() as peak:
        first = receiver.receive(LARGE_COUNT, 2 * LARGE_BODY, 5)
        _hold(receiver, 5)  # longer than a broker may be silent
        assert receiver.take_dead(lambda _: None, 1) == 0
        receiver.dead_letter(_messages(1)[0], "rejected", "while much else has been sent")
        assert peak() < 8 * LARGE_BODY
    assert _sequences(first) == [0, 1]
    receiver.ack(first)
    rest: list[Delivery] = []
    while len(rest) < LARGE_COUNT - 2:
        batch = receiver.receive(LARGE_COUNT, 2 * LARGE_BODY, 5)
        receiver.ack(batch)
        rest += batch
    assert _sequences(rest) == list(range(2, LARGE_COUNT)), "and none of them twice"
    receiver.close()
    assert amqp_bus.receiver().receive(1, LARGE, 0.1) == []


def test_nothing_is_sent_twice_while_it_goes_on_being_acknowledged(bus: Bus) -> None:
    _publish_large(bus)
    receiver = bus.receiver(prefetch_max_bytes=3 * LARGE_BODY)
    received: list[Delivery] = []
    while len(received) < LARGE_COUNT:
        batch = receiver.receive(LARGE_COUNT, 2 * LARGE_BODY, 5)
        receiver.keep_alive()
        receiver.ack(batch)
        received += batch
    assert _sequences(received) == list(range(LARGE_COUNT))
    assert not any(delivery.redelivered for delivery in received)


def test_broker_gets_rid_of_all_that_it_sends_while_nothing_is_acknowledged(amqp_bus: Bus) -> None:
    """Otherwise RabbitMQ ends the connection after half a minute, and all goes to whoever stands by."""
    _publish_large(amqp_bus)
    parts = urlsplit(amqp_bus.url)
    assert parts.hostname is not None
    assert parts.port is not None
    with tcp_proxy(parts.hostname, parts.port) as proxy:
        account = parts.netloc.rpartition("@")[0]
        url = parts._replace(netloc=f"{account}@127.0.0.1:{proxy.port}").geturl()
        with closing(Receiver(url, amqp_bus.cell, 100, prefetch_max_bytes=3 * LARGE_BODY)) as receiver:
            assert _sequences(receiver.receive(3, LARGE, 5)) == [0, 1, 2]

            def is_all_sent() -> bool:
                receiver.keep_alive()
                return proxy.answered_bytes > LARGE_COUNT * LARGE_BODY

            wait_until(is_all_sent)


def test_what_was_let_go_of_and_never_comes_again_stops_nothing(amqp_bus: Bus, amqp_url: str) -> None:
    """A policy of the broker may drop what is given back, by its age or by how often it was delivered."""
    receiver = amqp_bus.receiver(prefetch_max_bytes=3 * LARGE_BODY, settings=BusSettings(heartbeat_s=2))
    assert receiver.receive(1, LARGE, 0) == []
    age_s = 1.0
    with kombu.Connection(amqp_url) as connection:
        exchange = kombu.Exchange(topology.exchange_name(amqp_bus.cell), "topic")
        producer = connection.Producer(exchange=exchange, routing_key=ROUTING_KEY)
        for _ in range(10):
            producer.publish(b"x" * LARGE_BODY, expiration=age_s)
    held = _drain(receiver, 3)
    _hold(receiver, 2 * age_s)
    receiver.ack(held)
    amqp_bus.publisher().publish(_messages(1))
    assert _numbers(_drain(receiver, 1)) == [1]


def test_receiver_that_holds_all_it_may_goes_on_once_some_is_acknowledged(bus: Bus) -> None:
    _publish_large(bus)
    receiver = bus.receiver(prefetch_max_bytes=3 * LARGE_BODY)
    held = [receiver.receive(1, LARGE, 5) for _ in range(3)]
    started = time.monotonic()
    assert receiver.receive(1, LARGE, 5) == [], "it is for the caller to acknowledge something now"
    assert time.monotonic() - started < 3
    receiver.ack(held[0])
    assert _sequences(receiver.receive(1, LARGE, 5)) == [3]


def test_large_dead_letters_are_taken_a_few_at_a_time(bus: Bus) -> None:
    receiver = bus.receiver(prefetch_max_bytes=2 * LARGE_BODY)
    for _ in range(5):
        receiver.dead_letter(Message(b"x" * LARGE_BODY, ROUTING_KEY, {}), "malformed", "not JSON")
    wait_until(lambda: dead_letters(bus.url, bus.cell) == 5)
    taken = [receiver.take_dead(lambda _: None, 100) for _ in range(4)]
    assert taken == [2, 2, 1, 0]


def test_message_larger_than_what_may_be_held_comes_like_any_other(bus: Bus) -> None:
    publisher = bus.publisher()
    publisher.publish([Message(b"x" * LARGE_BODY, ROUTING_KEY, {}), *_messages(1, 2, 3)])
    receiver = bus.receiver(prefetch_max_bytes=LARGE_BODY // 10)
    for expected in (LARGE_BODY, 1, 1, 1):
        [delivery] = receiver.receive(1, LARGE, 5)
        assert len(delivery.body) == expected
        assert not delivery.redelivered
        receiver.ack([delivery])


def test_answer_behind_large_messages_is_not_waited_for(amqp_bus: Bus) -> None:
    _publish_large(amqp_bus)
    receiver = amqp_bus.receiver(prefetch_max_bytes=3 * LARGE_BODY)
    receiver.receive(1, LARGE, 0)  # which only begins it
    with traced_memory() as peak:
        # No message has come yet that would tell that this one takes a connection of its own.
        with suppress(BusUnavailableError):
            receiver.take_dead(lambda _: None, 1)
        assert peak() < 12 * LARGE_BODY
    assert receiver.take_dead(lambda _: None, 1) == 0
    received: list[int | str] = []
    while len(received) < LARGE_COUNT:
        batch = receiver.receive(LARGE_COUNT, 2 * LARGE_BODY, 5)
        receiver.ack(batch)
        received += _sequences(batch)
    assert received == list(range(LARGE_COUNT))


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """A function that tells the most memory, in bytes, that was in use at once since the block began."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield lambda: tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_unacknowledged_messages_come_again_in_order_after_close(bus: Bus) -> None:
    bus.publisher().publish(_messages(*range(5)))
    receiver = bus.receiver()
    receiver.ack(_drain(receiver, 5)[:2])
    receiver.close()
    again = _drain(bus.receiver(), 3)
    assert _numbers(again) == [2, 3, 4]
    assert all(delivery.redelivered for delivery in again)


def test_messages_that_were_fetched_but_not_handed_out_are_not_lost(bus: Bus) -> None:
    bus.publisher().publish(_messages(*range(5)))
    receiver = bus.receiver()
    receiver.ack(receiver.receive(1, LARGE, 5))
    receiver.keep_alive()
    receiver.close()
    assert _numbers(_drain(bus.receiver(), 4)) == [1, 2, 3, 4]


def test_acknowledging_a_later_batch_leaves_the_earlier_one_open(bus: Bus) -> None:
    bus.publisher().publish(_messages(*range(6)))
    receiver = bus.receiver()
    first, second = receiver.receive(3, LARGE, 5), receiver.receive(3, LARGE, 5)
    receiver.ack(second)
    receiver.close()
    receiver = bus.receiver()
    again = _drain(receiver, 3)
    assert _numbers(again) == _numbers(first)
    receiver.ack(again)
    assert receiver.receive(1, LARGE, 0.1) == []


def test_messages_that_were_not_acknowledged_come_again_after_closing(bus: Bus) -> None:
    bus.publisher().publish(_messages(1, 2))
    receiver = bus.receiver()
    _drain(receiver, 2)
    receiver.close()
    again = _drain(receiver, 2)
    assert sorted(_numbers(again)) == [1, 2]
    assert all(delivery.redelivered for delivery in again)


def test_dead_letter_is_kept_with_its_reason(bus: Bus) -> None:
    bus.publisher().publish(_messages(1, 2))
    receiver = bus.receiver()
    first, second = _drain(receiver, 2)
    assert dead_letters(bus.url, bus.cell) == 0
    receiver.dead_letter(Message(first.body, first.routing_key, first.headers), "malformed", "uuid: is missing")
    wait_until(lambda: dead_letters(bus.url, bus.cell) == 1)
    receiver.ack([first, second])
    receiver.close()
    assert bus.receiver().receive(1, LARGE, 0.1) == []
    assert _dead_headers(bus) == {
        topology.SEQUENCE_HEADER: 1,
        topology.REASON_HEADER: "malformed",
        topology.DETAIL_HEADER: "uuid: is missing",
    }


def _dead_headers(bus: Bus) -> dict[str, object]:
    is_memory = bus.url == "memory://"
    transport = MemoryTransport if is_memory else None
    with kombu.Connection(bus.url, transport=transport) as connection, connection.channel() as channel:
        message = wait_until(lambda: channel.basic_get(topology.dead_name(bus.cell), no_ack=True))
        return {name: value for name, value in message.headers.items() if name.startswith("fleetlight-")}


def test_message_of_no_delivery_can_be_a_dead_letter(bus: Bus) -> None:
    bus.receiver().dead_letter(_messages(1)[0], "rejected", "from the changelog")
    wait_until(lambda: dead_letters(bus.url, bus.cell) == 1)


def test_there_are_no_dead_letters_on_a_bus_that_nobody_used(bus: Bus) -> None:
    assert dead_letters(bus.url, bus.cell) == 0


def _long(text: bytes) -> bytes:
    return pack(">I", len(text)) + text


def _nested(depth: int) -> bytes:
    array = b""
    for _ in range(depth):
        array = b"A" + _long(array)
    return array


HEADERS, CONTENT_TYPE = b"\x20\x00", b"\x80\x00"
UNREADABLE = {
    "time that no clock has": HEADERS + _long(b"\x02atT" + pack(">Q", 2**62)),
    "name that is no text": HEADERS + _long(b"\x01\xffS" + _long(b"value")),
    "type that is no text": CONTENT_TYPE + b"\x01\xff",
    "arrays in arrays": HEADERS + _long(b"\x02at" + _nested(1200)),
    "routing key that is no text": b"\x00\x00",
}


class _Raw(amqp.Message):  # type: ignore[misc]
    """A message with these bytes for its properties."""

    def __init__(self, body: bytes, properties: bytes) -> None:
        super().__init__(body)
        self._raw = properties

    def _serialize_properties(self) -> bytes:
        return self._raw


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize("size", [1, 200_000], ids=["one frame", "several frames"])
def test_message_whose_properties_or_routing_key_cannot_be_read_comes_without_them(
    amqp_bus: Bus, what: str, size: int
) -> None:
    receiver = amqp_bus.receiver()
    receiver.receive(1, LARGE, 0.01)
    raw = _Raw(b"x" * size, UNREADABLE[what])
    key = f"{topology.TOPIC}.\udcff" if "routing key" in what else ROUTING_KEY
    with kombu.Connection(amqp_bus.url) as connection, connection.channel() as channel:
        for _ in range(3):  # of which the first comes alone, and others with it
            # Confirmed: others are lost now and then when the channel is closed after them.
            channel.basic_publish_confirm(
                raw, exchange=topology.exchange_name(amqp_bus.cell), routing_key=key.encode(errors="surrogateescape")
            )
    amqp_bus.publisher().publish(_messages(7))
    *strange, last = _drain(receiver, 4)
    assert [(len(delivery.body), delivery.headers) for delivery in strange] == [(size, {})] * 3
    assert last.headers == {topology.SEQUENCE_HEADER: 7}
    receiver.ack([*strange, last])
    receiver.close()
    assert amqp_bus.receiver().receive(1, LARGE, 0.1) == []


def test_publisher_and_receiver_work_in_two_threads(bus: Bus) -> None:
    count = 500
    publisher = bus.publisher()

    def publish() -> None:
        for number in range(0, count, 50):
            publisher.publish(_messages(*range(number, number + 50)))

    thread = Thread(target=publish)
    thread.start()
    receiver = bus.receiver()
    received: list[int] = []

    def all_received() -> bool:
        batch = receiver.receive(100, LARGE, 0.1)
        received.extend(_numbers(batch))
        receiver.ack(batch)
        return len(received) >= count

    wait_until(all_received, timeout_s=30)
    thread.join()
    assert received == list(range(count))


def test_second_receiver_stands_by_and_takes_over(amqp_bus: Bus) -> None:
    active, standby = amqp_bus.receiver(), amqp_bus.receiver()
    active.receive(1, LARGE, 0.01)
    standby.receive(1, LARGE, 0.01)
    publisher = amqp_bus.publisher()
    publisher.publish(_messages(1, 2))
    assert standby.receive(1, LARGE, 0.1) == []
    active.ack(_drain(active, 2)[:1])
    active.close()
    assert _numbers(_drain(standby, 1)) == [2]


def test_receiver_that_stands_back_is_last_in_the_line_and_what_it_had_goes_to_the_next(amqp_bus: Bus) -> None:
    first, second = amqp_bus.receiver(), amqp_bus.receiver()
    publisher = amqp_bus.publisher()
    publisher.publish(_messages(1, 2))
    _drain(first, 1)
    second.receive(1, LARGE, 0.01)
    first.close()
    assert first.receive(1, LARGE, 0.01) == [], "it stands by, behind the second one"
    assert (first.is_active, second.is_active) == (False, False), "until the first message has come"
    assert _numbers(_drain(second, 2)) == [1, 2]
    second.close()
    assert _numbers(_drain(first, 2)) == [1, 2]
    assert first.is_active


@pytest.fixture
def cut(amqp_bus: Bus, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function that breaks every connection opened since, as a network would."""
    opened: list[link_module.Link] = []
    open_link = link_module.Link.__init__

    def remember(link: link_module.Link, *arguments: object, **options: object) -> None:
        open_link(link, *arguments, **options)  # type: ignore[arg-type]  # handed through
        opened.append(link)

    monkeypatch.setattr(link_module.Link, "__init__", remember)

    def cut() -> None:
        while opened:
            opened.pop()._raw.sock.shutdown(2)

    return cut


def test_receiver_connects_again_and_unacknowledged_messages_come_again(amqp_bus: Bus, cut: Callable[[], None]) -> None:
    amqp_bus.publisher().publish(_messages(1, 2, 3))
    receiver = amqp_bus.receiver()
    before = _drain(receiver, 3)
    receiver.ack(before[:1])
    # The acknowledgement has no answer: only the next call could tell whether it was lost.
    cut()
    again = _drain(receiver, 2)
    assert _numbers(again)[-2:] == [2, 3]
    assert all(delivery.redelivered for delivery in again)
    receiver.ack(before)  # of the old connection: no effect
    receiver.close()
    assert _numbers(_drain(amqp_bus.receiver(), 2)) == [2, 3]


def test_publisher_notices_a_connection_that_was_closed_meanwhile(amqp_bus: Bus, cut: Callable[[], None]) -> None:
    publisher = amqp_bus.publisher()
    publisher.publish(_messages(1))
    cut()
    publisher.publish(_messages(2))
    assert _numbers(_drain(amqp_bus.receiver(), 2)) == [1, 2]


def test_publisher_says_that_the_broker_lets_nobody_publish(amqp_bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = amqp_bus.publisher(BusSettings(confirm_timeout_s=0.2))
    publisher.publish(_messages(1))
    link = publisher._link
    assert link is not None
    monkeypatch.setattr(link, "drain", lambda _timeout_s: False)
    # As RabbitMQ says it in an alarm, which all of the server would have.
    link._raw._on_blocked()
    with pytest.raises(BusUnavailableError, match=r"within 0.2 s: the broker takes no messages.*alarms"):
        publisher.publish(_messages(2))


def test_acknowledging_over_a_broken_connection_is_no_error(amqp_bus: Bus, cut: Callable[[], None]) -> None:
    amqp_bus.publisher().publish(_messages(1))
    receiver = amqp_bus.receiver()
    held = _drain(receiver, 1)
    cut()
    receiver.ack(held)
    receiver.keep_alive()
    assert _numbers(_drain(receiver, 1)) == [1]


def test_message_that_reaches_no_queue_is_a_failure(amqp_bus: Bus, amqp_url: str) -> None:
    publisher = amqp_bus.publisher()
    publisher.publish(_messages(1))
    with kombu.Connection(amqp_url) as connection, connection.channel() as channel:
        channel.queue_delete(topology.work_queue_name(amqp_bus.cell))
    with pytest.raises(BusUnavailableError, match="NO_ROUTE"):
        publisher.publish(_messages(2))
    publisher.publish(_messages(3))
    assert _numbers(_drain(amqp_bus.receiver(), 1)) == [3]


def test_full_queue_lets_the_oldest_messages_go_and_publishers_go_on(
    amqp_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "MOST_WAITING", 3)
    amqp_bus.publisher().publish(_messages(*range(8)))
    assert _waiting(amqp_bus) == 3
    assert _numbers(_drain(amqp_bus.receiver(), 3)) == [5, 6, 7]
    # They can be read from the cell, so they are no failures.
    assert dead_letters(amqp_bus.url, amqp_bus.cell) == 0


def test_old_messages_go(amqp_bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_LONGEST_WAIT_MS", 100)
    amqp_bus.publisher().publish(_messages(1))
    wait_until(lambda: _waiting(amqp_bus) == 0)
    assert dead_letters(amqp_bus.url, amqp_bus.cell) == 0


def test_receiver_says_how_many_wait_behind_those_that_it_has(amqp_bus: Bus) -> None:
    receiver = amqp_bus.receiver(prefetch=2)
    amqp_bus.publisher().publish(_messages(*range(5)))
    _drain(receiver, 2)
    assert receiver.waiting() == 3


def _waiting(bus: Bus) -> int:
    [state] = queue_states(bus.url, [topology.work_queue_name(bus.cell), "no-such-queue"], BusSettings())
    return state.messages


def test_queue_of_an_earlier_version_needs_a_person_who_is_told_what_to_do(amqp_bus: Bus, amqp_url: str) -> None:
    name = topology.work_queue_name(amqp_bus.cell)
    earlier = dict(topology.work_queue(amqp_bus.cell, has_quorum_queues=True).queue_arguments)
    earlier["x-delivery-limit"] = 20
    with kombu.Connection(amqp_url) as connection, connection.channel() as channel:
        channel.queue_declare(name, durable=True, auto_delete=False, arguments=earlier)
        with pytest.raises(BusError, match=f"x-delivery-limit.*{name}.*delete it when it is empty") as refused:
            amqp_bus.publisher().publish(_messages(1))
        assert not isinstance(refused.value, BusUnavailableError)
        channel.queue_delete(name)
    amqp_bus.publisher().publish(_messages(1))


class _Opening(BoundedSemaphore):
    """Room for one connection that is being opened; it is taken. asked: set when another one wants it."""

    def __init__(self) -> None:
        super().__init__(1)
        assert super().acquire()
        self.asked = Event()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        self.asked.set()
        return super().acquire(blocking, timeout)


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> _Opening:
    opening = _Opening()
    monkeypatch.setattr(link_module, "_opening", opening)
    return opening


def test_connection_waits_while_others_are_opened(opening: _Opening) -> None:
    bus = Bus("memory://", str(uuid4()))
    publishing = Thread(target=bus.publisher(BusSettings(connect_timeout_s=60)).publish, args=[_messages(1)])
    publishing.start()
    assert opening.asked.wait(30)
    assert publishing.is_alive()
    opening.release()
    publishing.join(30)
    assert not publishing.is_alive()
    assert _numbers(_drain(bus.receiver(), 1)) == [1]
    bus.close()


def test_connections_that_hang_do_not_keep_others_from_being_opened(opening: _Opening) -> None:
    bus = Bus("memory://", str(uuid4()))
    bus.publisher(BusSettings(connect_timeout_s=0.05)).publish(_messages(1))
    assert opening.asked.is_set()
    assert _numbers(_drain(bus.receiver(settings=BusSettings(connect_timeout_s=0.05)), 1)) == [1]
    bus.close()


def test_broker_that_is_not_there_is_unavailable_and_no_password_shows() -> None:
    settings = BusSettings(connect_timeout_s=0.5)
    url = "amqp://me:secret@127.0.0.1:1//"
    publisher = Publisher(url, str(uuid4()), settings)
    with pytest.raises(BusUnavailableError) as refused:
        publisher.publish(_messages(1))
    assert "secret" not in str(refused.value)
    with pytest.raises(BusUnavailableError):
        Receiver(url, str(uuid4()), 1, settings).receive(1, 1, 0.1)
    with pytest.raises(BusUnavailableError):
        dead_letters(url, str(uuid4()), settings)


def test_unknown_kind_of_bus_is_refused_with_what_there_is() -> None:
    with pytest.raises(BusError, match=r"no bus speaks 'kafka': .* with amqp:// or amqps://$") as refused:
        Publisher("kafka://me:secret@host", str(uuid4())).publish(_messages(1))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["amqp://me:sec/ret@host:5672//", "amqp://me:secret@host:99999//"])
def test_address_that_cannot_be_read_is_refused_without_a_part_of_its_password(url: str) -> None:
    with pytest.raises(BusError, match="amqp://user:password@host:5672/vhost") as refused:
        Receiver(url, str(uuid4()), 1).receive(1, 1, 0.1)
    assert "sec" not in str(refused.value)


def test_full_memory_bus_makes_the_publisher_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MEMORY_QUEUE_LIMIT", 2)
    bus = Bus("memory://", str(uuid4()))
    publisher, receiver = bus.publisher(), bus.receiver()
    publisher.publish(_messages(1, 2))
    with pytest.raises(BusUnavailableError, match="2 messages are waiting already"):
        publisher.publish(_messages(3))
    receiver.ack(_drain(receiver, 2))
    publisher.publish(_messages(3))
    assert _numbers(_drain(receiver, 1)) == [3]
    bus.close()
