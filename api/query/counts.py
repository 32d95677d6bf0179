"""`GET` and `POST /fleetlight/query/counts`: counts of the items that match a filter, grouped by fields."""

from dataclasses import replace

from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.shapes import ANYTHING, BOOL, INTEGER, OBJECT, ListOf, MapOf, Shape
from fleetlight.api.limits.large_bodies import MAX_PARTS, made_aside
from fleetlight.api.query.counting import QueryCounter
from fleetlight.api.query.item_query import CountBody, count_body_of_query, counting_of, size_of
from fleetlight.api.query.scope import visible_fields
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import CELL_TIMEOUT, COMPLETE, CONSISTENCY, ROUTE
from fleetlight.api.shared.proof import proof_headers, read_options
from fleetlight.query.fields_query import definitions

_GROUP = Shape({"by": MapOf(ANYTHING), "statuses": MapOf(INTEGER), "count": INTEGER})
COUNTS = ApiOperation(
    "GET",
    "/fleetlight/query/counts",
    Shape({"fields": ListOf(OBJECT), "groups": ListOf(_GROUP), "partial": BOOL}),
    query=("what", "by", "filter", "all_projects", "as_of"),
    takes=(CONSISTENCY, CELL_TIMEOUT),
    gives=(COMPLETE, ROUTE),
    faults=(400, 403, 404),
    summary="How many items a filter lets pass, in all and by the values of some fields",
)

COUNTS_BY_BODY = replace(COUNTS, method="POST", query=())
_BODY: Body[CountBody] = Body(CountBody, max_parts=MAX_PARTS)


class CountHandler:
    """The handlers of counts."""

    def __init__(self, counter: QueryCounter) -> None:
        self._counter = counter

    async def get(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/query/counts`"""
        return await self._answer(request, count_body_of_query(request.query))

    async def post(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/query/counts`"""
        return await self._answer(request, await _BODY.read(request))

    async def _answer(self, request: ApiRequest, body: CountBody) -> Response:
        known = visible_fields(body.what, request.caller)
        counting = await made_aside(size_of(body.filter), lambda: counting_of(body, known))
        async with request.admission.page():
            fresh = await read_options(request.http.headers, request.caller, request.writes, request.admission)
            counted = await self._counter.count(counting, request.caller, fresh)
        answer = {
            "fields": definitions(counting.known, counting.by),
            "groups": [
                {
                    "by": {name: value for name, (_, value) in zip(counting.by, group, strict=True)},
                    "statuses": {name: status for name, (status, _) in zip(counting.by, group, strict=True)},
                    "count": count,
                }
                for group, count in counted.groups.items()
            ],
            "partial": counted.is_partial,
        }
        whole = counted.proof.has_all_cells and not counted.is_partial
        proof = replace(counted.proof, has_all_cells=whole)
        return json_answer(answer, headers=proof_headers(proof, request.caller))
