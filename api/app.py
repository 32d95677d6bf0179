"""The application: the parts that its faces answer from, its middleware, and the routes of every face."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from fleetlight.api import capacity, maintenance, usage
from fleetlight.api.assistants.routes import AssistantsFace
from fleetlight.api.changes import routes as changes
from fleetlight.api.changes.comparisons import Comparisons
from fleetlight.api.compute.routes import ComputeFace
from fleetlight.api.console import routes as console
from fleetlight.api.explaining import routes as explaining
from fleetlight.api.health import Health, HealthEndpoints
from fleetlight.api.http.addresses import Addresses
from fleetlight.api.http.faults import fault, no_such_address
from fleetlight.api.http.request_metrics import RequestMetrics, trace_request
from fleetlight.api.identity.browser import BrowserLogins
from fleetlight.api.identity.ended_sessions import EndsSessions
from fleetlight.api.identity.openid.strategy import embedded_service
from fleetlight.api.image import routes as image
from fleetlight.api.limits.bodies import BoundedBodies
from fleetlight.api.limits.repeated_refusals import RepeatedRefusals
from fleetlight.api.monitoring import routes as monitoring
from fleetlight.api.operating import routes as operating
from fleetlight.api.operating.cells import board_of
from fleetlight.api.operating.prometheus import prometheus_of
from fleetlight.api.operating.series import Series
from fleetlight.api.parts import ApiParts
from fleetlight.api.query import routes as query
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.live import LiveNodes
from fleetlight.api.rapi import routes as rapi
from fleetlight.api.rapi.endpoint import is_rapi, unknown_address
from fleetlight.api.rapi.faults import RapiError, rapi_fault
from fleetlight.api.services import Services
from fleetlight.api.subscriptions import routes as subscriptions
from fleetlight.api.wing import faces_of_wings, observe_by
from fleetlight.cells.fleet.fleet_clock import FleetClock
from fleetlight.listing.list_items import ItemLister
from fleetlight.listing.past import PastLister


@dataclass(frozen=True, slots=True)
class Application:
    """The assembled application.

    web: answers requests; its lifespan ends with `close`. services: the parts that handlers share.
    query_engine: answers queries, of faces without HTTP too. live: asks nodes for live values. health: for monitoring.
    series: figures of the last hour, collected during the lifespan. comparisons: for watches.
    """

    web: Starlette
    services: Services
    query_engine: QueryEngine
    live: LiveNodes
    health: Health
    series: Series
    comparisons: Comparisons

    def close(self) -> None:
        """End the tasks that the application has begun; a second call does nothing. The parts stay open."""
        self.comparisons.close()
        self.services.close()
        self.live.close()
        self.series.close()


def create_app(parts: ApiParts) -> Application:
    """Assemble the application from `parts`."""
    services = Services.of(parts)
    live = LiveNodes(ItemLister(parts.cells), observe_by(parts.nodes))
    past = PastLister(parts.cells, parts.search, parts.fleet.journals.announced, clock=parts.clock)
    query_engine = QueryEngine(services.lister, past, services.items, parts.cells, live, max_limit=parts.api.max_limit)
    clock = parts.clock if isinstance(parts.clock, FleetClock) else None
    health = Health(services.index, parts.cells, services.metrics, parts.indexer, clock)
    compute = ComputeFace(services)
    board = board_of(services)
    of_wings = faces_of_wings(services, query_engine, compute.host_statuses)
    series = Series(services.metrics, board, parts.clock, prometheus_of(parts.api))
    comparisons = Comparisons(query_engine, parts.search.cell_timeout_s)
    assistants = AssistantsFace(services)
    service = embedded_service(parts.identity)
    if isinstance(parts.identity, EndsSessions):
        parts.identity.ends.keep_in(parts.fleet.ended_sessions, parts.search.cell_timeout_s)
    others = [
        *query.routes(services, query_engine),
        *changes.routes(services, comparisons),
        *subscriptions.routes(services),
        *(route for faces in of_wings for route in faces.routes),
        *explaining.routes(services, compute.lists, query_engine),
        *capacity.routes(services),
        *usage.routes(services),
        *maintenance.routes(services),
        *operating.routes(services, query_engine, board, series),
        *monitoring.routes(services, query_engine),
        *assistants.routes(),
        *rapi.routes(services, query_engine, [resource for faces in of_wings for resource in faces.rapi]),
        *(() if service is None else service.routes(parts.api.compute_link_prefix)),
        *image.routes(services),
        *HealthEndpoints(health, parts.command).routes(),
    ]
    others += console.routes(services, others)
    of_compute = [route for faces in of_wings for route in faces.compute]

    async def answer_root(http: Request) -> Response:
        """Answer browsers with the console, and other clients with the versions of the compute API."""
        if console.prefers_a_page(http):
            return RedirectResponse("/console/", 302, {"Vary": "Accept"})
        return await compute.versions.all(http)

    async def answer_http_exception(http: Request, error: Exception) -> Response:
        """Answer routing errors with our own bodies instead of the framework's."""
        if isinstance(error, HTTPException) and error.status_code not in {404, 405}:
            return fault(error.status_code, error.detail)
        is_unknown = isinstance(error, HTTPException) and error.status_code == 404
        # An address with a line break in it finds no route at all, whatever it begins with.
        if is_unknown and not http.url.path.startswith(("/identity", "/v2.1/", "/v2/")) and not is_rapi(http.url.path):
            return compute.versions.choices(http)
        return _no_route(http.method, http.url.path)

    @asynccontextmanager
    async def lifespan(web: Starlette) -> AsyncIterator[None]:
        sampling = asyncio.create_task(series.run())
        async with assistants.running(web):
            yield
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        for faces in of_wings:
            await faces.end()
        application.close()

    trace = None if parts.traces is None else partial(trace_request, parts.traces)
    web = Starlette(
        routes=[Route("/", answer_root), *compute.routes(others, of_compute), *others],
        # In the order in which a request passes them.
        middleware=[
            Middleware(RequestMetrics, observe=services.metrics.count_request, trace=trace),  # outermost: refusals too
            # Outside of all that refuses requests, and so that an answer counts until its caller has taken it.
            Middleware(BoundedBodies, held=services.admission.unanswered),
            Middleware(Addresses, refusal=_no_route),  # what follows reads addresses as text, with single slashes
            # What follows reads logins in headers, and no page of another site uses them.
            Middleware(BrowserLogins, refusal=_forbidden, link_prefix=parts.api.compute_link_prefix),
            Middleware(RepeatedRefusals),  # before anything is done for a request
        ],
        exception_handlers={HTTPException: answer_http_exception},
        lifespan=lifespan,
    )
    web.router.redirect_slashes = False
    application = Application(web, services, query_engine, live, health, series, comparisons)
    return application


def _forbidden(path: str, text: str) -> Response:
    return rapi_fault(RapiError(HTTPStatus.FORBIDDEN, text)) if is_rapi(path) else fault(403, text)


def _no_route(method: str, path: str) -> Response:
    """Answer a request that matches no route."""
    return rapi_fault(unknown_address(method, path)) if is_rapi(path) else no_such_address()
