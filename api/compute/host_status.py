"""What `host_status` says of the hosts of servers (contracts/nova-servers, section 7.3), remembered for a moment.

A list would otherwise ask every cell for its services. What is remembered is used while it is read again beside the
requests; only the first one waits.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial

import msgspec
import structlog

from api.compute.endpoint import ComputeRequest
from api.compute.fleet_access import FleetAccess
from cells.errors import CellUnreachableError, FleetUnreachableError
from cells.model import Cell
from cells.nodes import COMPUTE, ComputeService
from indexer.view import HostStatuses

_log = structlog.get_logger(__name__)
_READ_AGAIN_AFTER_S = 2.0
_SINCE = 16


class HostStatusCache:
    """The statuses of all hosts of native cells, as `indexer.view.ItemTemplate` takes them."""

    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._statuses: HostStatuses | None = None
        self._read_at = float("-inf")
        self._reading: asyncio.Task[HostStatuses] | None = None

    async def shown_to(self, request: ComputeRequest) -> HostStatuses | None:
        """None when `request` does not show them."""
        if request.minor < _SINCE or not request.caller.is_admin:
            return None
        return await self.get()

    async def get(self) -> HostStatuses:
        """Cells that did not answer are left out: nothing is known of their hosts."""
        if time.monotonic() - self._read_at > _READ_AGAIN_AFTER_S and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read())
        if self._statuses is None and self._reading is not None:
            return await asyncio.shield(self._reading)
        return self._statuses or {}

    async def _read(self) -> HostStatuses:
        try:
            cells = await self._access.ask(self._access.native.cells)
        except FleetUnreachableError:
            return self._statuses or {}
        answers = await asyncio.gather(*map(self._services_of, cells))
        self._statuses = {
            cell.uuid: {
                msgspec.json.encode(service.host): msgspec.json.encode(_status(service))
                for service in services
                if service.binary == COMPUTE
            }
            for cell, services in zip(cells, answers, strict=True)
            if services is not None
        }
        self._read_at = time.monotonic()
        return self._statuses

    async def _services_of(self, cell: Cell) -> Sequence[ComputeService] | None:
        try:
            return await self._access.ask_cell(cell, partial(self._read_services, cell))
        except CellUnreachableError as error:
            _log.debug("host_status_unknown", cell=cell.name, reason=str(error))
            return None

    def _read_services(self, cell: Cell) -> Sequence[ComputeService]:
        return self._access.native.nodes(cell).services()


def _status(service: ComputeService) -> str:
    if not service.is_up:
        return "DOWN"
    return "MAINTENANCE" if service.disabled else "UP"
