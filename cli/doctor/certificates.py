"""Checks when the certificates of servers expire, without an account, and before a process fails for it.

They read only the expiry date. Each process that connects verifies the authority and the name of the server.
"""

import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import urlsplit

from cryptography import x509
from sqlalchemy.engine import make_url

from fleetlight.bus.external_exchange import split_address
from fleetlight.cells.findings import Finding, ok, wrong
from fleetlight.cells.model import Cell
from fleetlight.cli.doctor.checks import Check
from fleetlight.cli.settings import Settings
from fleetlight.notifications.errors import BusError
from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_SOON = timedelta(days=14)
"""Tools that renew certificates do so a month before expiry, so one this close to it was not renewed."""
_RENEW = "renew it: docs/operations/runbooks/certificates.md"
_TIMEOUT_S = 3.0
"""Shorter than the deadline of a check: if a server hangs, the check of that server itself reports it."""
_AMQPS_PORT, _POSTGRESQL_PORT = 5671, 5432
_SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
"""The message with which a PostgreSQL client asks for TLS; the answer is one byte (PostgreSQL, "Message Formats")."""
_WILLING = b"S"


@dataclass(frozen=True, slots=True)
class TlsServer:
    """A server that may speak TLS. asks_first: the client must ask for TLS first, as with PostgreSQL."""

    host: str
    port: int
    asks_first: bool = False


def certificate_checks(settings: Settings, cells: Sequence[Cell], clock: Clock) -> list[Check]:
    """One check for each server that may speak TLS: servers of the index, the buses and the databases."""
    servers = dict.fromkeys([*_of_index(settings), *_of_databases(settings, cells), *_of_buses(cells)])
    return [
        Check(f"certificate of {server.host}:{server.port}", partial(_examine, server, clock), _RENEW)
        for server in servers
    ]


def _of_index(settings: Settings) -> Iterator[TlsServer]:
    if settings.index.backend != "sqlite":
        for parts in map(urlsplit, settings.index.urls):
            if parts.scheme == "https" and parts.hostname and parts.port:
                yield TlsServer(parts.hostname, parts.port)


def _of_buses(cells: Sequence[Cell]) -> Iterator[TlsServer]:
    for cell in cells:
        try:
            parts = urlsplit(split_address(cell.transport_url)[0])
        except BusError:
            continue  # the check about the bus says so
        if parts.scheme == "amqps" and parts.hostname:
            yield TlsServer(parts.hostname, parts.port or _AMQPS_PORT)


def _of_databases(settings: Settings, cells: Sequence[Cell]) -> Iterator[TlsServer]:
    addresses = [settings.fleet.database_url.get_secret_value()]
    addresses += [cell.database_url for cell in cells if cell.can.takes_changes]
    for url in map(make_url, addresses):
        if url.get_backend_name() == "postgresql" and url.host:
            yield TlsServer(url.host, url.port or _POSTGRESQL_PORT, asks_first=True)


def _examine(server: TlsServer, clock: Clock) -> Sequence[Finding]:
    try:
        certificate = _certificate(server)
    except OSError:
        # Another check reports whether the server answers.
        return []
    if certificate is None:
        return []
    about = f"certificate of {server.host}:{server.port}"
    ends = x509.load_der_x509_certificate(certificate).not_valid_after_utc
    left = ends - datetime.fromtimestamp(clock() / MICROSECONDS_PER_SECOND, UTC)
    if left <= timedelta():
        return [wrong(about, f"has ended at {ends:%Y-%m-%d %H:%M} UTC", _RENEW)]
    says = f"ends at {ends:%Y-%m-%d}, in {left.days} days"
    return [wrong(about, says, _RENEW) if left < _SOON else ok(about, says)]


def _certificate(server: TlsServer) -> bytes | None:
    """The certificate in DER form; None if the server does not speak TLS. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with closing(socket.create_connection((server.host, server.port), timeout=_TIMEOUT_S)) as plain:
        if server.asks_first:
            plain.sendall(_SSL_REQUEST)
            if plain.recv(len(_WILLING)) != _WILLING:
                return None
        with context.wrap_socket(plain, server_hostname=server.host) as tls:
            return tls.getpeercert(binary_form=True)
