"""What an application is made of, built elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from fleetlight.api.command import Command
from fleetlight.api.identity import NoIdentity
from fleetlight.api.identity.browser import BrowserIdentity
from fleetlight.api.limits.shared_limits import SharedLimits
from fleetlight.api.settings import ApiSettings, DeliverySettings
from fleetlight.api.shared.fleet_access import Agents
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.indexer.backends.base import IndexSearcher
from fleetlight.indexer.stream.liveness import Probes
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import CellReader
from fleetlight.resources.clock import Clock, system_clock

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces


@dataclass(frozen=True, slots=True)
class ApiParts:
    """What the application is made of. What built a part closes it.

    cells: a `fleetlight.cells.fan_out.cell_pool.CellPool`. native: the cells that can be changed, by the same pool.
    searcher: the index; None when there is none. It is only asked if `search.enabled`.
    identity: authenticates callers.
    rapi_users_file: users of the remote API beside those of `identity`.
    soft_deletes: whether deleted servers of native cells can be restored for a while.
    clock: of the fleet, where its database is on another machine (`Fleet.clock`).
    other_metrics: of parts that run in the same process, measured with its own.
    indexer: the one that runs beside this process, in one command; `/healthz` and `/readyz` speak for it too.
    command: that has this process and others; /healthz and /readyz speak for all of them.
    limits: those that hold for all of these; None: there is no other.
    nodes: what calls the agents of hosts; None: nothing does.
    delivery: what targets of subscriptions may be.
    index_backend: the kind of the index, as of `index.backend`; None when there is none.
    traces: of the process; None: none are made.
    """

    cells: CellReader
    fleet: Fleet
    native: NativeCells
    searcher: IndexSearcher | None = None
    api: ApiSettings = field(default_factory=ApiSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    identity: BrowserIdentity = field(default_factory=NoIdentity)
    soft_deletes: bool = False
    rapi_users_file: Path | None = None
    clock: Clock = system_clock
    other_metrics: Sequence[CollectorRegistry] = ()
    indexer: Probes | None = None
    command: Command | None = None
    limits: SharedLimits | None = None
    nodes: Agents | None = None
    index_backend: str | None = None
    traces: "Traces | None" = None
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
