"""Version documents, which clients read before they log in (contracts/nova-servers, section 9)."""

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.links import Links
from fleetlight.api.http.shapes import LINKS, TEXT, ListOf, Shape
from fleetlight.api.shared.endpoint import NEWEST, OLDEST, ApiRequest, Middleware, is_legacy

_DOCUMENTATION = {"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"}
_MULTIPLE_CHOICES = 300
_VERSION = Shape(
    {**dict.fromkeys(("id", "status", "version", "min_version", "updated"), TEXT), "links": LINKS},
)
_ONE_VERSION = Shape(
    {"version": _VERSION.with_keys({"media-types": ListOf(Shape(dict.fromkeys(("base", "type"), TEXT)))})}
)
VERSION_OPERATIONS = (
    ApiOperation("GET", "/", Shape({"versions": ListOf(_VERSION)}), is_open=True, faults=()),
    *(ApiOperation("GET", path, _ONE_VERSION, is_open=True, faults=()) for path in ("/v2/", "/v2.1/")),
)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One endpoint of the compute API. path: its element in addresses. media_version: the version in its media type."""

    id: str
    path: str
    status: str
    version: str
    min_version: str
    updated: str
    media_version: str


_LEGACY = _Endpoint("v2.0", "v2", "DEPRECATED", "", "", "2025-07-04T12:00:00Z", "2")
_CURRENT = _Endpoint(
    "v2.1",
    "v2.1",
    "CURRENT",
    str(NEWEST),
    str(OLDEST),
    "2013-07-23T11:33:21Z",
    "2.1",
)


class VersionDocuments:
    """Endpoints of `/`, `/v2/` and `/v2.1/`, and of addresses that belong to no version."""

    def __init__(self, middleware: Middleware, link_prefix: str | None) -> None:
        self._middleware = middleware
        self._link_prefix = link_prefix

    async def all(self, http: Request) -> Response:
        """`GET /`: all versions. It ignores microversions."""
        return json_answer({"versions": [self._version(http, endpoint) for endpoint in (_LEGACY, _CURRENT)]})

    async def legacy(self, http: Request) -> Response:
        """`GET /v2/`."""
        return await self._show(http, _LEGACY)

    async def newest(self, http: Request) -> Response:
        """`GET /v2.1/`."""
        return await self._show(http, _CURRENT)

    def below_project(self) -> ApiRoute:
        """`GET /v2.1/{project_id}/`: the same document, for authenticated callers."""

        async def handle(request: ApiRequest) -> Response:
            return json_answer(self._document(request.http, _LEGACY if is_legacy(request.http) else _CURRENT))

        return ApiRoute("GET", "/", handle, answer=_ONE_VERSION)

    def choices(self, http: Request) -> Response:
        """Answer an address without a version with its possible addresses."""
        path = http.url.path
        choices = [
            {
                "id": endpoint.id,
                "status": endpoint.status,
                "links": [{"rel": "self", "href": self._href(http, endpoint) + path}],
                "media-types": _media_types(endpoint),
            }
            for endpoint in (_LEGACY, _CURRENT)
        ]
        return json_answer({"choices": choices}, _MULTIPLE_CHOICES)

    async def _show(self, http: Request, endpoint: _Endpoint) -> Response:
        async def handle(_minor: int) -> Response:
            return json_answer(self._document(http, endpoint))

        return await self._middleware.answer(http, handle)

    def _document(self, http: Request, endpoint: _Endpoint) -> dict[str, Any]:
        version = self._version(http, endpoint)
        version["links"].append(_DOCUMENTATION)
        return {"version": version | {"media-types": _media_types(endpoint)}}

    def _version(self, http: Request, endpoint: _Endpoint) -> dict[str, Any]:
        return {
            "id": endpoint.id,
            "status": endpoint.status,
            "version": endpoint.version,
            "min_version": endpoint.min_version,
            "updated": endpoint.updated,
            "links": [{"rel": "self", "href": self._href(http, endpoint) + "/"}],
        }

    def _href(self, http: Request, endpoint: _Endpoint) -> str:
        return Links.of(http, self._link_prefix, version=endpoint.path).versioned


def _media_types(endpoint: _Endpoint) -> list[dict[str, str]]:
    media_type = f"application/vnd.openstack.compute+json;version={endpoint.media_version}"
    return [{"base": "application/json", "type": media_type}]
