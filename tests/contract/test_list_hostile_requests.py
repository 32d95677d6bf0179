"""Requests that no client sends: what is odd is refused or ignored as the contract says, and others stay unseen."""

from collections.abc import Collection
from urllib.parse import quote

import pytest

from fleetlight.indexer.backends.base import FoundPage
from fleetlight.query.page import PageRequest
from fleetlight.views.projection import Projection
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, microversion

pytestmark = pytest.mark.no_rerun

UNKNOWN = "00000000-0000-4000-8000-000000000000"
STRONG = {"Fleetlight-Consistency": "strong"}
ROLES = [{}, MEMBER]
SINGLE_VALUED = ("limit", "marker", "all_tenants", "name", "changes-since", "deleted", "ip", "flavor", "user_id")


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    fleet.fill(3)
    fleet.create("north", project_id="other", user_id="grace", display_name="secret", host="hidden", tags=["t"])
    fleet.index()
    return fleet


@pytest.mark.parametrize("method", ["OPTIONS", "POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"])
def test_method_that_an_address_has_not_gets_404_in_plain_text(api: Api, method: str) -> None:
    for path in ("/v2.1/servers/detail", "/v2.1/demo/servers/detail", "/", "/v2.1/", "/v2/"):
        response = api.request(method, path)
        assert response.status_code == 404
        assert response.headers["Content-Type"].startswith("text/plain")


def test_head_is_get_without_the_body(api: Api) -> None:
    for path, status in (("/v2.1/servers", 200), (f"/v2.1/servers/{UNKNOWN}", 404), ("/v2.1/servers?limit=x", 400)):
        assert api.request("HEAD", path).status_code == status


@pytest.mark.parametrize("path", ["/v2.1/servers", "/v2.1/servers/detail", "/v2.1/servers/detail?name=web&limit=2"])
def test_head_of_a_list_has_the_headers_of_the_list_and_costs_one_row(
    fleet: ComputeFleet, api: Api, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    read: list[int] = []
    page = fleet.searcher.page

    async def count(request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        read.append(request.limit)
        return await page(request, cells, projection)

    monkeypatch.setattr(fleet.searcher, "page", count)
    got, asked = api.get(path), api.request("HEAD", path)
    assert (asked.status_code, asked.content) == (200, b"")
    own = {"content-length", "x-openstack-request-id", "x-compute-request-id", "fleetlight-route"}
    assert dict(asked.headers).keys() == dict(got.headers).keys() - {"content-length"}
    assert all(asked.headers[name] == got.headers[name] for name in asked.headers if name not in own)
    assert read[-1] == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/fleetlight/query?fields=name"),
        ("POST", "/fleetlight/query"),
        ("GET", "/fleetlight/query/counts"),
        ("GET", "/fleetlight/query/fields"),
        ("GET", "/v2.1/servers"),
        ("GET", "/v2.1/flavors/detail"),
        ("POST", "/v2.1/os-keypairs"),
    ],
)
def test_events_of_what_has_none_are_refused(api: Api, method: str, path: str) -> None:
    """A page is no answer to a reader that would wait for its changes; nor is anything done for it."""
    wanting = {"Accept": "text/event-stream; charset=utf-8"}
    body = {"json": {"keypair": {"name": "wanted"}}} if method == "POST" else {}
    refused = api.request(method, path, wanting, **body)
    assert refused.status_code == 406
    assert "GET /v2.1/servers/detail" in refused.text
    assert api.get("/v2.1/os-keypairs").json()["keypairs"] == []
    either = {"Accept": "application/json, text/event-stream"}
    assert api.request("GET", "/v2.1/servers", either).status_code == 200


def test_head_of_a_stream_ends(api: Api) -> None:
    stream = {"Accept": "text/event-stream"}
    asked = api.request("HEAD", "/v2.1/servers/detail", stream)
    assert (asked.status_code, asked.headers["Content-Type"].partition(";")[0]) == (200, "text/event-stream")
    assert not api.services.feed._watchers
    assert api.request("HEAD", "/v2.1/servers/detail?all_tenants=maybe", stream).status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/v2.1/servers/",
        "/v2.1/servers//",
        "/v2.1/servers/detail/",
        "/v2.1/servers/detail/x",
        "/v2.1/Servers",
        "/v2.1/servers;a=b",
        "/v2.1/servers/%00",
        "/v2.1/servers/%ff",
        "/v2.1/%ff/servers",
        "/v2.1/os-keypairs/a%C3",
        "/v2.1/flavors/1/os-extra_specs/%ED%A0%80",
        "/%ff",
        "/identity/v3/users/%ff",
        "/fleetlight/%ff",
        "/v2.1/servers/a%0Ab",
        "/v2.1/demo/demo/servers",
        "/v2.1/DEMO/servers",
        "/v2.1/detail",
    ],
)
def test_address_that_is_nearly_right_is_unknown(api: Api, path: str) -> None:
    response = api.get(path)
    assert response.status_code == 404
    assert response.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    "server_id",
    [
        "servers",
        "{}",
        "urn:uuid:",
        "é",
        "a" * 3000,
        UNKNOWN[:-1],
        UNKNOWN + "0",
        f"{{{UNKNOWN}}}",
        "' OR 1=1",
    ],
)
@pytest.mark.parametrize("headers", ROLES)
def test_id_that_nobody_has_is_not_found(api: Api, server_id: str, headers: dict[str, str]) -> None:
    response = api.get(f"/v2.1/servers/{quote(server_id, safe='%')}", headers, microversion("2.104"))
    assert response.status_code == 404
    assert set(response.json()) == {"itemNotFound"}


