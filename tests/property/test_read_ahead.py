"""What is received the fast way is what py-amqp receives, whatever a sender has put there
(fleetlight.bus.read_ahead).
"""

import socket
from collections.abc import Callable, Sequence
from itertools import pairwise
from struct import pack
from typing import Any, NamedTuple

from amqp.basic_message import Message  # type: ignore[import-untyped]  # as kombu, which it belongs to
from amqp.channel import Channel  # type: ignore[import-untyped]
from amqp.transport import TCPTransport  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from fleetlight.bus.amqp_transport import AmqpTransport, properties_of
from fleetlight.bus.read_ahead import ReadAheadTransport, TcpTransport, headers_of

_NAMES = st.text(max_size=20)
_NUMBERS = st.integers(-(2**63), 2**63 - 1)
_USUAL = st.text(max_size=40) | _NUMBERS
_OTHERS = st.recursive(
    st.none() | st.booleans() | st.binary(max_size=5) | st.floats(allow_nan=False) | _USUAL,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(_NAMES, values, max_size=3),
    max_leaves=5,
)
_PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.text("a/é", max_size=20),
        "content_encoding": st.text("u8", max_size=9),
        "delivery_mode": st.integers(1, 2),
        "priority": st.integers(0, 9),
        "timestamp": st.integers(0, 2**40),
        "app_id": st.text(max_size=9),
    },
)


def _header(headers: dict[str, Any], properties: dict[str, Any]) -> bytes:
    """The payload of a header frame."""
    message = Message(b"", application_headers=headers, **properties)
    return pack(">HHQ", 60, 0, 0) + bytes(message._serialize_properties())


def _read_by_library(header: bytes) -> dict[str, Any]:
    headers: dict[str, Any] = properties_of(header).get("application_headers", {})
    return headers


@given(st.dictionaries(_NAMES, _USUAL, max_size=6), _PROPERTIES)
def test_texts_and_whole_numbers(headers: dict[str, Any], properties: dict[str, Any]) -> None:
    header = _header(headers, properties)
    assert headers_of(header) == headers == _read_by_library(header)


@given(st.dictionaries(_NAMES, _OTHERS, max_size=6), _PROPERTIES)
def test_whatever_can_be_sent(headers: dict[str, Any], properties: dict[str, Any]) -> None:
    header = _header(headers, properties)
    assert headers_of(header) == _read_by_library(header)


@given(st.dictionaries(_NAMES, _USUAL, min_size=1, max_size=6), _PROPERTIES, st.data())
def test_what_was_damaged_is_read_as_the_library_reads_it_or_not_at_all(
    headers: dict[str, Any], properties: dict[str, Any], data: st.DataObject
) -> None:
    header = bytearray(_header(headers, properties))
    header[data.draw(st.integers(12, len(header) - 1), "place")] = data.draw(st.integers(0, 255), "octet")
    header = header[: data.draw(st.integers(12, len(header)), "length")]
    # Properties behind the headers may be what the library cannot read; then it reads no headers either.
    expected = _read_by_library(bytes(header))
    assert headers_of(bytes(header)) == expected or not properties_of(bytes(header))


def test_names_are_the_same_objects_in_all_messages() -> None:
    one, other = (headers_of(_header({"fleetlight-sequence": number}, {})) for number in (1, 2**40))
    assert next(iter(one)) is next(iter(other))


class Received(NamedTuple):
    """What our program looks at of a message."""

    body: bytes
    tag: int
    redelivered: bool
    routing_key: str
    headers: dict[str, Any]


