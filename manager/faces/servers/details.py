"""What handlers of metadata and tags have in common: reading a server, and changing what is noted down about it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.policy import full_name
from fleetlight.cells.errors import InstanceLockedError, InvalidTransitionError
from fleetlight.listing.sources import damaged_row
from fleetlight.manager.faces.servers.lookup import FoundServer, find_server
from fleetlight.resources.fields import Record

T = TypeVar("T")

_STATES = ("active", "paused", "suspended", "stopped")


async def find_readable(access: FleetAccess, request: ApiRequest, rule: str) -> FoundServer:
    """The server that the address names, for a caller that may read it."""
    server = await find_server(access, request)
    request.authorize(full_name(rule))
    return server


async def read_record(access: FleetAccess, request: ApiRequest, rule: str, read: Callable[[Record], T]) -> T:
    """What `read` makes of the record of the server that the address names, for a caller that may read it.

    Raises UnreadableRowError when the row is damaged where `read` looks.
    """
    row = (await find_readable(access, request, rule)).row
    try:
        return read(row.record)
    except Exception as error:  # it is about this row
        raise damaged_row(row, error) from error


async def change_record(
    access: FleetAccess,
    request: ApiRequest,
    rule: str,
    decide: Callable[[Record], Mapping[str, Any]],
    *,
    action: str,
    respects_lock: bool,
    announces_always: bool = False,
) -> Record:
    """Set what `decide` makes of the record, while no other request can change it; returns the record after it.

    action: the word for it in a refusal. announces_always: as for `Acceptance.revise`.
    Raises StateConflictError for a state in which that is not allowed.
    """

    def decide_if_allowed(record: Record) -> Mapping[str, Any]:
        if respects_lock and record["locked"] and not request.caller.is_admin:
            raise InstanceLockedError(record["uuid"])
        if record["vm_state"] not in _STATES:
            raise InvalidTransitionError(record["uuid"], action, record["vm_state"])
        return decide(record)

    server = await find_readable(access, request, rule)
    revise = partial(
        server.acceptance.revise, server.uuid, decide_if_allowed, request.origin, announces_always=announces_always
    )
    row = await access.act(server.cell, revise)
    await request.hand_out_token(row)
    return row.record
