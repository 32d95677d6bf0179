"""Host aggregates: there are none, and no way to make one (contracts/nova-rest, 4.7).

Zones are those of the services, so an aggregate would group hosts without any effect.
"""

import re

from starlette.responses import Response

from api.compute.protocol.answers import json_answer
from api.compute.protocol.endpoint import ComputeRequest, Handler
from api.compute.protocol.routes import Route
from api.compute.protocol.shapes import NOTHING, page
from api.errors import BadRequestError, NotFoundError, NotSupportedError

_NUMBER = re.compile(r"[0-9]+")


def aggregate_routes() -> list[Route]:
    one = "/os-aggregates/{aggregate_id}"
    missing = (400, 403, 404)
    return [
        Route("GET", "/os-aggregates", _index, errors=(403,), answer=page("aggregates", NOTHING)),
        Route("POST", "/os-aggregates", _create, success=(), errors=(403, 501)),
        Route("GET", one, _refuses("show"), success=(), errors=missing),
        Route("PUT", one, _refuses("update"), success=(), errors=missing),
        Route("DELETE", one, _refuses("delete"), success=(), errors=missing),
        Route("POST", one + "/action", _refuses("set_metadata"), success=(), errors=missing),
    ]


async def _index(request: ComputeRequest) -> Response:
    request.authorize("os_compute_api:os-aggregates:index")
    return json_answer({"aggregates": []})


async def _create(request: ComputeRequest) -> Response:
    request.authorize("os_compute_api:os-aggregates:create")
    raise NotSupportedError(
        "Hosts of this fleet are grouped by cell and by availability zone; there are no aggregates."
    )


def _refuses(action: str) -> Handler:
    async def refuse(request: ComputeRequest) -> Response:
        request.authorize(f"os_compute_api:os-aggregates:{action}")
        aggregate_id = request.http.path_params["aggregate_id"]
        if not _NUMBER.fullmatch(aggregate_id):
            raise BadRequestError(f"Invalid aggregate id {aggregate_id}: it must be a number")
        raise NotFoundError(f"Aggregate {aggregate_id} could not be found.")

    return refuse
