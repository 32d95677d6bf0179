"""Health of this process: `/healthz` and `/readyz` for every caller, details for the monitoring.

Every caller gets one word. `monitoring.port` shows which cells and parts are down, and the log says why.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fleetlight.api.documented import ApiOperation, DocumentedRoute
from fleetlight.api.http.shapes import TEXT, Shape
from fleetlight.api.metrics import ApiMetrics
from fleetlight.cells.daemon_threads import in_background
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.fleet.fleet_clock import FleetClock
from fleetlight.cells.model import NO_INSTANCE, Cell
from fleetlight.indexer.errors import IndexerError
from fleetlight.indexer.stream.liveness import ALIVE, Probe, Probes
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.sources import CellReader

_log = structlog.get_logger(__name__)
_PROBE_TIMEOUT_S = 1.0
_STATUS = Shape({"status": TEXT})
_HEALTHZ = ApiOperation("GET", "/healthz", _STATUS, is_open=True, unwell=503, summary="Whether the process lives")
_READYZ = ApiOperation("GET", "/readyz", _STATUS, is_open=True, unwell=503, summary="Whether lists can be answered")


class Health:
    """The state of this process and its dependencies. Use it in the event loop of the application."""

    def __init__(
        self,
        index: IndexGateway,
        reader: CellReader,
        metrics: ApiMetrics,
        indexer: Probes | None = None,
        clock: FleetClock | None = None,
    ) -> None:
        """indexer: the indexer process of the same command, if any; its calls block. clock: None: the machine's."""
        self._indexer = indexer
        self._clock = clock
        self._index = index
        self._reader = reader
        self.metrics = metrics
        self._looking: asyncio.Task[Probe] | None = None

    async def healthz(self) -> Probe:
        """Whether the process and the indexer of its command live."""
        return ALIVE if self._indexer is None else await _said_by(self._indexer.healthz)

    async def readyz(self) -> Probe:
        """Whether lists can be answered, and which parts are missing; not well only if nothing can answer lists.

        Concurrent callers share one query to the cells, since every caller may ask, and lists need the threads.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(self._looking)

    async def _look(self) -> Probe:
        index = await self._index_state()
        try:
            cells = await self._reader.cells()
        except FleetUnreachableError as error:
            _log.warning("not_ready", reason=error.reason)
            return Probe(False, {"status": "unavailable", "index": index, "fleet": "down", "cells": {}})
        answers = await asyncio.gather(*(self._is_up(cell) for cell in cells))
        indexer = None if self._indexer is None else (await _said_by(self._indexer.readyz)).body
        hanging = self._reader.hanging()
        down = {cell.uuid: "hangs" if cell.uuid in hanging else "down" for cell in cells}
        states = {cell.name: "ok" if is_up else down[cell.uuid] for cell, is_up in zip(cells, answers, strict=True)}
        if cells and not any(answers) and index != "ok":
            status = "unavailable"
        else:
            # Without an indexer the cells answer lists.
            is_followed = indexer is None or indexer["status"] == "ready"
            status = "ready" if all(answers) and index != "down" and is_followed else "degraded"
        body: dict[str, Any] = {"status": status, "index": index, "fleet": "ok", "clock": self._clock_state()}
        body["cells"] = states
        return Probe(status != "unavailable", body if indexer is None else body | {"indexer": indexer})

    async def measure(self) -> None:
        """Update the metrics that are read on demand."""
        try:
            cells = await self._reader.cells()
            self.metrics.show_fleet(is_reachable=await self._reader.knows_all_cells())
        except FleetUnreachableError:
            cells = ()
            self.metrics.show_fleet(is_reachable=False)
        try:
            progress = await self._index.checked_progress() or {}
        except IndexerError as error:
            self._index.failed(error)
            progress = {}
        uuids = {cell.uuid for cell in cells}
        known = {uuid: cell for uuid, cell in progress.items() if uuid in uuids}
        self.metrics.show_cells(cells, self._reader.hanging())
        fresh = self._index.freshness()
        self.metrics.show_progress(
            {uuid: cell.watermark for uuid, cell in known.items()},
            {uuid: fresh.age_s(cell) for uuid, cell in known.items()},
        )
        self.metrics.show_safe_connect(is_tripped=self._index.safe_connect.is_tripped)

    def _clock_state(self) -> str:
        """Whether this machine's clock agrees with the fleet's; `unsure` while the fleet's time is unknown."""
        if self._clock is None:
            return "ok"
        if not self._clock.is_sure:
            return "unsure"
        return "ok" if self._clock.agrees else "disagrees"

    async def _index_state(self) -> str:
        """Return `off`, `ok` or `down`. Does not query an index while the safe-connect flag is up."""
        try:
            progress = await self._index.checked_progress()
        except IndexerError as error:
            self._index.failed(error)
            progress = None
        if not self._index.is_used:
            return "off"
        return "down" if progress is None or self._index.is_absent else "ok"

    async def _is_up(self, cell: Cell) -> bool:
        try:
            await self._reader.find(cell.uuid, NO_INSTANCE, _PROBE_TIMEOUT_S)
        except (CellUnreachableError, UnknownCellError):
            return False
        return True


class HealthEndpoints:
    """`/healthz` and `/readyz`: one word for every caller.

    command: the command of several processes that this process belongs to; the answer covers all of them.
    """

    def __init__(self, health: Health, command: Probes | None = None) -> None:
        self._healthz = health.healthz if command is None else _AskedOnce(command.healthz).ask
        self._readyz = health.readyz if command is None else _AskedOnce(command.readyz).ask

    def routes(self) -> Sequence[Route]:
        return [DocumentedRoute(_HEALTHZ, self.healthz), DocumentedRoute(_READYZ, self.readyz)]

    async def healthz(self, _request: Request) -> Response:
        return _in_one_word(await self._healthz())

    async def readyz(self, _request: Request) -> Response:
        return _in_one_word(await self._readyz())


class _AskedOnce:
    """Shares one blocking call between concurrent callers."""

    def __init__(self, call: Callable[[], Probe]) -> None:
        self._call = call
        self._asking: asyncio.Future[Probe] | None = None

    async def ask(self) -> Probe:
        if self._asking is None or self._asking.done():
            self._asking = _said_by(self._call)
        return await asyncio.shield(self._asking)


def _said_by(call: Callable[[], Probe]) -> asyncio.Future[Probe]:
    """Run a call to another process in a thread, since it blocks."""
    return asyncio.wrap_future(in_background(call, "health"))


def _in_one_word(probe: Probe) -> Response:
    content = msgspec.json.encode({"status": probe.body["status"]})
    return Response(content, 200 if probe.is_well else 503, media_type="application/json")