@pytest.mark.parametrize("name", SINGLE_VALUED)
@pytest.mark.parametrize("headers", ROLES)
def test_values_of_any_form_are_answered(api: Api, name: str, headers: dict[str, str]) -> None:
    odd = (
        "",
        "-1",
        "9" * 400,
        "NaN",
        "true\n",
        "😀",
        "a" * 20_000,
        "%",
        "'",
        "\\",
        "[]",
        UNKNOWN.upper(),
        "0001-01-01",
    )
    for value in odd:
        for consistency in ({}, STRONG):
            query = f"{name}={quote(value)}"
            response = api.get(f"/v2.1/servers/detail?{query}", headers, microversion("2.104"), consistency)
            assert response.status_code in {200, 400, 403}, f"{query}: {response.text}"
            assert "secret" not in response.text or (headers == {} and name == "all_tenants")


@pytest.mark.parametrize(
    "query",
    [
        "&".join(["sort_key=host"] * 2000),
        "&".join(["status=active"] * 2000),
        "&".join(f"name=a{number}" for number in range(2000)),
        "&".join(f"unknown{number}=1" for number in range(2000)),
        "&".join(["all_tenants=0"] * 2000),
        "&&&=&a&=1&%&%zz=1&limit",
    ],
)
def test_long_queries_are_answered(api: Api, query: str) -> None:
    assert api.get(f"/v2.1/servers?{query}").status_code in {200, 400}
    assert api.get(f"/v2.1/servers?{query}", microversion("2.104")).status_code in {200, 400}


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(.*a){25}",
        "((a{30}){30}){30}",
        "(x*)" * 200,
        ".*" * 200 + "=",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(?=a)",
        "(a)\\1",
        "\\p{Greek}|[[:alpha:]]",
        "\\x{110000}",
        "(?i)(?s)(?m)^.$",
    ],
)
@pytest.mark.parametrize("name", ["name", "ip", "tags", "created_at", "power_state", "hostname"])
def test_no_pattern_holds_a_list_up_or_takes_the_index_away(api: Api, name: str, pattern: str) -> None:
    for consistency in ({}, STRONG):
        response = api.get(f"/v2.1/servers?{name}={quote(pattern)}", microversion("2.104"), consistency)
        assert response.status_code in {200, 400}
    assert not api.index.safe_connect.is_tripped


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 200),
        ({"Content-Type": "APPLICATION/JSON; charset=x"}, 200),
        ({"Content-Type": "application/vnd.openstack.compute+json"}, 200),
        ({"Content-Type": "application/xml"}, 415),
        ({"Content-Type": "application/jsonx"}, 415),
        ({"Accept": "text/html"}, 200),
        ({"Accept": "*/*;q=0"}, 200),
        ({"Range": "bytes=0-1"}, 200),
        ({"X-Forwarded-Host": "evil.example"}, 200),
    ],
)
def test_headers_of_a_list(api: Api, headers: dict[str, str], status: int) -> None:
    response = api.get("/v2.1/servers", headers)
    assert response.status_code == status
    assert response.headers["Content-Type"] == "application/json"
    assert "evil" not in response.text


@pytest.mark.parametrize("body", [b"{}", b"nonsense", b"\xff\xfe", b"[" * 10_000])
def test_body_of_a_list_is_not_read(api: Api, body: bytes) -> None:
    response = api.request("GET", "/v2.1/servers", {"Content-Type": "application/json"}, content=body)
    assert response.status_code == 200


@pytest.mark.parametrize("headers", [MEMBER, {"X-Roles": "reader"}, {"X-Roles": "manager"}])
def test_nothing_of_another_project_shows_in_any_answer(fleet: ComputeFleet, api: Api, headers: dict[str, str]) -> None:
    (theirs,) = api.ids("/v2.1/servers", {"X-Project-Id": "other"})
    queries = (
        "",
        "limit=3",
        f"marker={theirs}",
        f"uuid={theirs}",
        "name=secret",
        "host=hidden",
        "tags=t",
        "user_id=grace",
        "project_id=other",
        "ip=1",
        "sort_key=display_name&sort_dir=asc&limit=2",
        "deleted=true",
        "changes-since=1970",
        "all_tenants=1",
        "status=deleted",
    )
    for version in ("2.1", "2.104"):
        for consistency in ({}, STRONG):
            for query in queries:
                response = api.get(f"/v2.1/servers/detail?{query}", headers, microversion(version), consistency)
                assert "secret" not in response.text
                assert "hidden" not in response.text
                assert theirs not in response.text.replace(f"[{theirs}]", "").replace(f"uuid={theirs}", "")
                assert response.headers.get("Fleetlight-Route", "index") in {"index", "cells"}
    for path in ("", "/metadata", "/tags", "/ips", "/os-instance-actions", "/os-volume_attachments"):
        known, unknown = (
            api.get(f"/v2.1/servers/{uuid}{path}", headers, microversion("2.101")) for uuid in (theirs, UNKNOWN)
        )
        assert (known.status_code, known.text.replace(theirs, UNKNOWN)) == (404, unknown.text)
