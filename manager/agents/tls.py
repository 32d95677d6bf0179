"""TLS on both ends of a call: each side shows a certificate, and checks that of the other.

Files may be replaced while a process runs: the next connection is made with what they hold then, and those that are
open go on. An authority that was trusted at the start stays so until the process ends.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetlight.manager.agents.errors import CertificateError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. certificate, key: what we show. trusted: the authorities of the other side."""

    certificate: Path
    key: Path
    trusted: Path


class RenewedContext:
    """A context that follows its files. is_server: for the side that is called, which asks for certificates too."""

    def __init__(self, files: TlsFiles, *, is_server: bool) -> None:
        """Raises CertificateError for files that cannot be used."""
        self._files = files
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.verify_mode = ssl.CERT_REQUIRED
        self._seen = self._stamp()
        _load(self.context, files)

    def renew(self) -> bool:
        """Take what has changed in the files; whether anything has. Raises CertificateError, and keeps what it had."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        # First elsewhere: half of a new pair must not get into the context that is in use.
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self._files)
        _load(self.context, self._files)
        self._seen = stamp
        return True

    def _stamp(self) -> Sequence[tuple[int, int, int]]:
        try:
            found = [path.stat() for path in (self._files.certificate, self._files.key, self._files.trusted)]
        except OSError as error:
            raise CertificateError(f"cannot read {error.filename}: {error.strerror}") from error
        return [(each.st_mtime_ns, each.st_size, each.st_ino) for each in found]


def _load(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        context.load_verify_locations(cafile=files.trusted)
    except (ssl.SSLError, OSError) as error:
        raise CertificateError(f"{files.trusted} has no certificates of authorities in PEM form") from error
    try:
        context.load_cert_chain(files.certificate, files.key)
    except (ssl.SSLError, OSError) as error:
        raise CertificateError(
            f"{files.certificate} and {files.key} are not a certificate and its key in PEM form"
        ) from error
