"""Lookup of the server in an address, with the Acceptance of its cell."""

from dataclasses import dataclass

from fleetlight.api.shared import server_lookup
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.manager.operations.actions.accepting import Acceptance
from fleetlight.manager.operations.native_cells import acceptance_in


@dataclass(frozen=True, slots=True)
class FoundServer(server_lookup.FoundServer):
    """A found server. acceptance: of its cell."""

    acceptance: Acceptance


async def find_server(access: FleetAccess, request: ApiRequest, *, also_deleted: bool = False) -> FoundServer:
    """As fleetlight.api.shared.server_lookup.find_server, with the same errors."""
    found = await server_lookup.find_server(access, request, also_deleted=also_deleted)
    return FoundServer(found.cell, found.row, acceptance_in(access.native, access.fleet, found.cell))
