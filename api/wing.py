"""The interface of wings (fleetlight.resources.wings) to an application."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.routing import Route

from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.live import Observe
from fleetlight.api.rapi.endpoint import Resource
from fleetlight.api.services import Services
from fleetlight.api.shared.fleet_access import Agents
from fleetlight.cells.settings import NodesSettings
from fleetlight.resources.wings import wings


@dataclass(frozen=True, slots=True)
class Faces:
    """The faces of a wing. routes: at addresses of their own. compute: of the compute API. rapi: of the remote API.

    end: stops the tasks that they have begun, and waits for their end.
    """

    routes: Sequence[Route]
    compute: Sequence[ApiRoute]
    rapi: Sequence[Resource]
    end: Callable[[], Awaitable[None]]


def faces_of_wings(services: Services, query_engine: QueryEngine, host_statuses: HostStatusCache) -> Sequence[Faces]:
    """Make the faces of each installed wing."""
    return [module.faces(services, query_engine, host_statuses) for module in _modules()]


def observe_by(agents: Agents | None) -> Observe | None:
    """Return the function that makes observers of nodes by their agents; None without agents."""
    made = [partial(module.observer_of, agents) for module in _modules()]
    return None if agents is None or not made else made[0]


def opened_agents(settings: NodesSettings, registry: CollectorRegistry) -> AbstractContextManager[Agents | None]:
    """Open the caller of agents for the block. registry: of the process. Raises UsageError."""
    made = [module.opened_nodes(settings, registry) for module in _modules()]
    return made[0] if made else nullcontext()


def _modules() -> Sequence[Any]:
    return [import_module(wing.faces) for wing in wings()]
