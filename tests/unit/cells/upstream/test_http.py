"""How an API of other software is asked over HTTP."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.upstream.http import PassingError, UpstreamConnection
from scripts.servers.certificates import CA_FILE, CERTIFICATE_FILE, KEY_FILE, make_certificates
from tests.support.serving import QuietHandler, serving

Answer = Callable[[QuietHandler], None]


@contextmanager
def served(answer: Answer) -> Iterator[tuple[str, list[str]]]:
    """The address of a server, and the paths that it was asked for, one by one."""
    asked: list[str] = []

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            answer(self)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"http://{address}/v2.1", asked


def whole(handler: QuietHandler) -> None:
    handler.answer(200, b"{}", {"X-Name": "value"})


def test_answer_is_handed_over_as_it_came() -> None:
    with served(whole) as (url, asked), closing(UpstreamConnection(url, timeout_s=60)) as connection:
        for _ in range(2):
            answer = connection.get("/servers?limit=1", {"X-Auth-Token": "t"})
            assert (answer.status, answer.headers.get("x-name"), answer.body) == (200, "value", b"{}")
        assert asked == ["/v2.1/servers?limit=1"] * 2


def test_request_starts_no_thread() -> None:
    timers: list[threading.Timer] = []

    def counted(handler: QuietHandler) -> None:
        timers.extend(thread for thread in threading.enumerate() if isinstance(thread, threading.Timer))
        whole(handler)

    with served(counted) as (url, _), closing(UpstreamConnection(url, timeout_s=60)) as connection:
        assert connection.get("/servers", {}).status == 200
        assert not timers


def test_redirect_is_not_followed() -> None:
    def elsewhere(handler: QuietHandler) -> None:
        handler.send_response(301)
        handler.send_header("Location", "/v2.1/other")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with served(elsewhere) as (url, asked), closing(UpstreamConnection(url, timeout_s=60)) as connection:
        assert connection.get("/servers", {}).status == 301
        assert len(asked) == 1


def test_connection_that_ended_while_it_was_idle_is_replaced() -> None:
    ended = threading.Semaphore(0)

    def last(handler: QuietHandler) -> None:
        whole(handler)
        handler.close_connection = True  # which the answer does not say
        handler.connection.shutdown(socket.SHUT_WR)
        ended.release()

    with served(last) as (url, asked), closing(UpstreamConnection(url, timeout_s=60)) as connection:
        for _ in range(3):
            assert connection.get("/servers", {}).status == 200
            assert ended.acquire(timeout=60)
        assert len(asked) == 3


@pytest.mark.parametrize("part", [b"", b"x"])
def test_server_that_says_nothing_or_trickles_is_given_up_at_the_deadline(part: bytes) -> None:
    is_over = threading.Event()

    def slow(handler: QuietHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        while not is_over.wait(0.01):
            handler.wfile.write(part)

    with served(slow) as (url, asked), closing(UpstreamConnection(url, timeout_s=60)) as connection:
        try:
            with pytest.raises(PassingError, match="no answer in time"):
                connection.get("/servers", {}, deadline_s=time.monotonic() + 0.2)
        finally:
            is_over.set()
        assert len(asked) == 1


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\nX-Long: "])
def test_server_whose_headers_trickle_is_given_up_at_the_deadline(begin: bytes) -> None:
    is_over = threading.Event()

    def slow(handler: QuietHandler) -> None:
        handler.wfile.write(begin)
        with suppress(OSError):
            while not is_over.wait(0.01):
                handler.wfile.write(b"x")
        handler.close_connection = True

    with served(slow) as (url, asked), closing(UpstreamConnection(url, timeout_s=60)) as connection:
        try:
            with pytest.raises(PassingError, match="no answer in time"):
                connection.get("/servers", {}, deadline_s=time.monotonic() + 0.2)
        finally:
            is_over.set()
        assert len(asked) == 1


def test_answer_that_breaks_off_is_no_answer_and_is_asked_for_once() -> None:
    def broken(handler: QuietHandler) -> None:
        handler.answer(200, b"{", {"Content-Length": "10"})
        handler.close_connection = True

    with served(broken) as (url, asked), closing(UpstreamConnection(url, timeout_s=60)) as connection:
        with pytest.raises(PassingError, match="cannot be reached"):
            connection.get("/servers", {})
        assert len(asked) == 1


@contextmanager
def served_over_tls(certificate: Path, key: Path) -> Iterator[str]:
    """The address of a server with this certificate."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            whole(self)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server) as address:
        yield f"https://{address}"


def made_by_a_cluster(folder: Path) -> tuple[Path, Path]:
    """A certificate as Ganeti makes them: signed by itself, without an address; and its key."""
    folder.mkdir()
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = rsa.generate_private_key(65_537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ganeti.example.com")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(made.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(made, SHA256())
    )
    certificate.write_bytes(signed.public_bytes(Encoding.PEM))
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, key


def test_server_shows_the_certificate_that_was_given_whatever_its_name(tmp_path: Path) -> None:
    certificate, key = made_by_a_cluster(tmp_path / "cluster")
    another, _ = made_by_a_cluster(tmp_path / "another")
    with served_over_tls(certificate, key) as url:
        with closing(UpstreamConnection(url, timeout_s=60, ca_certs=certificate)) as connection:
            assert connection.get("/", {}).status == 200
        for given in (another, None):
            with (
                closing(UpstreamConnection(url, timeout_s=60, ca_certs=given)) as connection,
                pytest.raises(PassingError, match=r"(?i)certificate"),
            ):
                connection.get("/", {})


def test_certificate_of_an_authority_vouches_for_names_only(tmp_path: Path) -> None:
    make_certificates("an authority", tmp_path)
    with served_over_tls(tmp_path / CERTIFICATE_FILE, tmp_path / KEY_FILE) as url:
        with closing(UpstreamConnection(url, timeout_s=60, ca_certs=tmp_path / CA_FILE)) as connection:
            assert connection.get("/", {}).status == 200
        elsewhere = url.replace("127.0.0.1", "127.0.0.2")
        with (
            closing(UpstreamConnection(elsewhere, timeout_s=60, ca_certs=tmp_path / CA_FILE)) as connection,
            pytest.raises(PassingError),
        ):
            connection.get("/", {})


@pytest.mark.parametrize(("content", "said"), [(None, "cannot read"), (b"nothing", "has no certificates")])
def test_file_that_has_no_certificates_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UpstreamError, match=said):
        UpstreamConnection("https://127.0.0.1:1", timeout_s=60, ca_certs=path)
