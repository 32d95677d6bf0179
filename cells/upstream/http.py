"""One connection to one server over HTTP, by urllib3; the caller interprets statuses and bodies.

keystoneauth1's sessions limit each silence of a server, but a server that trickles is never silent. Here a request ends
at its deadline. Redirects are not followed, since the credentials are for one address.

A file with one certificate that is no authority's holds that of the server itself, as of a Ganeti cluster, whose
certificate names no address: then the server has to show exactly that one, and its name is not looked at.
"""

import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as Urllib3TimeoutError

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.upstream.timed_requests import (
    AnswerTooLargeError,
    HttpAnswer,
    TimedPool,
    TimedSecurePool,
    request_in_time,
)

_LARGEST_ANSWER = 512 * 1024 * 1024


class PassingError(UpstreamError):
    """The same request may succeed later."""


class UpstreamConnection:
    """A connection; for one thread at a time. Raises UpstreamError for an address that can never work.

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
            TimedSecurePool(
                parts.hostname,
                parts.port,
                # First, since it says what is wrong with the file.
                assert_fingerprint=None if ca_certs is None else _fingerprint_of_server(ca_certs),
                ssl_context=ssl.create_default_context(cafile=ca_certs and str(ca_certs)),
            )
            if parts.scheme == "https"
            else TimedPool(parts.hostname, parts.port)
        )

    def get(self, target: str, headers: Mapping[str, str], *, deadline_s: float | None = None) -> HttpAnswer:
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
    ) -> HttpAnswer:
        """Send one request. deadline_s: on the monotonic clock, if earlier than the timeout.

        Raises PassingError if the server does not answer in time, and UpstreamError if its answer is too large.
        """
        ends_s = time.monotonic() + self._timeout_s
        if deadline_s is not None:
            ends_s = min(ends_s, deadline_s)
        try:
            return request_in_time(
                self._pool,
                method,
                self._path + target,
                headers,
                body,
                ends_s=ends_s,
                largest_bytes=_LARGEST_ANSWER,
            )
        except (TimeoutError, Urllib3TimeoutError):
            raise PassingError(f"{self.name} cannot be reached: no answer in time") from None
        except AnswerTooLargeError:
            raise UpstreamError(f"{self.name} answers with more than {_LARGEST_ANSWER} bytes") from None
        except (HTTPError, OSError) as error:
            raise PassingError(f"{self.name} cannot be reached: {error}") from error

    def close(self) -> None:
        self._pool.close()


def _fingerprint_of_server(path: Path) -> str | None:
    """The fingerprint of a server's own certificate in a file; None if the file has certificates of authorities."""
    # A caller that reads no certificates does not wait for this import.
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
