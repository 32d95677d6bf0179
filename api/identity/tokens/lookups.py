"""Looking up projects, users, roles and the catalog's parts (contracts/nova-rest, 5.4): read only.

Callers see themselves and their projects, administrators see all. What a caller may not see and what is not there get
the same 403, so that no caller can find out which of the two it is.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from starlette.datastructures import QueryParams
from starlette.responses import Response

from fleetlight.api.caller import ROLES
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import IdentityNotFoundError
from fleetlight.api.identity.tokens.catalog import SERVICES, endpoints
from fleetlight.api.identity.tokens.directory import DOMAIN_ID
from fleetlight.api.identity.tokens.middleware import IdentityRequest
from fleetlight.api.identity.tokens.views import role_id

_FALSE_WORDS = frozenset({"0", "false", "no", "off"})


class Lookups:
    """region: the one that the catalog names."""

    def __init__(self, region: str) -> None:
        self._region = region

    async def projects(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:list_projects")
        return _list(request, "projects", map(request.views.project, request.directory.projects.values()))

    async def project(self, request: IdentityRequest) -> Response:
        wanted = request.http.path_params["project_id"]
        if wanted != request.caller.project_id:
            request.require_admin("identity:get_project")
        return _show("project", wanted, map(request.views.project, request.directory.projects.values()))

    async def users(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:list_users")
        return _list(request, "users", map(request.views.user, request.directory.users.values()))

    async def user(self, request: IdentityRequest) -> Response:
        wanted = request.http.path_params["user_id"]
        request.require_user(wanted, "identity:get_user")
        return _show("user", wanted, map(request.views.user, request.directory.users.values()))

    async def projects_of_user(self, request: IdentityRequest) -> Response:
        wanted = request.http.path_params["user_id"]
        request.require_user(wanted, "identity:list_user_projects")
        directory = request.directory
        user = directory.users.get(wanted)
        if user is None:
            raise IdentityNotFoundError("user", wanted)
        own = (each for each in directory.projects.values() if directory.roles_of(user, each))
        return _list(request, "projects", map(request.views.project, own))

    async def domains(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:list_domains")
        return _list(request, "domains", [request.views.domain()])

    async def domain(self, request: IdentityRequest) -> Response:
        wanted = request.http.path_params["domain_id"]
        if wanted != DOMAIN_ID:
            request.require_admin("identity:get_domain")
        return _show("domain", wanted, [request.views.domain()])

    async def roles(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:list_roles")
        return _list(request, "roles", map(request.views.role, ROLES))

    async def role(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:get_role")
        return _show("role", request.http.path_params["role_id"], map(request.views.role, ROLES))

    async def role_assignments(self, request: IdentityRequest) -> Response:
        """Roles as they were given; with `effective`, those that they imply as well."""
        request.require_admin("identity:list_role_assignments")
        query, directory = request.http.query_params, request.directory
        wanted_user, wanted_project = query.get("user.id"), query.get("scope.project.id")
        wanted_role = query.get("role.id")
        if {"group.id", "scope.domain.id", "scope.system"} & set(query):
            return _list(request, "role_assignments", [])
        assignments = []
        for user in directory.users.values():
            for project_id, given in user.roles.items():
                project = directory.projects.get(project_id)
                if project is None or wanted_user not in {None, user.id} or wanted_project not in {None, project_id}:
                    continue
                names = directory.roles_of(user, project) if _is_set(query, "effective") else given
                assignments += [
                    request.views.assignment(user, project, name, with_names=_is_set(query, "include_names"))
                    for name in ROLES
                    if name in names and wanted_role in {None, role_id(name)}
                ]
        return json_answer(_collection(request, "role_assignments", assignments))

    async def services(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:list_services")
        return _list(request, "services", map(_service, SERVICES))

    async def service(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:get_service")
        return _show("service", request.http.path_params["service_id"], map(_service, SERVICES))

    async def endpoints(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:list_endpoints")
        return _list(request, "endpoints", endpoints(request.root, self._region))

    async def endpoint(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:get_endpoint")
        return _show("endpoint", request.http.path_params["endpoint_id"], endpoints(request.root, self._region))

    async def regions(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:list_regions")
        return _list(request, "regions", [self._only_region()])

    async def region(self, request: IdentityRequest) -> Response:
        request.require_admin("identity:get_region")
        return _show("region", request.http.path_params["region_id"], [self._only_region()])

    def _only_region(self) -> dict[str, Any]:
        return {"id": self._region, "description": "", "parent_region_id": None}


def _service(service: Any) -> dict[str, Any]:
    return {"id": service.id, "type": service.type, "name": service.name, "description": "", "enabled": True}


def _list(request: IdentityRequest, plural: str, items: Iterable[dict[str, Any]]) -> Response:
    """The items whose members equal what the query asks for; a parameter that names no member says nothing."""
    query = request.http.query_params
    kept = [item for item in items if all(_equals(item[name], query[name]) for name in query if name in item)]
    return json_answer(_collection(request, plural, kept))


def _collection(request: IdentityRequest, plural: str, items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    address = f"{request.root}{request.http.url.path}"
    return {plural: items, "links": {"self": address, "previous": None, "next": None}}


def _show(singular: str, wanted: str, items: Iterable[dict[str, Any]]) -> Response:
    """By id alone: clients try a name here first, and look for it in the list when it is not found."""
    found = next((item for item in items if item["id"] == wanted), None)
    if found is None:
        raise IdentityNotFoundError(singular, wanted)
    return json_answer({singular: found})


def _equals(value: object, asked: str) -> bool:
    if isinstance(value, bool):
        return value is (asked.strip().lower() not in _FALSE_WORDS)
    return value == asked


def _is_set(query: QueryParams, name: str) -> bool:
    return name in query and query[name].strip().lower() not in _FALSE_WORDS
