"""The actions that need another host or flavor (contracts/nova-rest, 2.3 to 2.6).

They are `resize`, `revertResize`, `migrate`, `os-migrateLive`, `evacuate` and `unshelve`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from fleetlight.api.compute.flavors.conflicting_specs import check_flavor_of_server
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, ConflictError, NotFoundError
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.references import named_flavor
from fleetlight.cells.fan_out.quota_usage import check_larger_flavor, project_lock
from fleetlight.cells.fleet.compute.flavors import Flavor
from fleetlight.cells.kinds.native.nodes import ComputeNode
from fleetlight.cells.model import InstanceRow
from fleetlight.manager.faces.servers import action_bodies as bodies
from fleetlight.manager.faces.servers.create import given_or_new
from fleetlight.manager.faces.servers.lookup import FoundServer
from fleetlight.manager.faces.servers.orders import accept, change, order_of, require_ready, rule
from fleetlight.manager.operations.native_cells import flavor_before_resize, nodes_in
from fleetlight.resources.fields import Record

_PINNED = "pinned_availability_zone"
_EVACUATE_WITHOUT_BODY_SINCE, _EVACUATED_STAY_STOPPED_SINCE = 14, 95


class MoveActions:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    async def resize(self, request: ApiRequest, server: FoundServer, content: bodies.ResizeBody) -> Response:
        require_ready(request, server, "resize")
        await change(self._access, request, server, partial(self._accept_resize, request, server, content))
        return empty_answer(202)

    async def revert_resize(self, request: ApiRequest, server: FoundServer, _content: object) -> Response:
        require_ready(request, server, "revertResize")
        await change(self._access, request, server, partial(self._accept_revert, request, server))
        return empty_answer(202)

    async def migrate(self, request: ApiRequest, server: FoundServer, content: object) -> Response:
        host = content.host if isinstance(content, bodies.HostBody) else None
        if host is not None:
            request.authorize(rule("os-migrate-server:migrate:host"))
        require_ready(request, server, "migrate")
        if host is not None:
            await self._require_other_host(server, host)
        await self._access.ask_cell(server.cell, partial(self._check_host_is_up, server))
        await accept(self._access, request, server, order_of(request, "migrate", parameters={"host": host}))
        return empty_answer(202)

    async def live_migrate(
        self, request: ApiRequest, server: FoundServer, content: bodies.LiveMigrationBody
    ) -> Response:
        host = content.host
        if host is not None:
            request.authorize(rule("os-migrate-server:migrate_live:host"))
        is_forced = _is_forced(content)
        require_ready(request, server, "os-migrateLive")
        if host is not None:
            await self._require_other_host(server, host)
        parameters = {"host": host, "is_forced": is_forced}
        await accept(self._access, request, server, order_of(request, "os-migrateLive", parameters=parameters))
        return empty_answer(202)

    async def evacuate(self, request: ApiRequest, server: FoundServer, content: bodies.EvacuateBody) -> Response:
        """Evacuate a server. Raises BadRequestError, NotFoundError."""
        is_forced = _is_forced(content)
        require_ready(request, server, "evacuate")
        nodes = await self._nodes(server)
        own = server.row.record["host"]
        if content.host:
            if not any(node.service.host == content.host for node in nodes):
                raise NotFoundError(f"Compute host {content.host} not found.")
            if content.host == own:
                raise BadRequestError("The target host can't be the same one.")
        if any(node.service.host == own and node.service.is_up for node in nodes):
            raise BadRequestError(f"Compute service of {own} is still in use.")
        parameters = {
            "host": content.host or None,
            "is_forced": is_forced,
            "stays_stopped": request.minor >= _EVACUATED_STAY_STOPPED_SINCE,
        }
        await accept(self._access, request, server, order_of(request, "evacuate", parameters=parameters))
        if request.minor >= _EVACUATE_WITHOUT_BODY_SINCE:
            return empty_answer(200)
        return json_answer({"adminPass": given_or_new(content.admin_pass)})

    async def unshelve(self, request: ApiRequest, server: FoundServer, content: Any) -> Response:
        given = content if isinstance(content, bodies.UnshelveBody) else None
        host = given.host if given else ""
        if host:
            request.authorize(rule("os-shelve:unshelve_to_host"))
        require_ready(request, server, "unshelve")
        values: dict[str, Any] = {}
        if given and "availability_zone" in given.model_fields_set:
            values[_PINNED] = given.availability_zone
        nodes = await self._nodes(server) if host or values else ()

        def check(record: Record) -> None:
            """Check the zone again, since the server may be pinned to another one by now."""
            if values:
                _require_zone(record, values[_PINNED], nodes)
            if host:
                _require_host_in_zone(record, host, values.get(_PINNED, record[_PINNED]), nodes)

        parameters = {"host": host} if host else {}
        order = order_of(request, "unshelve", values=values, parameters=parameters)
        await accept(self._access, request, server, order, check)
        return empty_answer(202)

    def _accept_resize(self, request: ApiRequest, server: FoundServer, content: bodies.ResizeBody) -> InstanceRow:
        """Accept a resize. Raises BadRequestError, ConflictError, and QuotaExceededError."""
        flavor = self._new_flavor(request, server, content.flavor_ref)
        self._check_host_is_up(server)
        parameters = {"flavor": flavor.payload(), "flavor_number": flavor.number}
        values = {} if content.disk_config is None else {"auto_disk_config": content.disk_config == "AUTO"}
        return self._accept_flavor(request, server, "resize", values, parameters)

    def _accept_revert(self, request: ApiRequest, server: FoundServer) -> InstanceRow:
        """Accept a revert. Raises QuotaExceededError: the larger old flavor may not fit the quota any more."""
        parameters = {"flavor": flavor_before_resize(self._access.native, server.cell, server.uuid)}
        return self._accept_flavor(request, server, "revertResize", {}, parameters)

    def _accept_flavor(
        self,
        request: ApiRequest,
        server: FoundServer,
        action: str,
        values: dict[str, Any],
        parameters: dict[str, Any],
    ) -> InstanceRow:
        """Accept a change of flavor. parameters: with the payload of the new flavor. Raises QuotaExceededError."""
        fleet, native, record = self._access.fleet, self._access.native, server.row.record
        project_id = str(record["project_id"])
        with fleet.lock(project_lock(project_id)):
            check_larger_flavor(fleet, native, project_id, record["flavor"], parameters["flavor"])
            order = order_of(request, action, values=values, parameters=parameters)
            return server.acceptance.accept(server.uuid, order)

    def _new_flavor(self, request: ApiRequest, server: FoundServer, flavor_id: str) -> Flavor:
        """Find the new flavor. Raises BadRequestError if it is unknown, or the present one."""
        flavor = named_flavor(self._access, request, flavor_id)
        if flavor.disabled:
            raise BadRequestError("Unable to resize to a disabled flavor.")
        if flavor.flavorid == server.row.record["flavor_id"]:
            raise BadRequestError("When resizing, instances must change flavor!")
        check_flavor_of_server(flavor)
        return flavor

    async def _nodes(self, server: FoundServer) -> Sequence[ComputeNode]:
        return await self._access.ask_cell(server.cell, lambda: nodes_in(self._access.native, server.cell).nodes())

    def _check_host_is_up(self, server: FoundServer) -> None:
        """Raise ConflictError if the host is down: its guests can only be evacuated."""
        host = str(server.row.record["host"])
        services = nodes_in(self._access.native, server.cell).services(host=host)
        if not all(service.is_up for service in services):
            raise ConflictError(f"Service is unavailable at this time: the host of server {server.uuid} is down.")

    async def _require_host(self, server: FoundServer, host: str) -> None:
        if not await self._access.ask_cell(
            server.cell, lambda: nodes_in(self._access.native, server.cell).nodes_of([host])
        ):
            raise BadRequestError(f"Compute host {host} could not be found.")

    async def _require_other_host(self, server: FoundServer, host: str) -> None:
        await self._require_host(server, host)
        if server.row.record["host"] == host:
            raise BadRequestError(f"Server {server.uuid} is on host {host} already.")


def _require_zone(record: Record, zone: str | None, nodes: Sequence[ComputeNode]) -> None:
    _require_offloaded(record, "zone")
    if zone is not None and not any(node.service.availability_zone == zone and node.is_available for node in nodes):
        raise BadRequestError("The requested availability zone is not available")


def _require_host_in_zone(record: Record, host: str, zone: str | None, nodes: Sequence[ComputeNode]) -> None:
    _require_offloaded(record, "host")
    zones = {node.service.availability_zone for node in nodes if node.service.host == host}
    if not zones:
        raise BadRequestError(f"Compute host {host} could not be found.")
    if zone is not None and zone not in zones:
        raise ConflictError(f"Host {host} is not in the availability zone {zone}.")


def _require_offloaded(record: Record, what: str) -> None:
    """Raise ConflictError if the shelved server is still on a host, to which it returns."""
    if record["vm_state"] != "shelved_offloaded":
        raise ConflictError(f"A {what} can be given only for a server that is shelved and offloaded.")


def _is_forced(content: bodies.LiveMigrationBody | bodies.EvacuateBody) -> bool:
    """Whether the host is forced, so that its zone does not count (until 2.67). Raises BadRequestError without one."""
    if content.force and not content.host:
        raise BadRequestError("Can't force to a non-provided destination")
    return content.force
