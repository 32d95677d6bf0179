"""Projects that may use a private flavor: `/flavors/{id}/os-flavor-access`, `/action` (contracts/nova-rest, 4.1)."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from fleetlight.api.bodies.request_body import ActionModel, Body, IfGiven, RequestModel
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import NotFoundError
from fleetlight.api.http.shapes import TEXT, Shape, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess


class _Tenant(RequestModel):
    tenant: Annotated[str, Field(min_length=1, max_length=255)]


class _Action(ActionModel):
    addTenantAccess: IfGiven[_Tenant] = None  # noqa: N815 -- Nova's spelling
    removeTenantAccess: IfGiven[_Tenant] = None  # noqa: N815


_ACTION = Body(_Action)
_ANSWER = page("flavor_access", Shape({"flavor_id": TEXT, "tenant_id": TEXT}))


class FlavorAccessHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._flavors = access.fleet.flavors

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute("GET", "/flavors/{flavor_id}/os-flavor-access", self.index, errors=(403, 404), answer=_ANSWER),
            ApiRoute(
                "POST", "/flavors/{flavor_id}/action", self.act, body=_ACTION, errors=(403, 404, 409), answer=_ANSWER
            ),
        ]

    async def index(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-flavor-access")
        flavor_id = request.http.path_params["flavor_id"]
        flavor = await self._access.ask(partial(self._flavors.find, flavor_id, is_admin=True))
        if flavor.is_public:
            raise NotFoundError("Access list not available for public flavors.")
        return _answer(flavor_id, await self._access.ask(partial(self._flavors.projects, flavor_id)))

    async def act(self, request: ApiRequest) -> Response:
        action = await _ACTION.read(request)
        flavor_id = request.http.path_params["flavor_id"]
        match action:
            case _Action(addTenantAccess=_Tenant(tenant=tenant)):
                request.authorize("os_compute_api:os-flavor-access:add_tenant_access")
                change = partial(self._flavors.add_access, flavor_id, tenant)
            case _Action(removeTenantAccess=_Tenant(tenant=tenant)):
                request.authorize("os_compute_api:os-flavor-access:remove_tenant_access")
                change = partial(self._flavors.remove_access, flavor_id, tenant)
            case _:
                raise AssertionError(action)
        return _answer(flavor_id, await self._access.ask(change))


def _answer(flavor_id: str, projects: Sequence[str]) -> Response:
    return json_answer(
        {"flavor_access": [{"flavor_id": flavor_id, "tenant_id": project_id} for project_id in projects]}
    )
