"""Lookup of the server that an address names."""

from dataclasses import dataclass
from functools import partial

from fleetlight.api.http.errors import NotSupportedError, ServerNotFoundError
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.model import Cell, InstanceRow


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that the caller may see, as just read from its cell."""

    cell: Cell
    row: InstanceRow

    @property
    def uuid(self) -> str:
        return self.row.uuid


async def find_server(access: FleetAccess, request: ApiRequest, *, also_deleted: bool = False) -> FoundServer:
    """Find the server `server_id` of a request's address.

    Raises ServerNotFoundError for an unknown server, or one of another project, which look the same; NotSupportedError
    for a server that can only be read, CellUnreachableError, FleetUnreachableError, and the errors of
    `FleetAccess.mapping_of`.
    """
    server_id: str = request.http.path_params["server_id"]
    cell = await _cell_of(access, request, server_id)
    row = None if cell is None else await access.ask_cell(cell, partial(access.native.find, cell, server_id))
    if cell is not None and row is None and await access.finder.announced_row(server_id, cell.uuid, access.timeout_s):
        raise NotSupportedError("This server was only announced: its cell has no row of it, so it can only be read.")
    if cell is None or row is None or row.record["forthcoming"] or (row.record["deleted"] and not also_deleted):
        raise ServerNotFoundError(server_id)
    return FoundServer(cell, row)


async def _cell_of(access: FleetAccess, request: ApiRequest, server_id: str) -> Cell | None:
    """Return the cell of a server; None if the server does not exist, or the caller may not see it."""
    mapping = await access.mapping_of(server_id)
    if mapping is None or not request.caller.may_see(mapping.project_id, mapping.user_id):
        return None
    native = await access.ask(access.native.cells)
    cell = next((cell for cell in native if cell.uuid == mapping.cell_uuid), None)
    if cell is None:
        raise NotSupportedError("The cell of this server can only be read.")
    return cell
