"""Shared by the handlers of metadata and tags: reading a server, and changing its record without a job."""

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
    """Find the server in the address, for a caller that may read it. Raises the errors of `find_server`."""
    server = await find_server(access, request)
    request.authorize(full_name(rule))
    return server


async def read_record(access: FleetAccess, request: ApiRequest, rule: str, read: Callable[[Record], T]) -> T:
    """Return the result of `read` for the record of the server in the address, for a caller that may read it.

    Raises UnreadableRowError if the row is damaged in fields that `read` needs.
    """
    row = (await find_readable(access, request, rule)).row
    try:
        return read(row.record)
    except Exception as error:  # any error here is about this row
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
    """Set the values that `decide` returns for the locked record; returns the record afterwards.

    action: its name in a refusal. announces_always: see `Acceptance.revise`.
    Raises StateConflictError if the server's state forbids the change.
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
