"""What is a secret by its name, in logs as well as in answers."""

import io
import json
import logging
import sys

import pytest
import structlog

from fleetlight.api.bodies.request_body import Body, RequestModel
from fleetlight.api.http.errors import BodyFieldError
from fleetlight.cli.logging import LogSettings, configure_logging, mask_url_passwords
from fleetlight.resources.secret_names import is_secret_name, mask_secret_parameters

SECRET_NAMES = [
    "password",
    "adminPass",
    "admin_pass",
    "passwd",
    "user_data",
    "userData",
    "Cookie",
    "Set-Cookie",
    "X-Auth-Token",
    "application_credential_secret",
    "api_key",
    "apiKey",
    "private_key",
    "Authorization",
    "contents",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_value_of_a_secret_name_is_in_no_log(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging(LogSettings())
    structlog.get_logger("test").info("event", **{name: "hunter2"}, nested=[{name: "hunter2"}])
    logging.getLogger().handlers.clear()
    assert json.loads(stream.getvalue())[name] == "***"
    assert "hunter2" not in stream.getvalue()


@pytest.mark.parametrize("name", ["name", "bypass", "path", "content_type", "host", "compass"])
def test_other_names_are_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("GET https://a/b?password=hunter2 failed", "GET https://a/b?password=*** failed"),
        ("/v2.1/servers?name=a&token=hunter2&limit=2", "/v2.1/servers?name=a&token=***&limit=2"),
        ("'/x?X-Auth-Token=hunter2'", "'/x?X-Auth-Token=***'"),
        ("/x?client_secret=a%20b#part", "/x?client_secret=***#part"),
        ("/x?name=token&marker=password", "/x?name=token&marker=password"),
        ("/x?password_file=%2Frun%2Fsecret&token_file=t", "/x?password_file=%2Frun%2Fsecret&token_file=t"),
        ("is it so? password=unset", "is it so? password=unset"),
    ],
)
def test_secrets_in_the_queries_of_addresses_are_masked(text: str, masked: str) -> None:
    assert mask_secret_parameters(text) == mask_url_passwords(text) == masked


def test_long_text_is_masked_in_a_time_that_grows_with_its_length_alone() -> None:
    for text in ("?" + "a" * 1_000_000, "?token" * 200_000, "&a" * 500_000):
        assert mask_secret_parameters(text) == text


class _Account(RequestModel):
    passwd: int
    limit: int


def test_answer_about_a_wrong_body_does_not_repeat_secrets() -> None:
    body = Body(_Account)
    with pytest.raises(BodyFieldError) as raised:
        body.check({"passwd": "hunter2", "limit": 1}, 1)
    assert "hunter2" not in str(raised.value)
