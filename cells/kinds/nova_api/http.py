"""One connection to one server over HTTP, by urllib3; what the server says is not judged here.

keystoneauth1's sessions wait for each silence of a server, and one that trickles is never silent. Here a request ends
soon after its deadline: at the first part of the answer that comes behind it, or when none comes for as long.
Redirects are not followed: the credentials are for one address.
"""

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as Urllib3TimeoutError

from cells.errors import UpstreamError

_CHUNK = 65_536


class PassingError(UpstreamError):
    """The same request may succeed later."""


@dataclass(frozen=True, slots=True)
class Answer:
    """headers: by names, in lower case or not."""

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
        self._pool = (
            HTTPSConnectionPool(
                parts.hostname,
                parts.port,
                ssl_context=ssl.create_default_context(cafile=ca_certs and str(ca_certs)),
            )
            if parts.scheme == "https"
            else HTTPConnectionPool(parts.hostname, parts.port)
        )

    def get(self, target: str, headers: Mapping[str, str], *, deadline_s: float | None = None) -> Answer:
        """deadline_s: on the monotonic clock, if it is to end before the timeout. Raises PassingError."""
        ends_s = time.monotonic() + self._timeout_s
        if deadline_s is not None:
            ends_s = min(ends_s, deadline_s)
        try:
            return self._get(target, headers, ends_s)
        except (TimeoutError, Urllib3TimeoutError):
            raise PassingError(f"{self.name} cannot be reached: no answer in time") from None
        except (HTTPError, OSError) as error:
            raise PassingError(f"{self.name} cannot be reached: {error}") from error

    def close(self) -> None:
        self._pool.close()

    def _get(self, target: str, headers: Mapping[str, str], ends_s: float) -> Answer:
        answer = self._pool.urlopen(
            "GET",
            self._path + target,
            headers=dict(headers),
            retries=False,
            redirect=False,
            timeout=Timeout(total=_left_s(ends_s)),
            preload_content=False,
        )
        try:
            chunks = []
            while chunk := answer.read1(_CHUNK):
                chunks.append(chunk)
                _left_s(ends_s)
        except BaseException:
            answer.close()  # what is left of it must not be taken for the next one
            raise
        answer.release_conn()
        return Answer(answer.status, answer.headers, b"".join(chunks))


def _left_s(ends_s: float) -> float:
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
