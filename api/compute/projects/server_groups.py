"""Server groups: `/os-server-groups` (contracts/nova-rest, 4.7)."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from fleetlight.api.bodies.body_types import Name, PositiveCount
from fleetlight.api.bodies.request_body import Body, IfGiven, RequestModel
from fleetlight.api.bodies.versioned_models import Since, Until
from fleetlight.api.compute.protocol.paging import whole_number
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, ForbiddenError
from fleetlight.api.http.query_string import list_parameters
from fleetlight.api.http.shapes import INTEGER, TEXT, Key, ListOf, MapOf, Shape, optional, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.fan_out.quota_usage import project_lock
from fleetlight.cells.fleet.compute.quotas import check
from fleetlight.cells.fleet.compute.server_groups import ServerGroup

_OWNERS_SINCE = 13
_ONE_POLICY_SINCE = 64
_ANTI_AFFINITY = "anti-affinity"
_PARAMETERS = list_parameters({"all_projects": 1, "limit": 1, "offset": 1})


_GROUP = Shape(
    {
        "id": TEXT,
        "name": TEXT,
        "members": ListOf(TEXT),
        "policies": Key(ListOf(TEXT), until=_ONE_POLICY_SINCE - 1),
        "metadata": Key(MapOf(TEXT), until=_ONE_POLICY_SINCE - 1),
        "project_id": Key(TEXT, since=_OWNERS_SINCE),
        "user_id": Key(TEXT, since=_OWNERS_SINCE),
        "policy": Key(TEXT, since=_ONE_POLICY_SINCE),
        "rules": Key(Shape({"max_server_per_host": optional(INTEGER)}), since=_ONE_POLICY_SINCE),
    }
)
_ONE = Shape({"server_group": _GROUP})
_OldPolicy = Literal["affinity", "anti-affinity"]
_Policy = Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]
_ONE_ITEM = Field(min_length=1, max_length=1)


class _Rules(RequestModel):
    max_server_per_host: IfGiven[PositiveCount] = None


class _NewGroup(RequestModel):
    """A new group. policies: exactly one, in microversions before `policy`."""

    name: Name
    policies: Annotated[
        list[str],
        Since(1, Annotated[list[_OldPolicy], _ONE_ITEM], is_required=True),
        Since(15, Annotated[list[_Policy], _ONE_ITEM], is_required=True),
        Until(_ONE_POLICY_SINCE - 1),
    ] = Field(default=[])
    policy: Annotated[str, Since(_ONE_POLICY_SINCE, _Policy, is_required=True)] = ""
    rules: Annotated[_Rules, Since(_ONE_POLICY_SINCE)] = _Rules()


_CREATE = Body(_NewGroup, "server_group")


class ServerGroupHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._groups = access.fleet.server_groups

    def routes(self) -> list[ApiRoute]:
        many, one = "/os-server-groups", "/os-server-groups/{group_id}"
        return [
            ApiRoute(
                "GET", many, self.index, query=_PARAMETERS, errors=(400, 403), answer=page("server_groups", _GROUP)
            ),
            ApiRoute("GET", one, self.show, errors=(403, 404), answer=_ONE),
            ApiRoute("POST", many, self.create, body=_CREATE, errors=(403,), answer=_ONE),
            ApiRoute("DELETE", one, self.delete, success=(204,), errors=(403, 404)),
        ]

    async def index(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-server-groups:index")
        project_id = request.caller.project_id or ""
        # As in Nova, callers that are no administrators get their own groups instead of an error.
        wants_all = "all_projects" in request.query and request.caller.is_admin
        limit = min(whole_number(request, "limit", self._access.max_limit), self._access.max_limit)
        offset = whole_number(request, "offset", 0)
        page = partial(self._groups.page, None if wants_all else project_id, limit=limit, offset=offset)
        return json_answer({"server_groups": [_item(request, group) for group in await self._access.ask(page)]})

    async def show(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-server-groups:show")
        find = partial(self._groups.find, request.http.path_params["group_id"], project_id=_scope(request))
        return json_answer({"server_group": _item(request, await self._access.ask(find))})

    async def create(self, request: ApiRequest) -> Response:
        wanted = await _CREATE.read(request)
        request.authorize("os_compute_api:os-server-groups:create")
        policy, limit = _policy(wanted)
        group = await self._access.ask(partial(self._add, request, wanted.name, policy, limit))
        return json_answer({"server_group": _item(request, group)})

    async def delete(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-server-groups:delete")
        group_id = request.http.path_params["group_id"]
        await self._access.ask(partial(self._groups.delete, group_id, project_id=_scope(request)))
        return empty_answer(204)

    def _add(self, request: ApiRequest, name: str, policy: str, limit: int | None) -> ServerGroup:
        caller, quotas = request.caller, self._access.fleet.quotas
        if caller.project_id is None:
            raise ForbiddenError("os_compute_api:os-server-groups:create")
        with self._access.fleet.lock(project_lock(caller.project_id)):
            check(quotas.limits(caller.project_id), quotas.counts(caller.project_id), {"server_groups": 1})
            return self._groups.create(
                name,
                policy,
                project_id=caller.project_id,
                user_id=caller.user_id,
                max_server_per_host=limit,
            )


def _policy(wanted: _NewGroup) -> tuple[str, int | None]:
    """Return the policy and the most members per host. Raises BadRequestError if they contradict each other."""
    if wanted.policies:
        return wanted.policies[0], None
    limit = wanted.rules.max_server_per_host
    if limit is not None and wanted.policy != _ANTI_AFFINITY:
        raise BadRequestError("Only anti-affinity policy supports rules.")
    return wanted.policy, limit


def _scope(request: ApiRequest) -> str | None:
    """Return the project whose groups the caller may find; None for all."""
    return None if request.caller.is_admin else request.caller.project_id or ""


def _item(request: ApiRequest, group: ServerGroup) -> dict[str, Any]:
    limit = group.max_server_per_host
    values = {
        "id": group.uuid,
        "name": group.name,
        "members": list(group.members),
        "policies": [group.policy],
        "metadata": {},
        "project_id": group.project_id,
        "user_id": group.user_id,
        "policy": group.policy,
        "rules": {} if limit is None else {"max_server_per_host": limit},
    }
    return _GROUP.of(request.minor, values)
