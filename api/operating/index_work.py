"""`/fleetlight/index/work`: administrators order, follow and stop work on the index.

The API may not write to the index; indexers carry out the orders (docs/decisions/0034).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body, RequestModel
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError, NotFoundError
from fleetlight.api.http.shapes import INTEGER, NUMBER, TEXT, ListOf, Shape, or_null
from fleetlight.api.operating.rights import require_admin
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.times import time_shown
from fleetlight.cells.fleet.index_work import OF_ALL, WorkKind, WorkOrder, WorkState
from fleetlight.cells.model import Cell
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

WORK = Shape(
    {
        **dict.fromkeys(("id", "kind"), TEXT),
        "cells": ListOf(TEXT),
        "state": TEXT,
        "done": INTEGER,
        "total": or_null(INTEGER),
        **dict.fromkeys(("rate", "left_s"), or_null(NUMBER)),
        **dict.fromkeys(("started_at", "ended_at"), or_null(TEXT)),
        "by": TEXT,
        "result": or_null(TEXT),
        "findings": ListOf(Shape({"cell": TEXT, "uuid": or_null(TEXT), "problem": TEXT})),
    }
)


class WorkBody(RequestModel):
    """An order. cells: names or uuids; all unless given. Work that makes or drops an index always covers all cells."""

    kind: Literal["sync", "verify", "repair", "rebuild", "back", "drop-old", "purge"]
    cells: Annotated[list[Annotated[str, Field(min_length=1, max_length=255)]], Field(max_length=1000)] | None = None


_BODY: Body[WorkBody] = Body(WorkBody)
_PATH = "/fleetlight/index/work"
ORDER_WORK = ApiOperation(
    "POST",
    _PATH,
    WORK,
    success=202,
    body=_BODY,
    faults=(400, 403, 404, 409),
    summary="Order work on the index, which an indexer carries out; for administrators",
)
LIST_WORK = ApiOperation(
    "GET",
    _PATH,
    Shape({"work": ListOf(WORK)}),
    faults=(403,),
    summary="The work on the index that was ordered, the newest first; for administrators",
)
SHOW_WORK = ApiOperation(
    "GET",
    f"{_PATH}/{{work_id}}",
    WORK,
    faults=(403, 404),
    summary="How far work on the index is, and what came of it; for administrators",
)
STOP_WORK = ApiOperation(
    "DELETE",
    f"{_PATH}/{{work_id}}",
    WORK,
    success=202,
    faults=(403, 404),
    summary="Stop work on the index between two batches; for administrators",
)
_POLICY = "fleetlight:index:work"


class WorkHandlers:
    """Handlers of orders."""

    def __init__(self, services: Services) -> None:
        self._fleet = services.parts.fleet
        self._access = services.access
        self._clock = services.parts.clock

    async def order(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/index/work`. Raises WorkRefusedError, which names the work that runs already."""
        require_admin(request, _POLICY)
        body = await _BODY.read(request)
        kind = WorkKind(body.kind)
        if kind in OF_ALL and body.cells is not None:
            raise BadRequestError(f"{kind} is of all cells: leave `cells` away")
        cells = await self._access.ask(self._fleet.cells)
        subjects = [] if kind in OF_ALL else [cell.uuid for cell in _chosen(cells, body.cells)]
        by = request.caller.user_id or ""
        work = await self._access.ask(lambda: self._fleet.index_work.order(kind, subjects, by, self._clock()))
        return json_answer(work_shown(work, cells, self._clock()), 202)

    async def list_all(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/index/work`."""
        require_admin(request, _POLICY)
        found, cells = await self._access.ask(lambda: (self._fleet.index_work.all(), self._fleet.cells()))
        return json_answer({"work": [work_shown(work, cells, self._clock()) for work in found]})

    async def show(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/index/work/{work_id}`."""
        return await self._one(request, self._fleet.index_work.find, 200)

    async def stop(self, request: ApiRequest) -> Response:
        """`DELETE /fleetlight/index/work/{work_id}`; no error when it has ended already."""
        return await self._one(request, lambda work_id: self._fleet.index_work.stop(work_id, self._clock()), 202)

    async def _one(self, request: ApiRequest, ask: Callable[[str], WorkOrder | None], status: int) -> Response:
        require_admin(request, _POLICY)
        work_id = request.http.path_params["work_id"]
        work, cells = await self._access.ask(lambda: (ask(work_id), self._fleet.cells()))
        if work is None:
            raise NotFoundError(f"Work {work_id} could not be found.")
        return json_answer(work_shown(work, cells, self._clock()), status)


def work_shown(work: WorkOrder, cells: Sequence[Cell], now: int) -> Mapping[str, Any]:
    """Show an order by the shape WORK. now: microseconds."""
    rate = _rate(work, now)
    missing = None if work.total is None else max(0, work.total - work.done)
    is_running = work.state is WorkState.RUNNING
    return {
        "id": work.id,
        "kind": work.kind.value,
        "cells": [cell.name for cell in cells if work.kind in OF_ALL or cell.uuid in work.subjects],
        "state": work.state.value,
        "done": work.done,
        "total": work.total,
        "rate": rate,
        "left_s": missing / rate if is_running and rate and missing is not None else None,
        "started_at": time_shown(work.started_at),
        "ended_at": time_shown(work.ended_at),
        "by": work.ordered_by,
        "result": work.result,
        "findings": [
            {"cell": each.cell, "uuid": None if each.about == each.cell else each.about, "problem": each.evidence}
            for each in work.findings
        ],
    }


def _rate(work: WorkOrder, now: int) -> float | None:
    """Return the rows per second since the beginning; None if unknown."""
    if work.started_at is None or not work.done:
        return None
    took_us = (work.ended_at or now) - work.started_at
    return work.done * MICROSECONDS_PER_SECOND / took_us if took_us > 0 else None


def _chosen(cells: Sequence[Cell], wanted: Sequence[str] | None) -> Sequence[Cell]:
    """Return the wanted cells, or all. Raises NotFoundError, which names the unknown ones."""
    if wanted is None:
        return cells
    known = {cell.name for cell in cells} | {cell.uuid for cell in cells}
    for name in wanted:
        if name not in known:
            raise NotFoundError(f"Cell {name} could not be found.")
    return [cell for cell in cells if not {cell.name, cell.uuid}.isdisjoint(wanted)]
