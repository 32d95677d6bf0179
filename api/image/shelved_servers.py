"""The images of shelved servers: `NAME-shelved`, from the moment a server is being shelved until it is unshelved.

Hosts of native cells upload nothing, so such an image exists exactly while its server is shelved. It is made from the
server's row on demand, and has the server's uuid.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from fleetlight.api.image.views import shelved_image_view
from fleetlight.cells.errors import CellUnreachableError, UnknownCellError
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.listing.sources import CellReader
from fleetlight.query.filters import Eq, In, all_of, any_of
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID

SUFFIX = "-shelved"
_log = structlog.get_logger(__name__)
_MOST_OF_CELL = 1000
_SHELVED = any_of(
    In("vm_state", ("shelved", "shelved_offloaded")),
    In("task_state", ("shelving", "shelving_image_pending_upload", "shelving_image_uploading")),
)


class ShelvedServers:
    """Finds the images of shelved servers. reader: asks the cells. timeout_s: time limit of one cell."""

    def __init__(self, reader: CellReader, timeout_s: float) -> None:
        self._reader = reader
        self._timeout_s = timeout_s

    async def images(self, project_id: str | None, uuid: str | None = None) -> Sequence[dict[str, Any]]:
        """Find the images of a project's servers, ordered by name; uuid: of this server only.

        Leaves out servers in cells that do not answer.
        """
        if project_id is None:
            return ()
        terms = [Eq("project_id", project_id), Eq("deleted", False), Eq("hidden", False), _SHELVED]
        if uuid is not None:
            terms.append(Eq("uuid", uuid))
        request = PageRequest(all_of(*terms), INSTANCES_BY_UUID, _MOST_OF_CELL)
        cells = [cell for cell in await self._reader.cells() if cell.can.takes_changes]
        found = await asyncio.gather(*(self._rows(cell, request) for cell in cells))
        images = [shelved_image_view(row.record, SUFFIX) for rows in found for row in rows]
        return sorted(images, key=lambda image: (image["name"], image["id"]))

    async def _rows(self, cell: Cell, request: PageRequest) -> Sequence[InstanceRow]:
        try:
            return await self._reader.read_page(cell.uuid, request, self._timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            _log.warning("cell_unreachable", cell=cell.uuid, reason=str(error))
            return ()
