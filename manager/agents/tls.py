"""TLS for both ends of a call: each side presents a certificate, and checks that of the other.

Files may be replaced while a process runs: later connections use the new ones, and open connections go on. An authority
that was trusted at the start stays trusted until the process ends.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetlight.manager.agents.errors import CertificateError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. certificate, key: our own. trusted: the authorities of the other side."""

    certificate: Path
    key: Path
    trusted: Path


class RenewedContext:
    """A TLS context that follows its files. is_server: for the called side, which demands certificates, too."""

    def __init__(self, files: TlsFiles, *, is_server: bool) -> None:
        """Raises CertificateError for unusable files."""
        self._files = files
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.verify_mode = ssl.CERT_REQUIRED
        self._seen = self._stamp()
        _load(self.context, files)

    def renew(self) -> bool:
        """Load changed files; returns whether any had changed. Raises CertificateError, and keeps the old ones then."""
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        # Load into another context first, so that half of a new pair does not get into the one in use.
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
