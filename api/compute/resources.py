"""Every route of the compute API. A new resource is a module with `routes()` and a line here."""

from collections.abc import Iterator

from api.compute.aggregates import aggregate_routes
from api.compute.availability_zones import AvailabilityZoneHandlers
from api.compute.extensions import extension_routes
from api.compute.flavor_access import FlavorAccessHandlers
from api.compute.flavor_extra_specs import ExtraSpecHandlers
from api.compute.flavors import FlavorHandlers
from api.compute.fleet_access import FleetAccess
from api.compute.host_status import HostStatusCache
from api.compute.hypervisors import HypervisorHandlers
from api.compute.instance_actions import InstanceActionHandlers
from api.compute.keypairs import KeypairHandlers
from api.compute.limits import LimitHandlers
from api.compute.migrations import MigrationHandlers
from api.compute.parameters import PARAMETERS
from api.compute.query_parameters import QueryParameters
from api.compute.quotas import QuotaHandlers
from api.compute.routes import Route, gone
from api.compute.server_actions import ServerActionHandlers
from api.compute.server_create import ServerCreation
from api.compute.server_groups import ServerGroupHandlers
from api.compute.server_metadata import ServerMetadataHandlers
from api.compute.server_parts import ServerPartHandlers
from api.compute.server_shape import SERVER_DETAILS, SERVER_LIST, SHOWN_SERVER
from api.compute.server_tags import ServerTagHandlers
from api.compute.server_update import ServerChangeHandlers
from api.compute.servers import ServerHandlers
from api.compute.services import ServiceHandlers
from api.compute.shapes import Shape
from api.compute.tenant_usage import TenantUsageHandlers

_LIST_PARAMETERS = QueryParameters(
    {parameter.name: parameter.since for parameter in PARAMETERS.values()}, refuses_unknown_since=None
)


def compute_routes(
    servers: ServerHandlers, access: FleetAccess, host_statuses: HostStatusCache, *, soft_deletes: bool
) -> Iterator[Route]:
    """The table, in the order of the documentation. soft_deletes: whether what is deleted can be restored a while."""
    yield Route("GET", "/servers", servers.index, query=_LIST_PARAMETERS, answer=SERVER_LIST)
    yield Route("GET", "/servers/detail", servers.detail, query=_LIST_PARAMETERS, answer=SERVER_DETAILS)
    yield Route("GET", "/servers/{server_id}", servers.show, errors=(404,), answer=Shape({"server": SHOWN_SERVER}))
    yield from ServerCreation(access).routes()
    yield from ServerChangeHandlers(access, host_statuses, soft_deletes=soft_deletes).routes()
    yield from ServerActionHandlers(access, host_statuses).routes()
    yield from InstanceActionHandlers(access).routes()
    yield from MigrationHandlers(access).routes()
    yield from ServerMetadataHandlers(access).routes()
    yield from ServerTagHandlers(access).routes()
    yield from ServerPartHandlers(access).routes()
    yield from FlavorHandlers(access).routes()
    yield from ExtraSpecHandlers(access).routes()
    yield from FlavorAccessHandlers(access).routes()
    yield from KeypairHandlers(access).routes()
    yield from LimitHandlers(access).routes()
    yield from QuotaHandlers(access).routes()
    yield from ServerGroupHandlers(access).routes()
    yield from AvailabilityZoneHandlers(access).routes()
    yield from ServiceHandlers(access, host_statuses).routes()
    yield from HypervisorHandlers(access).routes()
    yield from aggregate_routes()
    yield from TenantUsageHandlers(access).routes()
    yield from extension_routes()
    yield from _removed_routes()


def _removed_routes() -> Iterator[Route]:
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
    yield from gone("/os-floating-ips-bulk", "GET", "POST")
    yield from gone("/os-fping", "GET")
    yield from gone("/os-fping/{server_id}", "GET")
    yield from gone("/os-security-group-default-rules", "GET", "POST")
    yield from gone("/os-security-group-default-rules/{rule_id}", "GET", "DELETE")
    yield from gone("/servers/{server_id}/consoles", "GET", "POST")
    yield from gone("/servers/{server_id}/consoles/{console_id}", "GET", "DELETE")
    yield from gone("/servers/{server_id}/os-virtual-interfaces", "GET")
