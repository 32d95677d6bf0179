"""`GET /fleetlight/series`: figures of the last hour, for administrators.

They are those of the API process that answers, or of all processes if a Prometheus is configured.
"""

import asyncio
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.shapes import INTEGER, NUMBER, TEXT, ListOf, Shape, or_null
from fleetlight.api.metrics import ApiMetrics, Counted
from fleetlight.api.operating.prometheus import PrometheusSeries
from fleetlight.api.operating.rights import require_admin
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.times import time_shown
from fleetlight.cells.errors import FleetUnreachableError, UpstreamError
from fleetlight.listing.cell_board import Board, CellBoard
from fleetlight.resources.clock import Clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

STEP_S = 10
KEPT = 360
_STEP_US = STEP_S * MICROSECONDS_PER_SECOND
_OF_REQUESTS = ("requests_per_s", "latency_p50_ms", "latency_p99_ms", "route_index", "route_live", "route_skipped")
NAMES = (*_OF_REQUESTS, "age_max_s", "lag_total", "messages_per_s", "jobs_waiting")
SERIES = ApiOperation(
    "GET",
    "/fleetlight/series",
    Shape(
        {
            "step_s": INTEGER,
            "from": or_null(TEXT),
            "process": or_null(INTEGER),
            "problem": or_null(TEXT),
            "series": Shape(dict.fromkeys(NAMES, ListOf(or_null(NUMBER)))),
        }
    ),
    faults=(403,),
    summary="Figures of the last hour, of the API process that answers, or of all by Prometheus; for administrators",
)
Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class _Look:
    """The counts at a step. changes: in the index, of all cells; None if unknown."""

    counted: Counted
    changes: int | None


class Series:
    """The figures of the last hour, one for each step. Use it in one event loop.

    prometheus: has the figures of all processes; None without a Prometheus.
    """

    def __init__(
        self, metrics: ApiMetrics, board: CellBoard, clock: Clock, prometheus: PrometheusSeries | None = None
    ) -> None:
        self._metrics = metrics
        self._board = board
        self._clock = clock
        self._prometheus = prometheus
        self._asking = asyncio.Lock()
        self._remembered: tuple[int, Mapping[str, Any]] | None = None
        self._steps: deque[tuple[int, Figures]] = deque(maxlen=KEPT)
        self._last: tuple[int, _Look] | None = None

    async def run(self) -> None:
        """Take figures at each step, until cancelled; a step that a busy loop misses has none."""
        while True:
            await self.take()
            await asyncio.sleep(STEP_S - self._clock() / MICROSECONDS_PER_SECOND % STEP_S)

    async def take(self) -> None:
        """Take the figures of now. Shares one look at the cells with concurrent calls of `GET /fleetlight/cells`."""
        now = self._clock()
        try:
            board = await self._board.look()
        except FleetUnreachableError:
            board = None
        look = _Look(self._metrics.counted(), _changes(board))
        figures = {**_of_requests(self._last, look, now), **_of_cells(board), **_pace(self._last, look, now)}
        self._steps.append((now // _STEP_US, figures))
        self._last = now, look

    async def show(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/series`. If Prometheus does not answer, returns this process's figures, and the reason."""
        require_admin(request, "fleetlight:series")
        if self._prometheus is None:
            return json_answer(self._own(None))
        async with self._asking:
            step = self._clock() // _STEP_US
            if self._remembered is None or self._remembered[0] != step:
                self._remembered = step, await self._of_all(self._prometheus, step)
            return json_answer(self._remembered[1])

    async def _of_all(self, prometheus: PrometheusSeries, step: int) -> Mapping[str, Any]:
        begins_s = (step - KEPT + 1) * STEP_S
        try:
            series = await asyncio.to_thread(prometheus.read, begins_s, STEP_S, KEPT)
        except UpstreamError as error:
            return self._own(str(error))
        begins = time_shown(begins_s * MICROSECONDS_PER_SECOND)
        return {"step_s": STEP_S, "from": begins, "process": None, "problem": None, "series": series}

    def _own(self, problem: str | None) -> Mapping[str, Any]:
        by_step = dict(self._steps)
        last = max(by_step, default=0)
        steps = range(max(min(by_step, default=0), last - KEPT + 1), last + 1) if by_step else range(0)
        shown = {name: [by_step.get(step, {}).get(name) for step in steps] for name in NAMES}
        begins = time_shown(steps[0] * _STEP_US) if by_step else None
        return {"step_s": STEP_S, "from": begins, "process": os.getpid(), "problem": problem, "series": shown}

    def close(self) -> None:
        if self._prometheus is not None:
            self._prometheus.close()


def _of_requests(before: tuple[int, _Look] | None, look: _Look, now: int) -> Figures:
    """Make the figures of requests since the look before; none at the first look."""
    if before is None or now <= before[0]:
        return {}
    took_s = (now - before[0]) / MICROSECONDS_PER_SECOND
    since = look.counted.since(before[1].counted)
    return {
        "requests_per_s": since.requests / took_s,
        "latency_p50_ms": _quantile_ms(since.seconds, 0.5),
        "latency_p99_ms": _quantile_ms(since.seconds, 0.99),
        "route_index": since.by_index / took_s,
        "route_live": since.by_cells / took_s,
        "route_skipped": since.incomplete / took_s,
    }


def _quantile_ms(counts: Mapping[float, float], share: float) -> float | None:
    """Return a quantile, as the upper bound of its bucket; None without requests, or beyond the last bound.

    counts: number of requests up to each bound in seconds.
    """
    total = counts.get(float("inf"), 0.0)
    bounds = (bound for bound in sorted(counts) if counts[bound] >= share * total)
    found = next(bounds, float("inf"))
    return None if not total or found == float("inf") else found * 1000


def _of_cells(board: Board | None) -> Figures:
    if board is None:
        return {}
    reports = [state.report for state in board.cells if state.report is not None]
    ages = [state.age_s for state in board.cells if state.age_s is not None and not state.cell.disabled]
    lags = [state.lag for state in board.cells if state.lag is not None]
    return {
        "age_max_s": max(ages, default=None),
        "lag_total": sum(lags) if lags else None,
        "jobs_waiting": sum(report.jobs_waiting for report in reports) if reports else None,
    }


def _changes(board: Board | None) -> int | None:
    progress: Sequence[Any] = [] if board is None else [state.progress for state in board.cells if state.progress]
    return sum(each.watermark for each in progress) if progress else None


def _pace(before: tuple[int, _Look] | None, look: _Look, now: int) -> Figures:
    """Make the figure of indexed changes per second; None if a cell has begun a new changelog."""
    if before is None or before[1].changes is None or look.changes is None or look.changes < before[1].changes:
        return {}
    took_us = now - before[0]
    return {
        "messages_per_s": (look.changes - before[1].changes) * MICROSECONDS_PER_SECOND / took_us if took_us else None
    }
