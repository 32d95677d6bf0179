"""`GET /fleetlight/query/boundaries`: the positions at which equal parts of a list begin, for scroll bars.

If a list is short, the handler reads all rows, and the positions are exact. Otherwise it counts the rows and reads a
sample: uuids are random, so the first instances by uuid are a fair sample in every store. With SAMPLE rows a boundary
is off by less than 2 % of the rows in 99 of 100 cases (a binomial share has a deviation of at most 1 / (2 √SAMPLE)).
The page at a boundary is still in order, since each boundary is the marker of a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from fleetlight.api.caller import Caller
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.http.shapes import ANYTHING, BOOL, INTEGER, TEXT, ListOf, Shape, or_null
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.counting import QueryCounter
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.handlers import query_of_body
from fleetlight.api.query.item_query import (
    CountQuery,
    ItemQuery,
    body_of_query,
    marker_of,
    number_in,
    size_of,
)
from fleetlight.api.query.scope import visible_fields
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import CELL_TIMEOUT, COMPLETE, CONSISTENCY, ROUTE
from fleetlight.api.shared.proof import proof_headers, read_options
from fleetlight.cells.counting import MAX_ROWS
from fleetlight.listing.answer import Page, ReadOptions, proof_of
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.query2.projection import Row, cells_of

SAMPLE = 5_000
"""Rows. Each costs as much as in a list, and four times as many would halve the error."""
MAX_PARTS = 100
_PARTS = 20
_PARAMETERS = ("what", "filter", "order", "all_projects", "as_of", "parts")
BOUNDARIES = ApiOperation(
    "GET",
    "/fleetlight/query/boundaries",
    Shape(
        {
            "total": INTEGER,
            "exact": BOOL,
            "partial": BOOL,
            "boundaries": ListOf(Shape({"before": INTEGER, "value": ListOf(ANYTHING), "marker": or_null(TEXT)})),
        }
    ),
    query=_PARAMETERS,
    takes=(CONSISTENCY, CELL_TIMEOUT),
    gives=(COMPLETE, ROUTE),
    faults=(400, 403, 404),
    summary="Where equal parts of a list begin: how many rows are before each, and the marker to list it from",
)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Rows of a list. rows: in its order, all of them or a fair sample. total: number of rows of the list.

    is_partial: the list has more rows than one request counts. proof: the cells read, and their routes.
    """

    rows: Sequence[Row]
    total: int
    is_partial: bool
    proof: Page

    def boundaries(self, parts: int) -> list[dict[str, Any]]:
        """Return where each of `parts` parts begins, or each row if there are fewer, in the form of the answer."""
        found = len(self.rows)
        begins = [number * found // parts for number in range(parts)] if found > parts else range(found)
        return [
            {
                "before": begin * self.total // found,
                "value": cells_of(self.rows[begin][1])[0],
                "marker": marker_of(self.rows[begin - 1][0]) if begin else None,
            }
            for begin in begins
        ]


class ListSampler:
    """Samples lists. sample: number of instances to read. max_rows: limit on the rows that one request reads."""

    def __init__(
        self, query_engine: QueryEngine, counter: QueryCounter, *, sample: int = SAMPLE, max_rows: int = MAX_ROWS
    ) -> None:
        self._query_engine = query_engine
        self._counter = counter
        self._sample = sample
        self._max_rows = max_rows

    async def sampled(self, question: ItemQuery, caller: Caller, fresh: ReadOptions) -> Sampled:
        """Read rows of a list. Raises the errors of QueryEngine.answer."""
        is_of_instances = question.known.name == INSTANCE_FIELDS.name
        # Items other than instances are in memory in their order anyway (fleetlight.api.query.item_pages).
        read_by, enough = (INSTANCES_BY_UUID, self._sample) if is_of_instances else (None, self._max_rows)
        rows: list[Row] = []
        pages: list[Page] = []
        is_whole = False
        # Read by uuid, instances of all cells come together, and the column of each row says of which cell it is.
        asked = replace(question, by_cell=None)
        async for batch in self._query_engine.batches(asked, caller, fresh, read_by=read_by):
            rows += batch.rows if question.by_cell is None else map(_with_cell, batch.rows)
            pages.append(batch.proof)
            is_whole = batch.after is None
            if len(rows) >= enough or sum(page.rows for page in pages) >= self._max_rows:
                break
        rows.sort(key=lambda row: question.comparable(row[0]))
        if is_whole:
            return Sampled(rows, len(rows), is_partial=False, proof=proof_of(pages))
        everything = CountQuery(question.known, (), question.filter, question.all_projects, question.as_of)
        counted = await self._counter.count(everything, caller, fresh)
        # Rows deleted between the two requests must not make the total smaller than the rows read.
        total = max(sum(counted.groups.values()), len(rows))
        return Sampled(rows, total, is_partial=counted.is_partial, proof=proof_of([*pages, counted.proof]))


class BoundaryHandler:
    """The handler."""

    def __init__(self, sampler: ListSampler) -> None:
        self._sampler = sampler

    async def show(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/query/boundaries`. Raises BadRequestError."""
        parts = number_in("parts", request.query) or _PARTS
        if parts > MAX_PARTS:
            raise BadRequestError(f"parts: {parts}; there may be {MAX_PARTS}")
        question = await _question_of(request.query, request.caller)
        async with request.admission.page():
            fresh = await read_options(request.http.headers, request.caller, request.writes, request.admission)
            sampled = await self._sampler.sampled(question, request.caller, fresh)
        answer = {
            "total": sampled.total,
            "exact": sampled.total == len(sampled.rows) and not sampled.is_partial,
            "partial": sampled.is_partial,
            "boundaries": sampled.boundaries(parts),
        }
        proof = replace(sampled.proof, has_all_cells=sampled.proof.has_all_cells and not sampled.is_partial)
        return json_answer(answer, headers=proof_headers(proof, request.caller))


def _with_cell(row: Row) -> Row:
    position, columns = row
    _, cell = cells_of(columns)[0]
    return (cell, *position), columns


async def _question_of(query: QueryString, caller: Caller) -> ItemQuery:
    """Parse the query of the list, with the first field of its order as the only column."""
    body = body_of_query(query, _PARAMETERS)
    order = body.order or [visible_fields(body.what, caller).name_field]
    asked = body.model_copy(update={"fields": [order[0].removeprefix("-")]})
    return await made_aside(size_of(body.filter), lambda: query_of_body(asked, caller))
