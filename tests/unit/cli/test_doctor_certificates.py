"""The doctor reads of each server that speaks TLS when its certificate ends."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetlight.cells.findings import Finding, State
from fleetlight.cli.doctor.certificates import certificate_checks
from fleetlight.cli.settings import load_settings
from fleetlight.manager.agents.certificates import Role, issue, new_authority
from fleetlight.resources.clock import system_clock

pytestmark = pytest.mark.usefixtures("empty_place")

_HALF_A_DAY = timedelta(hours=12)


@contextmanager
def tls_server(folder: Path, ends_in: timedelta, *, asked_first: bytes = b"") -> Iterator[int]:
    """The port of one with a certificate that ends then. asked_first: its answer before TLS begins, as PostgreSQL."""
    now = datetime.now(UTC)
    authority = new_authority("test", now - timedelta(days=1000))
    pair = issue(authority, Role.AGENT, "server", now + ends_in - timedelta(days=365))
    (folder / "it.pem").write_bytes(pair.certificate)
    (folder / "it.key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "it.pem", folder / "it.key")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    if asked_first:
                        connection.recv(8)
                        connection.sendall(asked_first)
                    context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(20)


def found(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[Finding]:
    for name, value in variables.items():
        monkeypatch.setenv(f"FLEETLIGHT_{name}", value)
    checks = certificate_checks(load_settings(None, None), [], system_clock)
    return [finding for check in checks for finding in check.run()]


@pytest.mark.parametrize(
    ("backend", "days", "state", "says"),
    [
        ("elasticsearch", 60, State.OK, "in 60 days"),
        ("opensearch", 13, State.WRONG, "in 13 days"),
        ("elasticsearch", -1, State.WRONG, "has ended at "),
    ],
)
def test_end_of_the_certificate_of_the_index_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, backend: str, days: int, state: State, says: str
) -> None:
    with tls_server(tmp_path, timedelta(days=days) + _HALF_A_DAY) as port:
        urls = f'["https://127.0.0.1:{port}"]'
        variables = {"INDEX_BACKEND": backend, "INDEX_URLS": urls, "FLEET_DATABASE_URL": "sqlite:///fleet.db"}
        (finding,) = found(monkeypatch, **variables)
    assert (finding.about, finding.state) == (f"certificate of 127.0.0.1:{port}", state)
    assert says in finding.evidence
    assert (finding.remedy is None) is (state is State.OK)


def test_postgresql_is_asked_for_tls_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with tls_server(tmp_path, timedelta(days=5) + _HALF_A_DAY, asked_first=b"S") as port:
        (finding,) = found(monkeypatch, FLEET_DATABASE_URL=f"postgresql://127.0.0.1:{port}/fleet")
    assert "in 5 days" in finding.evidence


def test_server_without_tls_and_one_that_is_away_have_no_certificate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with tls_server(tmp_path, timedelta(days=5), asked_first=b"N") as port:
        assert found(monkeypatch, FLEET_DATABASE_URL=f"postgresql://127.0.0.1:{port}/fleet") == []
    assert found(monkeypatch, FLEET_DATABASE_URL=f"postgresql://127.0.0.1:{port}/fleet") == []
