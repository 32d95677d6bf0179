"""A login that is refused is in the log, with the name that was given and the address that it came from."""

import io
import json
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetlight.api.identity.basic import BasicIdentity
from fleetlight.api.limits.login_limit import MOST_FAILURES
from fleetlight.cli.logging import LogSettings, configure_logging
from tests.contract.compute_fleet import ComputeFleet
from tests.contract.identity_site import Site
from tests.support.fleets.identity import login, password_login, weak_hash

Events = Callable[[], list[Mapping[str, Any]]]


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Events:
    """The refused logins that were logged."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging(LogSettings())

    def read() -> list[Mapping[str, Any]]:
        events = map(json.loads, stream.getvalue().splitlines())
        return [event for event in events if event["event"] == "login_refused"]

    return read


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (password_login("mia", "gue55"), "mia"),
        (password_login("no\x1b[2Jbody", "gue55"), "no\N{REPLACEMENT CHARACTER}[2Jbody"),
        (password_login("x" * 1000, "gue55"), "x" * 255 + "…"),
        (login("password", {"user": {"id": "id-mia", "password": "gue55"}}), "id-mia"),
        (login("application_credential", {"id": "backup-1", "secret": "gue55"}), "backup-1"),
        (login("token", {"id": "gue55"}), None),
    ],
)
def test_refused_login_is_logged_with_name_and_address(
    fleet: ComputeFleet, tmp_path: Path, refusals: Events, body: Any, name: str | None
) -> None:
    site = Site(fleet, tmp_path)
    answer = site.post_login(body)
    assert answer.status_code == 401
    (event,) = refusals()
    assert (event["login"], event["address"], event["level"]) == (name, "127.0.0.1", "warning")
    assert event["request_id"] == answer.headers["X-Openstack-Request-Id"]
    assert "gue55" not in str(event)


def test_login_that_comes_too_often_is_logged_as_well(fleet: ComputeFleet, tmp_path: Path, refusals: Events) -> None:
    site = Site(fleet, tmp_path)
    for _ in range(MOST_FAILURES):
        site.post_login(password_login("mia", "wrong"))
    assert site.post_login(password_login("mia", "wrong")).status_code == 429
    assert [event["login"] for event in refusals()] == ["mia"] * (MOST_FAILURES + 1)


def test_refused_login_of_basic_authentication_is_logged_with_name_and_address(
    fleet: ComputeFleet, tmp_path: Path, refusals: Events
) -> None:
    users = tmp_path / "users"
    users.write_text(f"bob:{weak_hash('his')}:demo:member\n")
    api = fleet.api(identity=BasicIdentity(users))
    for name in ("bob", "nobody"):
        credentials = b64encode(f"{name}:wrong".encode()).decode()
        assert api.get("/v2.1/servers", {"Authorization": f"Basic {credentials}"}).status_code == 401
    assert [(event["login"], event["address"]) for event in refusals()] == [
        ("bob", "127.0.0.1"),
        ("nobody", "127.0.0.1"),
    ]


def test_secrets_of_one_credential_are_guessed_no_more_often_with_invented_users(
    fleet: ComputeFleet, tmp_path: Path
) -> None:
    site = Site(fleet, tmp_path)
    for number in range(MOST_FAILURES):
        user = {"id": f"nobody-{number}"}
        guess = login("application_credential", {"id": "backup-1", "secret": "gue55", "user": user})
        assert site.post_login(guess).status_code == 401
    assert site.use_credential("backup-1", "gue55").status_code == 429


def test_login_that_succeeds_is_not_refused(fleet: ComputeFleet, tmp_path: Path, refusals: Events) -> None:
    Site(fleet, tmp_path).log_in("mia")
    assert refusals() == []
