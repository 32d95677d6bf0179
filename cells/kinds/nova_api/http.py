"""One connection to one server over HTTP; what it says is not judged here.

Redirects are not followed: the credentials are for one address.
"""

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cells.errors import UpstreamError

_CHUNK = 65_536


class PassingError(UpstreamError):
    """The same request may succeed later."""


@dataclass(frozen=True, slots=True)
class Answer:
    """headers: with names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """Belongs to one thread at a time. Raises UpstreamError for an address that can never work.

    url: of the server, with the path that every request begins with. timeout_s: of one request.
    """

    def __init__(self, url: str, *, timeout_s: float, ca_certs: Path | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise UpstreamError("the address of an API must be like https://nova.example.org:8774/v2.1")
        self.name = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._path = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=ca_certs and str(ca_certs))
            self._http: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, context=context
            )
        else:
            self._http = http.client.HTTPConnection(parts.hostname, parts.port)

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        deadline_s: float | None = None,
    ) -> Answer:
        """deadline_s: on the monotonic clock, if it is to end before the timeout. Raises PassingError."""
        ends_s = time.monotonic() + self._timeout_s
        if deadline_s is not None:
            ends_s = min(ends_s, deadline_s)
        was_open = self._http.sock is not None
        try:
            try:
                return self._request(method, target, headers, body, ends_s)
            except (ConnectionError, http.client.BadStatusLine):
                # Most likely it was idle for longer than the other side waits for another request.
                self._http.close()
                if not was_open:
                    raise
                return self._request(method, target, headers, body, ends_s)
        except (OSError, http.client.HTTPException) as error:
            # Whatever is left of that answer must not be taken for the next one.
            self._http.close()
            raise PassingError(f"{self.name} cannot be reached: {str(error) or type(error).__name__}") from error

    def close(self) -> None:
        self._http.close()

    def _request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, ends_s: float
    ) -> Answer:
        self._wait_until(ends_s)
        self._http.request(method, self._path + target, body=body, headers=dict(headers))
        answer = self._http.getresponse()
        chunks = []
        while chunk := answer.read1(_CHUNK):
            chunks.append(chunk)
            self._wait_until(ends_s)
        answer.close()  # the connection stays
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, b"".join(chunks))

    def _wait_until(self, ends_s: float) -> None:
        remaining_s = ends_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError("no answer in time")
        self._http.timeout = remaining_s
        if self._http.sock is not None:
            self._http.sock.settimeout(remaining_s)
