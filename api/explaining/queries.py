"""The explanation of a query: the cells asked and why, their queries, and the conditions tried on rows here."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleetlight.api.http.query_string import QueryString
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.handlers import query_of_body
from fleetlight.api.query.item_query import ItemQuery, body_of_query, size_of
from fleetlight.api.query.results import QueryObserver, QueryPlan, QueryResult
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.proof import read_options
from fleetlight.listing.answer import CellAnswer, ReadOptions, Route
from fleetlight.listing.count_instances import CountResult, InstanceCounter
from fleetlight.listing.explanation import Attempt, ObservedSource, Query
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.list_items import CellItems, ItemLister
from fleetlight.query.as_list import as_list
from fleetlight.query.counts import CountRequest
from fleetlight.query.filters import EVERYTHING
from fleetlight.resources.instance import INSTANCE_FIELDS

_OF_THE_PAST = "only cells know what they were like then: their rows, without what was changed since"
_ONE_AFTER_THE_OTHER = "a list by cell asks one cell after the other; this explains the first rows of all at once"
NOT_ASKED = "not-asked"
"""The route of a cell that a condition on `cell` leaves out."""


def cell_shown(answer: CellAnswer, *, why: str | None, matching: int | None) -> Mapping[str, Any]:
    """Show a cell's contribution. why: the reason for its route, unless it failed. matching: its matching rows."""
    if answer.failure is not None:
        why = f"it is down: {answer.failure}" if answer.is_down else f"it is not complete: {answer.failure}"
    return {
        "cell": answer.cell.name,
        "uuid": answer.cell.uuid,
        "route": answer.route.value,
        "complete": answer.is_complete,
        "watermark": answer.watermark,
        "age_s": None if answer.age_s is None else round(answer.age_s, 3),
        "matching": matching,
        "why": why,
    }


def source_shown(name: str, query: Query | None, *, batches: int, rows: int, duration_s: float) -> Mapping[str, Any]:
    """Show one source of the rows, and its compiled query."""
    return {"source": name, "batches": batches, "rows": rows, "duration_ms": milliseconds(duration_s), "query": query}


def milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


@dataclass(frozen=True, slots=True)
class _Explained:
    """An answer, and the record of how it was made."""

    question: ItemQuery
    fresh: ReadOptions
    answer: QueryResult
    observer: QueryObserver
    plan: QueryPlan
    duration_s: float


class QueryExplainer:
    """Explains `GET /fleetlight/query`."""

    def __init__(
        self, query_engine: QueryEngine, lister: InstanceLister, items: ItemLister, counter: InstanceCounter
    ) -> None:
        self._query_engine = query_engine
        self._lister = lister
        self._items = items
        self._counter = counter

    async def explain(self, request: ApiRequest, query: QueryString) -> Mapping[str, Any]:
        """Run the query with parameters `query`, and explain it. Errors are those of the query itself."""
        body = body_of_query(query)
        question = await made_aside(size_of(body.filter), lambda: query_of_body(body, request.caller))
        fresh = await read_options(request.http.headers, request.caller, request.writes, request.admission)
        observer = QueryObserver()
        if question.by_cell is not None:
            observer.listing.remarks.append(_ONE_AFTER_THE_OTHER)
            question = replace(question, by_cell=None, after=None)
        began = time.perf_counter()
        answer = await self._query_engine.answer(question, request.caller, fresh, observer=observer)
        duration_s = time.perf_counter() - began
        if observer.plan is None:
            raise AssertionError("the answer did not say how it was asked for")
        explained = _Explained(question, fresh, answer, observer, observer.plan, duration_s)
        is_of_instances = question.known.name == INSTANCE_FIELDS.name
        return await (self._of_instances(explained) if is_of_instances else self._of_items(explained))

    async def _of_instances(self, explained: _Explained) -> Mapping[str, Any]:
        attempts = explained.observer.listing.attempts
        proof = explained.answer.proof
        counted = await self._counted(explained)
        why = attempts[-1].why if attempts else {}
        is_past = explained.question.as_of is not None
        joined = [(_joined(same), same[0], len(same)) for same in _alike(attempts)]
        return _document(
            explained,
            rows_read=sum(source.rows for attempt in attempts for source in attempt.sources),
            matching=None if counted is None else counted.total.groups.get((), 0),
            remarks=[*explained.observer.listing.remarks, *(() if counted is None else counted.remarks)],
            cells=[
                cell_shown(
                    answer,
                    why=_OF_THE_PAST if is_past else why.get(answer.cell.uuid),
                    matching=_matching(counted, answer.cell.uuid),
                )
                for answer in proof.cells
            ],
            attempts=[
                {
                    "failure": first.failure,
                    "pages": pages,
                    "sources": [await self._source(explained, source, first) for source in sources],
                }
                for sources, first, pages in joined
            ],
        )

    async def _source(self, explained: _Explained, source: ObservedSource, attempt: Attempt) -> Mapping[str, Any]:
        indexed = {answer.cell.uuid for answer in explained.answer.proof.cells}
        indexed -= {each.cell_uuid for each in attempt.sources}
        is_past = explained.question.as_of is not None
        names = {cell.uuid: cell.name for cell in explained.plan.cells}
        return source_shown(
            "index" if source.cell_uuid is None else f"cell {names.get(source.cell_uuid, source.cell_uuid)}",
            None if is_past else await self._lister.describe(attempt.request, source.cell_uuid, indexed),
            batches=source.batches,
            rows=source.rows,
            duration_s=source.duration_s,
        )

    async def _counted(self, explained: _Explained) -> CountResult | None:
        """Count all matching instances; None if stores cannot evaluate the whole filter."""
        attempts = explained.observer.listing.attempts
        if not attempts or explained.plan.tried != EVERYTHING or explained.question.as_of is not None:
            return None
        request = attempts[-1].request
        return await self._counter.count(
            CountRequest(request.filter, request.item_type), explained.fresh, only=explained.plan.asked
        )

    async def _of_items(self, explained: _Explained) -> Mapping[str, Any]:
        items = explained.observer.items
        whys = {
            Route.INDEX: "the index has all items of the cell, closely enough",
            Route.INDEX_WHILE_DOWN: "the cell does not answer: what the index has of it",
        }
        why_not = explained.observer.why_not_indexed
        return _document(
            explained,
            rows_read=sum(len(each.records) for each in items),
            matching=None,
            remarks=(),
            cells=[cell_shown(each.answer, why=whys.get(each.answer.route, why_not), matching=None) for each in items],
            attempts=[
                {
                    "failure": None,
                    "pages": 1,
                    "sources": [await self._source_of_items(explained, each) for each in items],
                }
            ],
        )

    async def _source_of_items(self, explained: _Explained, items: CellItems) -> Mapping[str, Any]:
        plan, cell = explained.plan, items.answer.cell
        item_type, timeout_s = explained.question.known.name, explained.fresh.cell_timeout_s
        route = items.answer.route
        is_asked = route is Route.LIVE
        return source_shown(
            f"cell {cell.name}" if route in {Route.LIVE, Route.SKIPPED} else f"index, of cell {cell.name}",
            await self._items.describe(cell.uuid, item_type, plan.fields, plan.keys, timeout_s) if is_asked else None,
            batches=1,
            rows=len(items.records),
            duration_s=items.duration_s,
        )


