"""Microversion negotiation, version documents, addresses and error bodies of the compute API."""

import pytest
from structlog.testing import capture_logs

from fleetlight.api.settings import ApiSettings
from fleetlight.listing.list_instances import InstanceLister
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, microversion

STANDARD = "OpenStack-API-Version"
LEGACY = "X-OpenStack-Nova-API-Version"


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    fleet.fill(1)
    return fleet


@pytest.mark.parametrize(
    ("headers", "version"),
    [
        ({}, "2.1"),
        ({STANDARD: "compute latest"}, "2.104"),
        ({STANDARD: "compute 2.53"}, "2.53"),
        ({STANDARD: "Compute  2.53"}, "2.53"),
        ({STANDARD: "compute 2.3, identity 3.1, compute 2.9, volume 3.0"}, "2.9"),
        ({STANDARD: "identity 3.1", LEGACY: "2.4"}, "2.4"),
        ({STANDARD: "compute 2.5", LEGACY: "2.4"}, "2.5"),
        ({LEGACY: "2.4, latest"}, "2.104"),
        ({STANDARD: "compute\t2.53"}, "2.53"),
        ({STANDARD: "COMPUTE 2.53,"}, "2.53"),
        ({STANDARD: "compute 2.5, compute", LEGACY: "2.4"}, "2.5"),
        ({STANDARD: "compute", LEGACY: "2.4"}, "2.4"),
        ({STANDARD: "nova 2.5"}, "2.1"),
        ({STANDARD: "2.5"}, "2.1"),
        ({STANDARD: ""}, "2.1"),
        ({LEGACY: "nonsense, 2.5"}, "2.5"),
    ],
)
def test_microversion_that_is_asked_for_is_given(api: Api, headers: dict[str, str], version: str) -> None:
    for path in ("/v2.1/servers", "/v2.1/", "/v2.1"):
        response = api.get(path, headers)
        assert response.status_code == 200
        assert response.headers[STANDARD] == f"compute {version}"
        assert response.headers[LEGACY] == version
        assert response.headers.get_list("Vary") == [STANDARD, LEGACY]


def test_version_document_is_below_a_project_too(api: Api) -> None:
    for base in ("/v2.1", "/v2"):
        assert api.get(f"{base}/demo/").json() == api.get(f"{base}/").json()
    for path in ("/v2.1/demo", "/v2.1/servers/", "/v2.1/demo/servers/"):
        assert api.get(path).status_code == 404
    assert api.get("/v2.1/abc-1/").status_code == 400


@pytest.mark.parametrize("version", ["2.105", "2.999", "2.0", "3.0", "1.1"])
def test_microversion_that_there_is_not_gives_406_and_is_echoed(api: Api, version: str) -> None:
    response = api.get("/v2.1/servers", microversion(version))
    assert response.status_code == 406
    assert response.json()["computeFault"]["code"] == 406
    assert response.headers[STANDARD] == f"compute {version}"
    assert response.headers[LEGACY] == version


@pytest.mark.parametrize("version", ["2", "2.01", "v2.1", "Latest", "2.1.1", "02.1", "2." + "9" * 5000, "", "2.5,"])
def test_malformed_microversion_gives_400_without_version_headers(api: Api, version: str) -> None:
    response = api.get("/v2.1/servers", {LEGACY: version})
    assert response.status_code == 400
    assert response.json()["badRequest"]["code"] == 400
    assert STANDARD not in response.headers
    assert LEGACY not in response.headers


def test_root_document_takes_no_part_in_microversions(api: Api) -> None:
    response = api.get("/", {STANDARD: "compute nonsense"})
    assert response.status_code == 200
    assert STANDARD not in response.headers
    assert response.json()["versions"] == [
        {
            "id": "v2.0",
            "status": "DEPRECATED",
            "version": "",
            "min_version": "",
            "updated": "2025-07-04T12:00:00Z",
            "links": [{"rel": "self", "href": "http://api.test/v2/"}],
        },
        {
            "id": "v2.1",
            "status": "CURRENT",
            "version": "2.104",
            "min_version": "2.1",
            "updated": "2013-07-23T11:33:21Z",
            "links": [{"rel": "self", "href": "http://api.test/v2.1/"}],
        },
    ]


