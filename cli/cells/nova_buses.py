"""Where the notifications of a cell of Nova arrive, as its deployment writes it down: oslo.messaging's addresses."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

_TEMPLATE = re.compile(r"\{\w+\}")
_RABBITMQ = {"rabbit", "kombu"}
_NO_BUS = {"", "none", "fake"}
_TRUE = {"1", "true", "yes", "on"}


@dataclass(frozen=True, slots=True)
class FoundBus:
    """address: ours, without an account; empty where there is no bus that can be followed. note: what to know of it."""

    address: str = ""
    note: str | None = None


def bus_of(transport_url: str | None) -> FoundBus:
    """The bus in an address of Nova's, without the account: Nova's accounts are never used.

    Of several brokers the first one is taken: a cluster gives all of them the same messages.
    """
    url = transport_url or ""
    if _TEMPLATE.search(url):
        return FoundBus(note="the address of its bus is a template; give --transport-url")
    try:
        parts = urlsplit(url)
        scheme, query = parts.scheme, parse_qs(parts.query)
    except ValueError:
        return FoundBus(note="the address of its bus cannot be read; give --transport-url")
    if scheme in _NO_BUS:
        return FoundBus()
    if scheme not in _RABBITMQ:
        return FoundBus(note=f"its bus is no RabbitMQ ({scheme}), so it is compared and hears of nothing")
    brokers = [broker.rpartition("@")[2] for broker in parts.netloc.split(",")]
    ours = "amqps" if query.get("ssl", [""])[0].lower() in _TRUE else "amqp"
    note = f"of its {len(brokers)} brokers {brokers[0]} is followed" if len(brokers) > 1 else None
    return FoundBus(f"{ours}://{brokers[0]}{parts.path}", note)
