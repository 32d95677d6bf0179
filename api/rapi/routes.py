"""The routes of Ganeti's remote API: of the fleet below `/2`, and of each cell below `/cells/{cell}/2`."""

from collections.abc import Sequence

from starlette.routing import Route

from fleetlight.api.http.methods import METHODS
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.whole_results import WholeResults
from fleetlight.api.rapi.access import RapiAccess
from fleetlight.api.rapi.endpoint import RapiEndpoint, Resource
from fleetlight.api.rapi.items import RapiItems
from fleetlight.api.rapi.jobs import SeenJobs
from fleetlight.api.rapi.resources import RapiResources
from fleetlight.api.rapi.users import RapiUsers
from fleetlight.api.services import Services


def routes(services: Services, query_engine: QueryEngine, changes: Sequence[Resource]) -> Sequence[Route]:
    """Make the routes. changes: resources for changes."""
    parts, access, writes = services.parts, services.access, services.writes
    resources = RapiResources(RapiItems(WholeResults(query_engine)), parts.cells, SeenJobs(access, writes))
    below = [*resources.table(), *changes]
    users = None if parts.rapi_users_file is None else RapiUsers(parts.rapi_users_file)
    rapi_access = RapiAccess(parts.identity, users, services.limits.rapi_logins)

    def route(path: str, known: Sequence[Resource]) -> Route:
        endpoint = RapiEndpoint(known, rapi_access, parts.cells, writes, services.admission)
        return Route(path, endpoint.answer, methods=METHODS)

    return [
        route("/version", resources.beside()),
        route("/2{path:path}", below),
        route("/cells/{cell}/2{path:path}", below),
    ]
