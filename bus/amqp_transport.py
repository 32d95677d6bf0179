"""py-amqp that reads all that has arrived in one go, and hands out all messages of it at once.

By itself it asks the system for each part of a frame: nine times for a message, and a dozen times more for time limits.
With each of them a thread gives up its turn, and behind a thread that encodes documents it waits milliseconds for the
next one. Measured: docs/performance.md.

And it fails on what a broker hands on all the same: routing keys, names and texts that are no UTF-8, a time that no
clock has, arrays in arrays without end. Here such a message comes without its properties, or with what can be read of
its routing key, since after a failure the same one would be the next again.
"""

from collections.abc import Callable
from ssl import SSLWantReadError
from struct import Struct
from typing import Any

from amqp.basic_message import Message  # type: ignore[import-untyped]  # as kombu, which it belongs to
from amqp.exceptions import UnexpectedFrame  # type: ignore[import-untyped]
from amqp.method_framing import frame_handler  # type: ignore[import-untyped]
from amqp.transport import SSLTransport, TCPTransport  # type: ignore[import-untyped]
from kombu.transport import pyamqp

from bus.amqp_headers import PROPERTIES_BEGIN, headers_of, properties_of

Frame = tuple[int, int, bytes]
"""Type, channel, payload."""

_READ_BYTES = 65_536
# A frame: type, channel, size of the payload; the payload; one octet.
_FRAME = Struct(">BHI")
_FRAME_END = 0xCE
_METHOD, _HEADER, _BODY = 1, 2, 3
# The payload of basic.deliver: class and method; the consumer's tag behind its length; _DELIVERY, which ends with the
# length of the exchange's name; that name; the routing key behind its length.
_DELIVER = bytes((0, 60, 0, 60))
_DELIVERY = Struct(">Q?B")
# The payload of a header: four octets, the size of the body, the properties.
_HEADER_BEGIN = Struct(">4xQ")
_NO_PROPERTIES = bytes(2)


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
        if header is not None and header[:2] == (_HEADER, channel):
            body = self.arrived_frame()
            (size,) = _HEADER_BEGIN.unpack_from(header[2])
            if body is not None and body[:2] == (_BODY, channel) and len(body[2]) == size:
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


def _readable(name: bytes) -> bytes:
    return name.decode(errors="ignore").encode()


def _with_readable_names(method: bytes) -> bytes:
    """The payload of basic.deliver with names of exchange and routing key that are text."""
    end = len(_DELIVER) + 1 + method[len(_DELIVER)]
    begin = end + _DELIVERY.size
    exchange_end = begin + method[begin - 1]
    exchange, key = _readable(method[begin:exchange_end]), _readable(method[exchange_end + 1 :])
    return method[: begin - 1] + bytes((len(exchange),)) + exchange + bytes((len(key),)) + key


def _frame_handler(connection: Any, callback: Callable[..., None]) -> Callable[[Frame], bool]:
    """py-amqp's, which gets nothing that it would fail on."""
    handle: Callable[[Frame], bool] = frame_handler(connection, callback)

    def on_frame(frame: Frame) -> bool:
        frame_type, channel, payload = frame
        if frame_type == _HEADER and not properties_of(payload):
            frame = frame_type, channel, payload[:PROPERTIES_BEGIN] + _NO_PROPERTIES
        elif payload.startswith(_DELIVER) and frame_type == _METHOD:
            frame = frame_type, channel, _with_readable_names(payload)
        return handle(frame)

    return on_frame


class _Connection(pyamqp.Connection):  # type: ignore[misc]
    def __init__(self, **options: Any) -> None:
        super().__init__(frame_handler=_frame_handler, **options)

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
            is_message = frame[2].startswith(_DELIVER) and frame[0] == _METHOD
            if not (is_message and self._deliver(transport, frame)):
                self.on_inbound_frame(frame)

    def _deliver(self, transport: _ReadsAhead, frame: Frame) -> bool:
        """What py-amqp does with a message, in half the time; False if it is not a usual one, which is left to it."""
        _, channel_id, method = frame
        begin = len(_DELIVER) + 1
        end = begin + method[len(_DELIVER)]
        tag, redelivered, exchange_length = _DELIVERY.unpack_from(method, end)
        channel = self.channels.get(channel_id)
        callback = channel and channel.callbacks.get(method[begin:end].decode())
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
            "routing_key": method[end + _DELIVERY.size + exchange_length + 1 :].decode(errors="ignore"),
        }
        callback(message)
        return True


class AmqpTransport(pyamqp.Transport):  # type: ignore[misc]
    """The transport of `amqp://` and `amqps://`."""

    Connection = _Connection

    def drain_events(self, connection: _Connection, **options: Any) -> None:
        """Wait for what arrives next, and handle all that has arrived with it.

        Not so while an answer of the broker is awaited: it may say to whom the messages go that came with it.
        """
        connection.drain_events(**options)
        connection.handle_arrived()
