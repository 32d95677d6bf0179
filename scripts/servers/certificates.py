"""A certificate authority made on the spot, and a certificate of it for a server on the loopback address."""

import shutil
import ssl
import subprocess
from pathlib import Path

from scripts.servers.errors import NotInstalledError, ServerError

CA_FILE = "ca.crt"
CERTIFICATE_FILE = "server.crt"
KEY_FILE = "server.key"

_DAYS = "7"
_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def make_certificates(server: str, folder: Path) -> None:
    """Write CA_FILE, CERTIFICATE_FILE and KEY_FILE to `folder`; the authority's own key is thrown away.

    server: for error texts. Raises NotInstalledError and ServerError.
    """
    ca_key, request, names = folder / "ca.key", folder / "server.csr", folder / "names.cnf"
    # Python 3.13 and newer want of a chain what RFC 5280 wants.
    names.write_text(f"{_NAMES}\nauthorityKeyIdentifier=keyid\n")
    new_key = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    authority = ("-subj", "/CN=Fleetlight test authority", "-keyout", str(ca_key), "-out", str(folder / CA_FILE))
    of_server = ("-subj", "/CN=localhost", "-keyout", str(folder / KEY_FILE), "-out", str(request))
    signing = ("-CA", str(folder / CA_FILE), "-CAkey", str(ca_key), "-CAcreateserial", "-extfile", str(names))
    _openssl(server, *new_key, "-x509", "-days", _DAYS, "-addext", "keyUsage=critical,keyCertSign,cRLSign", *authority)
    _openssl(server, *new_key, *of_server)
    certificate = ("-in", str(request), "-out", str(folder / CERTIFICATE_FILE))
    _openssl(server, "x509", "-req", "-days", _DAYS, *signing, *certificate)
    for left_over in (ca_key, request, names, folder / "ca.srl"):
        left_over.unlink(missing_ok=True)
    (folder / KEY_FILE).chmod(0o600)


def unchecked_tls() -> ssl.SSLContext:
    """For looking whether a server of ours on the loopback address answers, and nothing else."""
    # Without the authorities that the system trusts: to read them takes 30 ms of a processor, at each look.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _openssl(server: str, *arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise NotInstalledError(server, "openssl", "On Debian: apt-get install openssl")
    result = subprocess.run([program, *arguments], check=False, capture_output=True, text=True, timeout=60)
    if result.returncode != 0:
        raise ServerError(server, f"openssl {arguments[0]} failed\n{result.stderr.strip()}")
