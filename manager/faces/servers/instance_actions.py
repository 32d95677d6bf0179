"""`/servers/{id}/os-instance-actions` (contracts/nova-rest, 3.4): the actions on a server, even if deleted."""

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from fleetlight.api.compute.protocol.paging import next_link, paging_of
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.compute.protocol.times import time_of
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError, NotFoundError
from fleetlight.api.http.query_string import QueryParameters
from fleetlight.api.http.shapes import TEXT, Key, ListOf, Shape, optional, or_null, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.times import without_zone
from fleetlight.listing.errors import MarkerNotFoundError
from fleetlight.manager.faces.servers.lookup import FoundServer, find_server
from fleetlight.manager.operations.instances.instance_actions import (
    InstanceAction,
    InstanceActionEvent,
    InstanceActionLog,
)

_DELETED_SINCE = 21
_EVENTS_FOR_ALL_SINCE = 51
_PAGES_SINCE = 58
_HOSTS_SINCE = 62
_BEFORE_SINCE = 66
_DETAILS_SINCE = 84
_NAMES = {"limit": _PAGES_SINCE, "marker": _PAGES_SINCE, "changes-since": _PAGES_SINCE, "changes-before": _BEFORE_SINCE}
_LIST_PARAMETERS = QueryParameters(_NAMES, refuses_unknown_since=_PAGES_SINCE, once=_NAMES)


_ACTION = Shape(
    {
        **dict.fromkeys(("action", "instance_uuid", "request_id", "start_time"), TEXT),
        **dict.fromkeys(("user_id", "project_id", "message"), or_null(TEXT)),
        "updated_at": Key(TEXT, since=_PAGES_SINCE),
    }
)
_EVENT = Shape(
    {
        "event": TEXT,
        "start_time": TEXT,
        "finish_time": or_null(TEXT),
        "result": or_null(TEXT),
        "traceback": optional(or_null(TEXT)),
        "hostId": Key(TEXT, since=_HOSTS_SINCE),
        "host": Key(or_null(TEXT), since=_HOSTS_SINCE, is_optional=True),
        "details": Key(or_null(TEXT), since=_DETAILS_SINCE, is_optional=True),
    }
)
_ONE = Shape({"instanceAction": _ACTION.with_keys({"events": optional(ListOf(_EVENT))})})


class InstanceActionHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    def routes(self) -> list[ApiRoute]:
        many = "/servers/{server_id}/os-instance-actions"
        return [
            ApiRoute(
                "GET",
                many,
                self.index,
                query=_LIST_PARAMETERS,
                errors=(400, 403, 404),
                answer=page("instanceActions", _ACTION, "links"),
            ),
            ApiRoute("GET", many + "/{action_request_id}", self.show, errors=(403, 404), answer=_ONE),
        ]

    async def index(self, request: ApiRequest) -> Response:
        since = time_of(request, "changes-since") if request.minor >= _PAGES_SINCE else None
        before = time_of(request, "changes-before") if request.minor >= _BEFORE_SINCE else None
        if since is not None and before is not None and before < since:
            raise BadRequestError("The value of changes-since must be less than or equal to changes-before.")
        server = await self._find(request)
        request.authorize("os_compute_api:os-instance-actions:list")
        actions = await self._access.ask_cell(server.cell, partial(self._log(server).actions, server.uuid))
        paging = paging_of(request, self._access.max_limit, since=_PAGES_SINCE)
        if paging.has_next:
            # Cut at the marker first: it may have been updated since, and not match the filter any more.
            actions = _changed_between(_after_marker(actions, paging.marker), since, before)[: paging.limit]
        path = f"servers/{server.uuid}/os-instance-actions"
        link = next_link(request, "links", path, paging, [action.request_id for action in actions])
        return json_answer({"instanceActions": [_item(request, action) for action in actions], **link})

    async def show(self, request: ApiRequest) -> Response:
        server = await self._find(request)
        request.authorize("os_compute_api:os-instance-actions:show")
        wanted: str = request.http.path_params["action_request_id"]
        found = await self._access.ask_cell(server.cell, partial(self._log(server).find, server.uuid, wanted))
        if found is None:
            raise NotFoundError(f"Action for request_id {wanted} on instance {server.uuid} not found")
        action, events = found
        # Read the instance after its actions, so that its row includes their effects.
        row = await self._access.ask_cell(server.cell, partial(self._access.native.find, server.cell, server.uuid))
        await request.hand_out_token(row or server.row)
        item = _item(request, action)
        if request.caller.is_admin or request.minor >= _EVENTS_FOR_ALL_SINCE:
            project_id = server.row.record["project_id"]
            item["events"] = [_event(request, event, project_id) for event in events]
        return json_answer({"instanceAction": item})

    async def _find(self, request: ApiRequest) -> FoundServer:
        return await find_server(self._access, request, also_deleted=request.minor >= _DELETED_SINCE)

    def _log(self, server: FoundServer) -> InstanceActionLog:
        return InstanceActionLog(self._access.native.engine(server.cell), server.cell)


def _changed_between(
    actions: Sequence[InstanceAction], since: int | None, before: int | None
) -> Sequence[InstanceAction]:
    return [
        action
        for action in actions
        if (since is None or action.updated_at >= since) and (before is None or action.updated_at <= before)
    ]


def _after_marker(actions: Sequence[InstanceAction], marker: str | None) -> Sequence[InstanceAction]:
    """Return the actions after the marker. Raises MarkerNotFoundError."""
    if marker is None:
        return actions
    for position, action in enumerate(actions):
        if action.request_id == marker:
            return actions[position + 1 :]
    raise MarkerNotFoundError(marker)


def _item(request: ApiRequest, action: InstanceAction) -> dict[str, Any]:
    values = {
        "action": action.action,
        "instance_uuid": action.instance_uuid,
        "request_id": action.request_id,
        "user_id": action.user_id,
        "project_id": action.project_id,
        "start_time": without_zone(action.start_time),
        "message": action.message,
        "updated_at": without_zone(action.updated_at),
    }
    return _ACTION.of(request.minor, values)


def _event(request: ApiRequest, event: InstanceActionEvent, project_id: str | None) -> dict[str, Any]:
    # As for servers: callers that may not see the host get only a hash, to compare hosts.
    text = f"{project_id}{event.host}".encode()
    values: dict[str, Any] = {
        "event": event.event,
        "start_time": without_zone(event.start_time),
        "finish_time": None if event.finish_time is None else without_zone(event.finish_time),
        "result": event.result,
        "hostId": hashlib.sha224(text).hexdigest() if event.host else "",
    }
    if request.caller.is_admin:
        values |= {"traceback": event.traceback, "host": event.host, "details": event.details}
    return _EVENT.of(request.minor, values)
