"""Brokers as targets: parsing of their URLs.

`amqps://user:password@broker.example.org/vhost?exchange=fleetlight.events`: the URL names the exchange, as does that of
an external bus (`fleetlight.bus.external_exchange`).
"""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from fleetlight.api.http.errors import BadRequestError

DEFAULT_EXCHANGE = "fleetlight.events"
PORTS = {"amqps": 5671, "amqp": 5672}
_DEFAULT_VIRTUAL_HOST = "/"
# The limit of AMQP's short strings.
_LONGEST_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address and login of a broker. is_encrypted: by TLS."""

    is_encrypted: bool
    host: str
    port: int
    user: str
    virtual_host: str
    exchange: str


def is_broker(url: str) -> bool:
    """Whether the URL is a broker's, and not a webhook's."""
    return urlsplit(url).scheme in PORTS


def broker_address(url: str) -> BrokerAddress:
    """Parse a broker's URL, with or without password. Raises BadRequestError, whose text has no password."""
    parts = urlsplit(url)
    if parts.username is None:
        raise BadRequestError(
            "url: names no user; must be like amqps://user:password@host/vhost?exchange=name, with special characters "
            "as %XX"
        )
    return BrokerAddress(
        is_encrypted=parts.scheme == "amqps",
        host=parts.hostname or "",
        port=parts.port or PORTS[parts.scheme],
        user=_name("user", parts.username),
        virtual_host=_name("virtual host", parts.path[1:] or _DEFAULT_VIRTUAL_HOST),
        exchange=_name("exchange", _exchange_in(parts.query)),
    )


def without_password(url: str) -> tuple[str, SecretStr]:
    """Split a broker's URL into the shown URL and its password. Raises BadRequestError if it has none."""
    parts = urlsplit(url)
    if not parts.password:
        raise BadRequestError("url: has no password; a broker is logged in to with one")
    account, _, place = parts.netloc.rpartition("@")
    shown = parts._replace(netloc=f"{account.partition(':')[0]}@{place}").geturl()
    return shown, SecretStr(_decoded("password", parts.password))


def _exchange_in(query: str) -> str:
    """Return the exchange in a URL's query."""
    if not query:
        return DEFAULT_EXCHANGE
    name, _, value = query.partition("=")
    if name != "exchange" or "&" in value:
        raise BadRequestError("url: may say `?exchange=name` behind the virtual host, and nothing else")
    return value


def _name(what: str, written: str) -> str:
    name = _decoded(what, written)
    if not 0 < len(name.encode()) <= _LONGEST_NAME_BYTES:
        raise BadRequestError(f"url: the {what} must be 1 to {_LONGEST_NAME_BYTES} bytes")
    return name


def _decoded(what: str, written: str) -> str:
    try:
        decoded = unquote(written, errors="strict")
    except UnicodeDecodeError:
        decoded = "\0"
    if not decoded.isprintable():
        raise BadRequestError(f"url: the {what} has a %XX that is no UTF-8, or cannot be printed")
    return decoded
