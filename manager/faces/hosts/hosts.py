"""Hosts, the predecessors of hypervisors in the API: `/os-hosts`, until 2.42 (contracts/nova-rest, 4.8)."""

from functools import partial
from typing import Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body, IfGiven, RequestModel
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import NotFoundError, NotSupportedError
from fleetlight.api.http.query_string import QueryParameters
from fleetlight.api.http.shapes import INTEGER, TEXT, Shape, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.manager.faces.hosts.fleet_hosts import FleetHosts, FoundNode, FoundService
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.amount import Amount

_UNTIL = 42
_LIST = QueryParameters({"zone": 1}, refuses_unknown_since=None)
_HOST = Shape({"host_name": TEXT, "service": TEXT, "zone": TEXT})
_RESOURCE = Shape({"host": TEXT, "project": TEXT, "cpu": INTEGER, "memory_mb": INTEGER, "disk_gb": INTEGER})
_CHANGED = Shape({"host": TEXT, "status": TEXT})
_POWER_ACTIONS = ("startup", "shutdown", "reboot")

_Word = Literal["enable", "Enable", "ENABLE", "disable", "Disable", "DISABLE"]


class _Change(RequestModel):
    status: IfGiven[_Word] = None
    maintenance_mode: IfGiven[_Word] = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("no_change", "Give a status or a maintenance_mode")
        return self


_CHANGE = Body(_Change)


class HostHandlers:
    def __init__(self, access: FleetAccess, hosts: FleetHosts) -> None:
        self._access = access
        self._hosts = hosts

    def routes(self) -> list[ApiRoute]:
        many, one = "/os-hosts", "/os-hosts/{host_name}"
        described = page("host", Shape({"resource": _RESOURCE}))
        route = partial(ApiRoute, until=_UNTIL)
        return [
            route("GET", many, self.index, query=_LIST, errors=(403,), answer=page("hosts", _HOST), gives=(COMPLETE,)),
            route("GET", one, self.show, errors=(403, 404), answer=described),
            route("PUT", one, self.update, body=_CHANGE, errors=(403, 404, 501), answer=_CHANGED),
            *(
                route("GET", f"{one}/{action}", self.switch_power, success=(), errors=(403, 404, 501))
                for action in _POWER_ACTIONS
            ),
        ]

    async def index(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-hosts:list")
        of_cells = await self._hosts.services()
        zone = request.query.last("zone")
        hosts = [
            {
                "host_name": service.host,
                "service": service.binary.removeprefix("nova-"),
                "zone": service.availability_zone,
            }
            for _, services in of_cells.answers
            for service in services
            if zone in {None, service.availability_zone}
        ]
        return json_answer({"hosts": hosts}, headers=of_cells.headers)

    async def show(self, request: ApiRequest) -> Response:
        """Show the capacity of a host, and its usage in total and by project."""
        request.authorize("os_compute_api:os-hosts:show")
        found = await self._required(request)
        nodes = nodes_in(self._access.native, found.cell)
        host = found.node.service.host
        by_project = await self._access.ask_cell(found.cell, partial(nodes.used_by_projects, host))
        resources = [
            _resource(host, "(total)", found.node.capacity),
            _resource(host, "(used_now)", found.node.used),
            _resource(host, "(used_max)", sum(by_project.values(), Amount())),
            *(_resource(host, project, used) for project, used in by_project.items()),
        ]
        return json_answer({"host": resources})

    async def update(self, request: ApiRequest) -> Response:
        wanted = await _CHANGE.read(request)
        request.authorize("os_compute_api:os-hosts:update")
        found = await self._required(request)
        if wanted.maintenance_mode is not None:
            raise NotSupportedError("No host can be put into maintenance mode.")
        is_disabled = (wanted.status or "").lower() == "disable"
        service = found.node.service
        await self._hosts.change(
            FoundService(found.cell, service), disabled=is_disabled, disabled_reason=None, forced_down=None
        )
        return json_answer({"host": service.host, "status": "disabled" if is_disabled else "enabled"})

    async def switch_power(self, request: ApiRequest) -> Response:
        action = request.http.url.path.rpartition("/")[2]
        request.authorize(f"os_compute_api:os-hosts:{'start' if action == 'startup' else action}")
        await self._required(request)
        raise NotSupportedError(f"No host can be told to do that: {action}.")

    async def _required(self, request: ApiRequest) -> FoundNode:
        name: str = request.http.path_params["host_name"]
        found = await self._hosts.node_of(name)
        if found is None:
            raise NotFoundError(f"Compute host {name} could not be found.")
        return found


def _resource(host: str, project: str, amount: Amount) -> dict[str, object]:
    of_host = {"cpu": amount.vcpus, "memory_mb": amount.memory_mib, "disk_gb": amount.disk_gib}
    return {"resource": {"host": host, "project": project, **of_host}}