class Sent(NamedTuple):
    """sizes: of the frames that the body comes in, again and again."""

    tag: int
    redelivered: bool
    consumer: bytes
    exchange: bytes
    routing_key: bytes
    header: bytes
    body: bytes
    sizes: Sequence[int]

    def encoded(self) -> bytes:
        method = pack(">HHB", 60, 60, len(self.consumer)) + self.consumer
        method += pack(">Q?B", self.tag, self.redelivered, len(self.exchange)) + self.exchange
        method += bytes((len(self.routing_key),)) + self.routing_key
        frames = [_frame(1, method), _frame(2, self.header[:4] + pack(">Q", len(self.body)) + self.header[12:])]
        rest, number = self.body, 0
        while rest:
            size = self.sizes[number % len(self.sizes)]
            frames.append(_frame(3, rest[:size]))
            rest, number = rest[size:], number + 1
        return b"".join(frames)


def _frame(frame_type: int, payload: bytes, channel: int = 1) -> bytes:
    return pack(">BHI", frame_type, channel, len(payload)) + payload + b"\xce"


_HEARTBEAT = _frame(8, b"", channel=0)
_SENT = st.builds(
    Sent,
    tag=st.integers(0, 2**64 - 1),
    redelivered=st.booleans(),
    consumer=st.sampled_from([b"indexer", b"another"]),
    exchange=st.binary(max_size=9),
    routing_key=st.text(max_size=9).map(str.encode) | st.binary(max_size=9),
    header=st.builds(_header, st.dictionaries(_NAMES, _USUAL | _OTHERS, max_size=4), _PROPERTIES),
    body=st.binary(max_size=40) | st.sampled_from([b"\0<\0<" * 9, b'{"huge": "%b"}' % (b"x" * 5_000)]),
    sizes=st.lists(st.integers(5, 20), min_size=1, max_size=3) | st.just([131_064]),
)


class Receiving:
    """A connection of py-amqp, open already, and the broker's end of it."""

    def __init__(self, connection: Any, make_transport: Callable[[str], Any], drain: Callable[[Any], None]) -> None:
        own, self.broker = socket.socketpair()
        own.settimeout(0)
        transport = connection._transport = make_transport("localhost")
        transport.sock, transport.connected = own, True
        transport._setup_transport()
        connection.on_inbound_frame = connection.frame_handler_cls(connection, connection.on_inbound_method)
        channel = Channel(connection, 1, auto_decode=False)
        channel.callbacks |= dict.fromkeys(("indexer", "another"), self._note)
        self._connection = connection
        self._drain = drain
        self.received: list[Received] = []

    def take(self, arrived: bytes) -> None:
        self.broker.sendall(arrived)
        try:
            while True:
                self._drain(self._connection)
        except (TimeoutError, BlockingIOError):
            pass

    def close(self) -> None:
        self.broker.close()
        self._connection._transport.close()

    def _note(self, message: Any) -> None:
        info = message.delivery_info
        headers = message.headers or {}
        self.received.append(
            Received(message.body, info["delivery_tag"], bool(info["redelivered"]), info["routing_key"], headers)
        )


def _drain_plain(connection: Any) -> None:
    connection.drain_events()


def _drain_ahead(connection: Any) -> None:
    connection.drain_events()
    connection.handle_arrived()


@given(st.lists(_SENT | st.just(None), max_size=8), st.lists(st.integers(0, 10_000), max_size=6))
def test_messages_are_what_the_library_receives_wherever_the_network_cuts_them(
    sent: Sequence[Sent | None], cuts: Sequence[int]
) -> None:
    """None: a heartbeat."""
    stream = b"".join(_HEARTBEAT if message is None else message.encoded() for message in sent)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    plain = Receiving(AmqpTransport.Connection(), TCPTransport, _drain_plain)
    ahead = Receiving(ReadAheadTransport.Connection(), TcpTransport, _drain_ahead)
    try:
        plain.take(stream)  # while half a frame has arrived, py-amqp waits for the rest of it
        for begin, end in pairwise(places):
            ahead.take(stream[begin:end])
        assert ahead.received == plain.received
        assert len(plain.received) == sum(message is not None for message in sent)
    finally:
        plain.close()
        ahead.close()
