"""Quotas of projects, `/os-quota-sets`, and the defaults, `/os-quota-class-sets` (contracts/nova-rest, 4.4)."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from fleetlight.api.bodies.request_body import MAX_INTEGER, Body, BodyBool, BodyInteger, RequestModel
from fleetlight.api.bodies.versioned_models import Until
from fleetlight.api.compute.projects.quota_names import (
    CLASS_NETWORK_UNTIL,
    FILES_UNTIL,
    NETWORK,
    NETWORK_UNTIL,
    shape_of_limits,
    shown_limits,
)
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, NotSupportedError
from fleetlight.api.http.query_string import list_parameters
from fleetlight.api.http.shapes import INTEGER, TEXT, Shape
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.cells.fleet.compute.quotas import UNLIMITED

_PARAMETERS = list_parameters({"user_id": 1})
_LONGEST_NAME = 255
_LIMITS = shape_of_limits(INTEGER)
_SHOWN = _LIMITS.with_keys({"id": TEXT})
_USED = shape_of_limits(Shape({"limit": INTEGER, "in_use": INTEGER, "reserved": INTEGER})).with_keys({"id": TEXT})
_CLASS = shape_of_limits(INTEGER, classes=True)
_SHOWN_CLASS = _CLASS.with_keys({"id": TEXT})
_Limit = Annotated[BodyInteger, Field(ge=UNLIMITED, le=MAX_INTEGER)]
_FileLimit = Annotated[_Limit, Until(FILES_UNTIL)]
_NetworkLimit = Annotated[_Limit, Until(NETWORK_UNTIL)]
_ClassNetworkLimit = Annotated[_Limit, Until(CLASS_NETWORK_UNTIL)]


class _Limits(RequestModel):
    """Limits that an administrator may set. `given` ignores the values of absent fields."""

    instances: _Limit = UNLIMITED
    cores: _Limit = UNLIMITED
    ram: _Limit = UNLIMITED
    metadata_items: _Limit = UNLIMITED
    key_pairs: _Limit = UNLIMITED
    server_groups: _Limit = UNLIMITED
    server_group_members: _Limit = UNLIMITED
    injected_files: _FileLimit = UNLIMITED
    injected_file_content_bytes: _FileLimit = UNLIMITED
    injected_file_path_bytes: _FileLimit = UNLIMITED

    def given(self) -> dict[str, int]:
        """Return the given limits that are stored: all but those of the network service."""
        return self.model_dump(exclude={"force", *NETWORK}, exclude_unset=True)


class _Set(_Limits):
    floating_ips: _NetworkLimit = UNLIMITED
    fixed_ips: _NetworkLimit = UNLIMITED
    security_groups: _NetworkLimit = UNLIMITED
    security_group_rules: _NetworkLimit = UNLIMITED
    force: BodyBool = False


class _ClassSet(_Limits):
    floating_ips: _ClassNetworkLimit = UNLIMITED
    fixed_ips: _ClassNetworkLimit = UNLIMITED
    security_groups: _ClassNetworkLimit = UNLIMITED
    security_group_rules: _ClassNetworkLimit = UNLIMITED


_UPDATE = Body(_Set, "quota_set")
_UPDATE_CLASS = Body(_ClassSet, "quota_class_set")


class QuotaHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._quotas = access.fleet.quotas

    def routes(self) -> list[ApiRoute]:
        one, one_class = "/os-quota-sets/{quota_project}", "/os-quota-class-sets/{class_name}"
        return [
            ApiRoute("GET", one, self.show, query=_PARAMETERS, errors=(400, 403), answer=Shape({"quota_set": _SHOWN})),
            ApiRoute(
                "GET",
                one + "/defaults",
                self.defaults,
                errors=(400,),
                answer=Shape({"quota_set": _SHOWN}),
            ),
            ApiRoute(
                "GET",
                one + "/detail",
                self.detail,
                query=_PARAMETERS,
                errors=(400, 403),
                answer=Shape({"quota_set": _USED}),
                gives=(COMPLETE,),
            ),
            ApiRoute(
                "PUT",
                one,
                self.update,
                body=_UPDATE,
                query=_PARAMETERS,
                errors=(403, 501),
                answer=Shape({"quota_set": _LIMITS}),
            ),
            ApiRoute("DELETE", one, self.delete, query=_PARAMETERS, success=(202,), errors=(403, 501)),
            ApiRoute("GET", one_class, self.show_class, errors=(403,), answer=Shape({"quota_class_set": _SHOWN_CLASS})),
            ApiRoute(
                "PUT",
                one_class,
                self.update_class,
                body=_UPDATE_CLASS,
                errors=(403,),
                answer=Shape({"quota_class_set": _CLASS}),
            ),
        ]

    async def show(self, request: ApiRequest) -> Response:
        project_id = await self._readable_project(request, "show")
        limits = await self._access.ask(partial(self._quotas.limits, project_id))
        return json_answer({"quota_set": _SHOWN.of(request.minor, {"id": project_id, **shown_limits(limits)})})

    async def defaults(self, request: ApiRequest) -> Response:
        project_id = request.http.path_params["quota_project"]
        await self._access.check_project(request.caller, project_id)
        limits = await self._access.ask(self._quotas.defaults)
        return json_answer({"quota_set": _SHOWN.of(request.minor, {"id": project_id, **shown_limits(limits)})})

    async def detail(self, request: ApiRequest) -> Response:
        project_id = await self._readable_project(request, "detail")
        limits = await self._access.ask(partial(self._quotas.limits, project_id))
        used = await self._access.in_use(project_id)
        quota_set: dict[str, Any] = {"id": project_id}
        for resource, limit in shown_limits(limits).items():
            # As in Nova, key pairs belong to a user and are not counted for a project.
            amount = 0 if resource == "key_pairs" else used.amounts.get(resource, 0)
            quota_set[resource] = {"limit": limit, "in_use": amount, "reserved": 0}
        return json_answer({"quota_set": _USED.of(request.minor, quota_set)}, headers=used.headers)

    async def update(self, request: ApiRequest) -> Response:
        wanted = await _UPDATE.read(request)
        request.authorize("os_compute_api:os-quota-sets:update")
        _refuse_users(request)
        project_id = request.http.path_params["quota_project"]
        await self._access.check_project(request.caller, project_id)
        given = wanted.given()
        if not wanted.force:
            _refuse_below_use(given, (await self._access.in_use(project_id)).amounts)
        await self._access.ask(partial(self._quotas.set_limits, project_id, given))
        limits = await self._access.ask(partial(self._quotas.limits, project_id))
        return json_answer({"quota_set": _LIMITS.of(request.minor, shown_limits(limits))})

    async def delete(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-quota-sets:delete")
        _refuse_users(request)
        await self._access.ask(partial(self._quotas.reset, request.http.path_params["quota_project"]))
        return empty_answer(202)

    async def show_class(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-quota-class-sets:show")
        name = request.http.path_params["class_name"]
        limits = await self._access.ask(partial(self._quotas.of_class, name))
        return json_answer({"quota_class_set": _SHOWN_CLASS.of(request.minor, {"id": name, **shown_limits(limits)})})

    async def update_class(self, request: ApiRequest) -> Response:
        given = (await _UPDATE_CLASS.read(request)).given()
        request.authorize("os_compute_api:os-quota-class-sets:update")
        name = request.http.path_params["class_name"]
        if len(name) > _LONGEST_NAME:
            raise BadRequestError(f"The name of a quota class may have {_LONGEST_NAME} characters.")
        await self._access.ask(partial(self._quotas.set_class, name, given))
        limits = await self._access.ask(partial(self._quotas.of_class, name))
        return json_answer({"quota_class_set": _CLASS.of(request.minor, shown_limits(limits))})

    async def _readable_project(self, request: ApiRequest, action: str) -> str:
        """Return the project in the address.

        Raises ForbiddenError unless it is the caller's, or the caller may read others; BadRequestError if it does not
        exist.
        """
        project_id: str = request.http.path_params["quota_project"]
        rule = f"os_compute_api:os-quota-sets:{action}"
        request.authorize(rule)
        if project_id != request.caller.project_id:
            request.authorize("os_compute_api:os-quota-sets:update")
        await self._access.check_project(request.caller, project_id)
        return project_id


def _refuse_users(request: ApiRequest) -> None:
    if "user_id" in request.query:
        raise NotSupportedError("Quotas of single users are not supported; a quota is that of a project.")


def _refuse_below_use(limits: Mapping[str, int], used: Mapping[str, int]) -> None:
    for resource, limit in limits.items():
        if limit != UNLIMITED and limit < used.get(resource, 0):
            raise BadRequestError(
                f"Quota limit {limit} for {resource} must be greater than or equal to already used and reserved "
                f"{used[resource]}."
            )
