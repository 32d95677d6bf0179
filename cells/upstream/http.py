"""One connection to one server over HTTP, by urllib3; what the server says is not judged here.

keystoneauth1's sessions wait for each silence of a server, and one that trickles is never silent. Here a request ends
soon after its deadline: at the first part of the answer that comes behind it, or when none comes for as long.
Redirects are not followed: the credentials are for one address.

A file with one certificate that is no authority's holds that of the server itself, as of a Ganeti cluster, whose
certificate names no address: then the server has to show exactly that one, and its name is not looked at.
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPResponse, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as Urllib3TimeoutError

from fleetlight.cells.errors import UpstreamError

_CHUNK = 65_536
_LARGEST_ANSWER = 512 * 1024 * 1024


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
            raise UpstreamError("the address of an API must be like https://api.example.org:8774/v2.1")
        self.name = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._path = parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._pool = (
            _SecurePool(
                parts.hostname,
                parts.port,
                # First, since it says what is wrong with the file.
                assert_fingerprint=None if ca_certs is None else _fingerprint_of_server(ca_certs),
                ssl_context=ssl.create_default_context(cafile=ca_certs and str(ca_certs)),
            )
            if parts.scheme == "https"
            else _Pool(parts.hostname, parts.port)
        )

    def get(self, target: str, headers: Mapping[str, str], *, deadline_s: float | None = None) -> Answer:
        """As `request`, without a body."""
        return self.request("GET", target, headers, deadline_s=deadline_s)

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        *,
        body: bytes | None = None,
        deadline_s: float | None = None,
    ) -> Answer:
        """deadline_s: on the monotonic clock, if it is to end before the timeout.

        Raises PassingError, and UpstreamError for an answer that does not end.
        """
        ends_s = time.monotonic() + self._timeout_s
        if deadline_s is not None:
            ends_s = min(ends_s, deadline_s)
        try:
            return self._request(method, target, headers, body, ends_s)
        except (TimeoutError, Urllib3TimeoutError):
            raise PassingError(f"{self.name} cannot be reached: no answer in time") from None
        except (HTTPError, OSError) as error:
            raise PassingError(f"{self.name} cannot be reached: {error}") from error

    def close(self) -> None:
        self._pool.close()

    def _request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, ends_s: float
    ) -> Answer:
        answer = self._pool.urlopen(
            method,
            self._path + target,
            body=body,
            headers=dict(headers),
            retries=False,
            redirect=False,
            timeout=Timeout(total=_left_s(ends_s)),
            preload_content=False,
        )
        try:
            body = b"".join(self._chunks(answer, ends_s))
        except BaseException:
            answer.close()  # what is left of it must not be taken for the next one
            raise
        answer.release_conn()
        return Answer(answer.status, answer.headers, body)

    def _chunks(self, answer: BaseHTTPResponse, ends_s: float) -> Iterator[bytes]:
        size = 0
        while chunk := answer.read1(_CHUNK):
            size += len(chunk)
            if size > _LARGEST_ANSWER:
                raise UpstreamError(f"{self.name} answers with more than {_LARGEST_ANSWER} bytes")
            yield chunk
            _left_s(ends_s)


class _AnswersInTime(HTTPConnection):
    """One whose answer begins within the timeout, however its headers trickle in: http.client waits for each byte."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as of urllib3
        is_late = threading.Event()

        def end(connection: socket.socket) -> None:
            is_late.set()
            with suppress(OSError):
                # That of TLS itself would change the connection under the one who reads.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

        timeout_s = self.timeout
        if self.sock is None or not isinstance(timeout_s, int | float):
            return super().getresponse()
        timer = threading.Timer(timeout_s, end, [self.sock])
        timer.daemon = True
        timer.start()
        try:
            answer = super().getresponse()
        except (OSError, HTTPException) as error:
            if is_late.is_set():
                raise TimeoutError from error
            raise
        finally:
            timer.cancel()
        if is_late.is_set():
            answer.close()
            raise TimeoutError
        return answer


class _AnswersInTimeSecurely(_AnswersInTime, HTTPSConnection):
    """The same over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _AnswersInTime


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _AnswersInTimeSecurely


def _left_s(ends_s: float) -> float:
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _fingerprint_of_server(path: Path) -> str | None:
    """That of the certificate of the server itself; None if the file has certificates of authorities."""
    # Whoever reads no certificates does not wait for what does.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415

    try:
        certificates = x509.load_pem_x509_certificates(path.read_bytes())
    except ValueError as error:
        raise UpstreamError(f"{path} has no certificates: {error}") from error
    except OSError as error:
        raise UpstreamError(f"cannot read {path}: {error.strerror}") from error
    if len(certificates) != 1:
        return None
    try:
        if certificates[0].extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return None
    except x509.ExtensionNotFound:
        pass  # it signs nothing
    return certificates[0].fingerprint(SHA256()).hex()