def _document(
    explained: _Explained,
    *,
    rows_read: int,
    matching: int | None,
    remarks: Sequence[str],
    cells: Sequence[Mapping[str, Any]],
    attempts: Sequence[Mapping[str, Any]],
) -> Mapping[str, Any]:
    """Make the explanation, without the request."""
    plan = explained.plan
    return {
        "rows": len(explained.answer.rows),
        "rows_read": rows_read,
        "matching": matching,
        "complete": explained.answer.proof.is_complete,
        "duration_ms": milliseconds(explained.duration_s),
        "remarks": list(dict.fromkeys(remarks)),
        "filter": {
            "cells": as_list(plan.of_cells),
            "pushed": as_list(plan.pushed),
            "tried": as_list(plan.tried),
        },
        "cells": [*cells, *_not_asked(plan, {cell["uuid"] for cell in cells})],
        "attempts": list(attempts),
    }


def _not_asked(plan: QueryPlan, shown: Collection[str]) -> list[Mapping[str, Any]]:
    return [
        {
            **cell_shown(CellAnswer(cell, Route.SKIPPED, is_complete=True), why=None, matching=None),
            "route": NOT_ASKED,
            "why": "a condition on `cell` is not true of it",
        }
        for cell in plan.cells
        if cell.uuid not in shown and plan.asked is not None and cell.uuid not in plan.asked
    ]


def _matching(counted: CountResult | None, cell_uuid: str) -> int | None:
    counts = None if counted is None else counted.by_cell.get(cell_uuid)
    return None if counts is None else counts.groups.get((), 0)


def _alike(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Group successive pages that have the same sources and order."""
    found: list[list[Attempt]] = []
    for attempt in attempts:
        if found and _kind(found[-1][0]) == _kind(attempt):
            found[-1].append(attempt)
        else:
            found.append([attempt])
    return found


def _kind(attempt: Attempt) -> tuple[object, ...]:
    return attempt.failure, attempt.request.order, *(source.cell_uuid for source in attempt.sources)


def _joined(attempts: Sequence[Attempt]) -> list[ObservedSource]:
    """Sum up the sources of several pages."""
    return [
        ObservedSource(
            same[0].cell_uuid,
            sum(source.batches for source in same),
            sum(source.rows for source in same),
            sum(source.duration_s for source in same),
        )
        for same in zip(*(attempt.sources for attempt in attempts), strict=True)
    ]
