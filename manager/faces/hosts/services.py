"""Compute services and their zones: `/os-services` (contracts/nova-rest, 4.6)."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import structlog
from pydantic import Field
from starlette.responses import Response

from fleetlight.api.bodies.body_types import Fqdn
from fleetlight.api.bodies.request_body import Body, BodyBool, IfGiven, RequestModel
from fleetlight.api.bodies.versioned_models import Since
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, NotFoundError
from fleetlight.api.http.query_string import list_parameters
from fleetlight.api.http.shapes import BOOL, INTEGER, TEXT, Key, OneOf, Shape, TypeSince, optional, or_null, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import OfCells
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.api.shared.times import without_zone
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.kinds.native.nodes import COMPUTE, ComputeService
from fleetlight.manager.faces.hosts.fleet_hosts import FleetHosts, FoundService
from fleetlight.resources.uuids import is_uuid, number_of

_log = structlog.get_logger(__name__)
_FORCED_DOWN_SINCE = 11
_UUIDS_SINCE = 53
_PARTIAL_SINCE = 69
_NUMBER = re.compile(r"[0-9]+")
_PARAMETERS = list_parameters({"host": 1, "binary": 1})

_SERVICE = Shape(
    {
        "id": TypeSince({1: INTEGER, _UUIDS_SINCE: TEXT}),
        **dict.fromkeys(("binary", "host", "zone", "status", "state", "updated_at"), TEXT),
        "disabled_reason": or_null(TEXT),
        "forced_down": Key(BOOL, since=_FORCED_DOWN_SINCE),
    }
)
_LISTED = TypeSince(
    {1: _SERVICE, _PARTIAL_SINCE: OneOf((_SERVICE, Shape(dict.fromkeys(("binary", "host", "status"), TEXT))))}
)
_CHANGED_BY_HOST = Shape(
    {
        "host": TEXT,
        "binary": TEXT,
        "status": optional(TEXT),
        "disabled_reason": optional(TEXT),
        "forced_down": Key(BOOL, since=_FORCED_DOWN_SINCE, is_optional=True),
    }
)

_Reason = Annotated[str, Field(min_length=1, max_length=255)]
_Binary = Annotated[str, Field(min_length=1, max_length=255)]


class _ByHost(RequestModel):
    """A change until 2.52, whose kind the last element of the address names."""

    host: Fqdn
    binary: _Binary
    disabled_reason: IfGiven[_Reason] = None
    forced_down: Annotated[IfGiven[BodyBool], Since(_FORCED_DOWN_SINCE)] = None


class _Change(RequestModel):
    status: IfGiven[Literal["enabled", "disabled"]] = None
    disabled_reason: IfGiven[_Reason] = None
    forced_down: IfGiven[BodyBool] = None


_BY_HOST = Body(_ByHost)
_CHANGE = Body(_Change)


class ServiceHandlers:
    def __init__(self, hosts: FleetHosts) -> None:
        self._hosts = hosts

    def routes(self) -> list[ApiRoute]:
        many, one = "/os-services", "/os-services/{service_id}"
        return [
            ApiRoute(
                "GET",
                many,
                self.index,
                query=_PARAMETERS,
                errors=(403,),
                answer=page("services", _LISTED),
                gives=(COMPLETE,),
            ),
            ApiRoute(
                "PUT",
                one,
                self.update_by_host,
                until=52,
                body=_BY_HOST,
                errors=(403, 404),
                answer=Shape({"service": _CHANGED_BY_HOST}),
            ),
            ApiRoute(
                "PUT",
                one,
                self.update,
                since=_UUIDS_SINCE,
                body=_CHANGE,
                errors=(403, 404),
                answer=Shape({"service": _SERVICE}),
            ),
            ApiRoute("DELETE", one, self.delete, success=(204,), errors=(400, 403, 404, 409)),
        ]

    async def index(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-services:list")
        host, binary = (request.query.last(name) or None for name in ("host", "binary"))
        of_cells = await self._hosts.services(host=host, binary=binary)
        items = [_item(request, service) for _, services in of_cells.answers for service in services]
        if host is None and binary is None:
            await self._remember(of_cells)
        if of_cells.down and request.minor >= _PARTIAL_SINCE and binary in {None, COMPUTE}:
            known = await self._hosts.known_hosts(of_cells.down)
            items += [_partial(name) for hosts in known.values() for name in hosts if host in {None, name}]
        return json_answer({"services": items}, headers=of_cells.headers)

    async def update_by_host(self, request: ApiRequest) -> Response:
        """Change a service as the last element of the address says, as in `PUT /os-services/disable`.

        Raises BadRequestError or NotFoundError.
        """
        wanted = await _BY_HOST.read(request)
        request.authorize("os_compute_api:os-services:update")
        change, answer = _change_by_word(request, wanted)
        if wanted.binary != COMPUTE:
            raise BadRequestError(f"Updating a {wanted.binary} service is not supported; only {COMPUTE} services are.")
        found = await self._hosts.compute_service(wanted.host)
        if found is None:
            raise NotFoundError(f"Could not find binary {wanted.binary} on host {wanted.host}.")
        await self._change(found, change)
        return json_answer({"service": {"host": wanted.host, "binary": wanted.binary} | answer})

    async def update(self, request: ApiRequest) -> Response:
        change = await _CHANGE.read(request)
        request.authorize("os_compute_api:os-services:update")
        if not change.model_fields_set or (change.disabled_reason is not None and change.status != "disabled"):
            raise BadRequestError("Give a status or forced_down; a disabled_reason only with the status disabled")
        service = await self._change(await self._required(request), change)
        return json_answer({"service": _item(request, service)})

    async def delete(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-services:delete")
        found = await self._required(request)
        await self._hosts.remove(found)
        return empty_answer(204)

    async def _remember(self, of_cells: OfCells[Sequence[ComputeService]]) -> None:
        try:
            await self._hosts.remember(of_cells)
        except FleetUnreachableError as error:
            # The next list tries again; a cell that goes down before that shows its earlier hosts.
            _log.warning("hosts_not_remembered", reason=str(error))

    async def _required(self, request: ApiRequest) -> FoundService:
        """Find the service in the address, by uuid or number, depending on the microversion. Raises NotFoundError."""
        service_id = request.http.path_params["service_id"]
        if request.minor < _UUIDS_SINCE and not _NUMBER.fullmatch(service_id):
            raise BadRequestError(f"Invalid id {service_id}: it must be a number")
        if request.minor >= _UUIDS_SINCE and not is_uuid(service_id):
            raise BadRequestError(f"Invalid uuid {service_id}")
        found = await self._hosts.service(service_id)
        if found is None:
            raise NotFoundError(f"Service {service_id} could not be found.")
        return found

    async def _change(self, found: FoundService, change: _Change) -> ComputeService:
        is_disabled = None if change.status is None else change.status == "disabled"
        return await self._hosts.change(
            found, disabled=is_disabled, disabled_reason=change.disabled_reason, forced_down=change.forced_down
        )


def _change_by_word(request: ApiRequest, wanted: _ByHost) -> tuple[_Change, dict[str, Any]]:
    """Return the change that the last element of the address names, and the members of the answer that it adds."""
    word = request.http.path_params["service_id"]
    match word:
        case "enable":
            return _Change(status="enabled"), {"status": "enabled"}
        case "disable":
            return _Change(status="disabled"), {"status": "disabled"}
        case "disable-log-reason":
            if wanted.disabled_reason is None:
                raise BadRequestError("Missing disabled reason field")
            change = _Change(status="disabled", disabled_reason=wanted.disabled_reason)
            return change, {"status": "disabled", "disabled_reason": wanted.disabled_reason}
        case "force-down" if request.minor >= _FORCED_DOWN_SINCE:
            if wanted.forced_down is None:
                raise BadRequestError("Missing forced_down field")
            return _Change(forced_down=wanted.forced_down), {"forced_down": wanted.forced_down}
        case _:
            raise NotFoundError(f"Unknown action {word}")


def _partial(host: str) -> dict[str, Any]:
    """Show a service whose cell does not answer."""
    return {"binary": COMPUTE, "host": host, "status": "UNKNOWN"}


def _item(request: ApiRequest, service: ComputeService) -> dict[str, Any]:
    values = {
        "id": number_of(service.uuid) if request.minor < _UUIDS_SINCE else service.uuid,
        "binary": service.binary,
        "host": service.host,
        "zone": service.availability_zone,
        "status": "disabled" if service.disabled else "enabled",
        "state": "up" if service.is_up else "down",
        "updated_at": without_zone(service.updated_at),
        "disabled_reason": service.disabled_reason,
        "forced_down": service.forced_down,
    }
    return _SERVICE.of(request.minor, values)
