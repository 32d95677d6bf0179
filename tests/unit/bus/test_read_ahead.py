"""Frames are taken out of what has arrived, however the network cuts it."""

import socket
from collections.abc import Iterator
from struct import pack
from types import SimpleNamespace

import pytest
from amqp.exceptions import UnexpectedFrame  # type: ignore[import-untyped]  # as kombu, which it belongs to

from fleetlight.bus.amqp_transport import Frame
from fleetlight.bus.read_ahead import ReadAheadTransport, TcpTransport

FRAMES: list[Frame] = [(1, 1, b"method"), (2, 1, b""), (3, 7, b"\xce" * 300_000), (8, 0, b"")]


class Wire:
    """A transport, and the broker's end of its connection."""

    def __init__(self) -> None:
        own, self.broker = socket.socketpair()
        own.settimeout(0)
        self.transport = TcpTransport("localhost")
        self.transport.sock = own
        self.transport.connected = True
        self.transport._setup_transport()

    def close(self) -> None:
        self.broker.close()
        self.transport.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def _encoded(frame: Frame) -> bytes:
    frame_type, channel, payload = frame
    return pack(">BHI", frame_type, channel, len(payload)) + payload + b"\xce"


def _read_all(wire: Wire) -> Iterator[Frame]:
    while True:
        try:
            yield wire.transport.read_frame()
        except TimeoutError:
            return


@pytest.mark.parametrize("length", [1, 2, 7, 8, 50])
def test_frames_are_whole_wherever_the_network_cuts_them(wire: Wire, length: int) -> None:
    frames = [*FRAMES[:2], (3, 7, b"\xce" * 20), FRAMES[3]]
    sent = b"".join(map(_encoded, frames))
    received: list[Frame] = []
    for start in range(0, len(sent), length):
        wire.broker.sendall(sent[start : start + length])
        # Each time limit is over in the middle of a frame, and loses nothing.
        received += _read_all(wire)
    assert received == frames


def test_frame_larger_than_what_is_read_at_once_is_whole(wire: Wire) -> None:
    wire.broker.setblocking(False)
    sent, received = b"".join(map(_encoded, FRAMES)), list[Frame]()
    while sent:
        sent = sent[wire.broker.send(sent) :]
        received += _read_all(wire)
    assert received == FRAMES


def test_frames_that_came_with_the_first_one_are_there_without_reading_again(wire: Wire) -> None:
    wire.broker.sendall(_encoded(FRAMES[0]) + _encoded(FRAMES[3]) + _encoded(FRAMES[0])[:-1])
    assert wire.transport.read_frame() == FRAMES[0]
    assert wire.transport.arrived_frame() == FRAMES[3]
    assert wire.transport.arrived_frame() is None


def test_message_is_taken_as_a_whole_or_not_at_all(wire: Wire) -> None:
    header, body = (2, 1, pack(">HHQ", 60, 0, 4) + b"..."), (3, 1, b"body")
    for frames in ([header], [header, (3, 2, b"body")], [header, (3, 1, b"bo")], [FRAMES[0], body]):
        wire.broker.sendall(b"".join(map(_encoded, [FRAMES[3], *frames])))
        assert wire.transport.read_frame() == FRAMES[3]
        assert wire.transport.arrived_content(1) is None
        assert list(_read_all(wire)) == frames
    wire.broker.sendall(b"".join(map(_encoded, [FRAMES[3], header, body])))
    assert wire.transport.read_frame() == FRAMES[3]
    assert wire.transport.arrived_content(1) == (header[2], body[2])


def test_bytes_that_are_no_frame_are_refused(wire: Wire) -> None:
    wire.broker.sendall(_encoded(FRAMES[0])[:-1] + b"\x00")
    with pytest.raises(UnexpectedFrame, match="0xce"):
        wire.transport.read_frame()


def test_broker_that_closes_the_connection_is_noticed(wire: Wire) -> None:
    wire.broker.sendall(_encoded(FRAMES[0])[:5])
    wire.broker.close()
    with pytest.raises(OSError, match="closed"):
        wire.transport.read_frame()
    assert not wire.transport.connected


@pytest.mark.parametrize("rest", [b"", b"\xff", b"\7indexer", b"\2\xff\xff" + bytes(20)])
def test_part_of_a_body_is_no_message_whatever_it_begins_with(wire: Wire, rest: bytes) -> None:
    """A broker that is told to send small frames sends any number of them for one body."""
    received: list[Frame] = []
    connection = ReadAheadTransport.Connection()
    connection.channels[1] = SimpleNamespace(callbacks={})
    connection._transport, connection.on_inbound_frame = wire.transport, received.append
    part = (3, 1, b"\0<\0<" + rest)
    wire.broker.sendall(_encoded(FRAMES[3]) + _encoded(part))
    wire.transport.read_frame()
    connection.handle_arrived()
    assert received == [part]
