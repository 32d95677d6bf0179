"""How handlers of actions turn to the cell of a server: first whether the server can take the action, then the order.

Nova looks at lock and state of a server before anything that a body names (contracts/nova-rest, section 0). The order
itself is checked again by the cell, which decides.
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
    """The full name of a policy."""
    return f"os_compute_api:{name}"


def order_of(
    request: ApiRequest,
    action: str,
    *,
    values: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Order:
    """What the caller wants to be done. See fleetlight.manager.operations.actions.accepting.Order."""
    return Order(action, values or {}, parameters or {}, request.origin, request.caller.is_admin)


def require_ready(request: ApiRequest, server: FoundServer, action: str) -> None:
    """Raise what keeps the server, as it was found, from `action` (a name in
    fleetlight.manager.operations.actions.server_actions).
    """
    refuse_unless_allowed(ACTIONS[action], server.row.record, is_admin=request.caller.is_admin)


async def change(
    access: FleetAccess, request: ApiRequest, server: FoundServer, change_it: Callable[[], InstanceRow]
) -> InstanceRow:
    """The server after `change_it`, which the answer hands out a token for."""
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
    """The server once its cell has accepted `order`. check: as for `Acceptance.accept`."""
    return await change(access, request, server, partial(server.acceptance.accept, server.uuid, order, check))
