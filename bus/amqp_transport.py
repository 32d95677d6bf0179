"""The transport of `amqp://` and `amqps://`: py-amqp, which gets nothing that it would fail on.

py-amqp fails on what a broker hands on all the same: routing keys, names and texts that are no UTF-8, a time that no
clock has, arrays in arrays without end. Here such a message comes without its properties, or with what can be read of
its routing key, since after a failure the same one would be the next again.
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
# The payload of basic.deliver: class and method; the consumer's tag behind its length; DELIVERY, which ends with the
# length of the exchange's name; that name; the routing key behind its length.
DELIVER = bytes((0, 60, 0, 60))
DELIVERY = Struct(">Q?B")
# In front of the properties: class, weight, size of the body; two octets say which properties there are.
PROPERTIES_BEGIN = 12
_NO_PROPERTIES = bytes(2)


class SafeConnection(pyamqp.Connection):  # type: ignore[misc]
    """A connection of py-amqp that no message breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(frame_handler=_frame_handler, **options)


class AmqpTransport(pyamqp.Transport):  # type: ignore[misc]
    """The plain way; `fleetlight.bus.read_ahead` has the fast one."""

    Connection = SafeConnection


def properties_of(header: bytes) -> dict[str, Any]:
    """All properties in the payload of a header frame; none if they cannot be read."""
    try:
        properties: dict[str, Any] = decode_properties_basic(header, PROPERTIES_BEGIN)[0]
    except Exception:  # noqa: BLE001  # any sender can put anything there
        return {}
    return properties


def _readable(name: bytes) -> bytes:
    return name.decode(errors="ignore").encode()


def _with_readable_names(method: bytes) -> bytes:
    """The payload of basic.deliver with names of exchange and routing key that are text."""
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
