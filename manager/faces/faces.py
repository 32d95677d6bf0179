"""The faces of the manager in one application: their own addresses, and parts of the compute and the remote API."""

from collections.abc import Iterator, Sequence

from starlette.routing import Route

from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.rapi.endpoint import Resource
from fleetlight.api.services import Services
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.wing import Faces
from fleetlight.manager.faces.bulk import handlers as bulk
from fleetlight.manager.faces.bulk.item_actions import ItemActions
from fleetlight.manager.faces.bulk.running import BulkRunner
from fleetlight.manager.faces.hosts.aggregates import AggregateHandlers
from fleetlight.manager.faces.hosts.audit_log import AuditLogHandlers
from fleetlight.manager.faces.hosts.fleet_hosts import FleetHosts
from fleetlight.manager.faces.hosts.hosts import HostHandlers
from fleetlight.manager.faces.hosts.hypervisors import HypervisorHandlers
from fleetlight.manager.faces.hosts.services import ServiceHandlers
from fleetlight.manager.faces.rapi.filters import FilterChanges
from fleetlight.manager.faces.rapi.fleet import FleetChanges
from fleetlight.manager.faces.rapi.instances import InstanceChanges
from fleetlight.manager.faces.rapi.item_changes import ItemChanges
from fleetlight.manager.faces.rapi.submitting import Submitter
from fleetlight.manager.faces.rapi.tags import TagChanges
from fleetlight.manager.faces.rapi.target import Targets
from fleetlight.manager.faces.scheduling.candidates import CANDIDATES, CandidatesHandler
from fleetlight.manager.faces.scheduling.destinations import (
    RELEASE_DESTINATION,
    SELECT_DESTINATIONS,
    DestinationsHandler,
)
from fleetlight.manager.faces.servers.actions import ServerActionHandlers
from fleetlight.manager.faces.servers.create import ServerCreation
from fleetlight.manager.faces.servers.external_events import ExternalEventHandlers
from fleetlight.manager.faces.servers.instance_actions import InstanceActionHandlers
from fleetlight.manager.faces.servers.metadata import ServerMetadataHandlers
from fleetlight.manager.faces.servers.migrations import MigrationHandlers
from fleetlight.manager.faces.servers.parts import ServerPartHandlers
from fleetlight.manager.faces.servers.tags import ServerTagHandlers
from fleetlight.manager.faces.servers.update import ServerChangeHandlers
from fleetlight.manager.operations.nodes.observing import observer_of
from fleetlight.manager.operations.nodes.opening import opened_nodes

__all__ = ["faces", "observer_of", "opened_nodes"]


def faces(services: Services, query_engine: QueryEngine, host_statuses: HostStatusCache) -> Faces:
    """Make the faces. fleetlight.api.wing calls this, `observer_of` and `opened_nodes`."""
    parts, access = services.parts, services.access
    changes = ServerChangeHandlers(access, host_statuses, soft_deletes=parts.soft_deletes)
    actions = ServerActionHandlers(access, host_statuses)
    # The runner carries bulk changes out in this process, by the handlers of the compute API.
    runner = BulkRunner(access, ItemActions(access, actions, changes), parts.clock)
    return Faces(
        routes=_routes(services, query_engine, runner),
        compute=[*_of_servers(access, changes, actions), *_of_hosts(services, host_statuses)],
        rapi=list(_of_the_remote_api(access)),
        end=runner.end,
    )


def _routes(services: Services, query_engine: QueryEngine, runner: BulkRunner) -> Sequence[Route]:
    route, access = services.middleware.route, services.access
    changes, destinations = bulk.BulkHandlers(services, query_engine, runner), DestinationsHandler(access)
    return [
        route(bulk.BULK_CHANGES, changes.index),
        route(bulk.PREVIEW_BULK, changes.preview),
        route(bulk.BULK_CHANGE, changes.show),
        route(bulk.START_BULK, changes.start),
        route(bulk.STOP_BULK, changes.stop),
        route(SELECT_DESTINATIONS, destinations.select),
        route(RELEASE_DESTINATION, destinations.release),
        route(CANDIDATES, CandidatesHandler(access).show),
    ]


def _of_servers(
    access: FleetAccess, changes: ServerChangeHandlers, actions: ServerActionHandlers
) -> Iterator[ApiRoute]:
    yield from ServerCreation(access).routes()
    yield from changes.routes()
    yield from actions.routes()
    yield from InstanceActionHandlers(access).routes()
    yield from MigrationHandlers(access).routes()
    yield from ServerMetadataHandlers(access).routes()
    yield from ServerTagHandlers(access).routes()
    yield from ServerPartHandlers(access).routes()
    yield from ExternalEventHandlers(access).routes()


def _of_hosts(services: Services, host_statuses: HostStatusCache) -> Iterator[ApiRoute]:
    access, clock = services.access, services.parts.clock
    hosts = FleetHosts(access, host_statuses)
    yield from ServiceHandlers(hosts).routes()
    yield from HostHandlers(access, hosts).routes()
    yield from HypervisorHandlers(access, hosts, clock).routes()
    yield from AuditLogHandlers(hosts, clock).routes()
    yield from AggregateHandlers(access).routes()


def _of_the_remote_api(access: FleetAccess) -> Iterator[Resource]:
    """Yield the resources of the remote API, in the order in which they are matched."""
    targets, submitter = Targets(access), Submitter(access)
    yield from InstanceChanges(targets, submitter).resources()
    yield from ItemChanges(targets, submitter).resources()
    yield from TagChanges(targets, submitter).resources()
    yield from FilterChanges(access, targets).resources()
    yield from FleetChanges(access, targets, submitter).resources()
