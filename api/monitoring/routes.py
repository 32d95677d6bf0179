"""The routes for Prometheus."""

from collections.abc import Sequence

from starlette.routing import Route

from fleetlight.api.monitoring.discovery import DISCOVERY, DiscoveryHandler
from fleetlight.api.monitoring.instance_gauges import METRICS, InstanceGaugesHandler
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.services import Services


def routes(services: Services, query_engine: QueryEngine) -> Sequence[Route]:
    """Make the routes. query_engine: finds the targets."""
    route = services.middleware.route
    return [
        route(METRICS, InstanceGaugesHandler(services).show),
        route(DISCOVERY, DiscoveryHandler(services, query_engine).show),
    ]
