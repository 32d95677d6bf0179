"""`POST /servers/{id}/action` (contracts/nova-rest, 2.3 to 2.6): which keys there are, and what each does."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any

from pydantic import BaseModel, Field, RootModel, create_model
from starlette.responses import Response

from api.compute.hosts.host_status import HostStatusCache
from api.compute.protocol.answers import empty_answer, json_answer
from api.compute.protocol.endpoint import ComputeRequest
from api.compute.protocol.fleet_access import FleetAccess
from api.compute.protocol.request_body import Body, RequestModel, read_json
from api.compute.protocol.routes import Route
from api.compute.protocol.shapes import TEXT, Extended, Key, OneOf, Shape, or_null
from api.compute.servers import action_bodies as bodies
from api.compute.servers.changed_server import CHANGED_SERVER, changed_item
from api.compute.servers.create import new_password
from api.compute.servers.lookup import FoundServer, find_server
from api.compute.servers.shape import ADMIN_PASSWORD
from api.errors import (
    BadRequestError,
    ConflictError,
    GoneError,
    NotFoundError,
    NotInMicroversionError,
    NotSupportedError,
)
from cells.actions.accepting import Order
from cells.errors import ResourceNotFoundError
from cells.fleet.flavors import Flavor
from cells.fleet.quotas import check
from cells.model import InstanceRow
from cells.native.nodes import ComputeNode
from cells.usage import check_larger_flavor, check_restored_instance, project_turn

_Act = Callable[[ComputeRequest, FoundServer, Any], Awaitable[Response]]
_LATEST = 1000
_BODY_OF_REBUILD_HAS_KEY_SINCE, _BODY_OF_REBUILD_HAS_USER_DATA_SINCE = 54, 57
_EVACUATE_WITHOUT_BODY_SINCE, _EVACUATED_STAY_STOPPED_SINCE = 14, 95


_REBUILT_SERVER = Extended(
    CHANGED_SERVER,
    {
        "adminPass": TEXT,
        "key_name": Key(or_null(TEXT), since=_BODY_OF_REBUILD_HAS_KEY_SINCE),
        "user_data": Key(or_null(TEXT), since=_BODY_OF_REBUILD_HAS_USER_DATA_SINCE),
    },
)


@dataclass(frozen=True, slots=True)
class _Key:
    """One key. body: what it may hold; None: anything. since, until: the microversions 2.N that have it.

    is_gone: removed at every microversion.
    """

    rule: str
    act: _Act
    body: Body[Any] | None = None
    since: int = 1
    until: int = _LATEST
    is_gone: bool = False


class _AnyAction(Body[BaseModel]):
    """One of the bodies of all keys, for the OpenAPI document; a request is read by the model of its key alone."""

    def __init__(self, keys: Mapping[str, _Key]) -> None:
        super().__init__({})
        self._keys = keys
        self._made: dict[int, type[BaseModel]] = {}

    def model(self, minor: int) -> type[BaseModel]:
        if minor not in self._made:
            envelopes = [
                _envelope(name) if key.body is None else key.body.model(minor)
                for name, key in self._keys.items()
                if key.since <= minor <= key.until
            ]
            union: Any = reduce(or_, envelopes)
            self._made[minor] = create_model("Action", __base__=RootModel, root=(union, ...))
        return self._made[minor]


def _envelope(name: str) -> Any:
    """The model of a body that may hold anything under its key."""
    return create_model(f"Action_{name}", __base__=RequestModel, content=(Any, Field(alias=name)))


class ServerActionHandlers:
    def __init__(self, access: FleetAccess, host_statuses: HostStatusCache) -> None:
        self._access = access
        self._host_statuses = host_statuses
        self._keys = self._all_keys()

    def routes(self) -> list[Route]:
        return [
            Route(
                "POST",
                "/servers/{server_id}/action",
                self.act,
                body=_AnyAction(self._keys),
                success=(200, 202, 204),
                errors=(400, 403, 404, 409, 410, 413, 501),
                answer=OneOf((ADMIN_PASSWORD, Shape({"server": _REBUILT_SERVER}))),
            )
        ]

    async def act(self, request: ComputeRequest) -> Response:
        document = await read_json(request.http)
        if not isinstance(document, dict) or len(document) != 1:
            raise BadRequestError("Malformed request body: it must have exactly one key, the action")
        [(name, content)] = document.items()
        key = self._keys.get(name)
        if key is None:
            raise BadRequestError(f"There is no such action: {name}")
        if key.is_gone:
            raise GoneError(request.http.url.path)
        if not key.since <= request.minor <= key.until:
            raise NotInMicroversionError(request.minor)
        if key.body is not None:
            content = key.body.check(document, request.minor, is_relaxed=request.is_relaxed).content
        server = await find_server(self._access, request)
        request.authorize(key.rule)
        return await key.act(request, server, content)

    def _all_keys(self) -> Mapping[str, _Key]:
        plain = {
            "os-start": "servers:start",
            "os-stop": "servers:stop",
            "pause": "os-pause-server:pause",
            "unpause": "os-pause-server:unpause",
            "suspend": "os-suspend-server:suspend",
            "resume": "os-suspend-server:resume",
            "unrescue": "os-unrescue",
            "revertResize": "servers:revert_resize",
            "shelve": "os-shelve:shelve",
            "shelveOffload": "os-shelve:shelve_offload",
            "forceDelete": "os-deferred-delete:force",
        }
        keys = {name: _Key(_rule(rule), partial(self._plain, name, 202)) for name, rule in plain.items()}
        keys["confirmResize"] = _Key(_rule("servers:confirm_resize"), partial(self._plain, "confirmResize", 204))
        keys["trigger_crash_dump"] = _Key(
            _rule("servers:trigger_crash_dump"),
            partial(self._plain, "trigger_crash_dump", 202),
            bodies.CRASH_DUMP,
            since=17,
        )
        keys["changePassword"] = _Key(
            _rule("os-admin-password"), partial(self._plain, "changePassword", 202), bodies.CHANGE_PASSWORD
        )
        keys |= {
            "reboot": _Key(_rule("servers:reboot"), self._reboot, bodies.REBOOT),
            "lock": _Key(_rule("os-lock-server:lock"), self._lock, bodies.LOCK),
            "unlock": _Key(_rule("os-lock-server:unlock"), self._unlock),
            "restore": _Key(_rule("os-deferred-delete:restore"), self._restore),
            "rescue": _Key(_rule("os-rescue"), self._rescue, bodies.RESCUE),
            "rebuild": _Key(_rule("servers:rebuild"), self._rebuild, bodies.REBUILD),
            "resize": _Key(_rule("servers:resize"), self._resize, bodies.RESIZE),
            "migrate": _Key(_rule("os-migrate-server:migrate"), self._migrate, bodies.MIGRATE),
            "os-migrateLive": _Key(_rule("os-migrate-server:migrate_live"), self._live_migrate, bodies.LIVE_MIGRATION),
            "evacuate": _Key(_rule("os-evacuate"), self._evacuate, bodies.EVACUATE),
            "unshelve": _Key(_rule("os-shelve:unshelve"), self._unshelve, bodies.UNSHELVE),
            "os-resetState": _Key(_rule("os-admin-actions:reset_state"), self._reset_state, bodies.RESET_STATE),
            "injectNetworkInfo": _Key(_rule("os-admin-actions:inject_network_info"), _nothing_to_do),
            "addSecurityGroup": _Key(
                _rule("os-security-groups:add"), self._add_security_group, bodies.ADD_SECURITY_GROUP
            ),
            "removeSecurityGroup": _Key(
                _rule("os-security-groups:remove"), self._remove_security_group, bodies.REMOVE_SECURITY_GROUP
            ),
            "resetNetwork": _Key(_rule("os-admin-actions:reset_state"), _nothing_to_do, is_gone=True),
        }
        return keys | _unsupported_keys()

    async def _accept(self, request: ComputeRequest, server: FoundServer, order: Order) -> InstanceRow:
        return await self._act(request, server, partial(server.acceptance.accept, server.uuid, order))

    async def _act(
        self, request: ComputeRequest, server: FoundServer, change: Callable[[], InstanceRow]
    ) -> InstanceRow:
        row = await self._access.act(server.cell, change)
        request.hand_out_token(row)
        return row

    async def _plain(
        self, name: str, status: int, request: ComputeRequest, server: FoundServer, _content: object
    ) -> Response:
        await self._accept(request, server, _order(request, name))
        return empty_answer(status)

    async def _reboot(self, request: ComputeRequest, server: FoundServer, content: bodies.RebootBody) -> Response:
        await self._accept(request, server, _order(request, f"reboot {content.type.upper()}"))
        return empty_answer(202)

    async def _lock(self, request: ComputeRequest, server: FoundServer, content: object) -> Response:
        reason = content.locked_reason if isinstance(content, bodies.LockBody) else None
        is_owner = server.row.record["project_id"] == request.caller.project_id
        await self._act(
            request,
            server,
            partial(
                server.acceptance.lock,
                server.uuid,
                by="owner" if is_owner else "admin",
                reason=reason,
                request=request.origin,
            ),
        )
        return empty_answer(202)

    async def _unlock(self, request: ComputeRequest, server: FoundServer, _content: object) -> Response:
        if server.row.record["locked_by"] == "admin":
            request.authorize(_rule("os-lock-server:unlock:unlock_override"))
        await self._act(request, server, partial(server.acceptance.unlock, server.uuid, request=request.origin))
        return empty_answer(202)

    async def _rescue(
        self, request: ComputeRequest, server: FoundServer, content: bodies.RescueBody | None
    ) -> Response:
        if content is not None and content.rescue_image_ref is not None:
            self._access.check_image(content.rescue_image_ref)
        await self._accept(request, server, _order(request, "rescue"))
        password = (content.admin_pass if content else None) or new_password()
        return json_answer({"adminPass": password})

    async def _rebuild(self, request: ComputeRequest, server: FoundServer, content: bodies.RebuildBody) -> Response:
        self._access.check_image(content.image_ref)
        await self._access.ask(partial(self._check_metadata, request, content.metadata))
        values = _rebuilt_values(content)
        if values.get("key_name") is not None:
            values["keypairs"] = await self._access.ask(partial(self._keypairs, request, values["key_name"]))
        elif "key_name" in values:
            values["keypairs"] = []
        row = await self._accept(request, server, _order(request, "rebuild", values=values))
        item = await changed_item(request, row, self._host_statuses)
        item["adminPass"] = content.admin_pass or new_password()
        if request.minor >= _BODY_OF_REBUILD_HAS_KEY_SINCE:
            item["key_name"] = row.record["key_name"]
        if request.minor >= _BODY_OF_REBUILD_HAS_USER_DATA_SINCE:
            item["user_data"] = row.record["user_data"]
            item.pop("OS-EXT-SRV-ATTR:user_data", None)
        return json_answer({"server": item}, 202, {"Location": request.links.of_server(server.uuid)[0]["href"]})

    async def _resize(self, request: ComputeRequest, server: FoundServer, content: bodies.ResizeBody) -> Response:
        await self._act(request, server, partial(self._accept_resize, request, server, content))
        return empty_answer(202)

    def _accept_resize(self, request: ComputeRequest, server: FoundServer, content: bodies.ResizeBody) -> InstanceRow:
        """Raises BadRequestError, and QuotaExceededError for a larger flavor than the project may have."""
        fleet, project_id = self._access.fleet, str(server.row.record["project_id"])
        flavor = self._new_flavor(request, server, content.flavor_ref)
        self._check_host_is_up(server)
        parameters = {"flavor": flavor.payload(), "flavor_number": flavor.number}
        values = {} if content.disk_config is None else {"auto_disk_config": content.disk_config == "AUTO"}
        with fleet.turn(project_turn(project_id)):
            check_larger_flavor(
                fleet, self._access.native, project_id, server.row.record["flavor"], flavor, down=self._access.hanging()
            )
            order = _order(request, "resize", values=values, parameters=parameters)
            return server.acceptance.accept(server.uuid, order)

    async def _restore(self, request: ComputeRequest, server: FoundServer, _content: object) -> Response:
        await self._act(request, server, partial(self._accept_restore, request, server))
        return empty_answer(202)

    def _accept_restore(self, request: ComputeRequest, server: FoundServer) -> InstanceRow:
        """Raises QuotaExceededError: a soft-deleted server does not count, so it may not fit any more."""
        fleet, record = self._access.fleet, server.row.record
        project_id = str(record["project_id"])
        with fleet.turn(project_turn(project_id)):
            if record["vm_state"] == "soft-delete":
                down = self._access.hanging()
                check_restored_instance(fleet, self._access.native, project_id, record["flavor"], down=down)
            return server.acceptance.accept(server.uuid, _order(request, "restore"))

    async def _migrate(self, request: ComputeRequest, server: FoundServer, content: object) -> Response:
        host = content.host if isinstance(content, bodies.HostBody) else None
        if host is not None:
            request.authorize(_rule("os-migrate-server:migrate:host"))
            await self._require_other_host(server, host)
        await self._access.ask_cell(server.cell, partial(self._check_host_is_up, server))
        await self._accept(request, server, _order(request, "migrate", parameters={"host": host}))
        return empty_answer(202)

    async def _live_migrate(
        self, request: ComputeRequest, server: FoundServer, content: bodies.LiveMigrationBody
    ) -> Response:
        if content.host is not None:
            request.authorize(_rule("os-migrate-server:migrate_live:host"))
            await self._require_other_host(server, content.host)
        await self._accept(request, server, _order(request, "os-migrateLive", parameters={"host": content.host}))
        return empty_answer(202)

    async def _evacuate(self, request: ComputeRequest, server: FoundServer, content: bodies.EvacuateBody) -> Response:
        nodes = await self._nodes(server)
        own = server.row.record["host"]
        if content.host is not None:
            if not any(node.service.host == content.host for node in nodes):
                raise NotFoundError(f"Compute host {content.host} not found.")
            if content.host == own:
                raise BadRequestError("The target host can't be the same one.")
        if any(node.service.host == own and node.service.is_up for node in nodes):
            raise BadRequestError(f"Compute service of {own} is still in use.")
        parameters = {"host": content.host, "stays_stopped": request.minor >= _EVACUATED_STAY_STOPPED_SINCE}
        await self._accept(request, server, _order(request, "evacuate", parameters=parameters))
        if request.minor >= _EVACUATE_WITHOUT_BODY_SINCE:
            return empty_answer(200)
        return json_answer({"adminPass": content.admin_pass or new_password()})

    async def _unshelve(self, request: ComputeRequest, server: FoundServer, content: Any) -> Response:
        parameters: dict[str, Any] = {}
        values: dict[str, Any] = {}
        if content is not None:
            host = getattr(content, "host", "")
            if host:
                request.authorize(_rule("os-shelve:unshelve_to_host"))
                await self._require_host(server, host)
                parameters["host"] = host
            if "availability_zone" in content.model_fields_set:
                await self._require_zone(server, content.availability_zone)
                values["pinned_availability_zone"] = content.availability_zone
        await self._accept(request, server, _order(request, "unshelve", values=values, parameters=parameters))
        return empty_answer(202)

    async def _reset_state(
        self, request: ComputeRequest, server: FoundServer, content: bodies.ResetStateBody
    ) -> Response:
        reset = partial(server.acceptance.reset_state, server.uuid, content.state, request=request.origin)
        await self._act(request, server, reset)
        return empty_answer(202)

    async def _add_security_group(
        self, request: ComputeRequest, server: FoundServer, content: bodies.SecurityGroupBody
    ) -> Response:
        groups = sorted({*(server.row.record["security_groups"] or []), content.name})
        return await self._set_security_groups(request, server, groups)

    async def _remove_security_group(
        self, request: ComputeRequest, server: FoundServer, content: bodies.SecurityGroupBody
    ) -> Response:
        groups = list(server.row.record["security_groups"] or [])
        if content.name not in groups:
            raise NotFoundError(f"Security group {content.name} is not one of server {server.uuid}.")
        groups.remove(content.name)
        return await self._set_security_groups(request, server, groups)

    async def _set_security_groups(self, request: ComputeRequest, server: FoundServer, groups: list[str]) -> Response:
        values = {"security_groups": groups}
        await self._act(request, server, partial(server.acceptance.update, server.uuid, values, request.origin))
        return empty_answer(202)

    def _check_metadata(self, request: ComputeRequest, metadata: Mapping[str, str]) -> None:
        """Raises QuotaExceededError."""
        limits = self._access.fleet.quotas.limits(request.caller.project_id or "")
        check(limits, {}, {"metadata_items": len(metadata)})

    def _keypairs(self, request: ComputeRequest, name: str) -> list[dict[str, Any]]:
        try:
            return [self._access.fleet.keypairs.find(request.caller.user_id, name).payload()]
        except ResourceNotFoundError as error:
            raise BadRequestError("Invalid key_name provided.") from error

    def _new_flavor(self, request: ComputeRequest, server: FoundServer, flavor_id: str) -> Flavor:
        """Raises BadRequestError."""
        caller, fleet, record = request.caller, self._access.fleet, server.row.record
        try:
            flavor = fleet.flavors.find(flavor_id, project_id=caller.project_id, is_admin=caller.is_admin)
        except ResourceNotFoundError as error:
            raise BadRequestError(f"Flavor {flavor_id} could not be found.") from error
        if flavor.disabled:
            raise BadRequestError("Unable to resize to a disabled flavor.")
        if flavor.flavorid == record["flavor_id"]:
            raise BadRequestError("When resizing, instances must change flavor!")
        return flavor

    async def _nodes(self, server: FoundServer) -> list[ComputeNode]:
        return list(await self._access.ask_cell(server.cell, lambda: self._access.native.nodes(server.cell).nodes()))

    def _check_host_is_up(self, server: FoundServer) -> None:
        """Raises ConflictError: a guest cannot be moved off a host that does not answer, only evacuated."""
        host = server.row.record["host"]
        services = self._access.native.nodes(server.cell).services()
        if any(service.host == host and not service.is_up for service in services):
            raise ConflictError(f"Service is unavailable at this time: the host of server {server.uuid} is down.")

    async def _require_host(self, server: FoundServer, host: str) -> None:
        if not any(node.service.host == host for node in await self._nodes(server)):
            raise BadRequestError(f"Compute host {host} could not be found.")

    async def _require_other_host(self, server: FoundServer, host: str) -> None:
        await self._require_host(server, host)
        if server.row.record["host"] == host:
            raise BadRequestError(f"Server {server.uuid} is on host {host} already.")

    async def _require_zone(self, server: FoundServer, zone: str | None) -> None:
        if server.row.record["vm_state"] != "shelved_offloaded":
            raise ConflictError("A zone can be given only for a server that is shelved and offloaded.")
        if zone is not None and not any(
            node.service.availability_zone == zone and node.is_available for node in await self._nodes(server)
        ):
            raise BadRequestError("The requested availability zone is not available")


def _rule(name: str) -> str:
    return f"os_compute_api:{name}"


def _order(
    request: ComputeRequest,
    action: str,
    *,
    values: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Order:
    return Order(action, values or {}, parameters or {}, request.origin, request.caller.is_admin)


def _rebuilt_values(content: bodies.RebuildBody) -> dict[str, Any]:
    """The fields of the record that a rebuild sets: those that were given."""
    names = {
        "image_ref": "image_ref",
        "name": "display_name",
        "description": "display_description",
        "metadata": "metadata",
        "access_ip_v4": "access_ip_v4",
        "access_ip_v6": "access_ip_v6",
        "key_name": "key_name",
        "user_data": "user_data",
        "trusted_image_certificates": "trusted_image_certificates",
        "hostname": "hostname",
    }
    given = content.model_dump(exclude_unset=True)
    values = {record_name: given[name] for name, record_name in names.items() if name in given}
    if "disk_config" in given:
        values["auto_disk_config"] = given["disk_config"] == "AUTO"
    return values


def _unsupported_keys() -> dict[str, _Key]:
    """What a native cell cannot do: its hosts have no consoles, and the fleet no image and no network service."""
    output, console = _rule("os-console-output"), _rule("os-remote-consoles")
    no_console = _unsupported("The hosts of this cell have no consoles.")
    no_images = _unsupported("This fleet has no image service.")
    no_networks = _unsupported("This fleet has no network service.")
    keys = {
        "os-getConsoleOutput": _Key(output, no_console, bodies.CONSOLE_OUTPUT),
        "os-getVNCConsole": _Key(console, no_console, bodies.VNC_CONSOLE, until=5),
        "os-getSPICEConsole": _Key(console, no_console, bodies.SPICE_CONSOLE, until=5),
        "os-getSerialConsole": _Key(console, no_console, bodies.SERIAL_CONSOLE, until=5),
        "createImage": _Key(_rule("servers:create_image"), no_images, bodies.CREATE_IMAGE),
        "createBackup": _Key(_rule("os-create-backup"), no_images, bodies.CREATE_BACKUP),
    }
    for name in ("addFloatingIp", "removeFloatingIp", "addFixedIp", "removeFixedIp"):
        keys[name] = _Key(_rule("os-attach-interfaces:create"), no_networks, until=43)
    return keys


def _unsupported(reason: str) -> _Act:
    async def act(_request: ComputeRequest, _server: FoundServer, _content: object) -> Response:
        raise NotSupportedError(reason)

    return act


async def _nothing_to_do(_request: ComputeRequest, _server: FoundServer, _content: object) -> Response:
    """Simulated guests know their network."""
    return empty_answer(202)
