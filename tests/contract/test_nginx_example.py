"""The example of a proxy lets through what the API takes, and is no more patient with callers than the API."""

import re
from pathlib import Path

from api.http.request_body import MAX_BODY_BYTES
from api.identity import rights
from api.settings import ApiSettings
from listing.watches.watch import RIGHTS_INTERVAL_S

_EXAMPLE = (Path(__file__).parents[2] / "docs" / "operations" / "nginx.conf").read_text()


def value_of(directive: str, unit: str) -> int:
    (value,) = re.findall(rf"^\s*{directive} (\d+){unit};$", _EXAMPLE, re.MULTILINE)
    return int(value)


def test_bodies_that_the_api_takes_pass() -> None:
    assert value_of("client_max_body_size", "k") * 1024 == MAX_BODY_BYTES


def test_requests_have_no_more_time_than_at_the_api() -> None:
    assert value_of("client_header_timeout", "s") <= ApiSettings().header_timeout_s
    assert value_of("client_body_timeout", "s") <= ApiSettings().body_timeout_s


def test_stream_that_is_silent_while_rights_are_looked_up_is_not_cut_off() -> None:
    assert value_of("proxy_read_timeout", "s") > RIGHTS_INTERVAL_S + rights._PATIENCE_S
    assert f"server 127.0.0.1:{ApiSettings().port};" in _EXAMPLE
