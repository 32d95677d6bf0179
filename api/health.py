"""`/healthz`, `/readyz` and `/metrics`: for orchestrators and monitoring, without identity.

What failed is named, why is in the log: these addresses answer anybody.
"""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from api.compute.protocol.shapes import OBJECT, TEXT, MapOf, Shape, optional
from api.documented import Operation
from api.metrics import CONTENT_TYPE, ApiMetrics
from cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from cells.model import NOBODY, Cell
from indexer.errors import IndexerError
from indexer.stream.liveness import ALIVE, Probes
from listing.index_gateway import ListIndex
from listing.sources import CellReader

_log = structlog.get_logger(__name__)
_PROBE_TIMEOUT_S = 1.0
_STATES = MapOf(TEXT)
HEALTH_OPERATIONS = (
    Operation(
        "GET", "/healthz", OBJECT, is_open=True, unwell=503, summary="Whether the process lives, and what runs in it"
    ),
    Operation(
        "GET",
        "/readyz",
        Shape({"status": TEXT, "index": TEXT, "fleet": TEXT, "cells": _STATES, "indexer": optional(OBJECT)}),
        is_open=True,
        unwell=503,
        summary="Whether lists can be answered, and which parts are missing",
    ),
    Operation(
        "GET",
        "/metrics",
        TEXT,
        is_open=True,
        media_type=CONTENT_TYPE.partition(";")[0],
        summary="Everything that is measured, for Prometheus",
    ),
)


class HealthEndpoints:
    """Endpoints about the state of this process and of what it depends on."""

    def __init__(
        self, index: ListIndex, reader: CellReader, metrics: ApiMetrics, indexer: Probes | None = None
    ) -> None:
        """indexer: the one that runs in the same process, if there is one."""
        self._indexer = indexer
        self._index = index
        self._reader = reader
        self._metrics = metrics

    async def healthz(self, _request: Request) -> Response:
        """Whether the process lives, with everything that runs in it."""
        probe = ALIVE if self._indexer is None else self._indexer.healthz()
        return _json(200 if probe.is_well else 503, probe.body)

    async def readyz(self, _request: Request) -> Response:
        """Whether lists can be answered, and which parts are missing; 503 only when nothing can answer."""
        index = await self._index_state()
        try:
            cells = await self._reader.cells()
        except FleetUnreachableError as error:
            _log.warning("not_ready", reason=error.reason)
            return _json(503, {"status": "unavailable", "index": index, "fleet": "down", "cells": {}})
        answers = await asyncio.gather(*(self._is_up(cell) for cell in cells))
        indexer = None if self._indexer is None else self._indexer.readyz().body
        hanging = self._reader.hanging()
        down = {cell.uuid: "hangs" if cell.uuid in hanging else "down" for cell in cells}
        states = {cell.name: "ok" if is_up else down[cell.uuid] for cell, is_up in zip(cells, answers, strict=True)}
        if cells and not any(answers) and index != "ok":
            status = "unavailable"
        else:
            # Lists go on without an indexer, from the cells.
            is_followed = indexer is None or indexer["status"] == "ready"
            status = "ready" if all(answers) and index != "down" and is_followed else "degraded"
        code = 503 if status == "unavailable" else 200
        body = {"status": status, "index": index, "fleet": "ok", "cells": states}
        return _json(code, body if indexer is None else body | {"indexer": indexer})

    async def metrics(self, _request: Request) -> Response:
        """Everything that is measured, for Prometheus."""
        try:
            names = {cell.uuid: cell.name for cell in await self._reader.cells()}
        except FleetUnreachableError:
            names = {}
        try:
            progress = await self._index.progress() or {}
        except IndexerError as error:
            self._index.failed(error)
            progress = {}
        known = {uuid: cell for uuid, cell in progress.items() if uuid in names}
        self._metrics.show_cells(names, self._reader.hanging())
        fresh = self._index.freshness()
        self._metrics.show_progress(
            {uuid: cell.watermark for uuid, cell in known.items()},
            {uuid: fresh.age_s(cell) for uuid, cell in known.items()},
        )
        self._metrics.show_safe_connect(is_tripped=self._index.safe_connect.is_tripped)
        return Response(self._metrics.render(), media_type=CONTENT_TYPE)

    async def _index_state(self) -> str:
        """`off`, `ok` or `down`. An index that failed is not asked: that is what the flag is for."""
        try:
            progress = await self._index.progress()
        except IndexerError as error:
            self._index.failed(error)
            progress = None
        if not self._index.is_used:
            return "off"
        return "down" if progress is None or self._index.is_absent else "ok"

    async def _is_up(self, cell: Cell) -> bool:
        try:
            await self._reader.find(cell.uuid, NOBODY, _PROBE_TIMEOUT_S)
        except (CellUnreachableError, UnknownCellError):
            return False
        return True


def _json(status: int, document: Mapping[str, object]) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
