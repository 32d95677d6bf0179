"""`POST /servers/{id}/action` (contracts/nova-rest, 2.3): the keys, and the action of each.

Actions that need another host or flavor are in `moves`, and the rebuild is in `rebuild`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any

from pydantic import BaseModel, RootModel, SecretStr, create_model
from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body, RequestModel, read_json
from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.compute.server_lists.shape import ADMIN_PASSWORD
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import (
    BadRequestError,
    GoneError,
    NotFoundError,
    NotInMicroversionError,
    NotSupportedError,
)
from fleetlight.api.http.shapes import OneOf, Shape
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import TOKEN
from fleetlight.cells.fan_out.quota_usage import check_restored_instance, project_lock
from fleetlight.cells.model import InstanceRow
from fleetlight.manager.faces.servers import action_bodies as bodies
from fleetlight.manager.faces.servers.create import given_or_new
from fleetlight.manager.faces.servers.lookup import FoundServer, find_server
from fleetlight.manager.faces.servers.moves import MoveActions
from fleetlight.manager.faces.servers.orders import accept, change, order_of, require_ready, rule
from fleetlight.manager.faces.servers.rebuild import REBUILT_SERVER, RebuildAction
from fleetlight.resources.fields import Record

_Act = Callable[[ApiRequest, FoundServer, Any], Awaitable[Response]]
_LATEST = 1000


@dataclass(frozen=True, slots=True)
class _Key:
    """One key. rule: the short name of its policy. body: its form; None for any value.

    since, until: first and last microversion 2.N with it. is_gone: removed at every microversion.
    """

    rule: str
    act: _Act
    body: Body[Any] | None = None
    since: int = 1
    until: int = _LATEST
    is_gone: bool = False


class _AnyAction(Body[Any]):
    """The union of all keys' bodies, for the OpenAPI document; requests are read by the model of their key."""

    def __init__(self, keys: Mapping[str, _Key]) -> None:
        super().__init__(RequestModel)
        self._keys = keys
        self._made: dict[int, type[BaseModel]] = {}

    def model(self, minor: int) -> type[BaseModel]:
        if minor not in self._made:
            bodies = [
                key.body or Body(Any, name) for name, key in self._keys.items() if key.since <= minor <= key.until
            ]
            union: Any = reduce(or_, [body.model(minor) for body in bodies])
            self._made[minor] = create_model("Action", __base__=RootModel, root=(union, ...))
        return self._made[minor]


