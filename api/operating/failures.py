"""`/fleetlight/index/failures` and `/audit`: failed messages, and differences found, for administrators."""

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from starlette.responses import Response

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import NotFoundError, ParameterError
from fleetlight.api.http.shapes import ANYTHING, INTEGER, TEXT, ListOf, Shape, or_null
from fleetlight.api.operating.index_work import WORK, work_shown
from fleetlight.api.operating.rights import require_admin
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.times import time_shown
from fleetlight.cells.fleet.failures import Failure
from fleetlight.cells.fleet.index_work import WorkKind, WorkOrder
from fleetlight.cells.model import Cell

_MOST = 100
_PATH = "/fleetlight/index/failures"
_FAILURE = Shape(
    {
        **dict.fromkeys(("id", "cell", "reason", "detail"), TEXT),
        "instance": or_null(TEXT),
        **dict.fromkeys(("first_at", "last_at"), TEXT),
        "times": INTEGER,
        "message": ANYTHING,
    }
)
_ROUND = Shape({**dict.fromkeys(("cell", "at"), TEXT), **dict.fromkeys(("compared", "found", "repaired"), INTEGER)})
LIST_FAILURES = ApiOperation(
    "GET",
    _PATH,
    Shape({"failures": ListOf(_FAILURE), "marker": or_null(TEXT)}),
    query=("cell", "limit", "marker"),
    faults=(400, 403, 404),
    summary="Messages that could not be indexed, with the reason; for administrators",
)
RETRY_FAILURE = ApiOperation(
    "POST",
    f"{_PATH}/{{failure_id}}/retry",
    WORK,
    success=202,
    faults=(403, 404, 409),
    summary="Order that a message that could not be indexed is tried again; for administrators",
)
DROP_FAILURE = ApiOperation(
    "DELETE",
    f"{_PATH}/{{failure_id}}",
    success=204,
    faults=(403, 404),
    summary="Delete a message that could not be indexed; for administrators",
)
SHOW_AUDIT = ApiOperation(
    "GET",
    "/fleetlight/index/audit",
    Shape({"rounds": ListOf(_ROUND)}),
    faults=(403,),
    summary="What the last comparison of each cell with the index has found; for administrators",
)
_POLICY = "fleetlight:index:failures"


class FailureHandlers:
    """Handlers of failures and of the audit."""

    def __init__(self, services: Services) -> None:
        self._fleet = services.parts.fleet
        self._access = services.access
        self._clock = services.parts.clock

    async def list_page(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/index/failures`: by cell, the oldest first."""
        require_admin(request, _POLICY)
        name, marker = request.query.last("cell"), request.query.last("marker")
        limit = _limit(request.query.last("limit"))
        found, cells, has_more = await self._access.ask(lambda: self._page(name, marker, limit))
        names = {cell.uuid: cell.name for cell in cells}
        shown = [_shown(failure, names) for failure in found]
        return json_answer({"failures": shown, "marker": found[-1].id if has_more and found else None})

    async def retry(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/index/failures/{failure_id}/retry`: orders an indexer to do it, which may write."""
        require_admin(request, _POLICY)
        failure_id, by = request.http.path_params["failure_id"], request.caller.user_id or ""

        def order() -> tuple[WorkOrder, tuple[Cell, ...]] | None:
            if not self._fleet.failures.find([failure_id]):
                return None
            work = self._fleet.index_work.order(WorkKind.RETRY, [failure_id], by, self._clock())
            return work, self._fleet.cells()

        ordered = await self._access.ask(order)
        if ordered is None:
            raise _unknown(failure_id)
        return json_answer(work_shown(*ordered, self._clock()), 202)

    async def drop(self, request: ApiRequest) -> Response:
        """`DELETE /fleetlight/index/failures/{failure_id}`."""
        require_admin(request, _POLICY)
        failure_id = request.http.path_params["failure_id"]
        if not await self._access.ask(lambda: self._fleet.failures.drop([failure_id])):
            raise _unknown(failure_id)
        return empty_answer(204)

    async def audit(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/index/audit`, by the names of the cells."""
        require_admin(request, "fleetlight:index:audit")
        rounds, cells = await self._access.ask(lambda: (self._fleet.audit_rounds.all(), self._fleet.cells()))
        found = {cell.name: rounds[cell.uuid] for cell in cells if cell.uuid in rounds}
        return json_answer(
            {
                "rounds": [
                    {
                        "cell": name,
                        "at": time_shown(last.at),
                        "compared": last.compared,
                        "found": last.found,
                        "repaired": last.repaired,
                    }
                    for name, last in found.items()
                ]
            }
        )

    def _page(self, name: str | None, marker: str | None, limit: int) -> tuple[list[Failure], tuple[Cell, ...], bool]:
        """Read the failures after the one with the id `marker`; returns the cells, too, and whether more follow.

        Raises NotFoundError for an unknown cell, and ParameterError for an unknown marker.
        """
        cells = self._fleet.cells()
        uuids = [cell.uuid for cell in cells if name in {None, cell.name, cell.uuid}]
        if not uuids and name is not None:
            raise NotFoundError(f"Cell {name} could not be found.")
        known = [] if marker is None else self._fleet.failures.find([marker])
        if marker is not None and not known:
            raise ParameterError("marker", marker, "There is no such failure (any more): list again.")
        after = known[0].summary if known else None
        ids = [each.id for each in islice(self._fleet.failures.summaries(uuids, after), limit + 1)]
        by_id = {failure.id: failure for failure in self._fleet.failures.find(ids[:limit])}
        return [by_id[each] for each in ids[:limit] if each in by_id], cells, len(ids) > limit


def _shown(failure: Failure, names: Mapping[str, str]) -> Mapping[str, Any]:
    summary = failure.summary
    return {
        "id": failure.id,
        "cell": names[summary.cell_uuid],
        "reason": summary.reason,
        "detail": summary.detail,
        "instance": summary.instance_uuid,
        "first_at": time_shown(summary.first_at),
        "last_at": time_shown(summary.last_at),
        "times": summary.times,
        "message": _decoded(failure.body),
    }


def _decoded(body: bytes) -> Any:
    """Return a message as decoded JSON, if an answer can carry that; otherwise as text."""
    text = body.decode("utf-8", "backslashreplace")
    try:
        read = json.loads(text, parse_constant=_refuse)
        # Half of a surrogate pair can be decoded, but not encoded.
        json.dumps(read, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return text
    return read if isinstance(read, dict) else text


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity, which are no JSON."""
    raise ValueError(constant)


def _limit(text: str | None) -> int:
    if text is None:
        return _MOST
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) and 1 <= int(text) <= _MOST):
        raise ParameterError("limit", text, f"Must be a number from 1 to {_MOST}.")
    return int(text)


def _unknown(failure_id: str) -> NotFoundError:
    return NotFoundError(f"Failure {failure_id} could not be found.")
