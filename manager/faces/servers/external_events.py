"""`POST /os-server-external-events`: reports of other services about servers, and `nova refresh-network`.

Hosts of native cells wait for no events, and have no networks or volumes to refresh. So an event has no effect, as with
drivers of Nova that ignore it.
"""

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from fleetlight.api.bodies.body_types import UuidText
from fleetlight.api.bodies.request_body import Body, RequestModel
from fleetlight.api.bodies.versioned_models import Since
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.shapes import INTEGER, TEXT, Shape, optional, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.model import Cell
from fleetlight.listing.errors import CellDownError

_SERVICE = "service"
_WITH_TAG = {"volume-extended", "power-update", "accelerator-request-bound"}
_EVENT = Shape({**dict.fromkeys(("name", "server_uuid", "status"), TEXT), "code": INTEGER, "tag": optional(TEXT)})

_Until50 = Literal["network-changed", "network-vif-plugged", "network-vif-unplugged", "network-vif-deleted"]
_Until75 = Literal[_Until50, "volume-extended"]
_Until81 = Literal[_Until75, "power-update"]
_Until92 = Literal[_Until81, "accelerator-request-bound"]
_Newest = Literal[_Until92, "volume-reimaged"]


class _Event(RequestModel):
    name: Annotated[
        str, Since(1, _Until50), Since(51, _Until75), Since(76, _Until81), Since(82, _Until92), Since(93, _Newest)
    ]
    server_uuid: UuidText
    status: Literal["failed", "completed", "in-progress"] = "completed"
    tag: Annotated[str, Field(max_length=255)] = ""


class _Events(RequestModel):
    events: Annotated[list[_Event], Field(min_length=1)]


_EVENTS = Body(_Events)


class ExternalEventHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(
                "POST",
                "/os-server-external-events",
                self.create,
                body=_EVENTS,
                success=(200, 207),
                errors=(403,),
                answer=page("events", _EVENT),
            )
        ]

    async def create(self, request: ApiRequest) -> Response:
        """Answer 200 if each event has reached its host, 207 if some have not; each event has its own status."""
        events = (await _EVENTS.read(request)).events
        if _SERVICE not in request.caller.roles:
            request.authorize("os_compute_api:os-server-external-events:create")
        hosts = await self._hosts_of({event.server_uuid for event in events})
        answers = [_answered(event, hosts) for event in events]
        is_whole = all(answer["code"] == HTTPStatus.OK for answer in answers)
        return json_answer({"events": answers}, HTTPStatus.OK if is_whole else HTTPStatus.MULTI_STATUS)

    async def _hosts_of(self, uuids: set[str]) -> Mapping[str, str | None]:
        """Return the hosts of existing servers; None for one without a host, or in a read-only cell.

        Raises CellDownError if the cell of a server does not answer.
        """
        native = self._access.native
        cell_uuids = await self._access.ask(partial(self._access.fleet.cells_of, uuids))
        of_cell: dict[str, list[str]] = {}
        for uuid, cell_uuid in cell_uuids.items():
            of_cell.setdefault(cell_uuid, []).append(uuid)
        cells: list[Cell] = [cell for cell in await self._access.ask(native.cells) if cell.uuid in of_cell]
        asked = await self._access.ask_some(cells, lambda cell: native.hosts_of(cell, of_cell[cell.uuid]))
        if asked.down:
            raise CellDownError(asked.down[0].name)
        known = {cell.uuid for cell in cells}
        hosts: dict[str, str | None] = {uuid: None for uuid, cell_uuid in cell_uuids.items() if cell_uuid not in known}
        for _, found in asked.answers:
            hosts |= found
        return hosts


def _answered(event: _Event, hosts: Mapping[str, str | None]) -> dict[str, Any]:
    if event.server_uuid not in hosts:
        code = HTTPStatus.NOT_FOUND
    elif event.name in _WITH_TAG and "tag" not in event.model_fields_set:
        code = HTTPStatus.BAD_REQUEST
    elif hosts[event.server_uuid] is None:
        code = HTTPStatus.UNPROCESSABLE_ENTITY
    else:
        code = HTTPStatus.OK
    status = "completed" if code == HTTPStatus.OK else "failed"
    return {**event.model_dump(include=event.model_fields_set), "status": status, "code": code}
