"""The example of a proxy lets through what the API takes, and is no more patient with callers than the API."""

import re
import subprocess
from pathlib import Path

from fleetlight.api.bodies.request_body import MAX_BODY_BYTES
from fleetlight.api.identity import rights
from fleetlight.api.identity.openid import strategy
from fleetlight.api.settings import ApiSettings
from fleetlight.listing.watches.watch import RIGHTS_INTERVAL_S
from scripts.servers.certificates import CERTIFICATE_FILE, KEY_FILE, make_certificates

_FOLDER = "/etc/nginx/api"
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
    assert value_of("proxy_read_timeout", "s") > RIGHTS_INTERVAL_S + rights._TIMEOUT_S
    assert f"server 127.0.0.1:{ApiSettings().port};" in _EXAMPLE


def test_a_session_with_all_the_projects_that_it_can_hold_passes() -> None:
    assert value_of("proxy_buffer_size", "k") * 1024 > strategy._LONGEST_SESSION + 2048


def test_nginx_takes_the_example(nginx: Path, tmp_path: Path) -> None:
    make_certificates("nginx", tmp_path)
    text = _EXAMPLE.replace(f"{_FOLDER}.crt", f"{tmp_path}/{CERTIFICATE_FILE}").replace(
        f"{_FOLDER}.key", f"{tmp_path}/{KEY_FILE}"
    )
    file = tmp_path / "nginx.conf"
    file.write_text(f"pid {tmp_path}/nginx.pid;\n{text}")
    checked = subprocess.run([nginx, "-t", "-c", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
