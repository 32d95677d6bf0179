"""`PUT` and `DELETE /servers/{id}` (contracts/nova-rest, 2.1 and 2.2)."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from fleetlight.api.bodies.body_types import Description, Fqdn, Name
from fleetlight.api.bodies.request_body import Body, RequestModel
from fleetlight.api.bodies.versioned_models import Since
from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import ConflictError
from fleetlight.api.http.shapes import Shape
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import TOKEN
from fleetlight.manager.faces.servers.changed_server import CHANGED_SERVER, changed_item
from fleetlight.manager.faces.servers.create_body import AccessIPv4, AccessIPv6, DiskConfig, Hostname
from fleetlight.manager.faces.servers.lookup import find_server
from fleetlight.manager.operations.actions.accepting import Order
from fleetlight.resources.fields import Record

_Zone = Annotated[str, Field(min_length=1, max_length=255)] | None


class _Changes(RequestModel):
    """Changes of a server; absent fields stay unchanged."""

    name: Name = ""
    access_ip_v4: AccessIPv4 = Field(default="", alias="accessIPv4")
    access_ip_v6: AccessIPv6 = Field(default="", alias="accessIPv6")
    disk_config: DiskConfig = Field(default="MANUAL", alias="OS-DCF:diskConfig")
    description: Annotated[Description, Since(19)] = None
    hostname: Annotated[str, Since(90, Hostname), Since(94, Fqdn)] = ""
    pinned_availability_zone: Annotated[_Zone, Since(104)] = None

    def record_values(self) -> dict[str, Any]:
        """Return the fields of the record that change."""
        given = self.model_dump(exclude_unset=True)
        values = {_RECORD_NAMES.get(name, name): value for name, value in given.items()}
        if "auto_disk_config" in values:
            values["auto_disk_config"] = values["auto_disk_config"] == "AUTO"
        return values


_RECORD_NAMES = {"name": "display_name", "description": "display_description", "disk_config": "auto_disk_config"}


_UPDATE = Body(_Changes, "server")
_PINNED = "pinned_availability_zone"


class ServerChangeHandlers:
    """The handlers. soft_deletes: whether deleted servers can be restored for a while."""

    def __init__(self, access: FleetAccess, host_statuses: HostStatusCache, *, soft_deletes: bool) -> None:
        self._access = access
        self._soft_deletes = soft_deletes
        self._host_statuses = host_statuses

    def routes(self) -> list[ApiRoute]:
        one = "/servers/{server_id}"
        return [
            ApiRoute(
                "PUT",
                one,
                self.update,
                body=_UPDATE,
                errors=(400, 403, 404, 409, 501),
                answer=Shape({"server": CHANGED_SERVER}),
                gives=(TOKEN,),
            ),
            ApiRoute("DELETE", one, self.delete, success=(204,), errors=(403, 404, 409, 501), gives=(TOKEN,)),
        ]

    async def update(self, request: ApiRequest) -> Response:
        values = (await _UPDATE.read(request)).record_values()
        server = await find_server(self._access, request)
        request.authorize("os_compute_api:servers:update")

        def decide(record: Record) -> Mapping[str, Any]:
            if _PINNED in values:
                _check_pin(values[_PINNED], record)
            return values

        row = server.row
        if values:
            row = await self._access.act(
                server.cell, partial(server.acceptance.revise, server.uuid, decide, request.origin)
            )
        await request.hand_out_token(row)
        return json_answer({"server": await changed_item(request, row, self._host_statuses, self._access)})

    async def delete(self, request: ApiRequest) -> Response:
        server = await find_server(self._access, request)
        request.authorize("os_compute_api:servers:delete")
        # A server without a host has nothing to keep.
        is_soft = self._soft_deletes and server.row.record["host"] is not None
        action = "softDelete" if is_soft else "delete"
        order = Order(action, request=request.origin, is_admin=request.caller.is_admin)
        row = await self._access.act(server.cell, partial(server.acceptance.accept, server.uuid, order))
        await request.hand_out_token(row)
        return empty_answer(204)


def _check_pin(wanted: str | None, record: Record) -> None:
    """Raise ConflictError if `wanted` is neither the server's zone nor the one that it is pinned to."""
    pinned = record["pinned_availability_zone"]
    if wanted is not None and wanted != (pinned or record["availability_zone"]):
        raise ConflictError(f"Cannot pin server {record['uuid']} to availability zone {wanted}.")
