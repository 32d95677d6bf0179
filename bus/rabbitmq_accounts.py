"""Creates accounts on RabbitMQ through its management API, with rights on names `fleetlight.…` alone.

Relay and indexer have equal rights, since either may be the first to declare a cell's topology, and that takes all
three rights: binding a queue to its exchange writes to the queue and reads the exchange. They are two accounts so that
one can be removed alone; a relay may also have an account per cell, which reaches no other cell. A producer declares
nothing, and only writes to the exchanges of its cells.
"""

import http.client
import json
import re
import ssl
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from urllib.parse import quote, urlsplit

from fleetlight.bus.settings import BusSettings
from fleetlight.notifications.errors import BusError, BusUnavailableError

ACCOUNTS = ("relay", "indexer")

_UNAUTHORIZED, _NOT_FOUND, _FIRST_REFUSAL, _FIRST_FAILURE = 401, 404, 400, 500


@dataclass(frozen=True, slots=True)
class Management:
    """The management API of one broker. url: `https://host:15671`, or `http:` in a trusted network."""

    url: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Management({self.url})"


@dataclass(frozen=True, slots=True)
class Rights:
    """A user's rights on exchanges and queues, as RabbitMQ's regular expressions of their names."""

    configure: str
    write: str
    read: str

    @classmethod
    def of_relay(cls, cell_uuid: str) -> "Rights":
        """All rights on the exchanges and queues of one cell."""
        return cls(*[rf"^fleetlight\.{re.escape(cell_uuid)}(\.(index|dead))?$"] * 3)

    @classmethod
    def of_producer(cls, cell_uuids: Sequence[str]) -> "Rights":
        """The right to write to the exchanges of these cells."""
        return cls(_NOTHING, rf"^fleetlight\.({'|'.join(map(re.escape, cell_uuids))})$", _NOTHING)


_NOTHING = "^$"
ALL_CELLS = Rights(*[r"^fleetlight\."] * 3)


def check_vhost(management: Management, vhost: str, settings: BusSettings) -> None:
    """Check that the virtual host exists and the administrator is accepted; changes nothing.

    A user belongs to the whole broker: creating one for a missing virtual host would already replace the password that
    it uses elsewhere. Raises BusError, BusUnavailableError.
    """
    path = f"/api/vhosts/{quote(vhost, safe='')}"
    if _status(management, "GET", path, None, settings) == _NOT_FOUND:
        raise BusError(f"{management.url} has no virtual host '{vhost}'")


def create_user(
    management: Management,
    vhost: str,
    username: str,
    password: str,
    settings: BusSettings,
    *,
    rights: Rights = ALL_CELLS,
) -> None:
    """Create a user of an existing `vhost`, or set this password if the user exists; can be repeated.

    Raises BusError for an address or administrator that the broker does not accept, and BusUnavailableError.
    """
    user = quote(username, safe="")
    for path, body in (
        (f"/api/users/{user}", {"password": password, "tags": ""}),
        (f"/api/permissions/{quote(vhost, safe='')}/{user}", asdict(rights)),
    ):
        status = _status(management, "PUT", path, body, settings)
        if status >= _FIRST_REFUSAL:
            raise BusError(f"{management.url} refuses PUT {path} with status {status}")


def check_management_url(url: str) -> None:
    """Check an address without connecting. Raises BusError if it can never be that of a management API."""
    _connection(url, BusSettings())


def _status(management: Management, method: str, path: str, body: dict[str, str] | None, settings: BusSettings) -> int:
    """Send a request; returns the status. Raises BusError if the account is refused, and BusUnavailableError."""
    account = b64encode(f"{management.username}:{management.password}".encode()).decode()
    headers = {"authorization": f"Basic {account}", "content-type": "application/json"}
    connection = _connection(management.url, settings)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        status = connection.getresponse().status
    except http.client.HTTPException as error:
        # The error's text holds what the other side sent: bytes of TLS or AMQP, which no terminal should get.
        raise BusUnavailableError(
            management.url, "it does not answer in HTTP; is it the port of the management API, and https: or http:?"
        ) from error
    except OSError as error:
        raise BusUnavailableError(management.url, str(error) or type(error).__name__) from error
    finally:
        connection.close()
    if status == _UNAUTHORIZED:
        raise BusError(f"{management.url} does not accept {management.username} and the password as an administrator")
    if status >= _FIRST_FAILURE:
        raise BusUnavailableError(management.url, f"it answers {method} {path} with status {status}")
    return status


def _connection(url: str, settings: BusSettings) -> http.client.HTTPConnection:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        # A password with a slash ends up as the port, which the error would show.
        host, port = "", None
    if host and parts.username is None:
        timeout_s = settings.connect_timeout_s
        match parts.scheme:
            case "https":
                tls = ssl.create_default_context(cafile=settings.ca_certs)
                return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)
            case "http":
                return http.client.HTTPConnection(host, port, timeout=timeout_s)
    raise BusError("the address of a management API is like https://host:15671, without an account in it")
