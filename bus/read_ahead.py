"""The fast path of receiving: all that has arrived is read in one go, and usual messages are made here.

By itself py-amqp asks the system for each part of a frame: nine times for a message, and a dozen times more for time
limits. With each of them a thread gives up the interpreter, and behind a thread that encodes documents it waits
milliseconds
for the next one. And it reads all properties, each type of value by a list of comparisons. Here of the properties only
headers are read, and only such values as our own messages have: texts and whole numbers.

Whatever is not a usual message is left to py-amqp (`fleetlight.bus.amqp_transport`). With `fleetlight.bus.read_ahead:
false` all is, and a property test compares the two. A message costs 20 microseconds of the processor this way, and 85
that way (docs/performance.md).
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
# RabbitMQ calls the last one `l`, and py-amqp wrote it as `L`.
_TEXT, _INT32, *_INT64 = b"SIlL"
_read_length = Struct(">I").unpack_from
_read_int32 = Struct(">i").unpack_from
_read_int64 = Struct(">q").unpack_from
_APPLICATION_HEADERS = "application_headers"
_MAX_NAMES = 1000


class _Names(dict[bytes, str]):
    """Names of headers, each made once; a sender that makes up new ones all the time does not fill the memory."""

    def __missing__(self, encoded: bytes) -> str:
        name = intern(encoded.decode())
        if len(self) < _MAX_NAMES:
            self[encoded] = name
        return name


_names = _Names()


def headers_of(header: bytes) -> dict[str, Any]:
    """The headers among the properties; none if they cannot be read.

    A name is the same object in all usual messages: names would be a sixth of what waits in memory.
    """
    try:
        headers = _usual_headers(header)
    except (IndexError, struct.error, UnicodeDecodeError):
        headers = None
    return properties_of(header).get(_APPLICATION_HEADERS, {}) if headers is None else headers


def _usual_headers(header: bytes) -> dict[str, Any] | None:
    """None if there is something else than texts and whole numbers.

    Raises IndexError, struct.error or UnicodeDecodeError for what is damaged.
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
        # A name behind its length, the type of the value, and the value; a text is behind its length.
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
    """What a transport of py-amqp needs to read ahead. A time limit that is over loses nothing of what has arrived."""

    connected: bool
    _quick_recv: Any

    def _setup_transport(self) -> None:
        super()._setup_transport()  # type: ignore[misc]  # of the transport
        self._arrived = b""
        self._position = 0

    def read_frame(self) -> Frame:
        """The next frame; raises TimeoutError or another OSError, and UnexpectedFrame."""
        while (frame := self.arrived_frame()) is None:
            self._receive()
        return frame

    def arrived_frame(self) -> Frame | None:
        """The next frame, if all of it has been read."""
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
        """Payload of the header, and body: what comes next, if it is that, in one frame each, and has been read."""
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
    """Without TLS."""


class TlsTransport(_ReadsAhead, SSLTransport):  # type: ignore[misc]
    """With TLS."""


class _Connection(SafeConnection):
    def Transport(  # noqa: N802  # py-amqp calls it so
        self, host: str, connect_timeout: float, ssl: Any, read_timeout: Any, write_timeout: Any, **options: Any
    ) -> _ReadsAhead:
        kind = TlsTransport if ssl else TcpTransport
        return kind(host, connect_timeout, ssl=ssl, read_timeout=read_timeout, write_timeout=write_timeout, **options)

    def handle_arrived(self) -> None:
        """Handle everything that has been read."""
        transport = self._transport
        # What is handled may close the connection.
        while transport is not None and transport is self._transport and (frame := transport.arrived_frame()):
            # A part of a body may begin as a method does.
            is_message = frame[2].startswith(DELIVER) and frame[0] == METHOD
            if not (is_message and self._deliver(transport, frame)):
                self.on_inbound_frame(frame)

    def _deliver(self, transport: _ReadsAhead, frame: Frame) -> bool:
        """What py-amqp does with a message, in half the time; False if it is not a usual one, which is left to it."""
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
        self.bytes_recv += 1  # which shows that the broker lives
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
    """As the plain one, but faster."""

    Connection = _Connection

    def drain_events(self, connection: _Connection, **options: Any) -> None:
        """Wait for what arrives next, and handle all that has arrived with it.

        Not so while an answer of the broker is awaited: it may say where the messages go that came with it.
        """
        connection.drain_events(**options)
        connection.handle_arrived()
