"""The face `/fleetlight/query`: items of every type, counts, exports, saved views, and the history of a server."""

from collections.abc import Sequence

from starlette.routing import Route

from fleetlight.api.query.boundaries import BOUNDARIES, BoundaryHandler, ListSampler
from fleetlight.api.query.counting import QueryCounter
from fleetlight.api.query.counts import COUNTS, COUNTS_BY_BODY, CountHandler
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.export import EXPORT, ExportHandler
from fleetlight.api.query.handlers import QUERY, QUERY_BY_BODY, QUERY_FIELDS, QueryHandlers
from fleetlight.api.query.history import HISTORY, HistoryHandler
from fleetlight.api.query.saved_views import REMOVE_VIEW, REPLACE_VIEW, SAVE_VIEW, VIEWS, ViewHandlers
from fleetlight.api.services import Services


def routes(services: Services, query_engine: QueryEngine) -> Sequence[Route]:
    """Make the routes. query_engine: shared with the other faces that query items."""
    queries = QueryHandlers(query_engine)
    counter = QueryCounter(services.counter, query_engine, services.parts.cells)
    counts = CountHandler(counter)
    boundaries = BoundaryHandler(ListSampler(query_engine, counter))
    export = ExportHandler(query_engine, clock=services.parts.clock)
    views = ViewHandlers(services.access)
    route = services.middleware.route
    return [
        route(QUERY, queries.get),
        route(QUERY_BY_BODY, queries.post),
        route(QUERY_FIELDS, queries.fields),
        route(COUNTS, counts.get),
        route(COUNTS_BY_BODY, counts.post),
        route(BOUNDARIES, boundaries.show),
        route(EXPORT, export.get),
        route(VIEWS, views.index),
        route(SAVE_VIEW, views.create),
        route(REPLACE_VIEW, views.replace),
        route(REMOVE_VIEW, views.remove),
        route(HISTORY, HistoryHandler(services.access).show),
    ]
