"""Read-only lookups of projects, users, roles and parts of the catalog (contracts/nova-rest, 5.4).

Callers see themselves and their projects, administrators see all. Objects that do not exist, and those that the caller
may not see, get the same 403.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams
from starlette.responses import Response

from fleetlight.api.caller import ROLES, Caller
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import IdentityNotFoundError
from fleetlight.api.http.shapes import Shape
from fleetlight.api.identity.tokens import shapes
from fleetlight.api.identity.tokens.catalog import SERVICES, endpoints
from fleetlight.api.identity.tokens.directory import DOMAIN_ID
from fleetlight.api.identity.tokens.middleware import Handler, IdentityRequest
from fleetlight.api.identity.tokens.views import role_id

_FALSE_WORDS = frozenset({"0", "false", "no", "off"})
_OF_ASSIGNMENTS = ("user.id", "scope.project.id", "role.id", "effective", "include_names")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type of objects that administrators list at `/{singular}s` and show at `/{singular}s/{id}`.

    items: all objects. query: members by which a list can be filtered.
    own: the id of the object that other callers may see.
    """

    singular: str
    shape: Shape
    query: tuple[str, ...]
    items: Callable[[IdentityRequest], Iterable[dict[str, Any]]]
    own: Callable[[Caller], str | None] = lambda _: None

    async def list(self, request: IdentityRequest) -> Response:
        request.require_admin(f"identity:list_{self.singular}s")
        return _list(request, f"{self.singular}s", self.items(request))

    async def show(self, request: IdentityRequest) -> Response:
        """Show an object, by id only: clients that have a name try it here first, and then search the list.

        Raises IdentityNotFoundError.
        """
        wanted = request.http.path_params[f"{self.singular}_id"]
        if wanted != self.own(request.caller):
            request.require_admin(f"identity:get_{self.singular}")
        found = next((item for item in self.items(request) if item["id"] == wanted), None)
        if found is None:
            raise IdentityNotFoundError(self.singular, wanted)
        return json_answer({self.singular: found})


def lookups(base: str, region: str) -> Iterator[tuple[ApiOperation, Handler]]:
    """Yield the operations below the address `base`. region: its name in the catalog."""
    kinds = (
        _Kind("project", shapes.PROJECT, ("name", "domain_id", "enabled"), _projects, lambda caller: caller.project_id),
        _Kind("user", shapes.USER, ("name", "domain_id", "enabled"), _users, lambda caller: caller.user_id),
        _Kind(
            "domain", shapes.DOMAIN, ("name", "enabled"), lambda request: [request.views.domain()], lambda _: DOMAIN_ID
        ),
        _Kind("role", shapes.ROLE, ("name",), lambda request: map(request.views.role, ROLES)),
        _Kind("service", shapes.SERVICE, ("type", "name"), _services),
        _Kind(
            *("endpoint", shapes.ENDPOINT, ("service_id", "interface", "region_id")),
            lambda request: endpoints(request.root, region),
        ),
        _Kind("region", shapes.REGION, (), lambda _: [{"id": region, "description": "", "parent_region_id": None}]),
    )
    for kind in kinds:
        many = f"{base}/{kind.singular}s"
        yield ApiOperation("GET", many, shapes.collection(f"{kind.singular}s", kind.shape), query=kind.query), kind.list
        yield ApiOperation("GET", f"{many}/{{{kind.singular}_id}}", Shape({kind.singular: kind.shape})), kind.show
    projects = shapes.collection("projects", shapes.PROJECT)
    yield ApiOperation("GET", f"{base}/users/{{user_id}}/projects", projects), _projects_of_user
    assignments = shapes.collection("role_assignments", shapes.ASSIGNMENT)
    yield ApiOperation("GET", f"{base}/role_assignments", assignments, query=_OF_ASSIGNMENTS), _role_assignments


def _projects(request: IdentityRequest) -> Iterable[dict[str, Any]]:
    return map(request.views.project, request.directory.projects.values())


def _services(_request: IdentityRequest) -> Iterable[dict[str, Any]]:
    return (
        {"id": each.id, "type": each.type, "name": each.name, "description": "", "enabled": True} for each in SERVICES
    )


def _users(request: IdentityRequest) -> Iterable[dict[str, Any]]:
    return map(request.views.user, request.directory.users.values())


async def _projects_of_user(request: IdentityRequest) -> Response:
    wanted = request.http.path_params["user_id"]
    request.require_user(wanted, "identity:list_user_projects")
    directory = request.directory
    user = directory.users.get(wanted)
    if user is None:
        raise IdentityNotFoundError("user", wanted)
    own = (each for each in directory.projects.values() if directory.roles_of(user, each))
    return _list(request, "projects", map(request.views.project, own))


async def _role_assignments(request: IdentityRequest) -> Response:
    """List roles as assigned; with `effective`, also implied ones."""
    request.require_admin("identity:list_role_assignments")
    query, directory = request.http.query_params, request.directory
    wanted_user, wanted_project = query.get("user.id"), query.get("scope.project.id")
    wanted_role = query.get("role.id")
    if {"group.id", "scope.domain.id", "scope.system"} & set(query):
        return request.listed("role_assignments", [])
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
    return request.listed("role_assignments", assignments)


def _list(request: IdentityRequest, plural: str, items: Iterable[dict[str, Any]]) -> Response:
    """List the items whose members equal the parameters; parameters that are no member are ignored."""
    query = request.http.query_params
    kept = [item for item in items if all(_equals(item[name], query[name]) for name in query if name in item)]
    return request.listed(plural, kept)


def _equals(value: object, asked: str) -> bool:
    if isinstance(value, bool):
        return value is (asked.strip().lower() not in _FALSE_WORDS)
    return value == asked


def _is_set(query: QueryParams, name: str) -> bool:
    return name in query and query[name].strip().lower() not in _FALSE_WORDS
