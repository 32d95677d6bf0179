"""The transport of `amqp://` and `amqps://`: py-amqp, guarded against messages on which it fails.

Brokers pass on routing keys, names and texts that are not UTF-8, times that no clock has, and arrays nested without
end, and py-amqp fails on them. Such a message is delivered here without its properties, or with the readable part of
its routing key, since after a failure the broker would only send it again.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from amqp.method_framing import frame_handler  # type: ignore[import-untyped]  # as kombu, which it belongs to
from amqp.serialization import decode_properties_basic  # type: ignore[import-untyped]
from kombu.transport import pyamqp

Frame = tuple[int, int, bytes]
"""Type, channel, payload."""

METHOD, HEADER, BODY = 1, 2, 3
# The payload of basic.deliver: class and method; the length of the consumer's tag, and the tag; DELIVERY, which ends
# with the length of the exchange's name; that name; the length of the routing key, and the key.
DELIVER = bytes((0, 60, 0, 60))
DELIVERY = Struct(">Q?B")
# What precedes the properties: class, weight, size of the body. Two octets then say which properties follow.
PROPERTIES_BEGIN = 12
_NO_PROPERTIES = bytes(2)


class SafeConnection(pyamqp.Connection):  # type: ignore[misc]
    """A connection of py-amqp that no message can break."""

    def __init__(self, **options: Any) -> None:
        super().__init__(frame_handler=_frame_handler, **options)


class AmqpTransport(pyamqp.Transport):  # type: ignore[misc]
    """The plain transport; `fleetlight.bus.read_ahead` has a faster one."""

    Connection = SafeConnection


def properties_of(header: bytes) -> dict[str, Any]:
    """All properties in the payload of a header frame; empty if they cannot be decoded."""
    try:
        properties: dict[str, Any] = decode_properties_basic(header, PROPERTIES_BEGIN)[0]
    except Exception:  # noqa: BLE001  # any sender can put anything there
        return {}
    return properties


def _readable(name: bytes) -> bytes:
    return name.decode(errors="ignore").encode()


def _with_readable_names(method: bytes) -> bytes:
    """The payload of basic.deliver, with the undecodable bytes of exchange and routing key removed."""
    end = len(DELIVER) + 1 + method[len(DELIVER)]
    begin = end + DELIVERY.size
    exchange_end = begin + method[begin - 1]
    exchange, key = _readable(method[begin:exchange_end]), _readable(method[exchange_end + 1 :])
    return method[: begin - 1] + bytes((len(exchange),)) + exchange + bytes((len(key),)) + key


def _frame_handler(connection: Any, callback: Callable[..., None]) -> Callable[[Frame], bool]:
    handle: Callable[[Frame], bool] = frame_handler(connection, callback)

    def on_frame(frame: Frame) -> bool:
        frame_type, channel, payload = frame
        if frame_type == HEADER and not properties_of(payload):
            frame = frame_type, channel, payload[:PROPERTIES_BEGIN] + _NO_PROPERTIES
        elif payload.startswith(DELIVER) and frame_type == METHOD:
            frame = frame_type, channel, _with_readable_names(payload)
        return handle(frame)

    return on_frame
