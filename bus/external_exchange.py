"""The exchange of other software on the bus of a cell, which delivers that software's notifications.

The query of the cell's address names it, as in `amqp://fleetlight:…@bus4/nova?topics=versioned_notifications`, so that
a cell has one address and no further options. The defaults are Nova's.
"""

from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlsplit

from fleetlight.notifications.errors import BusError

_TRUE, _FALSE = ("true", "1"), ("false", "0")
_KEYS = ("exchange", "topics", "durable")
# The scheme of addresses in oslo.messaging.
_RABBIT = "rabbit://"


@dataclass(frozen=True, slots=True)
class Binding:
    """An exchange of other software whose messages a cell's queue gets besides its own.

    exchange: a topic exchange. topics: notifications have the routing keys `<topic>.<priority>`. durable: how to
        declare the exchange if it is missing (Nova's `amqp_durable_queues`). None: never declare it, but wait for it,
        since Nova cannot send to an exchange that was declared differently.
    """

    exchange: str = "nova"
    topics: tuple[str, ...] = ("versioned_notifications",)
    durable: bool | None = None


def split_address(transport_url: str) -> tuple[str, Binding]:
    """Split an address of a bus into the broker's address and the binding in its query.

    Nova's `rabbit://` becomes `amqp://`. Raises BusError for an invalid query, or an address with several brokers.
    """
    address, _, query = transport_url.partition("?")
    if address.startswith(_RABBIT):
        address = f"amqp://{address.removeprefix(_RABBIT)}"
    place = urlsplit(address).netloc
    if "," in (place.partition("@")[2] or place):
        raise BusError("the address of a bus names one broker: give that of a load balancer, or of one of them")
    binding = Binding()
    for key, value in parse_qsl(query, keep_blank_values=True):
        binding = _with(binding, key, value)
    return address, binding


def source_of(transport_url: str) -> str:
    """A text that is equal for addresses with the same messages, whatever their accounts. Raises BusError."""
    address, binding = split_address(transport_url)
    parts = urlsplit(address)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path} {binding.exchange}"


def _with(binding: Binding, key: str, value: str) -> Binding:
    match key:
        case "exchange" if value:
            return replace(binding, exchange=value)
        case "topics" if all(topics := tuple(value.split(","))):
            return replace(binding, topics=topics)
        case "durable" if value.lower() in _TRUE + _FALSE:
            return replace(binding, durable=value.lower() in _TRUE)
        case "exchange" | "topics" | "durable":
            expected = "true or false" if key == "durable" else "a name" if key == "exchange" else "names with commas"
            raise BusError(f"the query of the address of a bus is wrong: '{key}' must be {expected}, not '{value}'")
    raise BusError(f"the query of the address of a bus is wrong: '{key}' is not known, only {', '.join(_KEYS)}")
