"""`GET` and `POST /fleetlight/query`, and `GET /fleetlight/query/fields`.

An answer is made of pages of the one list of instances (listing.list_instances), so it is as complete, and as fresh, as
every list, and says so in the same headers. What no store can be asked of a filter is tried on each row where it is
read; then more rows are read than are given, and no more than `MAX_ROWS_TRIED`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from starlette.responses import Response

from api.compute.protocol.endpoint import ComputeRequest
from api.compute.protocol.headers import CELL_TIMEOUT, COMPLETE, CONSISTENCY, ROUTE
from api.compute.protocol.proof import asked_freshness, proof_headers
from api.documented import Operation
from api.http.answers import json_answer
from api.http.request_body import Body
from api.http.shapes import OBJECT, TEXT, ListOf, Shape, or_null
from api.query.question import Question, QuestionBody, body_of_query, listed, marker_of, question_of
from api.query.scope import listable_fields, scope_of
from api.query.visible_fields import visible_fields
from cells.errors import CellUnreachableError
from listing.answer import CellAnswer, Page
from listing.consistency.read_your_writes import ReadYourWrites
from listing.list_instances import InstanceLister
from listing.sources import CellFailure, CellReader
from query.fields_query import definitions
from query.filters import EVERYTHING
from query.page import PageRequest
from resources.query_fields.definitions import QueryFields
from views.query2.instance import INSTANCE_VALUES
from views.query2.projection import QueryRows
from views.query2.pushdown import split

QUERY_FIELDS = Operation(
    "GET",
    "/fleetlight/query/fields",
    Shape({"fields": ListOf(OBJECT)}),
    query=("what", "fields"),
    faults=(404,),
    summary="The fields that can be asked for: name, title, kind and meaning",
)
_ANSWER = Shape({"fields": ListOf(OBJECT), "data": ListOf(ListOf(OBJECT)), "marker": or_null(TEXT)})
QUERY = Operation(
    "GET",
    "/fleetlight/query",
    _ANSWER,
    query=("what", "fields", "filter", "order", "limit", "marker", "all_projects"),
    takes=(CONSISTENCY, CELL_TIMEOUT),
    gives=(COMPLETE, ROUTE),
    faults=(400, 403, 404),
    summary="Chosen fields of instances, filtered and sorted by any field; each cell of a row has a status and a value",
)
QUERY_BY_BODY = replace(QUERY, method="POST", query=())

MAX_ROWS_TRIED = 20_000
"""So many rows one request reads; what it has not tried is behind the marker of its answer."""

_BODY: Body[QuestionBody] = Body(QuestionBody)
_decode_items = msgspec.json.Decoder(list[tuple[list[Any], msgspec.Raw]]).decode


@dataclass(frozen=True, slots=True)
class _Rows:
    """items: with their positions. after: of the row to go on after; None at the end. pages: they were taken from."""

    items: Sequence[tuple[Sequence[Any], msgspec.Raw]]
    after: Sequence[Any] | None
    pages: Sequence[Page]


class QueryHandlers:
    """max_limit: the largest page. timeout_s: what one cell may cost."""

    def __init__(
        self,
        lister: InstanceLister,
        cells: CellReader,
        writes: ReadYourWrites,
        *,
        max_limit: int,
        timeout_s: float,
    ) -> None:
        self._lister = lister
        self._cells = cells
        self._writes = writes
        self._max_limit = max_limit
        self._timeout_s = timeout_s

    async def fields(self, request: ComputeRequest) -> Response:
        """`GET /fleetlight/query/fields`: all fields of an item type, or those that are named."""
        known = visible_fields(request.query.last("what") or "instance", request.caller)
        names = request.query.last("fields")
        return json_answer({"fields": definitions(known, None if names is None else listed(names))})

    async def get(self, request: ComputeRequest) -> Response:
        """`GET /fleetlight/query`"""
        return await self._answer(request, body_of_query(request.query))

    async def post(self, request: ComputeRequest) -> Response:
        """`POST /fleetlight/query`"""
        return await self._answer(request, await _BODY.read(request))

    async def _answer(self, request: ComputeRequest, body: QuestionBody) -> Response:
        known = listable_fields(body.what, request.caller)
        question = question_of(body, known, INSTANCE_VALUES)
        found = await self._rows(request, question, known)
        answer = {
            "fields": definitions(known, question.names),
            "data": [row for _, row in found.items],
            "marker": None if found.after is None else marker_of(found.after),
        }
        return json_answer(answer, headers=proof_headers(_proof(found.pages), request.caller))

    async def _rows(self, request: ComputeRequest, question: Question, known: QueryFields) -> _Rows:
        fresh = await asked_freshness(request.http.headers, request.caller, self._writes, self._timeout_s)
        stored, rest = split(question.filter, INSTANCE_VALUES)
        names = {cell.uuid: cell.name for cell in await self._cells.cells()}
        projection = QueryRows(known, INSTANCE_VALUES, question.names, order=question.order, rest=rest, cells=names)
        wanted = scope_of(request.caller, stored, all_projects=question.all_projects)
        limit = self._max_limit if question.limit is None else min(question.limit, self._max_limit)
        # Where rows are tried here, most of a page may be left out.
        batch = limit if rest == EVERYTHING else self._max_limit
        after = question.after
        down: dict[str, CellFailure] = {}
        items: dict[str, tuple[Sequence[Any], msgspec.Raw]] = {}
        pages: list[Page] = []
        has_more = True
        while has_more and len(items) < limit and batch * len(pages) < MAX_ROWS_TRIED:
            page = await self._lister.list_page(
                PageRequest(wanted, question.order, batch, after),
                projection,
                fresh.consistency,
                down=down,
                cell_timeout_s=fresh.cell_timeout_s,
                ask_live=fresh.ask_live,
            )
            pages.append(page)
            # A row that has moved behind the page that it was on comes again.
            items = {item[0][-1]: item for item in _decode_items(b"[%b]" % page.items)} | items
            after = page.last
            has_more = page.rows == batch
            # No page of the same answer waits for a cell again, or has rows of it that follow those that are missing.
            failed = {each.cell.uuid: each.failure for each in page.cells if each.failure is not None}
            down |= {uuid: CellUnreachableError(names.get(uuid, uuid), reason) for uuid, reason in failed.items()}
        found = sorted(items.values(), key=lambda item: question.order.comparable(item[0]))
        if len(found) > limit or (len(found) == limit and has_more):
            return _Rows(found[:limit], found[limit - 1][0], pages)
        return _Rows(found, after if has_more else None, pages)


def _proof(pages: Sequence[Page]) -> Page:
    """What all pages of an answer cover, as of one: of each cell what is true of the worst of them."""
    worst: dict[str, CellAnswer] = {}
    for page in pages:
        for answer in page.cells:
            if answer.cell.uuid not in worst or not answer.is_complete:
                worst[answer.cell.uuid] = answer
    return Page(b"", 0, None, list(worst.values()), all(page.has_all_cells for page in pages))
