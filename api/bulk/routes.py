"""The routes of bulk changes."""

from collections.abc import Sequence

from starlette.routing import Route

from fleetlight.api.bulk.handlers import (
    BULK_CHANGE,
    BULK_CHANGES,
    PREVIEW_BULK,
    START_BULK,
    STOP_BULK,
    BulkHandlers,
)
from fleetlight.api.bulk.item_actions import ItemActions
from fleetlight.api.bulk.running import BulkRunner
from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.compute.servers.actions import ServerActionHandlers
from fleetlight.api.compute.servers.update import ServerChangeHandlers
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.services import Services


def runner_of(services: Services) -> BulkRunner:
    """What carries bulk changes out in this process, by handlers of the compute API."""
    parts, access = services.parts, services.access
    statuses = HostStatusCache(access, parts.cells)
    changes = ServerChangeHandlers(access, statuses, soft_deletes=parts.soft_deletes)
    return BulkRunner(access, ItemActions(access, ServerActionHandlers(access, statuses), changes), parts.clock)


def routes(services: Services, query_engine: QueryEngine, runner: BulkRunner) -> Sequence[Route]:
    """runner: of this process."""
    bulk, route = BulkHandlers(services, query_engine, runner), services.middleware.route
    return [
        route(BULK_CHANGES, bulk.index),
        route(PREVIEW_BULK, bulk.preview),
        route(BULK_CHANGE, bulk.show),
        route(START_BULK, bulk.start),
        route(STOP_BULK, bulk.stop),
    ]
