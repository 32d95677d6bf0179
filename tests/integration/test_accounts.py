"""`fleetlight accounts` where no account can be made: what it says, and that it leaves no secret behind."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleetlight.cli.app import app


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the secrets would go; the administrator's password is in `password` beside it."""
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", f"sqlite:///{tmp_path}/fleet.db")
    (tmp_path / "password").write_text("sesame")
    return tmp_path / "accounts"


def accounts(out: Path, *arguments: str) -> Result:
    options = ("--administrator", "admin", "--password-file", str(out.parent / "password"), "--out", str(out))
    return CliRunner().invoke(app, ["accounts", *arguments, *options], catch_exceptions=False)


@pytest.mark.elasticsearch
def test_elasticsearch_without_security_says_that_it_knows_no_accounts(
    out: Path, elasticsearch_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", "elasticsearch")
    monkeypatch.setenv("FLEETLIGHT_INDEX_URLS", f'["{elasticsearch_url}"]')
    result = accounts(out, "elasticsearch")
    assert result.exit_code == 1
    assert "its security is off (xpack.security.enabled)" in result.output
    assert list(out.glob("*")) == []


def test_accounts_of_opensearch_are_made_by_hand_with_the_roles_of_the_docs(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", "opensearch")
    result = accounts(out, "elasticsearch")
    assert result.exit_code == 2
    assert "docs/operations/opensearch.md#accounts" in result.output
    assert list(out.glob("*")) == []


@pytest.mark.parametrize(
    "url", ["bus1", "https://admin:secret@bus1:15671", "https://admin:secret/x@bus1", "https://bus1:port"]
)
def test_what_is_no_address_of_a_management_api_is_wrong_usage(out: Path, url: str) -> None:
    result = accounts(out, "rabbitmq", "--management-url", url)
    assert result.exit_code == 2
    assert "--management-url: " in result.output
    assert "secret" not in result.output
    assert list(out.glob("*")) == []


def test_port_where_nobody_speaks_http_is_said_so_without_what_was_answered(out: Path) -> None:
    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"AMQP\0\0\x09\x01\r\n")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                """Or the answer would be thrown away with the connection."""

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as threads:
        answered = threads.submit(answer, listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        result = accounts(out, "rabbitmq", "--management-url", url)
        answered.result()
    assert result.exit_code == 1
    assert f"{url} is unavailable: it does not answer in HTTP" in result.output
    assert result.output.strip().isprintable()
    assert list(out.glob("*")) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--producer", "rack-agent"), "--producer: give --cell"),
        (("--producer", "a b", "--cell", "one"), "'a b' cannot be the name of a producer"),
    ],
)
def test_account_of_a_producer_without_a_cell_or_a_proper_name_is_wrong_usage(
    out: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = accounts(out, "rabbitmq", "--management-url", "https://[::1]:9", *arguments)
    assert result.exit_code == 2
    assert said in result.output
    assert list(out.glob("*")) == []
