"""The action on one item of a bulk change: the request that its owner could have sent, to the same handlers."""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

import msgspec
import structlog
from starlette.requests import Request
from starlette.types import Message, Scope

from fleetlight.api.http.errors import NotSupportedError, ServerNotFoundError, status_of
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.errors import CellUnreachableError, InstanceNotFoundError, StateConflictError
from fleetlight.cells.fleet.bulk_changes import FrozenInstance, ItemState, Outcome
from fleetlight.listing.errors import CellDownError
from fleetlight.manager.faces.bulk.following import request_id_of
from fleetlight.manager.faces.servers.actions import ServerActionHandlers
from fleetlight.manager.faces.servers.lookup import find_server
from fleetlight.manager.faces.servers.update import ServerChangeHandlers

_log = structlog.get_logger(__name__)
_GONE = "it is gone"
_DOUBTFUL = "its cell may have taken it: look at it"


class BulkAction(StrEnum):
    """An action on many instances at once."""

    START = "start"
    STOP = "stop"
    REBOOT = "reboot"
    HARD_REBOOT = "hard-reboot"
    RESET_STATE = "reset-state"
    DELETE = "delete"

    @property
    def policy(self) -> str:
        """The rule that its handler checks."""
        match self:
            case BulkAction.HARD_REBOOT:
                return "os_compute_api:servers:reboot"
            case BulkAction.RESET_STATE:
                return "os_compute_api:os-admin-actions:reset_state"
            case _:
                return f"os_compute_api:servers:{self}"


# Bodies of POST /servers/{id}/action; DELETE has none.
_BODIES: Mapping[BulkAction, object] = {
    BulkAction.START: {"os-start": None},
    BulkAction.STOP: {"os-stop": None},
    BulkAction.REBOOT: {"reboot": {"type": "SOFT"}},
    BulkAction.HARD_REBOOT: {"reboot": {"type": "HARD"}},
    BulkAction.RESET_STATE: {"os-resetState": {"state": "active"}},
}


class ItemActions:
    """Submits items. actions, changes: the handlers of the compute API."""

    def __init__(self, access: FleetAccess, actions: ServerActionHandlers, changes: ServerChangeHandlers) -> None:
        self._access = access
        self._actions = actions
        self._changes = changes

    async def refusal(self, request: ApiRequest, frozen: FrozenInstance) -> Outcome | None:
        """Return the outcome of an item that is gone, or differs from the preview; None if it can be submitted.

        request: from `request_for`. Raises FleetUnreachableError.
        """
        try:
            server = await find_server(self._access, request)
        except (ServerNotFoundError, NotSupportedError, CellUnreachableError) as error:
            return _refused(error)
        if server.row.revision != frozen.revision:
            return Outcome(ItemState.SKIPPED, "it has changed since the preview")
        return None

    async def submit(self, request: ApiRequest, action: BulkAction) -> Outcome:
        """Pass the request to the handler of the compute API. UNKNOWN: it failed, but its cell may have accepted it."""
        try:
            if action is BulkAction.DELETE:
                await self._changes.delete(request)
            else:
                await self._actions.act(request)
        except Exception as error:  # noqa: BLE001  # whatever it is, the item must not be submitted again
            status = status_of(error)
            if status is not None and (status < 500 or isinstance(error, NotSupportedError)):
                return _refused(error)
            _log.error("bulk.item_unknown", instance=request.http.path_params["server_id"], exc_info=error)
            return Outcome(ItemState.UNKNOWN, _DOUBTFUL)
        # RESET_STATE only changes the row, without a job.
        return Outcome(ItemState.DONE if action is BulkAction.RESET_STATE else ItemState.RUNNING)


def request_for(started: ApiRequest, bulk_id: str, uuid: str, action: BulkAction) -> ApiRequest:
    """Make the request for one item, of the caller who started the bulk change.

    All items have the same request id: see request_id_of.
    """
    body = msgspec.json.encode(_BODIES.get(action))

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    scope: Scope = {
        "type": "http",
        "method": "DELETE" if action is BulkAction.DELETE else "POST",
        "path": f"/v2.1/servers/{uuid}",
        "query_string": b"",
        "headers": [],
        "path_params": {"server_id": uuid},
        "state": {},
    }
    return replace(started, http=Request(scope, receive), request_id=request_id_of(bulk_id))


def _refused(error: Exception) -> Outcome:
    """Return the outcome of an error: SKIPPED if the state does not fit; FAILED for missing rights or down cells."""
    match error:
        case ServerNotFoundError() | InstanceNotFoundError():
            return Outcome(ItemState.SKIPPED, _GONE)
        case StateConflictError() | NotSupportedError():
            return Outcome(ItemState.SKIPPED, str(error))
        case CellUnreachableError():
            return Outcome(ItemState.FAILED, str(CellDownError(error.cell)))
        case _:
            return Outcome(ItemState.FAILED, str(error))
