"""The face `/image`, in the catalog of our own identity service: versions, the list of images, and one image."""

from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlencode
from uuid import uuid4

import structlog
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fleetlight.api.caller import Caller, Identity
from fleetlight.api.documented import ApiOperation, DocumentedRoute, Endpoint
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import (
    ApiError,
    BadRequestError,
    DirectoryUnavailableError,
    ForbiddenError,
    NotFoundError,
    UnauthorizedError,
    status_of,
)
from fleetlight.api.http.links import Links
from fleetlight.api.identity.faults import unauthorized
from fleetlight.api.identity.openid.strategy import embedded_service
from fleetlight.api.image.shelved_servers import SUFFIX, ShelvedServers
from fleetlight.api.image.views import IMAGE, IMAGES, VERSIONS, image_view, versions_view
from fleetlight.api.services import Services
from fleetlight.cells.fleet.compute.default_images import DEFAULT_IMAGES
from fleetlight.resources.uuids import is_uuid

_log = structlog.get_logger(__name__)
_CONTROLS = frozenset({"limit", "marker", "sort", "sort_key", "sort_dir", "member_status", "tag"})
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

Handler = Callable[[Request, Caller], Awaitable[Response]]


class ImageHandlers:
    """The handlers. identity: authenticates callers. link_prefix: `api.compute_link_prefix`. shelved: more images."""

    def __init__(self, identity: Identity, link_prefix: str | None, shelved: ShelvedServers) -> None:
        self._identity = identity
        self._link_prefix = link_prefix
        self._shelved = shelved

    def routes(self) -> Sequence[Route]:
        """Return the routes; the first that matches counts."""
        index = ApiOperation("GET", "/image/v2/images", IMAGES, query=("limit", "marker", "name", "id", "os_hidden"))
        show = ApiOperation("GET", "/image/v2/images/{image_id}", IMAGE)
        return [
            DocumentedRoute(ApiOperation("GET", "/image", VERSIONS, 300, is_open=True), self.versions),
            Route("/image/", self.versions),
            DocumentedRoute(index, self._endpoint(self.index)),
            DocumentedRoute(show, self._endpoint(self.show)),
            Route("/image/{path:path}", self._endpoint(_no_such_route), methods=_METHODS),
        ]

    async def versions(self, http: Request) -> Response:
        """`GET /image`: 300 and no token, as clients expect it."""
        return json_answer(versions_view(Links.of(http, self._link_prefix).root), 300)

    async def index(self, http: Request, caller: Caller) -> Response:
        """`GET /v2/images`: in a fixed order, for paging. Filters are members or properties. Raises ForbiddenError."""
        query = http.query_params
        # Clients look an image up by name before they create a server; do not ask cells for other names.
        may_be_shelved = SUFFIX in query.get("name", SUFFIX)
        shelved = await self._shelved.images(caller.project_id) if may_be_shelved else ()
        found = [image for image in (*map(image_view, DEFAULT_IMAGES), *shelved) if _fits(image, query)]
        marker = query.get("marker")
        if marker is not None:
            ids = [image["id"] for image in found]
            if marker not in ids:
                raise BadRequestError(f"Marker {marker} could not be found.")
            found = found[ids.index(marker) + 1 :]
        limit = _limit(query)
        page = found[:limit]
        document = {"images": page, "first": "/v2/images", "schema": "/v2/schemas/images"}
        if page and len(page) < len(found):
            following = {name: query[name] for name in query} | {"marker": page[-1]["id"]}
            document["next"] = f"/v2/images?{urlencode(following)}"
        return json_answer(document)

    async def show(self, http: Request, caller: Caller) -> Response:
        """`GET /v2/images/{id}`: by id only; clients search the list for a name. Raises ForbiddenError."""
        wanted = http.path_params["image_id"]
        found = [image_view(image) for image in DEFAULT_IMAGES if image.id == wanted]
        if not found and is_uuid(wanted):
            found = [*await self._shelved.images(caller.project_id, wanted)]
        if not found:
            raise NotFoundError(f"No image found with ID {wanted}")
        return json_answer(found[0])

    def _endpoint(self, handler: Handler) -> Endpoint:
        async def answer(http: Request) -> Response:
            request_id = http.state.request_id = f"req-{uuid4()}"
            with structlog.contextvars.bound_contextvars(request_id=request_id):
                try:
                    caller = await self._identity.authenticate(http.headers, ClientConnection.of(http))
                    _check_reader(caller)
                    response = await handler(http, caller)
                except Exception as error:  # noqa: BLE001  # the edge: every failure becomes an answer
                    response = self._failure(http, error)
            response.headers["X-Openstack-Request-Id"] = request_id
            return response

        return answer

    def _failure(self, http: Request, error: Exception) -> Response:
        if isinstance(error, UnauthorizedError):
            return unauthorized(error, Links.of(http, self._link_prefix).root)
        status = status_of(error) or 500
        if not isinstance(error, ApiError):
            _log.exception("request_failed")
        elif isinstance(error, DirectoryUnavailableError):
            _log.error("identity.unavailable", reason=error.reason)
        text = str(error) if isinstance(error, ApiError) else "What happened is in the log under the request id."
        return PlainTextResponse(f"{status} {text}\n", status)


def _check_reader(caller: Caller) -> None:
    """Raise ForbiddenError for a caller without the role `reader`."""
    if not caller.has_role("reader"):
        raise ForbiddenError("get_images")


async def _no_such_route(_http: Request, _caller: Caller) -> Response:
    raise NotFoundError("There is nothing at this address.")


def _fits(image: dict[str, object], query: QueryParams) -> bool:
    if "tag" in query:
        return False  # no image has one
    return all(_equals(image.get(name), query[name]) for name in query if name not in _CONTROLS)


def _equals(value: object, asked: str) -> bool:
    if asked.startswith("in:"):
        return any(_equals(value, each.strip('"')) for each in asked.removeprefix("in:").split(","))
    if isinstance(value, bool):
        return value is (asked.lower() == "true")
    return value is not None and str(value) == asked


def _limit(query: QueryParams) -> int | None:
    text = query.get("limit")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadRequestError(f"limit param must be a positive integer: {text!r}")
    return int(text)


def routes(services: Services) -> Sequence[Route]:
    """Make the routes; none if another service, or no service, has the images."""
    parts = services.parts
    if embedded_service(parts.identity) is None:
        return []
    shelved = ShelvedServers(parts.cells, parts.search.cell_timeout_s)
    return ImageHandlers(parts.identity, parts.api.compute_link_prefix, shelved).routes()
