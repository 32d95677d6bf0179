"""The services that the faces of one application share, made once from its parts."""

from dataclasses import dataclass

from fleetlight.api.identity import NoIdentity
from fleetlight.api.identity.openid.strategy import embedded_service
from fleetlight.api.limits.admission import ListAdmission
from fleetlight.api.limits.shared_limits import SharedLimits
from fleetlight.api.metrics import ApiMetrics
from fleetlight.api.parts import ApiParts
from fleetlight.api.shared.endpoint import Middleware
from fleetlight.api.shared.fleet_access import FleetAccess, any_project
from fleetlight.cells.fleet.compute.default_images import is_default_image
from fleetlight.cells.fleet.fleet_clock import FleetClock
from fleetlight.cells.instance_mappings import InstanceMappings
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites
from fleetlight.listing.count_instances import InstanceCounter
from fleetlight.listing.find_instance import InstanceFinder
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.list_items import ItemLister
from fleetlight.listing.watches.changelogs import Changelogs
from fleetlight.listing.watches.feed import ChangeFeed
from fleetlight.listing.watches.positions import PositionCodec


@dataclass(frozen=True, slots=True)
class Services:
    """The services. parts: of the application. index: holds the safe-connect flag. limits: shared by all processes.

    access: to the fleet database and native cells. feed: changes for watches, read by `changelogs`.
    positions: encodes the cursors of watches.
    """

    parts: ApiParts
    limits: SharedLimits
    metrics: ApiMetrics
    index: IndexGateway
    mappings: InstanceMappings
    lister: InstanceLister
    items: ItemLister
    counter: InstanceCounter
    finder: InstanceFinder
    access: FleetAccess
    writes: ReadYourWrites
    changelogs: Changelogs
    feed: ChangeFeed
    positions: PositionCodec
    admission: ListAdmission
    middleware: Middleware

    @classmethod
    def of(cls, parts: ApiParts) -> "Services":
        cells, fleet, search, identity = parts.cells, parts.fleet, parts.search, parts.identity
        metrics = ApiMetrics(parts.other_metrics, parts.api.max_project_metrics)
        mappings = InstanceMappings(fleet, statement_timeout_s=search.cell_timeout_s)
        clock = parts.clock
        is_clock_sure = (lambda: clock.is_sure) if isinstance(clock, FleetClock) else (lambda: True)
        index = IndexGateway(parts.searcher, search, clock=clock, is_clock_sure=is_clock_sure)
        announced = fleet.journals.announced
        finder = InstanceFinder(cells, mappings.mapping_of, index, search, announced)
        service = embedded_service(identity)
        access = FleetAccess(
            fleet,
            finder,
            parts.native,
            search.cell_timeout_s,
            parts.api.max_limit,
            # If images belong to another service, or none, any uuid may be an image.
            has_image=(lambda _image_id: True) if service is None else is_default_image,
            has_project=any_project if service is None else service.has_project,
            nodes=parts.nodes,
        )
        writes = ReadYourWrites(
            fleet,
            index,
            search,
            reader=cells,
            finder=finder,
            pool=parts.native.pool,
            engine=parts.native.engine,
            clock=clock,
        )
        changelogs = Changelogs(cells, fleet.journals, search.cell_timeout_s, clock=clock)
        admission = ListAdmission(parts.api, metrics.list_queues, has_identity=not isinstance(identity, NoIdentity))
        return cls(
            parts,
            parts.limits or SharedLimits.of(parts.api),
            metrics,
            index,
            mappings,
            InstanceLister(cells, index, search, announced),
            ItemLister(cells, index),
            InstanceCounter(cells, index, announced),
            finder,
            access,
            writes,
            changelogs,
            ChangeFeed(cells, changelogs),
            PositionCodec(None if parts.api.watch_key is None else parts.api.watch_key.get_secret_value()),
            admission,
            Middleware(identity, parts.api.compute_link_prefix, writes, admission),
        )

    def close(self) -> None:
        """End the watches and the threads; the parts stay open."""
        self.feed.close()
        self.changelogs.close()
        self.index.close()
        self.access.close()
        self.mappings.close()
