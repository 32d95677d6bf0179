"""`GET` and `POST /fleetlight/query`, and `GET /fleetlight/query/fields`."""

from dataclasses import replace

from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body
from fleetlight.api.caller import Caller
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.shapes import OBJECT, TEXT, ListOf, Shape, or_null
from fleetlight.api.limits.large_bodies import MAX_PARTS, made_aside
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.item_query import (
    ItemQuery,
    QueryBody,
    body_of_query,
    listed,
    marker_of,
    moment_of,
    query_of,
    size_of,
    sorted_by,
)
from fleetlight.api.query.scope import visible_fields
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import CELL_TIMEOUT, COMPLETE, CONSISTENCY, ROUTE
from fleetlight.api.shared.proof import proof_headers, read_options
from fleetlight.query.fields_query import definitions
from fleetlight.resources.clock import system_clock

QUERY_FIELDS = ApiOperation(
    "GET",
    "/fleetlight/query/fields",
    Shape({"fields": ListOf(OBJECT)}),
    query=("what", "fields"),
    faults=(404,),
    summary="The fields that can be asked for: name, title, kind, meaning, and whether items can be sorted by it",
)
_ANSWER = Shape({"fields": ListOf(OBJECT), "data": ListOf(ListOf(OBJECT)), "marker": or_null(TEXT)})
QUERY = ApiOperation(
    "GET",
    "/fleetlight/query",
    _ANSWER,
    query=("what", "fields", "filter", "order", "limit", "marker", "all_projects", "as_of"),
    takes=(CONSISTENCY, CELL_TIMEOUT),
    gives=(COMPLETE, ROUTE),
    faults=(400, 403, 404),
    summary="Chosen fields of items, filtered and sorted by any field; each cell of a row has a status and a value",
)
QUERY_BY_BODY = replace(QUERY, method="POST", query=())

_BODY: Body[QueryBody] = Body(QueryBody, max_parts=MAX_PARTS)


class QueryHandlers:
    """The handlers of queries."""

    def __init__(self, query_engine: QueryEngine) -> None:
        self._query_engine = query_engine

    async def fields(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/query/fields`: all fields of an item type, or the named ones."""
        known = visible_fields(request.query.last("what") or "instance", request.caller)
        names = request.query.last("fields")
        fields = definitions(known, None if names is None else listed(names))
        return json_answer(
            {"fields": [{**field, "sortable": sorted_by(field["name"], known) is not None} for field in fields]}
        )

    async def get(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/query`"""
        return await self._answer(request, body_of_query(request.query))

    async def post(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/query`"""
        return await self._answer(request, await _BODY.read(request))

    async def _answer(self, request: ApiRequest, body: QueryBody) -> Response:
        question = await made_aside(size_of(body.filter), lambda: query_of_body(body, request.caller))
        async with request.admission.page():
            fresh = await read_options(request.http.headers, request.caller, request.writes, request.admission)
            found = await self._query_engine.answer(question, request.caller, fresh)
        answer = {
            "fields": definitions(question.known, question.names),
            "data": [cells for _, cells in found.rows],
            "marker": None if found.after is None else marker_of(found.after),
        }
        return json_answer(answer, headers=proof_headers(found.proof, request.caller))


def query_of_body(body: QueryBody, caller: Caller) -> ItemQuery:
    """Check a body; returns the query. Raises NotFoundError, BadRequestError, QueryError."""
    known = visible_fields(body.what, caller)
    if not body.fields:
        raise BadRequestError("fields: none is asked for; GET /fleetlight/query/fields tells which there are")
    return query_of(
        known,
        body.fields,
        body.filter,
        order=body.order,
        limit=body.limit,
        marker=body.marker,
        all_projects=body.all_projects,
        as_of=moment_of(body.as_of, known),
        now=system_clock(),
    )
