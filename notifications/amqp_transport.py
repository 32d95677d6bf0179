"""py-amqp that reads what has arrived in one go, and hands out all of it at once.

By itself it asks the system for each part of a frame: nine times for a message, and a dozen times more for time limits.
With each of them a thread gives up its turn, and behind a thread that encodes documents it gets the next one
milliseconds later. Measured: see docs/decisions/0033.
"""

from ssl import SSLWantReadError
from struct import Struct
from typing import Any

from amqp.exceptions import UnexpectedFrame  # type: ignore[import-untyped]  # as kombu, which it belongs to
from amqp.transport import SSLTransport, TCPTransport  # type: ignore[import-untyped]
from kombu.transport import pyamqp

Frame = tuple[int, int, bytes]

_HEADER = Struct(">BHI")  # type, channel, size of what follows; and then one octet more
_FRAME_END = 0xCE
_READ_BYTES = 65_536


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
        arrived, begin = self._arrived, self._position + _HEADER.size
        if begin > len(arrived):
            return None
        frame_type, channel, size = _HEADER.unpack_from(arrived, self._position)
        end = begin + size
        if end >= len(arrived):
            return None
        if arrived[end] != _FRAME_END:
            raise UnexpectedFrame(f"a frame ends with {arrived[end]:#04x} instead of {_FRAME_END:#04x}")
        self._position = end + 1
        return frame_type, channel, arrived[begin:end]

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


class _TcpTransport(_ReadsAhead, TCPTransport):  # type: ignore[misc]
    pass


class _TlsTransport(_ReadsAhead, SSLTransport):  # type: ignore[misc]
    pass


class _Connection(pyamqp.Connection):  # type: ignore[misc]
    def Transport(  # noqa: N802  # py-amqp calls it so
        self, host: str, connect_timeout: float, ssl: Any, read_timeout: Any, write_timeout: Any, **options: Any
    ) -> _ReadsAhead:
        kind = _TlsTransport if ssl else _TcpTransport
        return kind(host, connect_timeout, ssl=ssl, read_timeout=read_timeout, write_timeout=write_timeout, **options)

    def handle_arrived(self) -> None:
        """Handle everything that has been read."""
        transport = self._transport
        # What is handled may close the connection.
        while transport is not None and transport is self._transport and (frame := transport.arrived_frame()):
            self.on_inbound_frame(frame)


class AmqpTransport(pyamqp.Transport):  # type: ignore[misc]
    """The transport of `amqp://` and `amqps://`."""

    Connection = _Connection

    def drain_events(self, connection: _Connection, **options: Any) -> None:
        """Wait for what arrives next, and handle all that has arrived with it.

        Not so while an answer of the broker is awaited: it may say to whom the messages go that came with it.
        """
        connection.drain_events(**options)
        connection.handle_arrived()
