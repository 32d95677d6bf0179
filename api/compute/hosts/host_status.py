"""A short-lived cache of `host_status`, the status of servers' hosts (contracts/nova-servers, section 7.3).

Without it each list would ask every cell for its services. Requests use the cached statuses while a background task
reads them again; a request waits only if there are none, or only old ones.
"""

import asyncio
import time
from collections.abc import Mapping

import msgspec
import structlog

from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.kinds.native.nodes import COMPUTE, ComputeService
from fleetlight.cells.model import Cell, CellAdapter, HostReportingAdapter
from fleetlight.listing.sources import CellReader
from fleetlight.views.compute.view import HOST_STATUS_SINCE, FullTemplate, HostStatuses, ItemTemplate

_log = structlog.get_logger(__name__)
_READ_AGAIN_AFTER_S = 2.0
# Older statuses are not used. A reading takes one timeout while a cell hangs, so steady requests do not wait for it.
_OLD_AFTER_TIMEOUTS = 3
_NOTHING_KNOWN: HostStatuses = {}


class HostStatusCache:
    """The statuses of all hosts, as `fleetlight.views.compute.view.ItemTemplate` takes them.

    pool: queries cells that are not native. A cell that reports no hosts is left out.
    """

    def __init__(self, access: FleetAccess, pool: CellReader) -> None:
        self._access = access
        self._pool = pool
        self._statuses: HostStatuses | None = None
        self._read_at = float("-inf")
        self._reading: asyncio.Task[HostStatuses] | None = None

    async def shown_to(self, request: ApiRequest) -> HostStatuses | None:
        """Return the statuses for a response; None if its microversion or its caller sees none.

        Cells that do not answer are left out, since the status of their hosts is unknown.
        """
        if request.minor < HOST_STATUS_SINCE or not request.caller.is_admin:
            return None
        age_s = time.monotonic() - self._read_at
        if age_s > _READ_AGAIN_AFTER_S and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read())
        is_old = age_s > _OLD_AFTER_TIMEOUTS * self._access.timeout_s
        if self._reading is not None and (self._statuses is None or is_old):
            return await asyncio.shield(self._reading)
        return _NOTHING_KNOWN if self._statuses is None else self._statuses

    def forget(self) -> None:
        """Have the next answer read all statuses again, because this process has changed a service."""
        self._statuses = None
        self._read_at = float("-inf")
        self._reading = None

    async def _read(self) -> HostStatuses:
        """Read the statuses from the cells, and cache them unless `forget` was called meanwhile."""
        this = asyncio.current_task()
        try:
            cells = await self._pool.cells()
        except FleetUnreachableError:
            return {}
        answers = await asyncio.gather(*map(self._hosts_of, cells))
        statuses = {
            cell.uuid: {msgspec.json.encode(host): msgspec.json.encode(status) for host, status in hosts.items()}
            for cell, hosts in zip(cells, answers, strict=True)
            if hosts is not None
        }
        if self._reading is this:
            if statuses != self._statuses:  # equal statuses stay the same object, which is a key of cached pages
                self._statuses = statuses
            self._read_at = time.monotonic()
        return statuses

    async def _hosts_of(self, cell: Cell) -> Mapping[str, str] | None:
        try:
            if cell.can.takes_changes:
                return await self._access.ask_cell(cell, lambda: self._read_native(cell))
            return await self._pool.ask(cell.uuid, _reported, self._access.timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            _log.debug("host_status_unknown", cell=cell.name, reason=str(error))
            return None

    def _read_native(self, cell: Cell) -> Mapping[str, str]:
        services = self._access.native.services(cell)
        return {service.host: _status(service) for service in services if service.binary == COMPUTE}


def _reported(adapter: CellAdapter) -> Mapping[str, str] | None:
    return adapter.host_statuses() if isinstance(adapter, HostReportingAdapter) else None


def _status(service: ComputeService) -> str:
    if not service.is_up:
        return "DOWN"
    return "MAINTENANCE" if service.disabled else "UP"


def full_template(request: ApiRequest, host_statuses: HostStatuses | None) -> ItemTemplate:
    """Make the template of `GET /servers/detail` and `/servers/{id}`; `host_status` only if statuses are given."""
    versioned, plain = request.links.as_json
    return FullTemplate(
        request.minor,
        is_admin=request.caller.is_admin,
        versioned_base=versioned,
        plain_base=plain,
        host_statuses=host_statuses,
    )
