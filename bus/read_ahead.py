"""The fast path of receiving: reads all that has arrived at once, and decodes usual messages itself.

py-amqp makes a system call for each part of a frame: nine for a message, and a dozen more for time limits. At each one
the thread gives up the interpreter, and waits milliseconds for its next turn while another thread encodes documents.
py-amqp also decodes all properties, testing each value against a list of types. This module decodes only the headers,
and only values that our own messages have: texts and whole numbers.

Other messages are left to py-amqp (`fleetlight.bus.amqp_transport`). So are all messages if
`fleetlight.bus.read_ahead` is false; a property test compares both ways. A message takes 20 microseconds of processor
time this way, and 85 the other way (docs/performance.md).
"""

import struct
from ssl import SSLWantReadError
from struct import Struct
from sys import intern
from typing import Any

from amqp.basic_message import Message  # type: ignore[import-untyped]  # as kombu, which it belongs to
from amqp.exceptions import UnexpectedFrame  # type: ignore[import-untyped]
from amqp.transport import SSLTransport, TCPTransport  # type: ignore[import-untyped]

from fleetlight.bus.amqp_transport import (
    BODY,
    DELIVER,
    DELIVERY,
    HEADER,
    METHOD,
    PROPERTIES_BEGIN,
    AmqpTransport,
    Frame,
    SafeConnection,
    properties_of,
)

_READ_BYTES = 65_536
# A frame: type, channel, size of the payload; the payload; one octet.
_FRAME = Struct(">BHI")
_FRAME_END = 0xCE
# The payload of a header: four octets, the size of the body, the properties.
_HEADER_BEGIN = Struct(">4xQ")
_FLAGS = 2
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 0x80, 0x40, 0x20
# RabbitMQ calls the last type `l`, and py-amqp writes it as `L`.
_TEXT, _INT32, *_INT64 = b"SIlL"
_read_length = Struct(">I").unpack_from
_read_int32 = Struct(">i").unpack_from
_read_int64 = Struct(">q").unpack_from
_APPLICATION_HEADERS = "application_headers"
_MAX_NAMES = 1000


class _Names(dict[bytes, str]):
    """Interned names of headers; limited in number, so that a sender that invents names does not fill the memory."""

    def __missing__(self, encoded: bytes) -> str:
        name = intern(encoded.decode())
        if len(self) < _MAX_NAMES:
            self[encoded] = name
        return name


_names = _Names()


def headers_of(header: bytes) -> dict[str, Any]:
    """Decode the headers in the payload of a header frame; empty if they cannot be decoded.

    All usual messages share the objects of names, which would otherwise be a sixth of the memory of waiting messages.
    """
    try:
        headers = _usual_headers(header)
    except (IndexError, struct.error, UnicodeDecodeError):
        headers = None
    return properties_of(header).get(_APPLICATION_HEADERS, {}) if headers is None else headers


def _usual_headers(header: bytes) -> dict[str, Any] | None:
    """Decode headers; None if a value is neither text nor whole number.

    Raises IndexError, struct.error or UnicodeDecodeError if the frame is damaged.
    """
    flags = header[PROPERTIES_BEGIN]
    if not flags & _HEADERS:
        return None
    position = PROPERTIES_BEGIN + _FLAGS
    for earlier in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if flags & earlier:
            position += 1 + header[position]
    (length,) = _read_length(header, position)
    position += 4
    end = position + length
    headers: dict[str, Any] = {}
    while position < end:
        # The length of the name, the name, the type of the value, and the value; a text follows its length.
        value = position + 2 + header[position]
        name = _names[header[position + 1 : value - 1]]
        kind = header[value - 1]
        if kind == _TEXT:
            position = value + 4 + _read_length(header, value)[0]
            headers[name] = header[value + 4 : position].decode()
        elif kind == _INT32:
            (headers[name],) = _read_int32(header, value)
            position = value + 4
        elif kind in _INT64:
            (headers[name],) = _read_int64(header, value)
            position = value + 8
        else:
            return None
    return headers if position == end <= len(header) else None


