"""Where APIs are found, and how they are asked: addresses, clouds, catalogues, and logins that end."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.upstream.credentials import TokenFile
from fleetlight.cells.upstream.http import PassingError
from fleetlight.cli.compare.questions import Question
from fleetlight.cli.compare.sites import Login, Site, open_site
from fleetlight.cli.errors import ConfigurationError
from tests.unit.cells.upstream.test_http import served

REGIONS = [
    {"interface": "internal", "region": "east", "url": "http://inside/v2.1"},
    {"interface": "public", "region": "west", "url": "http://west/v2.1"},
    {"interface": "public", "region": "east", "url": "http://east/v2.1"},
]
CATALOG = {"catalog": [{"type": "image", "endpoints": []}, {"type": "compute", "endpoints": REGIONS}]}


def answering(document: Any, status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def clouds(folder: Path, **cloud: Any) -> Login:
    file = folder / "clouds.yaml"
    file.write_text(yaml.safe_dump({"clouds": {"a": {"auth_type": "token", "auth": {"token": "t"}, **cloud}}}))
    return Login(clouds_file=file)


def address(login: Login) -> str:
    with closing(open_site("nova", "a", login)) as site:
        return site.url


@pytest.mark.parametrize(
    ("cloud", "url"),
    [
        ({"region_name": "east"}, "http://east/v2.1"),
        ({}, "http://west/v2.1"),
        ({"interface": "internal"}, "http://inside/v2.1"),
    ],
)
def test_address_of_a_cloud_is_that_of_its_catalogue(tmp_path: Path, cloud: Mapping[str, str], url: str) -> None:
    with served(answering(CATALOG)) as (keystone, asked):
        for auth_url in (keystone, f"{keystone}/v3", f"{keystone}/v3/"):
            auth = {"token": "t", "auth_url": auth_url}
            assert address(clouds(tmp_path, auth=auth, **cloud)) == url
        assert asked == ["/v2.1/v3/auth/catalog"] * 3


def test_address_that_the_file_has_comes_before_the_catalogue(tmp_path: Path) -> None:
    assert address(clouds(tmp_path, compute_endpoint_override="http://mine/v2.1/")) == "http://mine/v2.1"
    auth = {"token": "t", "endpoint": "http://other/v2.1"}
    assert address(clouds(tmp_path, auth=auth)) == "http://other/v2.1"


@pytest.mark.parametrize(
    ("document", "status", "said"),
    [
        (CATALOG, 401, "does not show its catalogue: status 401"),
        ({"catalog": []}, 200, "has no compute API (interface public, region east)"),
        ({"catalog": [{"type": "compute"}]}, 200, "has no compute API"),
        ([], 200, "has no compute API"),
        (b"<html>", 200, "has no compute API"),
    ],
)
def test_catalogue_without_a_compute_api_is_refused(tmp_path: Path, document: Any, status: int, said: str) -> None:
    with served(answering(document, status)) as (keystone, _):
        login = clouds(tmp_path, auth={"token": "t", "auth_url": keystone}, region_name="east")
        with pytest.raises(ConfigurationError) as refused:
            open_site("nova", "a", login)
    assert str(refused.value).startswith("--nova: ")
    assert said in str(refused.value)


@pytest.mark.parametrize("place", ["ftp://nova/v2.1", "http://user:secret@nova/v2.1", "http://nova/v2.1?x=1"])
def test_address_that_is_none_of_an_api_is_refused_without_its_secrets(place: str) -> None:
    with pytest.raises(ConfigurationError, match="must be like https://") as refused:
        open_site("nova", place, Login())
    assert "secret" not in str(refused.value)


def test_cloud_without_an_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="auth_url is missing, or no address"):
        open_site("nova", "a", clouds(tmp_path))


def test_keystone_that_is_away_may_be_back_later(tmp_path: Path) -> None:
    with served(answering(CATALOG)) as (keystone, _):
        login = clouds(tmp_path, auth={"token": "t", "auth_url": keystone})
    with pytest.raises(PassingError):
        open_site("nova", "a", login)


def test_token_that_has_ended_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    tokens: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        tokens.append(handler.headers["X-Auth-Token"])
        token.write_text("new\n")
        answering({"servers": []}, 401 if tokens[-1] == "old" else 200)(handler)

    with served(answer) as (url, _), closing(Site("nova", url, TokenFile(token), None)) as site:
        assert site.ask(Question("/servers")).status == 200
    assert tokens == ["old", "new"]


def test_login_that_has_ended_for_good_is_no_answer() -> None:
    with (
        served(answering({}, 401)) as (url, _),
        closing(open_site("nova", url, Login())) as site,
        pytest.raises(UpstreamError, match="refuses the login: status 401"),
    ):
        site.ask(Question("/servers"))


def test_api_that_says_no_microversion_is_refused() -> None:
    refused = pytest.raises(ConfigurationError, match="does not say its microversions")
    with served(answering({"servers": []})) as (url, _), closing(open_site("nova", url, Login())) as site, refused:
        site.newest()


def test_answer_that_is_no_json_is_an_answer() -> None:
    with served(answering(b"<html>", 502)) as (url, _), closing(open_site("nova", url, Login())) as site:
        answer = site.ask(Question("/servers"))
        assert (answer.status, answer.document, answer.servers, answer.next_link) == (502, None, [], None)
