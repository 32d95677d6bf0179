"""Rules for the addresses of subscriptions' targets.

A user must not make a deliverer call services that the user cannot reach (server-side request forgery). So addresses of
the inner network are refused unless the operator allows them: literal ones here, and those of names when the deliverer
connects (`TargetRules.check_address`).
"""

from base64 import b64decode
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from pydantic import SecretStr

from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.settings import DeliverySettings
from fleetlight.api.subscriptions.brokers import broker_address, is_broker

SECRET_PREFIX = "whsec_"  # noqa: S105  # what Standard Webhooks has keys begin with
MAX_URL = 2000
_SCHEMES = ("https", "amqps")
_UNENCRYPTED = ("http", "amqp")
_FEWEST_KEY_BYTES, _MOST_KEY_BYTES = 24, 64
# The prefix of IPv6 addresses that stand for IPv4 addresses (RFC 6052).
_NAT64 = IPv6Network("64:ff9b::/96")


class InnerAddressError(OSError):
    """A target's address is not public, and the operator has not allowed it."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} is an inner address, which delivery.allowed_networks does not have")


@dataclass(frozen=True, slots=True)
class TargetRules:
    """The configured rules for targets."""

    settings: DeliverySettings

    def check_address(self, address: str) -> None:
        """Raise InnerAddressError for an inner address. address: of IPv4 or IPv6, from a socket."""
        meant = _meant(ip_address(address.partition("%")[0]))
        allowed = (ip_network(text) for text in self.settings.allowed_networks)
        if _is_inner(meant) and not any(meant in network for network in allowed):
            raise InnerAddressError(address)

    def check_url(self, url: str) -> None:
        """Raise BadRequestError for a forbidden target; its text lacks the URL, which may hold a password."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            raise BadRequestError("url: is no URL") from None
        if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
            raise BadRequestError(f"url: must be printable ASCII without blanks, of at most {MAX_URL} characters")
        if not host:
            raise BadRequestError("url: names no host")
        self._check_scheme(parts.scheme)
        if parts.fragment:
            raise BadRequestError("url: must have no fragment (#)")
        if is_broker(url):
            broker_address(url)
        elif parts.username or parts.password:
            raise BadRequestError("url: a webhook has no user and no password: its receiver checks the signature")
        self._check_host(host)

    def _check_scheme(self, scheme: str) -> None:
        if scheme in _SCHEMES or (scheme in _UNENCRYPTED and self.settings.allow_unencrypted):
            return
        right = f"{scheme}s://" if scheme in _UNENCRYPTED else "https:// (a webhook) or amqps:// (a broker)"
        hint = f"; for {scheme}:// the operator sets delivery.allow_unencrypted" if scheme in _UNENCRYPTED else ""
        raise BadRequestError(f"url: begins with {scheme[:20]}://; must begin with {right}{hint}")

    def _check_host(self, host: str) -> None:
        try:
            address = "127.0.0.1" if host == "localhost" else str(ip_address(host))
        except ValueError:
            return  # the addresses of a name are checked at each connection
        try:
            self.check_address(address)
        except InnerAddressError as error:
            raise BadRequestError(f"url: {error}") from None


def check_key(key: SecretStr) -> None:
    """Raise BadRequestError for a malformed key of webhooks."""
    try:
        size = len(b64decode(key.get_secret_value().removeprefix(SECRET_PREFIX), validate=True))
    except ValueError:
        size = 0
    if not _FEWEST_KEY_BYTES <= size <= _MOST_KEY_BYTES:
        raise BadRequestError(
            f"secret: must be {_FEWEST_KEY_BYTES} to {_MOST_KEY_BYTES} bytes in base64, behind {SECRET_PREFIX}"
        )


def _meant(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address stands for, or else the address."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1] or address


def _is_inner(address: IPv4Address | IPv6Address) -> bool:
    is_site_local = isinstance(address, IPv6Address) and address.is_site_local
    return not address.is_global or address.is_multicast or address.is_reserved or is_site_local