@pytest.mark.parametrize(("path", "number"), [("/v2.1/", "2.1"), ("/v2.1", "2.1"), ("/v2/", "2"), ("/v2", "2")])
def test_version_document_adds_media_types(api: Api, path: str, number: str) -> None:
    response = api.get(path, {"X-Roles": "nobody knows"})
    version = response.json()["version"]
    assert [link["rel"] for link in version["links"]] == ["self", "describedby"]
    assert version["media-types"] == [
        {"base": "application/json", "type": f"application/vnd.openstack.compute+json;version={number}"}
    ]
    assert (STANDARD in response.headers) == (number == "2.1")


@pytest.mark.parametrize("path", ["/nothing", "/servers/detail", "/docs", "/v3/"])
def test_address_without_a_version_gets_the_choices(api: Api, path: str) -> None:
    response = api.get(path, {STANDARD: "compute nonsense"})
    assert response.status_code == 300
    legacy, current = response.json()["choices"]
    assert (legacy["id"], legacy["status"], current["status"]) == ("v2.0", "DEPRECATED", "CURRENT")
    assert current == {
        "id": "v2.1",
        "status": "CURRENT",
        "links": [{"rel": "self", "href": f"http://api.test/v2.1{path}"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}],
    }


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2.1/nothing"),
        ("GET", "/v2.1/servers/"),
        ("PATCH", "/v2.1/servers"),
        ("GET", "/v2.1/servers/a%0Ab"),
        ("DELETE", "/"),
        ("GET", "/v2.1/not a project/servers"),
    ],
)
def test_unknown_address_gives_404_in_plain_text(api: Api, method: str, path: str) -> None:
    response = api.request(method, path)
    assert response.status_code == 404
    assert response.headers["Content-Type"].startswith("text/plain")
    assert "detail" not in response.text


def test_project_in_the_address_must_be_the_callers(api: Api) -> None:
    assert api.get("/v2.1/demo/servers").status_code == 200
    assert api.get("/v2.1/abc-123/servers").status_code == 400
    assert api.get("/v2.1/abc-123/servers", {"X-Project-Id": "abc-123"}).status_code == 200


def test_content_type_must_be_json(api: Api) -> None:
    assert api.get("/v2.1/servers", {"Content-Type": "application/json; charset=utf-8"}).status_code == 200
    response = api.get("/v2.1/servers", {"Content-Type": "text/xml"})
    assert response.status_code == 415
    assert response.json()["badMediaType"]["code"] == 415


@pytest.mark.parametrize(
    "headers", [{"X-Roles": "root"}, {"X-Roles": ""}, {"X-Project-Id": ""}, {"X-Project-Id": "a b"}, {"X-User-Id": "/"}]
)
def test_identity_headers_must_make_sense(api: Api, headers: dict[str, str]) -> None:
    response = api.get("/v2.1/servers", headers)
    assert response.status_code == 400
    assert next(iter(headers)) in response.json()["badRequest"]["message"]


@pytest.mark.parametrize("path", ["/v2.1/servers?limit=1", "/v2.1/demo/servers/detail?limit=1"])
def test_links_begin_with_the_configured_prefix(fleet: ComputeFleet, path: str) -> None:
    api = fleet.api(settings=ApiSettings(compute_link_prefix="https://cloud.example.com/compute/"))
    document = api.get(path, microversion("2.1"))
    project = "/demo" if "demo" in path else ""
    server = document.json()["servers"][0]
    assert server["links"][0]["href"] == f"https://cloud.example.com/compute/v2.1{project}/servers/{server['id']}"
    assert server["links"][1]["href"] == f"https://cloud.example.com/compute{project}/servers/{server['id']}"
    assert document.json()["servers_links"][0]["href"].startswith(f"https://cloud.example.com/compute/v2.1{project}/")
    assert "api.test" not in document.text
    assert "api.test" not in api.get("/").text


def test_strange_host_header_does_not_break_the_answer(api: Api) -> None:
    response = api.get("/v2.1/servers?limit=1", {"Host": 'a"b\\c'})
    assert response.json()["servers"][0]["links"][0]["href"].startswith('http://a"b\\c/v2.1/')


def test_unexpected_failure_names_its_class_and_nothing_else(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_arguments: object, **_named: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(InstanceLister, "list_page", fail)
    with capture_logs() as logs:
        response = api.get("/v2.1/servers", MEMBER, microversion("2.9"))
    assert response.status_code == 500
    assert "ZeroDivisionError" in response.json()["computeFault"]["message"]
    assert "secret" not in response.text
    assert response.headers[STANDARD] == "compute 2.9"
    assert [log["event"] for log in logs if log["log_level"] == "error"] == ["request_failed"]
