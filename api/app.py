"""The application: every route of every face, put together from parts that were built elsewhere."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fleetlight.api.capacity import CAPACITY, CapacityHandler
from fleetlight.api.command import Command
from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.compute.openapi import OPENAPI, OpenApiDocument
from fleetlight.api.compute.protocol.routes import METHODS, RouteTable
from fleetlight.api.compute.resources import compute_routes
from fleetlight.api.compute.server_lists.servers import ServerListHandlers
from fleetlight.api.compute.server_lists.show import ServerShowHandler
from fleetlight.api.compute.server_lists.watches import ServerWatches
from fleetlight.api.compute.versions import VERSION_OPERATIONS, VersionDocuments
from fleetlight.api.documented import Operation
from fleetlight.api.explaining.endpoint import EXPLAIN, Explainer
from fleetlight.api.explaining.queries import QueryExplainer
from fleetlight.api.health import HEALTH_OPERATIONS, Health, HealthEndpoints
from fleetlight.api.http.faults import fault, no_such_route
from fleetlight.api.http.request_metrics import RequestMetrics
from fleetlight.api.http.utf8_addresses import Utf8Addresses
from fleetlight.api.identity import Identity, NoIdentity
from fleetlight.api.identity.tokens.strategy import TokenIdentity
from fleetlight.api.image.handlers import ImageHandlers
from fleetlight.api.image.shelved_servers import ShelvedServers
from fleetlight.api.limits.admission import ListAdmission
from fleetlight.api.limits.login_limit import LoginLimit
from fleetlight.api.limits.paced_bodies import PacedBodies
from fleetlight.api.limits.repeated_refusals import RepeatedRefusals
from fleetlight.api.limits.shared_limits import SharedLimits
from fleetlight.api.maintenance import RESET_SAFE_CONNECT, Maintenance
from fleetlight.api.metrics import ApiMetrics
from fleetlight.api.query.answering import Answerer
from fleetlight.api.query.counting import QuestionCounter
from fleetlight.api.query.counts import COUNTS, COUNTS_BY_BODY, CountHandler
from fleetlight.api.query.handlers import QUERY, QUERY_BY_BODY, QUERY_FIELDS, QueryHandlers
from fleetlight.api.query.history import HISTORY, HistoryHandler
from fleetlight.api.query.live import LiveNodes
from fleetlight.api.query.whole_answers import WholeAnswers
from fleetlight.api.rapi.access import RapiAccess
from fleetlight.api.rapi.changing.filters import FilterChanges
from fleetlight.api.rapi.changing.fleet import FleetChanges
from fleetlight.api.rapi.changing.groups import GroupChanges
from fleetlight.api.rapi.changing.instances import InstanceChanges
from fleetlight.api.rapi.changing.networks import NetworkChanges
from fleetlight.api.rapi.changing.nodes import NodeChanges
from fleetlight.api.rapi.changing.submitting import Submitter
from fleetlight.api.rapi.changing.tags import TagChanges
from fleetlight.api.rapi.changing.target import Targets
from fleetlight.api.rapi.endpoint import RapiEndpoint, is_rapi, unknown_address
from fleetlight.api.rapi.faults import rapi_fault
from fleetlight.api.rapi.items import RapiItems
from fleetlight.api.rapi.resources import RapiResources
from fleetlight.api.rapi.seen_jobs import SeenJobs
from fleetlight.api.rapi.users import RapiUsers
from fleetlight.api.scheduling.candidates import CANDIDATES, CandidatesHandler
from fleetlight.api.scheduling.destinations import RELEASE_DESTINATION, SELECT_DESTINATIONS, DestinationsHandler
from fleetlight.api.settings import ApiSettings
from fleetlight.api.shared.endpoint import Middleware
from fleetlight.api.shared.fleet_access import FleetAccess, any_project
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.fleet_clock import FleetClock
from fleetlight.cells.instance_mappings import Mappings
from fleetlight.indexer.backends.base import IndexSearcher
from fleetlight.indexer.stream.liveness import Probes
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites
from fleetlight.listing.count_instances import InstanceCounter
from fleetlight.listing.find_instance import InstanceFinder
from fleetlight.listing.fleet_capacity import CapacityLister
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.list_items import ItemLister
from fleetlight.listing.past import PastLister
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import CellReader
from fleetlight.listing.watches.changelogs import Changelogs
from fleetlight.listing.watches.feed import ChangeFeed
from fleetlight.listing.watches.positions import PositionCodec
from fleetlight.operations.native_cells import NativeCells
from fleetlight.operations.nodes.opening import NodeRpcs
from fleetlight.operations.simulation.default_images import is_default_image
from fleetlight.resources.clock import Clock, system_clock


@dataclass(frozen=True, slots=True)
class ApiParts:
    """What the application is made of. The caller who built a part closes it.

    cells: a `fleetlight.cells.fan_out.cell_pool.CellPool`. native: the cells that can be changed, by the same pool.
    searcher: the index; None when there is none. It is only asked if `search.enabled`.
    identity: who says who is calling.
    rapi_users_file: users of the remote API beside those of `identity`.
    soft_deletes: whether deleted servers of native cells can be restored for a while.
    clock: of the fleet, where its database is on another machine (`Fleet.clock`).
    other_metrics: of parts that run in the same process, measured by `state.health` too.
    indexer: the one that runs beside this process, in one command; `state.health` speaks for it too.
    command: that has this process and others; /healthz and /readyz speak for all of them.
    limits: those that hold for all of these; None: there is no other.
    nodes: what calls the agents of hosts; None: nothing does.
    """

    cells: CellReader
    fleet: Fleet
    native: NativeCells
    searcher: IndexSearcher | None = None
    api: ApiSettings = field(default_factory=ApiSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    identity: Identity = field(default_factory=NoIdentity)
    soft_deletes: bool = False
    rapi_users_file: Path | None = None
    clock: Clock = system_clock
    other_metrics: Sequence[CollectorRegistry] = ()
    indexer: Probes | None = None
    command: Command | None = None
    limits: SharedLimits | None = None
    nodes: NodeRpcs | None = None


def create_app(parts: ApiParts) -> Starlette:
    """The application over `parts`.

    Its `state.index` holds the safe-connect flag, its `state.lister` lists, its `state.feed` holds the watches, its
    `state.mappings` connections, its `state.health` says what is for its monitoring only, its `state.answerer`,
    `state.writes` and `state.admission` answer the questions of faces that are not HTTP.
    """
    mappings = Mappings(parts.fleet, statement_timeout_s=parts.search.cell_timeout_s)
    fleet_clock = parts.clock if isinstance(parts.clock, FleetClock) else None
    index = IndexGateway(
        parts.searcher,
        parts.search,
        clock=parts.clock,
        is_clock_sure=lambda: fleet_clock is None or fleet_clock.is_sure,
    )
    lister = InstanceLister(parts.cells, index, parts.search)
    finder = InstanceFinder(parts.cells, mappings.mapping_of, index, parts.search)
    # Where the catalog names another image service, or none, any image may be one of it.
    has_image = is_default_image if isinstance(parts.identity, TokenIdentity) else _any_image
    has_project = parts.identity.has_project if isinstance(parts.identity, TokenIdentity) else any_project
    access = FleetAccess(
        parts.fleet,
        finder,
        parts.native,
        parts.search.cell_timeout_s,
        parts.api.max_limit,
        has_image,
        has_project,
        parts.nodes,
    )

    changelogs = Changelogs(parts.cells, parts.fleet.journals, parts.search.cell_timeout_s, clock=parts.clock)
    feed = ChangeFeed(parts.cells, changelogs)
    live = LiveNodes(ItemLister(parts.cells), parts.nodes)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        feed.close()
        changelogs.close()
        index.close()
        access.close()
        live.close()
        mappings.close()

    app = Starlette(lifespan=lifespan)
    app.router.redirect_slashes = False
    app.add_middleware(RepeatedRefusals)
    app.add_middleware(Utf8Addresses, refusal=no_route)
    app.state.lister = lister
    app.state.index = index
    app.state.feed = feed
    app.state.mappings = mappings
    app.state.live = live
    metrics = ApiMetrics(parts.other_metrics)
    app.add_middleware(PacedBodies)
    app.add_middleware(RequestMetrics, observe=metrics.count_request)
    has_identity = not isinstance(parts.identity, NoIdentity)
    app.state.admission = ListAdmission(parts.api, metrics.list_queues, has_identity=has_identity)
    _add_compute_routes(app, parts, finder, metrics, access)
    if isinstance(parts.identity, TokenIdentity):
        # What its catalog names is served here, where no other service would.
        prefix = parts.api.compute_link_prefix
        shelved = ShelvedServers(parts.cells, parts.search.cell_timeout_s)
        images = ImageHandlers(parts.identity, prefix, shelved)
        for method, path, endpoint in (*parts.identity.routes(prefix), *images.routes()):
            app.add_route(path, endpoint, methods=[method])
    app.state.health = Health(index, parts.cells, metrics, parts.indexer, fleet_clock)
    health = HealthEndpoints(app.state.health, parts.command)
    app.add_route("/healthz", health.healthz, methods=["GET"])
    app.add_route("/readyz", health.readyz, methods=["GET"])
    return app


def _add_compute_routes(
    app: Starlette, parts: ApiParts, finder: InstanceFinder, metrics: ApiMetrics, access: FleetAccess
) -> None:
    """The compute API, and the faces that share its middleware."""
    limits = parts.limits or SharedLimits.of(parts.api)
    prefix = parts.api.compute_link_prefix
    writes = ReadYourWrites(
        parts.fleet,
        app.state.index,
        parts.search,
        reader=parts.cells,
        finder=finder,
        pool=parts.native.pool,
        engine=parts.native.engine,
        clock=parts.clock,
    )
    middleware = Middleware(parts.identity, prefix, writes.include, app.state.admission)
    versions = VersionDocuments(middleware, prefix)
    host_statuses = HostStatusCache(access, parts.cells)
    lists = ServerListHandlers(
        app.state.lister,
        finder,
        app.state.mappings,
        metrics,
        host_statuses=host_statuses,
        writes=writes,
        watches=ServerWatches(
            app.state.feed,
            PositionCodec(None if parts.api.watch_key is None else parts.api.watch_key.get_secret_value()),
            host_statuses,
            limits.watches,
        ),
        max_limit=parts.api.max_limit,
        timeout_s=parts.search.cell_timeout_s,
        skips_down_cells=parts.api.list_records_by_skipping_down_cells,
    )
    server = ServerShowHandler(
        finder,
        parts.cells,
        access.fleet.server_groups,
        host_statuses,
        request_spec_of=app.state.mappings.request_spec_of,
        timeout_s=parts.search.cell_timeout_s,
    )
    app.add_route("/", versions.all, methods=["GET"])
    for path in ("/v2.1", "/v2.1/"):
        app.add_route(path, versions.newest, methods=["GET"])
    for path in ("/v2", "/v2/"):
        app.add_route(path, versions.legacy, methods=["GET"])
    routes = compute_routes(lists, server, access, host_statuses, soft_deletes=parts.soft_deletes, clock=parts.clock)
    table = RouteTable(routes, middleware)
    app.add_route(OPENAPI.path, OpenApiDocument(table, _other_operations(parts.identity)).show, methods=["GET"])
    reset = middleware.endpoint(Maintenance(app.state.index.safe_connect, parts.command).reset_safe_connect)
    app.add_route(RESET_SAFE_CONNECT.path, reset, methods=["POST"])
    counter = InstanceCounter(parts.cells, app.state.index, parts.search)
    items = ItemLister(parts.cells, app.state.index)
    past = PastLister(parts.cells, parts.search, clock=parts.clock)
    answerer = Answerer(app.state.lister, past, items, parts.cells, app.state.live, max_limit=parts.api.max_limit)
    of_queries = QueryExplainer(
        answerer, app.state.lister, items, counter, writes, timeout_s=parts.search.cell_timeout_s
    )
    explainer = Explainer(lists, of_queries, app.state.lister, counter)
    app.add_route(EXPLAIN.path, middleware.endpoint(explainer.explain), methods=["GET"])
    capacity = CapacityHandler(CapacityLister(parts.cells), parts.cells, timeout_s=parts.search.cell_timeout_s)
    app.add_route(CAPACITY.path, middleware.endpoint(capacity.show), methods=["GET"])
    app.state.answerer = answerer
    app.state.writes = writes
    queries = QueryHandlers(answerer, writes, timeout_s=parts.search.cell_timeout_s)
    app.add_route(QUERY.path, middleware.endpoint(queries.get), methods=["GET"])
    app.add_route(QUERY_BY_BODY.path, middleware.endpoint(queries.post), methods=["POST"])
    app.add_route(QUERY_FIELDS.path, middleware.endpoint(queries.fields), methods=["GET"])
    counts = CountHandler(
        QuestionCounter(counter, answerer, parts.cells), writes, timeout_s=parts.search.cell_timeout_s
    )
    app.add_route(COUNTS.path, middleware.endpoint(counts.get), methods=["GET"])
    app.add_route(COUNTS_BY_BODY.path, middleware.endpoint(counts.post), methods=["POST"])
    destinations = DestinationsHandler(access)
    app.add_route(SELECT_DESTINATIONS.path, middleware.endpoint(destinations.select), methods=["POST"])
    app.add_route(RELEASE_DESTINATION.path, middleware.endpoint(destinations.release), methods=["DELETE"])
    app.add_route(CANDIDATES.path, middleware.endpoint(CandidatesHandler(access).show), methods=["GET"])
    app.add_route(HISTORY.path, middleware.endpoint(HistoryHandler(access).show), methods=["GET"])
    for base in ("/v2.1", "/v2"):
        app.add_route(f"{base}/{{path:path}}", table.answer, methods=METHODS)
    _add_rapi_routes(app, parts, access, answerer, writes, logins=limits.rapi_logins)

    async def answer_http_exception(http: Request, error: Exception) -> Response:
        """Routing errors in our own words; a framework's body never gets out."""
        if isinstance(error, HTTPException) and error.status_code not in {404, 405}:
            return fault(error.status_code, error.detail)
        is_unknown = isinstance(error, HTTPException) and error.status_code == 404
        # An address with a line break in it finds no route at all, whatever it begins with.
        if is_unknown and not http.url.path.startswith(("/identity", "/v2.1/", "/v2/")) and not is_rapi(http.url.path):
            return versions.choices(http)
        return no_route(http.method, http.url.path)

    app.add_exception_handler(HTTPException, answer_http_exception)