class ServerActionHandlers:
    def __init__(self, access: FleetAccess, host_statuses: HostStatusCache) -> None:
        self._access = access
        self._moves = MoveActions(access)
        self._rebuilds = RebuildAction(access, host_statuses)
        self._keys = self._all_keys()

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(
                "POST",
                "/servers/{server_id}/action",
                self.act,
                body=_AnyAction(self._keys),
                success=(200, 202, 204),
                errors=(400, 403, 404, 409, 410, 413, 501),
                answer=OneOf((ADMIN_PASSWORD, Shape({"server": REBUILT_SERVER}))),
                gives=(TOKEN,),
            )
        ]

    async def act(self, request: ApiRequest) -> Response:
        """Carry out an action. Raises BadRequestError, GoneError, NotInMicroversionError."""
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
            content = key.body.check(document, request.minor, is_relaxed=request.is_relaxed)
        server = await find_server(self._access, request)
        request.authorize(rule(key.rule))
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
            "shelve": "os-shelve:shelve",
            "shelveOffload": "os-shelve:shelve_offload",
            "forceDelete": "os-deferred-delete:force",
        }
        keys = {name: _Key(policy, partial(self._plain, name, 202)) for name, policy in plain.items()}
        keys["confirmResize"] = _Key("servers:confirm_resize", partial(self._plain, "confirmResize", 204))
        keys["trigger_crash_dump"] = _Key(
            "servers:trigger_crash_dump",
            partial(self._plain, "trigger_crash_dump", 202),
            bodies.CRASH_DUMP,
            since=17,
        )
        keys["changePassword"] = _Key(
            "os-admin-password", partial(self._plain, "changePassword", 202), bodies.CHANGE_PASSWORD
        )
        keys |= {
            "reboot": _Key("servers:reboot", self._reboot, bodies.REBOOT),
            "lock": _Key("os-lock-server:lock", self._lock, bodies.LOCK),
            "unlock": _Key("os-lock-server:unlock", self._unlock),
            "restore": _Key("os-deferred-delete:restore", self._restore),
            "rescue": _Key("os-rescue", self._rescue, bodies.RESCUE),
            "rebuild": _Key("servers:rebuild", self._rebuilds.rebuild, bodies.REBUILD),
            "resize": _Key("servers:resize", self._moves.resize, bodies.RESIZE),
            "revertResize": _Key("servers:revert_resize", self._moves.revert_resize),
            "migrate": _Key("os-migrate-server:migrate", self._moves.migrate, bodies.MIGRATE),
            "os-migrateLive": _Key("os-migrate-server:migrate_live", self._moves.live_migrate, bodies.LIVE_MIGRATION),
            "evacuate": _Key("os-evacuate", self._moves.evacuate, bodies.EVACUATE),
            "unshelve": _Key("os-shelve:unshelve", self._moves.unshelve, bodies.UNSHELVE),
            "os-resetState": _Key("os-admin-actions:reset_state", self._reset_state, bodies.RESET_STATE),
            "injectNetworkInfo": _Key("os-admin-actions:inject_network_info", _nothing_to_do),
            "addSecurityGroup": _Key("os-security-groups:add", self._add_security_group, bodies.ADD_SECURITY_GROUP),
            "removeSecurityGroup": _Key(
                "os-security-groups:remove", self._remove_security_group, bodies.REMOVE_SECURITY_GROUP
            ),
            "resetNetwork": _Key("os-admin-actions:reset_state", _nothing_to_do, is_gone=True),
        }
        return keys | _unsupported_keys()

    async def _plain(
        self, name: str, status: int, request: ApiRequest, server: FoundServer, _content: object
    ) -> Response:
        await accept(self._access, request, server, order_of(request, name))
        return empty_answer(status)

    async def _reboot(self, request: ApiRequest, server: FoundServer, content: bodies.RebootBody) -> Response:
        await accept(self._access, request, server, order_of(request, f"reboot {content.type.upper()}"))
        return empty_answer(202)

    async def _lock(self, request: ApiRequest, server: FoundServer, content: object) -> Response:
        reason = (content.locked_reason or None) if isinstance(content, bodies.LockBody) else None
        is_owner = server.row.record["project_id"] == request.caller.project_id
        await change(
            self._access,
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

    async def _unlock(self, request: ApiRequest, server: FoundServer, _content: object) -> Response:
        def check(record: Record) -> None:
            if record["locked_by"] == "admin":
                request.authorize(rule("os-lock-server:unlock:unlock_override"))

        unlock = partial(server.acceptance.unlock, server.uuid, request=request.origin, check=check)
        await change(self._access, request, server, unlock)
        return empty_answer(202)

    async def _rescue(self, request: ApiRequest, server: FoundServer, content: bodies.RescueBody | None) -> Response:
        require_ready(request, server, "rescue")
        if content is not None and content.rescue_image_ref:
            self._access.check_image(content.rescue_image_ref)
        await accept(self._access, request, server, order_of(request, "rescue"))
        password = given_or_new(content.admin_pass if content else SecretStr(""))
        return json_answer({"adminPass": password})

    async def _restore(self, request: ApiRequest, server: FoundServer, _content: object) -> Response:
        require_ready(request, server, "restore")
        await change(self._access, request, server, partial(self._accept_restore, request, server))
        return empty_answer(202)

    def _accept_restore(self, request: ApiRequest, server: FoundServer) -> InstanceRow:
        """Accept a restore. Raises QuotaExceededError, since soft-deleted servers do not count against the quota."""
        fleet, record = self._access.fleet, server.row.record
        project_id = str(record["project_id"])
        with fleet.lock(project_lock(project_id)):
            check_restored_instance(fleet, self._access.native, project_id, record["flavor"])
            return server.acceptance.accept(server.uuid, order_of(request, "restore"))

    async def _reset_state(self, request: ApiRequest, server: FoundServer, content: bodies.ResetStateBody) -> Response:
        reset = partial(server.acceptance.reset_state, server.uuid, content.state, request=request.origin)
        await change(self._access, request, server, reset)
        return empty_answer(202)

    async def _add_security_group(
        self, request: ApiRequest, server: FoundServer, content: bodies.SecurityGroupBody
    ) -> Response:
        return await self._revise_security_groups(request, server, lambda groups: groups | {content.name})

    async def _remove_security_group(
        self, request: ApiRequest, server: FoundServer, content: bodies.SecurityGroupBody
    ) -> Response:
        def without(groups: set[str]) -> set[str]:
            if content.name not in groups:
                raise NotFoundError(f"Security group {content.name} is not one of server {server.uuid}.")
            return groups - {content.name}

        return await self._revise_security_groups(request, server, without)

    async def _revise_security_groups(
        self, request: ApiRequest, server: FoundServer, revised: Callable[[set[str]], set[str]]
    ) -> Response:
        def decide(record: Record) -> Mapping[str, Any]:
            return {"security_groups": sorted(revised(set(record["security_groups"] or ())))}

        await change(
            self._access, request, server, partial(server.acceptance.revise, server.uuid, decide, request.origin)
        )
        return empty_answer(202)


def _unsupported_keys() -> dict[str, _Key]:
    """Make the keys that native cells do not support: hosts have no consoles, the fleet no image or network service."""
    output, console = "os-console-output", "os-remote-consoles"
    no_console = _unsupported("The hosts of this cell have no consoles.")
    no_images = _unsupported("No image can be made of a server of this cell.")
    no_networks = _unsupported("This fleet has no network service.")
    keys = {
        "os-getConsoleOutput": _Key(output, no_console, bodies.CONSOLE_OUTPUT),
        "os-getVNCConsole": _Key(console, no_console, bodies.VNC_CONSOLE, until=5),
        "os-getSPICEConsole": _Key(console, no_console, bodies.SPICE_CONSOLE, until=5),
        "os-getSerialConsole": _Key(console, no_console, bodies.SERIAL_CONSOLE, until=5),
        "os-getRDPConsole": _Key(console, _no_such_console, until=5),
        "createImage": _Key("servers:create_image", no_images, bodies.CREATE_IMAGE),
        "createBackup": _Key("os-create-backup", no_images, bodies.CREATE_BACKUP),
    }
    for name, body in bodies.ADDRESSES.items():
        keys[name] = _Key("os-attach-interfaces:create", no_networks, body, until=43)
    return keys


def _unsupported(reason: str) -> _Act:
    async def act(_request: ApiRequest, _server: FoundServer, _content: object) -> Response:
        raise NotSupportedError(reason)

    return act


async def _no_such_console(_request: ApiRequest, _server: FoundServer, _content: object) -> Response:
    raise BadRequestError("Unavailable console type rdp.")


async def _nothing_to_do(_request: ApiRequest, _server: FoundServer, _content: object) -> Response:
    """Do nothing, since simulated guests need no network information."""
    return empty_answer(202)
