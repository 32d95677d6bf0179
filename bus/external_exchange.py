"""The exchange of other software on the bus of a cell, from which its notifications come.

It is named in the query of the cell's address, as in `amqp://fleetlight:…@bus4/nova?topics=versioned_notifications`, so
that a cell has one address and not one and some options. All of it has defaults, which are Nova's (contracts/
nova-notifications, sections 1 and 2).
"""

from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlsplit

from fleetlight.notifications.errors import BusError

_TRUE, _FALSE = ("true", "1"), ("false", "0")
_KEYS = ("exchange", "topics", "durable")
# The scheme of oslo.messaging's addresses.
_RABBIT = "rabbit://"


@dataclass(frozen=True, slots=True)
class Binding:
    """Whose messages a cell's queue gets besides its own.

    exchange: a topic exchange. topics: notifications have the routing keys `<topic>.<priority>`.
    durable: as what the exchange is made if it is not there (Nova's `amqp_durable_queues`); None: it is taken as it is,
        and waited for if it is not there, since one that was made differently keeps Nova from sending.
    """

    exchange: str = "nova"
    topics: tuple[str, ...] = ("versioned_notifications",)
    durable: bool | None = None


def split_address(transport_url: str) -> tuple[str, Binding]:
    """The address of the broker alone, and what its query says of the binding.

    `rabbit://`, as Nova writes it, is `amqp://` here. Raises BusError for a query that says something else.
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
    """What addresses have in common that get the same messages, with any account. Raises BusError."""
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
