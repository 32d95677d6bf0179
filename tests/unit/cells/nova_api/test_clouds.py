"""Logins of clouds.yaml, at a Keystone that notes what it is asked for."""

import json
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.kinds.nova_api.clouds import read_cloud
from fleetlight.cells.upstream.credentials import Credentials
from fleetlight.cells.upstream.http import PassingError
from tests.support.serving import QuietHandler, serving

PASSWORD = {"username": "me", "password": "secret", "project_name": "p"}


class Keystone:
    """Gives out the tokens t1, t2, …, or the status that is set."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.status = 201
        keystone = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                self.send_error(404)  # what versions there are; the address says it too

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                keystone.asked.append(body["auth"])
                token = {"expires_at": "2999-01-01T00:00:00Z", "methods": ["password"], "user": {"id": "u"}}
                headers = {"X-Subject-Token": f"t{len(keystone.asked)}", "Content-Type": "application/json"}
                self.answer(keystone.status, json.dumps({"token": token}).encode(), headers)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v3"


@pytest.fixture
def keystone() -> Iterator[Keystone]:
    keystone = Keystone()
    with serving(keystone.server):
        yield keystone


def login(directory: Path, keystone: Keystone, auth: dict[str, str], **cloud: str) -> Credentials:
    file = directory / "clouds.yaml"
    file.write_text(yaml.safe_dump({"clouds": {"east": {"auth": {"auth_url": keystone.url, **auth}, **cloud}}}))
    return read_cloud(file, "east", timeout_s=60).credentials


@pytest.mark.parametrize(
    ("auth", "cloud", "asked"),
    [
        (
            PASSWORD,
            {},
            {
                "identity": {
                    "methods": ["password"],
                    "password": {"user": {"name": "me", "domain": {"name": "Default"}, "password": "secret"}},
                },
                "scope": {"project": {"name": "p", "domain": {"name": "Default"}}},
            },
        ),
        (
            {**PASSWORD, "user_domain_id": "d1", "domain_name": "both"},
            {"auth_type": "v3password"},
            {
                "identity": {
                    "methods": ["password"],
                    "password": {"user": {"name": "me", "domain": {"id": "d1"}, "password": "secret"}},
                },
                "scope": {"project": {"name": "p", "domain": {"name": "both"}}},
            },
        ),
        (
            {"user_id": "u", "password": "secret", "project_id": "p"},
            {},
            {
                "identity": {"methods": ["password"], "password": {"user": {"id": "u", "password": "secret"}}},
                "scope": {"project": {"id": "p"}},
            },
        ),
        (
            {"application_credential_id": "c", "application_credential_secret": "secret"},
            {},
            {
                "identity": {
                    "methods": ["application_credential"],
                    "application_credential": {"id": "c", "secret": "secret"},
                }
            },
        ),
    ],
)
def test_login_asks_for_what_the_file_says(
    tmp_path: Path, keystone: Keystone, auth: dict[str, str], cloud: dict[str, str], asked: object
) -> None:
    credentials = login(tmp_path, keystone, auth, **cloud)
    assert [credentials.headers(None)["X-Auth-Token"] for _ in range(2)] == ["t1", "t1"]
    assert keystone.asked == [asked]


def test_token_is_got_again_once_it_was_refused(tmp_path: Path, keystone: Keystone) -> None:
    credentials = login(tmp_path, keystone, PASSWORD)
    refused = credentials.headers(None)
    assert credentials.renew(refused)
    assert credentials.headers(None) == {"X-Auth-Token": "t2"}
    assert credentials.renew(refused), "another thread has got a new one, which stays"
    assert credentials.headers(None) == {"X-Auth-Token": "t2"}


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (401, UpstreamError, "refuses the login: status 401"),
        (503, PassingError, "answers with status 503"),
    ],
)
def test_refusals_are_told_without_secrets(
    tmp_path: Path, keystone: Keystone, status: int, kind: type[UpstreamError], said: str
) -> None:
    keystone.status = status
    credentials = login(tmp_path, keystone, PASSWORD)
    with pytest.raises(kind, match=said) as refused:
        credentials.headers(None)
    assert "secret" not in str(refused.value)
    assert len(keystone.asked) == 1, "nothing is tried a second time"


def test_login_ends_with_the_deadline(tmp_path: Path, keystone: Keystone) -> None:
    credentials = login(tmp_path, keystone, PASSWORD)
    with pytest.raises(PassingError, match="no answer in time"):
        credentials.headers(time.monotonic() - 1)
    assert keystone.asked == []
