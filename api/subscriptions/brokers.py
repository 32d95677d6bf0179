"""Brokers as targets: what their URLs say.

`amqps://user:password@broker.example.org/vhost?exchange=fleetlight.events`: the exchange is a part of the address, as
that of other software is in the address of a bus (`fleetlight.bus.external_exchange`).
"""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from fleetlight.api.http.errors import BadRequestError

DEFAULT_EXCHANGE = "fleetlight.events"
PORTS = {"amqps": 5671, "amqp": 5672}
_DEFAULT_VIRTUAL_HOST = "/"
# A short string of AMQP.
_LONGEST_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where events go to, and as whom. is_encrypted: by TLS."""

    is_encrypted: bool
    host: str
    port: int
    user: str
    virtual_host: str
    exchange: str


def is_broker(url: str) -> bool:
    """Whether this is the URL of a broker, and not that of a webhook."""
    return urlsplit(url).scheme in PORTS


def broker_address(url: str) -> BrokerAddress:
    """url: one of a broker, with or without the password. Raises BadRequestError, without what may be a password."""
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
    """The URL of a broker as it is shown, and the password that was in it. Raises BadRequestError for one without."""
    parts = urlsplit(url)
    if not parts.password:
        raise BadRequestError("url: has no password; a broker is logged in to with one")
    account, _, place = parts.netloc.rpartition("@")
    shown = parts._replace(netloc=f"{account.partition(':')[0]}@{place}").geturl()
    return shown, SecretStr(_decoded("password", parts.password))


def _exchange_in(query: str) -> str:
    """As it is written there."""
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
