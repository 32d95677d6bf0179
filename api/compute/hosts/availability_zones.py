"""Availability zones: `/os-availability-zone` (contracts/nova-rest, 4.6)."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.shapes import BOOL, NOTHING, TEXT, JsonType, MapOf, Shape, or_null, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess, OfCells
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.api.shared.times import without_zone
from fleetlight.cells.kinds.native.nodes import ComputeService

_SERVICE = Shape({"available": BOOL, "active": BOOL, "updated_at": TEXT})


def _answer(hosts: JsonType) -> Shape:
    zone = Shape({"zoneName": TEXT, "zoneState": Shape({"available": BOOL}), "hosts": hosts})
    return page("availabilityZoneInfo", zone)


class AvailabilityZoneHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute("GET", "/os-availability-zone", self.index, answer=_answer(NOTHING), gives=(COMPLETE,)),
            ApiRoute(
                "GET",
                "/os-availability-zone/detail",
                self.detail,
                errors=(403,),
                answer=_answer(or_null(MapOf(MapOf(_SERVICE)))),
                gives=(COMPLETE,),
            ),
        ]

    async def index(self, request: ApiRequest) -> Response:
        of_cells = await self._of_cells()
        zones = [_zone(name, _is_available(services), None) for name, services in _by_zone(of_cells).items()]
        return json_answer({"availabilityZoneInfo": zones}, headers=of_cells.headers)

    async def detail(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-availability-zone:detail")
        of_cells = await self._of_cells()
        # Clients look for Nova's zone of its own services; none of ours is in it.
        zones = [_zone("internal", True, {})]
        for name, services in _by_zone(of_cells).items():
            is_available = _is_available(services)
            zones.append(_zone(name, is_available, _hosts(services) if is_available else None))
        return json_answer({"availabilityZoneInfo": zones}, headers=of_cells.headers)

    async def _of_cells(self) -> OfCells[Sequence[ComputeService]]:
        return await self._access.ask_cells(self._access.native.services)


def _by_zone(of_cells: OfCells[Sequence[ComputeService]]) -> dict[str, list[ComputeService]]:
    zones: dict[str, list[ComputeService]] = {}
    for _, services in of_cells.answers:
        for service in services:
            zones.setdefault(service.availability_zone, []).append(service)
    return {name: zones[name] for name in sorted(zones)}


def _is_available(services: list[ComputeService]) -> bool:
    return not all(service.disabled for service in services)


def _zone(name: str, is_available: bool, hosts: dict[str, Any] | None) -> dict[str, Any]:
    return {"zoneName": name, "zoneState": {"available": is_available}, "hosts": hosts}


def _hosts(services: list[ComputeService]) -> dict[str, Any]:
    return {
        service.host: {
            service.binary: {
                "available": service.is_up,
                "active": not service.disabled,
                "updated_at": without_zone(service.updated_at),
            }
        }
        for service in services
    }
