"""`GET /fleetlight/explain?request=GET+/v2.1/servers?…`: the explanation of a list or query, for administrators.

The handler makes the list as for any caller, with the headers of this request, and returns how it was made instead.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from fleetlight.api.compute.server_lists.servers import ServerListHandlers
from fleetlight.api.documented import ApiOperation
from fleetlight.api.explaining.queries import QueryExplainer, cell_shown, milliseconds, source_shown
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError, ForbiddenError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.http.shapes import ANYTHING, BOOL, INTEGER, NUMBER, OBJECT, TEXT, ListOf, Shape, or_null
from fleetlight.api.query.handlers import QUERY
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import CELL_TIMEOUT, CONSISTENCY
from fleetlight.api.shared.proof import wanted_consistency
from fleetlight.listing.answer import CellAnswer, Page, ReadOptions, Route
from fleetlight.listing.count_instances import CountResult, InstanceCounter
from fleetlight.listing.explanation import Attempt, Observer
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.query.counts import CountRequest

EXPLAIN = ApiOperation(
    "GET",
    "/fleetlight/explain",
    Shape(
        {
            "request": TEXT,
            **dict.fromkeys(("rows", "rows_read"), INTEGER),
            "matching": or_null(INTEGER),
            "complete": BOOL,
            "duration_ms": NUMBER,
            "remarks": ListOf(TEXT),
            "filter": or_null(Shape(dict.fromkeys(("cells", "pushed", "tried"), ListOf(ANYTHING)))),
            "cells": ListOf(
                Shape(
                    {
                        **dict.fromkeys(("cell", "uuid", "route"), TEXT),
                        "complete": BOOL,
                        "watermark": or_null(INTEGER),
                        "age_s": or_null(NUMBER),
                        "matching": or_null(INTEGER),
                        "why": or_null(TEXT),
                    }
                )
            ),
            "attempts": ListOf(
                Shape(
                    {
                        "failure": or_null(TEXT),
                        "pages": INTEGER,
                        "sources": ListOf(
                            Shape(
                                {
                                    "source": TEXT,
                                    "batches": INTEGER,
                                    "rows": INTEGER,
                                    "duration_ms": NUMBER,
                                    "query": or_null(OBJECT),
                                }
                            )
                        ),
                    }
                )
            ),
        }
    ),
    query=("request",),
    takes=(CONSISTENCY, CELL_TIMEOUT),
    faults=(400, 403),
    summary="How a list, or a query, comes about: sources, why, compiled queries, times; for administrators",
)
_SERVERS = "/v2.1/servers"
_ADDRESSES = (_SERVERS, f"{_SERVERS}/detail", QUERY.path)


class Explainer:
    def __init__(
        self,
        servers: ServerListHandlers,
        queries: QueryExplainer,
        lister: InstanceLister,
        counter: InstanceCounter,
    ) -> None:
        self._servers = servers
        self._queries = queries
        self._lister = lister
        self._counter = counter

    async def explain(self, request: ApiRequest) -> Response:
        """Answer with the explanation as JSON. Errors are those of the list itself."""
        if not request.caller.is_admin:
            raise ForbiddenError("fleetlight:explain")
        asked = request.query.last("request") or ""
        method, _, address = asked.partition(" ")
        path, _, query = address.strip().partition("?")
        if method != "GET" or path not in _ADDRESSES:
            known = " or ".join(f"GET {known}" for known in _ADDRESSES)
            raise BadRequestError(f"only {known} can be explained, with any query, and not {asked!r}")
        parameters = QueryString.parse(query.encode(), splits_at_semicolons=path != QUERY.path)
        if path == QUERY.path:
            found = await self._queries.explain(request, parameters)
        else:
            found = await self._servers_explained(replace(request, query=parameters), is_detailed=path != _SERVERS)
        return json_answer({"request": asked, **found})

    async def _servers_explained(self, request: ApiRequest, *, is_detailed: bool) -> Mapping[str, Any]:
        observer = Observer()
        began = time.perf_counter()
        page = await self._servers.explained_page(request, observer, is_detailed=is_detailed)
        duration_s = time.perf_counter() - began
        counted = await self._counted(request, observer, page)
        return {
            "rows": page.rows,
            "rows_read": sum(source.rows for attempt in observer.attempts for source in attempt.sources),
            "matching": None if counted is None else counted.total.groups.get((), 0),
            "complete": page.is_complete,
            "duration_ms": milliseconds(duration_s),
            "remarks": list(dict.fromkeys([*observer.remarks, *(() if counted is None else counted.remarks)])),
            "filter": None,
            "cells": [_cell(answer, observer, counted) for answer in page.cells],
            "attempts": [await self._attempt(attempt, page) for attempt in observer.attempts],
        }

    async def _counted(self, request: ApiRequest, observer: Observer, page: Page) -> CountResult | None:
        """Count the servers of the whole list, by the routes of its page."""
        if not observer.attempts:
            return None
        asked = observer.attempts[-1].request
        live = [answer.cell.uuid for answer in page.cells if answer.route is Route.LIVE]
        consistency, timeout_s = wanted_consistency(request.http.headers)[0], request.writes.cell_timeout_s
        fresh = ReadOptions(consistency, live, timeout_s, request.admission)
        return await self._counter.count(CountRequest(asked.filter, asked.item_type), fresh)

    async def _attempt(self, attempt: Attempt, page: Page) -> Mapping[str, Any]:
        names = {answer.cell.uuid: answer.cell.name for answer in page.cells}
        indexed = set(names) - {source.cell_uuid for source in attempt.sources}
        sources = [
            source_shown(
                "index" if source.cell_uuid is None else f"cell {names.get(source.cell_uuid, source.cell_uuid)}",
                await self._lister.describe(attempt.request, source.cell_uuid, indexed),
                batches=source.batches,
                rows=source.rows,
                duration_s=source.duration_s,
            )
            for source in attempt.sources
        ]
        return {"failure": attempt.failure, "pages": 1, "sources": sources}


def _cell(answer: CellAnswer, observer: Observer, counted: CountResult | None) -> Mapping[str, Any]:
    counts = None if counted is None else counted.by_cell.get(answer.cell.uuid)
    why = observer.attempts[-1].why if observer.attempts else {}
    return cell_shown(
        answer, why=why.get(answer.cell.uuid), matching=None if counts is None else counts.groups.get((), 0)
    )
