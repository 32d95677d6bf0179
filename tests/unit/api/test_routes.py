"""From an address and a microversion to the handler that answers."""

import asyncio
from collections.abc import Mapping
from typing import cast

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response

from fleetlight.api.bodies.request_body import Body, RequestModel
from fleetlight.api.compute.protocol.route_table import ApiRoute, RouteTable, gone
from fleetlight.api.http.methods import METHODS
from fleetlight.api.http.query_string import QueryParameters
from fleetlight.api.identity import NoIdentity
from fleetlight.api.limits.admission import ListAdmission
from fleetlight.api.metrics import ApiMetrics
from fleetlight.api.settings import ApiSettings
from fleetlight.api.shared.endpoint import ApiRequest, Handler, Middleware
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites


class _Note(RequestModel):
    note: str


NOTE = Body(_Note)
# No route here changes an instance, or lists any.
NO_WRITES = cast(ReadYourWrites, None)
ADMISSION = ListAdmission(ApiSettings(), ApiMetrics().list_queues, has_identity=False)


def _says(text: str) -> Handler:
    async def handler(request: ApiRequest) -> Response:
        return PlainTextResponse(f"{text} {request.http.path_params}")

    return handler


async def _read_note(request: ApiRequest) -> Response:
    return PlainTextResponse((await NOTE.read(request)).note)


ROUTES = [
    ApiRoute("GET", "/things", _says("list"), query=QueryParameters({"limit": 1})),
    ApiRoute("POST", "/things", _read_note, body=NOTE),
    ApiRoute("GET", "/things/detail", _says("detail")),
    ApiRoute("GET", "/things/{thing_id}", _says("old"), until=9),
    ApiRoute("GET", "/things/{thing_id}", _says("new"), since=10),
    ApiRoute("PUT", "/things/{name}/parts/{part}", _says("part"), until=35),
    *gone("/old", "GET"),
]


def request(
    method: str, path: str, version: str = "2.1", *, content: bytes = b"", headers: Mapping[str, str] | None = None
) -> httpx.Response:
    app = Starlette()
    table = RouteTable(ROUTES, Middleware(NoIdentity(), None, NO_WRITES, ADMISSION))
    for base in ("/v2.1", "/v2"):
        app.add_route(f"{base}/{{path:path}}", table.answer, methods=METHODS)

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api.test") as client:
            version_header = {"OpenStack-API-Version": f"compute {version}"}
            return await client.request(method, path, content=content, headers=version_header | dict(headers or {}))

    return asyncio.run(send())


@pytest.mark.parametrize(
    ("path", "version", "text"),
    [
        ("/v2.1/things", "2.1", "list {}"),
        ("/v2.1/demo/things", "2.1", "list {'project_id': 'demo'}"),
        ("/v2.1/things/detail", "2.1", "detail {}"),
        ("/v2.1/things/7", "2.9", "old {'thing_id': '7'}"),
        ("/v2.1/things/7", "2.10", "new {'thing_id': '7'}"),
        ("/v2.1/things/things", "2.1", "old {'thing_id': 'things'}"),
    ],
)
def test_address_and_microversion_find_the_handler(path: str, version: str, text: str) -> None:
    response = request("GET", path, version)
    assert (response.status_code, response.text) == (200, text)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v2.1/nothing"),
        ("GET", "/v2.1/things/"),
        ("GET", "/v2.1/things/7/"),
        ("GET", "/v2.1//7"),
        ("GET", "/v2.1/things/a%00b"),
        ("GET", "/v2.1/things/7/parts/8"),
        ("DELETE", "/v2.1/things"),
        ("PATCH", "/v2.1/things/7"),
        ("OPTIONS", "/v2.1/things"),
    ],
)
def test_unknown_address_and_wrong_method_get_404_in_plain_text(method: str, path: str) -> None:
    response = request(method, path)
    assert response.status_code == 404
    assert response.headers["Content-Type"].startswith("text/plain")


def test_method_of_another_microversion_gets_404_in_json() -> None:
    assert request("PUT", "/v2.1/things/a/parts/b", "2.35").text == "part {'name': 'a', 'part': 'b'}"
    response = request("PUT", "/v2.1/things/a/parts/b", "2.36")
    assert response.status_code == 404
    assert response.json()["itemNotFound"]["code"] == 404


def test_what_nova_removed_says_so() -> None:
    response = request("GET", "/v2.1/old")
    assert response.status_code == 410
    assert response.json()["computeFault"]["code"] == 410


def test_unknown_query_parameter_is_refused_from_2_102() -> None:
    assert request("GET", "/v2.1/things?limit=1&color=red", "2.101").status_code == 200
    assert request("GET", "/v2.1/things?limit=1", "2.102").status_code == 200
    assert request("GET", "/v2.1/things?limit=1&color=red", "2.102").status_code == 400


def test_body_is_read_by_the_handler() -> None:
    assert request("POST", "/v2.1/things", content=b'{"note": "hello"}').text == "hello"
    assert request("POST", "/v2.1/things", content=b'{"note": 1}').status_code == 400


def test_legacy_endpoint_is_relaxed_and_knows_no_microversions() -> None:
    content = b'{"note": "hello", "more": 1}'
    assert request("POST", "/v2.1/things", content=content).status_code == 400
    response = request("POST", "/v2/things", "nonsense", content=content)
    assert (response.status_code, response.text) == (200, "hello")
    assert "OpenStack-API-Version" not in response.headers
    assert request("GET", "/v2/things/7", "2.10").text.startswith("old")


def test_too_large_body_gets_413_in_plain_text() -> None:
    response = request("POST", "/v2.1/things", content=b'{"note": "' + b"x" * 200_000 + b'"}')
    assert response.status_code == 413
    assert response.headers["Content-Type"].startswith("text/plain")


def test_two_routes_for_one_microversion_are_refused() -> None:
    with pytest.raises(ValueError, match="same microversion"):
        RouteTable(
            [*ROUTES, ApiRoute("GET", "/things/{other}", _says("x"), since=104)],
            Middleware(NoIdentity(), None, NO_WRITES, ADMISSION),
        )