class _ReadsAhead:
    """A transport of py-amqp that reads ahead. A time limit that expires loses no data."""

    connected: bool
    _quick_recv: Any

    def _setup_transport(self) -> None:
        super()._setup_transport()  # type: ignore[misc]  # of the transport
        self._arrived = b""
        self._position = 0

    def read_frame(self) -> Frame:
        """Return the next frame. Raises TimeoutError or another OSError, and UnexpectedFrame."""
        while (frame := self.arrived_frame()) is None:
            self._receive()
        return frame

    def arrived_frame(self) -> Frame | None:
        """The next frame, or None if it has not arrived completely. Raises UnexpectedFrame."""
        arrived, begin = self._arrived, self._position + _FRAME.size
        if begin > len(arrived):
            return None
        frame_type, channel, size = _FRAME.unpack_from(arrived, self._position)
        end = begin + size
        if end >= len(arrived):
            return None
        if arrived[end] != _FRAME_END:
            raise UnexpectedFrame(f"a frame ends with {arrived[end]:#04x} instead of {_FRAME_END:#04x}")
        self._position = end + 1
        return frame_type, channel, arrived[begin:end]

    def arrived_content(self, channel: int) -> tuple[bytes, bytes] | None:
        """The next header and body, if both have arrived, with one frame each; None otherwise."""
        position = self._position
        header = self.arrived_frame()
        if header is not None and header[:2] == (HEADER, channel):
            body = self.arrived_frame()
            (size,) = _HEADER_BEGIN.unpack_from(header[2])
            if body is not None and body[:2] == (BODY, channel) and len(body[2]) == size:
                return header[2], body[2]
        self._position = position
        return None

    def _receive(self) -> None:
        try:
            received = self._quick_recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError, SSLWantReadError):
            raise TimeoutError from None
        except OSError:
            self.connected = False
            raise
        if not received:
            self.connected = False
            raise ConnectionResetError("the broker has closed the connection")
        self._arrived = self._arrived[self._position :] + received
        self._position = 0


class TcpTransport(_ReadsAhead, TCPTransport):  # type: ignore[misc]
    """A transport without TLS."""


class TlsTransport(_ReadsAhead, SSLTransport):  # type: ignore[misc]
    """A transport with TLS."""


class _Connection(SafeConnection):
    def Transport(  # noqa: N802  # py-amqp calls it so
        self, host: str, connect_timeout: float, ssl: Any, read_timeout: Any, write_timeout: Any, **options: Any
    ) -> _ReadsAhead:
        kind = TlsTransport if ssl else TcpTransport
        return kind(host, connect_timeout, ssl=ssl, read_timeout=read_timeout, write_timeout=write_timeout, **options)

    def handle_arrived(self) -> None:
        """Handle all frames that have arrived."""
        transport = self._transport
        # Handling a frame may close the connection.
        while transport is not None and transport is self._transport and (frame := transport.arrived_frame()):
            # Part of a body may begin as a method does.
            is_message = frame[2].startswith(DELIVER) and frame[0] == METHOD
            if not (is_message and self._deliver(transport, frame)):
                self.on_inbound_frame(frame)

    def _deliver(self, transport: _ReadsAhead, frame: Frame) -> bool:
        """Deliver a usual message as py-amqp would, in half the time; returns False to leave it to py-amqp."""
        _, channel_id, method = frame
        begin = len(DELIVER) + 1
        try:
            end = begin + method[len(DELIVER)]
            tag, redelivered, exchange_length = DELIVERY.unpack_from(method, end)
            consumer = method[begin:end].decode()
        except (IndexError, struct.error, UnicodeDecodeError):
            return False
        channel = self.channels.get(channel_id)
        callback = channel and channel.callbacks.get(consumer)
        content = callback and transport.arrived_content(channel_id)
        if not content:
            return False
        header, body = content
        self.bytes_recv += 1  # counts as a sign of life of the broker
        message = Message(body, channel=channel)
        message.properties = {"application_headers": headers_of(header)}
        message.delivery_info = {
            "delivery_tag": tag,
            "redelivered": redelivered,
            "routing_key": method[end + DELIVERY.size + exchange_length + 1 :].decode(errors="ignore"),
        }
        callback(message)
        return True


class ReadAheadTransport(AmqpTransport):
    """The transport that reads ahead; otherwise it behaves like AmqpTransport."""

    Connection = _Connection

    def drain_events(self, connection: _Connection, **options: Any) -> None:
        """Wait for the next frame, and handle it and all frames that have arrived with it.

        Not while an answer of the broker is awaited: that may decide where messages go which came with it.
        """
        connection.drain_events(**options)
        connection.handle_arrived()
