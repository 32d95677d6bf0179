"""Webhooks: events posted in structured mode, signed according to Standard Webhooks.

The deliverer calls addresses that users choose. So each connection is checked at the address it is made to, and not by
an earlier resolution of the name (DNS rebinding). Redirects are not followed, proxies and cookies of the environment
are not used, and of an answer only the status is kept.
"""

import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib.metadata import version

from aiohttp import (
    AddrInfoType,
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)
from pydantic import SecretStr
from standardwebhooks import Webhook as Signer
from yarl import URL

from fleetlight.api.subscriptions.events import CONTENT_TYPE, Event
from fleetlight.api.subscriptions.targets import InnerAddressError, TargetRules
from fleetlight.delivery.outcomes import INNER, UNREACHABLE, UNTRUSTED, Away, Delivered, Outcome, Refused, Unwanted

_TIMEOUT_S = 15.0
# Shorter than servers keep idle connections, since a request on one that is about to be closed fails.
_KEEP_ALIVE_S = 4.0
_MOST_READ = 65_536
_AWAY = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}


class WebhookCalls:
    """The connections to all webhooks, in one event loop. timeout_s: how long one answer may take."""

    def __init__(self, rules: TargetRules, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._rules = rules
        self._timeout_s = timeout_s
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S, socket_factory=self._checked_socket),
            timeout=ClientTimeout(total=timeout_s),
            cookie_jar=DummyCookieJar(),
            auto_decompress=False,
            headers={"User-Agent": f"fleetlight/{version('fleetlight')}"},
        )

    async def post(self, url: URL, headers: Mapping[str, str], body: bytes) -> Outcome:
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                # The rest of a longer answer is not read, at the cost of the connection.
                await answer.content.read(_MOST_READ)
                return _outcome(answer.status, answer.headers.get("Retry-After"))
        except TimeoutError:
            return Away(f"no answer in {self._timeout_s:g} s")
        except (ClientError, OSError) as error:
            return Away(_reason(error))

    async def close(self) -> None:
        await self._session.close()

    def _checked_socket(self, address: AddrInfoType) -> socket.socket:
        """Open a socket for an allowed address. Raises InnerAddressError."""
        family, kind, protocol, _, sockaddr = address
        self._rules.check_address(str(sockaddr[0]))
        return socket.socket(family, kind, protocol)


class Webhook:
    """One target. key: from `fleetlight.api.subscriptions.handlers.new_key`."""

    def __init__(self, calls: WebhookCalls, url: str, key: SecretStr) -> None:
        self._calls = calls
        self._url = URL(url, encoded=True)
        self._signer = Signer(key.get_secret_value())

    async def send(self, event: Event) -> Outcome:
        now = datetime.now(UTC)
        headers = {
            "Content-Type": CONTENT_TYPE,
            "webhook-id": event.id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": self._signer.sign(event.id, now, event.body),
        }
        return await self._calls.post(self._url, headers, event.body.encode())

    async def close(self) -> None:
        """Do nothing: the connections are shared by all webhooks."""


def _outcome(status: int, retry_after: str | None) -> Outcome:
    if 200 <= status < 300:
        return Delivered()
    if status == HTTPStatus.GONE:
        return Unwanted("the target answered 410: it wants no more")
    if status in _AWAY:
        return Away(f"it answered {status}", _seconds(retry_after))
    hint = "; redirects are not followed" if 300 <= status < 400 else ""
    return Refused(f"it answered {status}{hint}")


def _seconds(retry_after: str | None) -> float | None:
    """Parse the header Retry-After: seconds, or a date (RFC 9110, section 10.2.3); None for anything else."""
    if retry_after is None:
        return None
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after[:9])
    try:
        at = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _reason(error: Exception) -> str:
    """The reason in words that reveal nothing of the internal network."""
    cause = error.os_error if isinstance(error, ClientConnectorError) else error
    if isinstance(cause, InnerAddressError):
        return INNER
    if isinstance(error, ClientConnectorCertificateError):
        return UNTRUSTED
    if isinstance(error, ClientConnectorError):
        return UNREACHABLE
    return f"the connection broke off ({type(error).__name__})"
