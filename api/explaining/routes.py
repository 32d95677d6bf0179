"""The face `/fleetlight/explain`: explanations of lists and queries."""

from collections.abc import Sequence

from starlette.routing import Route

from fleetlight.api.compute.server_lists.servers import ServerListHandlers
from fleetlight.api.explaining.endpoint import EXPLAIN, Explainer
from fleetlight.api.explaining.queries import QueryExplainer
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.services import Services


def routes(services: Services, lists: ServerListHandlers, query_engine: QueryEngine) -> Sequence[Route]:
    """Make the route. lists, query_engine: make the lists and queries that it explains."""
    lister, counter = services.lister, services.counter
    queries = QueryExplainer(query_engine, lister, services.items, counter)
    return [services.middleware.route(EXPLAIN, Explainer(lists, queries, lister, counter).explain)]
