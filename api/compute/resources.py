"""Every route of the compute API. A new resource is a module with `routes()` and a line here."""

from collections.abc import Iterable, Iterator

from fleetlight.api.compute.extensions import extension_routes
from fleetlight.api.compute.flavors.access import FlavorAccessHandlers
from fleetlight.api.compute.flavors.extra_specs import ExtraSpecHandlers
from fleetlight.api.compute.flavors.flavors import FlavorHandlers
from fleetlight.api.compute.hosts.availability_zones import AvailabilityZoneHandlers
from fleetlight.api.compute.network_proxies import network_proxy_routes
from fleetlight.api.compute.projects.keypairs import KeypairHandlers
from fleetlight.api.compute.projects.limits import LimitHandlers
from fleetlight.api.compute.projects.quotas import QuotaHandlers
from fleetlight.api.compute.projects.server_groups import ServerGroupHandlers
from fleetlight.api.compute.projects.tenant_usage import TenantUsageHandlers
from fleetlight.api.compute.protocol.parameters import PARAMETERS
from fleetlight.api.compute.protocol.route_table import ApiRoute, gone
from fleetlight.api.compute.server_lists.servers import ServerListHandlers
from fleetlight.api.compute.server_lists.shape import SERVER_DETAILS, SERVER_EVENTS, SERVER_LIST, SHOWN_SERVER
from fleetlight.api.compute.server_lists.show import ServerShowHandler
from fleetlight.api.http.query_string import QueryParameters
from fleetlight.api.http.shapes import Shape
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import CELL_TIMEOUT, COMPLETE, CONSISTENCY, LAST_EVENT_ID, ROUTE, TOKEN
from fleetlight.resources.clock import Clock

_LIST_PARAMETERS = QueryParameters(
    {parameter.name: parameter.since for parameter in PARAMETERS.values()}, refuses_unknown_since=None
)
_OF_LISTS = (CONSISTENCY, CELL_TIMEOUT)


def compute_routes(
    lists: ServerListHandlers,
    server: ServerShowHandler,
    access: FleetAccess,
    of_wings: Iterable[ApiRoute],
    *,
    clock: Clock,
) -> Iterator[ApiRoute]:
    """Yield every route, in the order of the documentation. of_wings: routes of the wings that are installed."""
    yield ApiRoute(
        "GET",
        "/servers",
        lists.index,
        query=_LIST_PARAMETERS,
        errors=(403,),
        answer=SERVER_LIST,
        takes=_OF_LISTS,
        gives=(COMPLETE, ROUTE),
    )
    yield ApiRoute(
        "GET",
        "/servers/detail",
        lists.detail,
        query=_LIST_PARAMETERS,
        errors=(403,),
        answer=SERVER_DETAILS,
        takes=(*_OF_LISTS, LAST_EVENT_ID),
        gives=(COMPLETE, ROUTE),
        events=SERVER_EVENTS,
    )
    yield ApiRoute(
        "GET",
        "/servers/{server_id}",
        server.show,
        errors=(403, 404),
        answer=Shape({"server": SHOWN_SERVER}),
        takes=(CELL_TIMEOUT,),
        gives=(COMPLETE, ROUTE, TOKEN),
    )
    yield from of_wings
    yield from FlavorHandlers(access).routes()
    yield from ExtraSpecHandlers(access).routes()
    yield from FlavorAccessHandlers(access).routes()
    yield from KeypairHandlers(access).routes()
    yield from LimitHandlers(access).routes()
    yield from QuotaHandlers(access).routes()
    yield from ServerGroupHandlers(access).routes()
    yield from AvailabilityZoneHandlers(access).routes()
    yield from TenantUsageHandlers(access, clock).routes()
    yield from extension_routes()
    yield from network_proxy_routes()
    yield from _removed_routes()


def _removed_routes() -> Iterator[ApiRoute]:
    yield from gone("/os-agents", "GET", "POST")
    yield from gone("/os-agents/{agent_id}", "PUT", "DELETE")
    yield from gone("/os-cells", "GET", "POST")
    yield from gone("/os-cells/{cell_id}", "GET", "PUT", "DELETE")
    yield from gone("/os-cells/{cell_id}/capacities", "GET")
    yield from gone("/os-cells/detail", "GET")
    yield from gone("/os-cells/info", "GET")
    yield from gone("/os-cells/capacities", "GET")
    yield from gone("/os-cells/sync_instances", "POST")
    yield from gone("/os-certificates", "POST")
    yield from gone("/os-certificates/{certificate_id}", "GET")
    yield from gone("/os-cloudpipe", "GET", "POST")
    yield from gone("/os-cloudpipe/{cloudpipe_id}", "PUT")
    yield from gone("/os-fixed-ips/{fixed_ip}", "GET")
    yield from gone("/os-fixed-ips/{fixed_ip}/action", "POST")
    yield from gone("/os-floating-ip-dns", "GET")
    yield from gone("/os-floating-ip-dns/{domain}", "PUT", "DELETE")
    yield from gone("/os-floating-ip-dns/{domain}/entries/{entry}", "GET", "PUT", "DELETE")
    yield from gone("/os-floating-ips-bulk", "GET", "POST")
    yield from gone("/os-floating-ips-bulk/{host}", "GET", "PUT")
    yield from gone("/os-fping", "GET")
    yield from gone("/os-fping/{server_id}", "GET")
    yield from gone("/os-security-group-default-rules", "GET", "POST")
    yield from gone("/os-security-group-default-rules/{rule_id}", "GET", "DELETE")
    yield from gone("/servers/{server_id}/consoles", "GET", "POST")
    yield from gone("/servers/{server_id}/consoles/{console_id}", "GET", "DELETE")
    yield from gone("/servers/{server_id}/os-virtual-interfaces", "GET")
