"""`GET /extensions`: there are none, everything is part of the API; clients that ask are content with that."""

from starlette.responses import Response

from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import NotFoundError
from fleetlight.api.http.shapes import NOTHING, page
from fleetlight.api.shared.endpoint import ApiRequest


def extension_routes() -> list[ApiRoute]:
    return [
        ApiRoute("GET", "/extensions", _index, answer=page("extensions", NOTHING)),
        ApiRoute("GET", "/extensions/{alias}", _show, success=(), errors=(404,)),
    ]


async def _index(_request: ApiRequest) -> Response:
    return json_answer({"extensions": []})


async def _show(request: ApiRequest) -> Response:
    raise NotFoundError(f"No extension {request.http.path_params['alias']} is there.")