def no_route(method: str, path: str) -> Response:
    """The answer to a request that no route is for."""
    return rapi_fault(unknown_address(method, path)) if is_rapi(path) else no_such_route()


def _add_rapi_routes(
    app: Starlette,
    parts: ApiParts,
    access: FleetAccess,
    answerer: Answerer,
    writes: ReadYourWrites,
    *,
    logins: LoginLimit,
) -> None:
    """Ganeti's remote API, of the whole fleet and of each cell. logins: the limit on those of its own users."""
    users = None if parts.rapi_users_file is None else RapiUsers(parts.rapi_users_file)
    resources = RapiResources(RapiItems(WholeAnswers(answerer)), parts.cells, SeenJobs(access, writes))
    targets, submitter = Targets(access), Submitter(access)
    changes = (
        InstanceChanges(targets, submitter),
        NodeChanges(targets, submitter),
        GroupChanges(targets, submitter),
        NetworkChanges(targets, submitter),
        TagChanges(targets, submitter),
        FilterChanges(access, targets),
        FleetChanges(access, targets, submitter),
    )
    below = [*resources.table(), *(each for of_kind in changes for each in of_kind.resources())]
    rapi_access = RapiAccess(parts.identity, users, logins)
    for path, known in (
        ("/version", resources.beside()),
        ("/2{path:path}", below),
        ("/cells/{cell}/2{path:path}", below),
    ):
        rapi = RapiEndpoint(
            known, rapi_access, parts.cells, writes, app.state.admission, timeout_s=parts.search.cell_timeout_s
        )
        app.add_route(path, rapi.answer, methods=METHODS)


def _other_operations(identity: Identity) -> Sequence[Operation]:
    services = [*identity.operations(), *ImageHandlers.operations()] if isinstance(identity, TokenIdentity) else []
    return [
        *VERSION_OPERATIONS,
        OPENAPI,
        EXPLAIN,
        CAPACITY,
        QUERY,
        QUERY_BY_BODY,
        QUERY_FIELDS,
        COUNTS,
        COUNTS_BY_BODY,
        HISTORY,
        RESET_SAFE_CONNECT,
        SELECT_DESTINATIONS,
        RELEASE_DESTINATION,
        CANDIDATES,
        *HEALTH_OPERATIONS,
        *services,
    ]


def _any_image(_image_id: str) -> bool:
    return True
