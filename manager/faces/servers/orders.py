"""Orders of action handlers to the cell of a server, after a check of the server's state.

Nova checks the lock and state of a server before the objects that a body names (contracts/nova-rest, section 0). The
cell checks the order again when it accepts it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.model import InstanceRow
from fleetlight.manager.faces.servers.lookup import FoundServer
from fleetlight.manager.operations.actions.accepting import Order, refuse_unless_allowed
from fleetlight.manager.operations.actions.server_actions import ACTIONS
from fleetlight.resources.fields import Record


def rule(name: str) -> str:
    """Return the full name of a policy."""
    return f"os_compute_api:{name}"


def order_of(
    request: ApiRequest,
    action: str,
    *,
    values: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Order:
    """Make the order of a request. See fleetlight.manager.operations.actions.accepting.Order."""
    return Order(action, values or {}, parameters or {}, request.origin, request.caller.is_admin)


def require_ready(request: ApiRequest, server: FoundServer, action: str) -> None:
    """Raise StateConflictError if the state or lock of the found server forbids `action` (a key of ACTIONS)."""
    refuse_unless_allowed(ACTIONS[action], server.row.record, is_admin=request.caller.is_admin)


async def change(
    access: FleetAccess, request: ApiRequest, server: FoundServer, change_it: Callable[[], InstanceRow]
) -> InstanceRow:
    """Run `change_it`; returns the server afterwards, for which the answer has a token."""
    row = await access.act(server.cell, change_it)
    await request.hand_out_token(row)
    return row


async def accept(
    access: FleetAccess,
    request: ApiRequest,
    server: FoundServer,
    order: Order,
    check: Callable[[Record], None] = lambda _record: None,
) -> InstanceRow:
    """Have the cell accept `order`; returns the server afterwards. check: see `Acceptance.accept`."""
    return await change(access, request, server, partial(server.acceptance.accept, server.uuid, order, check))
