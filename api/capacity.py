"""`GET /fleetlight/capacity`: capacity and usage of the nodes of all cells, for administrators."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from starlette.responses import Response
from starlette.routing import Route as HttpRoute

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError, ForbiddenError, NotFoundError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.http.shapes import INTEGER, TEXT, ListOf, Shape, or_null
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import CELL_TIMEOUT, COMPLETE, ROUTE
from fleetlight.api.shared.proof import proof_headers, wanted_cell_timeout
from fleetlight.listing.answer import Route
from fleetlight.listing.fleet_capacity import CapacityLister, CapacitySummary
from fleetlight.listing.sources import CellReader
from fleetlight.resources.amount import Amount

_SIZE = ("vcpus", "memory_mib", "disk_mib")
_LARGEST = 2**31 - 1
_AMOUNTS = Shape(dict.fromkeys(_SIZE, INTEGER))
_SUMMARY = Shape(
    {
        "cell": TEXT,
        "zone": or_null(TEXT),
        "group": or_null(TEXT),
        **dict.fromkeys(("nodes", "available_nodes"), INTEGER),
        **dict.fromkeys(("total", "used", "reserved", "free", "largest_hole"), _AMOUNTS),
        "unknown": ListOf(TEXT),
        "silent_nodes": ListOf(TEXT),
        **dict.fromkeys(("fits", "fits_without_reservations"), or_null(INTEGER)),
        "node": or_null(TEXT),
    }
)
CAPACITY = ApiOperation(
    "GET",
    "/fleetlight/capacity",
    Shape(
        {
            "cells": ListOf(_SUMMARY),
            "parts": ListOf(_SUMMARY),
            "nodes": ListOf(_SUMMARY),
            "missing": ListOf(Shape({"cell": TEXT, "uuid": TEXT, "why": or_null(TEXT)})),
        }
    ),
    query=("cell", "nodes", *_SIZE),
    takes=(CELL_TIMEOUT,),
    gives=(COMPLETE, ROUTE),
    faults=(400, 403, 404),
    summary="What the nodes of all cells have, what of it is used, reserved and free, and how many more instances of a "
    "size fit; for administrators",
)


def routes(services: Services) -> Sequence[HttpRoute]:
    parts = services.parts
    handler = CapacityHandler(CapacityLister(parts.cells), parts.cells)
    return [services.middleware.route(CAPACITY, handler.show)]


class CapacityHandler:
    """The handler of the capacity."""

    def __init__(self, lister: CapacityLister, cells: CellReader) -> None:
        self._lister = lister
        self._cells = cells

    async def show(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/capacity`: of the cell called `cell`, or of all; and the room for instances of a size.

        With `nodes=1` also for each node of that cell. Raises BadRequestError, ForbiddenError, FleetUnreachableError.
        """
        if not request.caller.is_admin:
            raise ForbiddenError("fleetlight:capacity")
        size = _size(request.query)
        found = await self._lister.capacity(
            cell_timeout_s=wanted_cell_timeout(request.http.headers, request.writes.cell_timeout_s),
            only=await self._chosen(request.query.last("cell")),
            size=size,
            with_nodes=_with_nodes(request.query),
            admission=request.admission,
        )
        answer = {
            "cells": [_summary(each) for each in found.cells],
            "parts": [_summary(each) for each in found.parts],
            "nodes": [_summary(each) for each in found.nodes],
            "missing": [
                {"cell": each.cell.name, "uuid": each.cell.uuid, "why": each.failure}
                for each in found.proof.cells
                if each.route is Route.SKIPPED
            ],
        }
        return json_answer(answer, headers=proof_headers(found.proof, request.caller))

    async def _chosen(self, name: str | None) -> set[str] | None:
        if name is None:
            return None
        found = {cell.uuid for cell in await self._cells.cells() if name in (cell.name, cell.uuid)}
        if not found:
            raise NotFoundError(f"Cell {name} could not be found.")
        return found


def _with_nodes(query: QueryString) -> bool:
    """Whether to show nodes. Raises BadRequestError without `cell`: a fleet may have many thousand nodes."""
    wanted = query.last("nodes") or "0"
    if wanted not in ("0", "1"):
        raise BadRequestError("nodes: must be 0 or 1")
    if wanted == "1" and query.last("cell") is None:
        raise BadRequestError("nodes: are those of one cell; name it with cell=NAME")
    return wanted == "1"


def _size(query: QueryString) -> Amount | None:
    """Read the requested size, if any. Raises BadRequestError for an incomplete or malformed size."""
    given = {name: query.last(name) for name in _SIZE}
    if not any(given.values()):
        return None
    for name, text in given.items():
        if text is None or not text.isascii() or not text.isdigit() or int(text) > _LARGEST:
            raise BadRequestError(f"{name}: a size needs {', '.join(_SIZE)}, whole numbers up to {_LARGEST}")
    size = Amount(**{name: int(text or 0) for name, text in given.items()})
    if size == Amount():
        raise BadRequestError(f"a size of nothing fits without end: one of {', '.join(_SIZE)} must be more than 0")
    return size


def _summary(summary: CapacitySummary) -> Mapping[str, Any]:
    return asdict(summary)
