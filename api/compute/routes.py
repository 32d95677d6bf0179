"""The compute API: its versions, its table of routes, and the OpenAPI document of all faces."""

from collections.abc import Iterable, Sequence

from starlette.routing import BaseRoute, Route

from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.compute.openapi import OPENAPI, OpenApiDocument
from fleetlight.api.compute.protocol.route_table import ApiRoute, RouteTable
from fleetlight.api.compute.resources import compute_routes
from fleetlight.api.compute.server_lists.servers import ServerListHandlers
from fleetlight.api.compute.server_lists.show import ServerShowHandler
from fleetlight.api.compute.server_lists.watches import ServerWatches
from fleetlight.api.compute.versions import VERSION_OPERATIONS, VersionDocuments
from fleetlight.api.documented import DocumentedRoute
from fleetlight.api.http.methods import METHODS
from fleetlight.api.services import Services


class ComputeFace:
    """The face of the compute API. versions: documents of its versions. lists: handlers of server lists.

    host_statuses: the cache of the statuses that lists show.
    """

    def __init__(self, services: Services) -> None:
        parts = services.parts
        self._services = services
        self.versions = VersionDocuments(services.middleware, parts.api.compute_link_prefix)
        self.host_statuses = HostStatusCache(services.access, parts.cells)
        self.lists = ServerListHandlers(
            services.lister,
            services.finder,
            services.mappings,
            services.metrics,
            host_statuses=self.host_statuses,
            watches=ServerWatches(
                services.feed,
                services.positions,
                self.host_statuses,
                services.limits.watches,
            ),
            max_limit=parts.api.max_limit,
            timeout_s=parts.search.cell_timeout_s,
            skips_down_cells=parts.api.list_records_by_skipping_down_cells,
        )

    def routes(self, others: Iterable[BaseRoute], of_wings: Iterable[ApiRoute]) -> Sequence[Route]:
        """Make the routes. others: routes of other faces, for the OpenAPI document. of_wings: routes of the wings."""
        services, versions = self._services, self.versions
        parts = services.parts
        server = ServerShowHandler(
            services.finder,
            parts.cells,
            self.host_statuses,
            request_spec_of=services.mappings.request_spec_of,
            groups_of=services.mappings.groups_of,
            timeout_s=parts.search.cell_timeout_s,
        )
        resources = compute_routes(
            self.lists,
            server,
            services.access,
            of_wings,
            clock=parts.clock,
        )
        table = RouteTable([*resources, versions.below_project()], services.middleware)
        documented = [route.operation for route in others if isinstance(route, DocumentedRoute)]
        document = OpenApiDocument(table, [*VERSION_OPERATIONS, OPENAPI, *documented])
        return [
            *(Route(path, versions.newest) for path in ("/v2.1", "/v2.1/")),
            *(Route(path, versions.legacy) for path in ("/v2", "/v2/")),
            *(Route(f"{base}/{{path:path}}", table.answer, methods=METHODS) for base in ("/v2.1", "/v2")),
            Route(OPENAPI.path, document.show),
        ]
