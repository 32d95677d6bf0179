"""`GET` and `POST /fleetlight/query/counts`: how many instances a filter lets pass, by the values of some fields.

What is counted is counted by the stores that the lists ask, so both can be about stored fields only; a filter on
something else is refused, since every row would have to be read for it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from api.compute.protocol.endpoint import ComputeRequest
from api.compute.protocol.headers import CELL_TIMEOUT, COMPLETE, CONSISTENCY, ROUTE
from api.compute.protocol.proof import asked_freshness, proof_headers
from api.documented import Operation
from api.http.answers import json_answer
from api.http.request_body import Body
from api.http.shapes import BOOL, INTEGER, OBJECT, ListOf, Shape
from api.query.places import choose_cells
from api.query.question import Counting, CountingBody, counting_body_of_query, counting_of, stored_filter
from api.query.scope import counted_fields, scope_of
from listing.answer import Page
from listing.consistency.read_your_writes import ReadYourWrites
from listing.count_instances import Counted, InstanceCounter
from listing.sources import CellReader
from query.counts import CountRequest
from query.fields_query import definitions
from resources.instance import INSTANCE_FIELDS
from resources.query_fields.definitions import QueryFields
from views.query2.instance import INSTANCE_VALUES
from views.query2.items import CELL
from views.query2.values import as_json, known

COUNTS = Operation(
    "GET",
    "/fleetlight/query/counts",
    Shape({"fields": ListOf(OBJECT), "groups": ListOf(Shape({"by": OBJECT, "count": INTEGER})), "partial": BOOL}),
    query=("what", "by", "filter", "all_projects"),
    takes=(CONSISTENCY, CELL_TIMEOUT),
    gives=(COMPLETE, ROUTE),
    faults=(400, 403, 404),
    summary="How many instances a filter lets pass, in all and by the values of some fields",
)

COUNTS_BY_BODY = replace(COUNTS, method="POST", query=())
_BODY: Body[CountingBody] = Body(CountingBody)


class CountHandler:
    """timeout_s: what one cell may cost."""

    def __init__(
        self, counter: InstanceCounter, cells: CellReader, writes: ReadYourWrites, *, timeout_s: float
    ) -> None:
        self._counter = counter
        self._cells = cells
        self._writes = writes
        self._timeout_s = timeout_s

    async def get(self, request: ComputeRequest) -> Response:
        """`GET /fleetlight/query/counts`"""
        return await self._answer(request, counting_body_of_query(request.query))

    async def post(self, request: ComputeRequest) -> Response:
        """`POST /fleetlight/query/counts`"""
        return await self._answer(request, await _BODY.read(request))

    async def _answer(self, request: ComputeRequest, body: CountingBody) -> Response:
        """An item with a list is in the group of each of its members, so groups by lists may sum up to more."""
        fields = counted_fields(body.what, request.caller)
        counting = counting_of(body, fields, INSTANCE_VALUES)
        fresh = await asked_freshness(request.http.headers, request.caller, self._writes, self._timeout_s)
        only, rest = choose_cells(counting.filter, fields, await self._cells.cells(), None)
        wanted = scope_of(request.caller, stored_filter(rest, INSTANCE_VALUES), all_projects=counting.all_projects)
        by = tuple(name for each in counting.by if (name := INSTANCE_VALUES[each].stored) is not None)
        counted = await self._counter.count(
            CountRequest(wanted, INSTANCE_FIELDS, by),
            fresh.consistency,
            cell_timeout_s=fresh.cell_timeout_s,
            ask_live=fresh.ask_live,
            only=only,
        )
        groups = Counter[tuple[Any, ...]]()
        for group, count in _groups(counted, counting):
            groups[group] += count
        answer = {
            "fields": definitions(fields, counting.by),
            "groups": [
                {"by": _shown(group, counting, fields), "count": count} for group, count in groups.most_common()
            ],
            "partial": counted.total.is_partial,
        }
        proof = Page(b"", 0, None, counted.cells, has_all_cells=counted.is_complete)
        return json_answer(answer, headers=proof_headers(proof, request.caller))


def _groups(counted: Counted, counting: Counting) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Stored values of the fields that are grouped by, the name of the cell among them if it is asked for."""
    names = {answer.cell.uuid: answer.cell.name for answer in counted.cells}
    for cell_uuid, counts in counted.by_cell.items():
        for group, count in counts.groups.items():
            values = iter(group)
            yield (
                tuple(names.get(cell_uuid, cell_uuid) if name == CELL else next(values) for name in counting.by),
                count,
            )


def _shown(group: tuple[Any, ...], counting: Counting, fields: QueryFields) -> dict[str, Any]:
    return {name: as_json(known(value), fields[name])[1] for name, value in zip(counting.by, group, strict=True)}
