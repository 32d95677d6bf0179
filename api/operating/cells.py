"""`GET /fleetlight/cells`: the health of each cell and its route in lists, for administrators."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.shapes import BOOL, INTEGER, NUMBER, TEXT, ListOf, Shape, or_null
from fleetlight.api.operating.rights import require_admin
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.times import time_shown
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.indexer.backends.seal import SealState
from fleetlight.indexer.followed_by import followed_by
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.listing.answer import Route
from fleetlight.listing.cell_board import CellBoard, CellState, FleetFacts
from fleetlight.listing.safe_connect import SafeConnect

_CELL = Shape(
    {
        **dict.fromkeys(("uuid", "name", "kind"), TEXT),
        "enabled": BOOL,
        "health": TEXT,
        "reason": or_null(TEXT),
        "route": TEXT,
        "lag": or_null(INTEGER),
        "age_s": or_null(NUMBER),
        "followed_by": TEXT,
        "log_problem": or_null(TEXT),
        "watermark": or_null(INTEGER),
        "epoch": or_null(TEXT),
        **dict.fromkeys(("instances", "nodes"), or_null(INTEGER)),
        "drift": or_null(Shape({"found": INTEGER, "at": or_null(TEXT)})),
        **dict.fromkeys(("dead_letters", "jobs_waiting", "jobs_running"), or_null(INTEGER)),
        "followers": or_null(ListOf(TEXT)),
        **dict.fromkeys(("restored_at", "keeps_past_until"), or_null(TEXT)),
    }
)
CELLS = ApiOperation(
    "GET",
    "/fleetlight/cells",
    Shape(
        {
            "cells": ListOf(_CELL),
            "safe_connect": Shape({"uses_index": BOOL, "reason": or_null(TEXT), "since": or_null(TEXT)}),
            "seal": or_null(Shape({"holds": BOOL, "at": or_null(TEXT), "reason": or_null(TEXT)})),
            "index": Shape({"backend": or_null(TEXT)}),
        }
    ),
    faults=(403,),
    summary="How each cell is, how far the index follows it, and what lists take of it; for administrators",
)


class CellsHandler:
    """Handlers of the board of cells."""

    def __init__(self, services: Services, board: CellBoard) -> None:
        parts = services.parts
        self._index = services.index
        self._backend = parts.index_backend
        self._clock = parts.clock
        self._board = board

    async def show(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/cells`."""
        require_admin(request, "fleetlight:cells")
        board = await self._board.look()
        return json_answer(
            {
                "cells": [_shown(state) for state in board.cells],
                "safe_connect": _safe_connect(self._index.safe_connect),
                "seal": None if board.seal is None else _seal(board.seal, self._clock()),
                "index": {"backend": self._backend},
            }
        )


def board_of(services: Services) -> CellBoard:
    """Make the board of cells of an application."""
    parts = services.parts
    return CellBoard(parts.cells, services.index, parts.search, _fleet_facts(parts.fleet))


def _fleet_facts(fleet: Fleet) -> Callable[[Sequence[str]], FleetFacts]:
    leases = CellLeases(fleet.open_leases("fleetlight api"))

    def read(uuids: Sequence[str]) -> FleetFacts:
        followers = leases.follower_names(uuids)
        return FleetFacts(fleet.failures.counts(), followers, fleet.audit_rounds.all(), fleet.restored_cells.all())

    return read


def _shown(state: CellState) -> Mapping[str, Any]:
    cell, progress, report = state.cell, state.progress, state.report
    by = followed_by(cell, progress)
    return {
        "uuid": cell.uuid,
        "name": cell.name,
        "kind": cell.kind.value,
        "enabled": not cell.disabled,
        "health": state.health.value,
        "reason": state.reason,
        "route": Route.INDEX.value if state.route is Route.INDEX_WHILE_DOWN else state.route.value,
        "lag": state.lag,
        "age_s": state.age_s,
        "followed_by": by.value,
        "log_problem": None if progress is None or progress.log is None else progress.log.problem,
        "watermark": progress.watermark if progress is not None and by.is_close else None,
        "epoch": None if progress is None else progress.epoch,
        "instances": state.instances,
        "nodes": None if report is None else report.nodes,
        "drift": None if state.audit is None else {"found": state.audit.found, "at": time_shown(state.audit.at)},
        "dead_letters": state.dead_letters,
        "jobs_waiting": None if report is None else report.jobs_waiting,
        "jobs_running": None if report is None else report.jobs_running,
        "followers": state.followers,
        "restored_at": time_shown(None if state.restored is None else state.restored.at),
        "keeps_past_until": time_shown(None if report is None else report.keeps_past_since),
    }


def _safe_connect(flag: SafeConnect) -> Mapping[str, Any]:
    return {"uses_index": not flag.is_tripped, "reason": flag.reason, "since": time_shown(flag.tripped_at)}


def _seal(seal: SealState, now: int) -> Mapping[str, Any]:
    """Show a seal. now: microseconds, taken as the moment of a seal that each search checks."""
    held_at = now if seal.held_at is None else seal.held_at
    reason = seal.reasons[0] if seal.reasons else None if held_at else "no indexer has checked it yet"
    return {"holds": reason is None, "at": time_shown(held_at or None), "reason": reason}
