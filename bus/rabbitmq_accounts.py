"""Accounts on RabbitMQ, made through its management API: they reach what is called `fleetlight.…`, and nothing else.

Relay and indexer have equal rights, since either may be the first to declare everything of a cell (topology), and
declaring needs all three: to bind a queue to its exchange is to write to the queue, and to read the exchange. Two
accounts all the same, so that one can be taken away without the other; and one for the relay of each cell, where that
is wanted, which reaches nothing of other cells. A producer of announcements declares nothing, and only writes to the
exchanges of its cells.
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
    """The management API of one broker. url: `https://host:15671`, or `http:` where the network is trusted."""

    url: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Management({self.url})"


@dataclass(frozen=True, slots=True)
class Rights:
    """What a user may do with exchanges and queues: regular expressions of their names, as RabbitMQ has them."""

    configure: str
    write: str
    read: str

    @classmethod
    def of_relay(cls, cell_uuid: str) -> "Rights":
        """Everything of one cell."""
        return cls(*[rf"^fleetlight\.{re.escape(cell_uuid)}(\.(index|dead))?$"] * 3)

    @classmethod
    def of_producer(cls, cell_uuids: Sequence[str]) -> "Rights":
        """Only to write to the exchanges of these cells."""
        return cls(_NOTHING, rf"^fleetlight\.({'|'.join(map(re.escape, cell_uuids))})$", _NOTHING)


_NOTHING = "^$"
ALL_CELLS = Rights(*[r"^fleetlight\."] * 3)


def check_vhost(management: Management, vhost: str, settings: BusSettings) -> None:
    """Raise BusError if there is no such virtual host, or the administrator is none. Changes nothing.

    A user belongs to a whole broker: one that got a password for a virtual host that is not there would have lost the
    password that it has in the others. Raises BusUnavailableError too.
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
    """Make a user of `vhost`, which is there, or give the one that there is this password; can be repeated.

    Raises BusError for an address or an administrator that the broker does not accept, and BusUnavailableError.
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
    """Raise BusError if this can never be the address of a management API. Connects to nothing."""
    _connection(url, BusSettings())


def _status(management: Management, method: str, path: str, body: dict[str, str] | None, settings: BusSettings) -> int:
    """What the broker answers with. Raises BusError for an account that it does not accept, and BusUnavailableError."""
    account = b64encode(f"{management.username}:{management.password}".encode()).decode()
    headers = {"authorization": f"Basic {account}", "content-type": "application/json"}
    connection = _connection(management.url, settings)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        status = connection.getresponse().status
    except http.client.HTTPException as error:
        # Whose text is what the other side has sent: of TLS, or of AMQP, bytes that no terminal should get.
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
        # A password with a slash in it ends up as the port, which the error would name.
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
