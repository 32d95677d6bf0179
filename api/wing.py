"""What wings (fleetlight.resources.wings) bring to an application."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from starlette.routing import Route

from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.rapi.endpoint import Resource
from fleetlight.api.services import Services
from fleetlight.resources.wings import wings


@dataclass(frozen=True, slots=True)
class Faces:
    """routes: of addresses of their own. compute: of the compute API. rapi: of Ganeti's remote API.

    end: waits until what they have begun has stopped.
    """

    routes: Sequence[Route]
    compute: Sequence[ApiRoute]
    rapi: Sequence[Resource]
    end: Callable[[], Awaitable[None]]


def faces_of_wings(services: Services, query_engine: QueryEngine, host_statuses: HostStatusCache) -> Sequence[Faces]:
    """Those of each wing that is installed."""
    return [import_module(wing.faces).faces(services, query_engine, host_statuses) for wing in wings()]
