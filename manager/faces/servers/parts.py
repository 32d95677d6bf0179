"""Parts of a server: addresses, interfaces, volumes and the like (contracts/nova-rest, 3.3, 3.6 and 3.7).

A fleet has no network or volume service, and its hosts no consoles: handlers show the parts in the record, and answer
501 to requests that would need those.
"""

from functools import partial
from typing import Any
from uuid import UUID, uuid5

from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body
from fleetlight.api.compute.protocol.paging import whole_number
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, NotFoundError, NotSupportedError
from fleetlight.api.http.query_string import list_parameters
from fleetlight.api.http.shapes import BOOL, INTEGER, NOTHING, TEXT, Key, ListOf, MapOf, Shape, or_null, page
from fleetlight.api.shared.endpoint import ApiRequest, Handler
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.manager.faces.servers.attachment_bodies import NEW_CONSOLE, NEW_INTERFACE, NEW_VOLUME
from fleetlight.manager.faces.servers.details import find_readable, read_record
from fleetlight.manager.faces.servers.lookup import find_server
from fleetlight.resources.fields import Record

_CONSOLES_SINCE = 6
_ATTACHMENT_TAGS_SINCE = 70
_TOPOLOGY_SINCE = 78
_DELETION_SINCE = 79
_BDM_UUIDS_SINCE = 89
_SHARES_SINCE = 97
_VOLUME_PARAMETERS = list_parameters({"limit": 1, "offset": 1})


_ADDRESS_LIST = ListOf(Shape({"version": INTEGER, "addr": TEXT}))
_VOLUME = Shape(
    {
        "id": Key(TEXT, until=_BDM_UUIDS_SINCE - 1),
        "volumeId": TEXT,
        "serverId": TEXT,
        "device": or_null(TEXT),
        "tag": Key(or_null(TEXT), since=_ATTACHMENT_TAGS_SINCE),
        "delete_on_termination": Key(BOOL, since=_DELETION_SINCE),
        "attachment_id": Key(or_null(TEXT), since=_BDM_UUIDS_SINCE),
        "bdm_uuid": Key(TEXT, since=_BDM_UUIDS_SINCE),
    }
)
_TOPOLOGY = Shape({"nodes": ListOf(NOTHING), "pagesize_kb": or_null(INTEGER)})


class ServerPartHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    def routes(self) -> list[ApiRoute]:
        server = "/servers/{server_id}"
        reading = (403, 404, 501)
        ports, volumes = f"{server}/os-interface", f"{server}/os-volume_attachments"
        return [
            ApiRoute(
                "GET",
                f"{server}/ips",
                self.addresses,
                errors=reading,
                answer=Shape({"addresses": MapOf(_ADDRESS_LIST)}),
            ),
            ApiRoute(
                "GET", f"{server}/ips/{{label}}", self.addresses_of_network, errors=reading, answer=MapOf(_ADDRESS_LIST)
            ),
            ApiRoute(
                "GET",
                f"{server}/os-security-groups",
                self.security_groups,
                errors=reading,
                answer=page("security_groups", NOTHING),
            ),
            ApiRoute(
                "GET",
                f"{server}/os-server-password",
                self._shows("os-server-password:show", {"password": ""}),
                errors=reading,
                answer=Shape({"password": TEXT}),
            ),
            ApiRoute("DELETE", f"{server}/os-server-password", self.clear_password, success=(204,), errors=reading),
            ApiRoute(
                "GET",
                f"{server}/topology",
                self._shows("compute:server:topology:index", {"nodes": [], "pagesize_kb": None}),
                since=_TOPOLOGY_SINCE,
                errors=reading,
                answer=_TOPOLOGY,
            ),
            ApiRoute(
                "GET",
                f"{server}/shares",
                self._shows("os-server-shares:index", {"shares": []}),
                since=_SHARES_SINCE,
                errors=reading,
                answer=page("shares", NOTHING),
            ),
            ApiRoute(
                "GET",
                ports,
                self._shows("os-attach-interfaces:list", {"interfaceAttachments": []}),
                errors=reading,
                answer=page("interfaceAttachments", NOTHING),
            ),
            ApiRoute("GET", ports + "/{port_id}", self.port, success=(), errors=reading),
            ApiRoute(
                "GET",
                volumes,
                self.volumes,
                query=_VOLUME_PARAMETERS,
                errors=(400, *reading),
                answer=page("volumeAttachments", _VOLUME),
            ),
            ApiRoute(
                "GET",
                volumes + "/{volume_id}",
                self.volume,
                errors=reading,
                answer=Shape({"volumeAttachment": _VOLUME}),
            ),
            *self._unsupported("GET", f"{server}/diagnostics", "os-server-diagnostics"),
            ApiRoute(
                "POST",
                f"{server}/remote-consoles",
                self.open_console,
                since=_CONSOLES_SINCE,
                body=NEW_CONSOLE,
                success=(),
                errors=(403, 404, 501),
            ),
            *self._unsupported("POST", ports, "os-attach-interfaces:create", NEW_INTERFACE),
            *self._unsupported("DELETE", ports + "/{port_id}", "os-attach-interfaces:delete"),
            *self._unsupported("POST", volumes, "os-volumes-attachments:create", NEW_VOLUME),
            *self._unsupported("PUT", volumes + "/{volume_id}", "os-volumes-attachments:update"),
            *self._unsupported("DELETE", volumes + "/{volume_id}", "os-volumes-attachments:delete"),
        ]

    async def addresses(self, request: ApiRequest) -> Response:
        return json_answer({"addresses": await read_record(self._access, request, "ips:index", _addresses)})

    async def addresses_of_network(self, request: ApiRequest) -> Response:
        addresses = await read_record(self._access, request, "ips:show", _addresses)
        label = request.http.path_params["label"]
        if label not in addresses:
            raise NotFoundError("Network label is not found")
        return json_answer({label: addresses[label]})

    async def security_groups(self, request: ApiRequest) -> Response:
        """Answer with an empty list, since a fleet only knows the names of security groups."""
        await find_readable(self._access, request, "os-security-groups:list")
        return json_answer({"security_groups": []})

    async def clear_password(self, request: ApiRequest) -> Response:
        """Answer with success, since no password is stored."""
        await find_readable(self._access, request, "os-server-password:clear")
        return empty_answer(204)

    async def port(self, request: ApiRequest) -> Response:
        await find_readable(self._access, request, "os-attach-interfaces:show")
        raise NotFoundError(f"No interface attachment {request.http.path_params['port_id']} is there.")

    async def volumes(self, request: ApiRequest) -> Response:
        limit = min(whole_number(request, "limit", self._access.max_limit), self._access.max_limit)
        offset = whole_number(request, "offset", 0)
        volumes = await read_record(self._access, request, "os-volumes-attachments:index", partial(_volumes, request))
        return json_answer({"volumeAttachments": volumes[offset : offset + limit]})

    async def volume(self, request: ApiRequest) -> Response:
        volumes = await read_record(self._access, request, "os-volumes-attachments:show", partial(_volumes, request))
        volume_id = request.http.path_params["volume_id"]
        for volume in volumes:
            if volume["volumeId"] == volume_id:
                return json_answer({"volumeAttachment": volume})
        raise NotFoundError(f"No volume {volume_id} is attached to the server.")

    async def open_console(self, request: ApiRequest) -> Response:
        wanted = await NEW_CONSOLE.read(request)
        await find_server(self._access, request)
        request.authorize("os_compute_api:os-remote-consoles")
        if wanted.protocol == "rdp":
            raise BadRequestError("Unavailable console type rdp.")
        raise NotSupportedError("The hosts of this cell have no consoles.")

    def _shows(self, rule: str, document: dict[str, Any]) -> Handler:
        """Make a handler with the same answer for every server that the caller may see."""

        async def show(request: ApiRequest) -> Response:
            await find_readable(self._access, request, rule)
            return json_answer(document)

        return show

    def _unsupported(self, method: str, path: str, rule: str, body: Body[Any] | None = None) -> list[ApiRoute]:
        async def refuse(request: ApiRequest) -> Response:
            if body is not None:
                await body.read(request)
            await find_server(self._access, request)
            request.authorize(f"os_compute_api:{rule}")
            raise NotSupportedError("No cell of this fleet can do that.")

        return [ApiRoute(method, path, refuse, body=body, success=(), errors=(403, 404, 501))]


def _addresses(record: Record) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for address in record["ip_addresses"] or []:
        item = {"version": address["version"], "addr": address["address"]}
        found.setdefault(address["label"], []).append(item)
    return found


def _volumes(request: ApiRequest, record: Record) -> list[dict[str, Any]]:
    return [_volume(request, record, volume) for volume in record["block_devices"] or []]


def _volume(request: ApiRequest, record: Record, volume: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": volume["volume_id"],
        "volumeId": volume["volume_id"],
        "serverId": record["uuid"],
        "device": volume["device_name"],
        "tag": volume["tag"],
        "delete_on_termination": volume["delete_on_termination"],
        "attachment_id": None,
        # Block devices have no uuid here, so derive a stable one.
        "bdm_uuid": str(uuid5(UUID(record["uuid"]), volume["volume_id"])),
    }
    return _VOLUME.of(request.minor, values)
