"""The parts of an application, which the command builds."""

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
    """The parts of an application. Each is closed where it was built.

    cells: a `fleetlight.cells.fan_out.cell_pool.CellPool`. native: native cells for changes, by the same pool.
    searcher: the index; None without one. Lists use it only if `search.enabled`.
    identity: authenticates callers.
    rapi_users_file: users of the remote API beside those of `identity`.
    soft_deletes: whether deleted servers of native cells can be restored for a while.
    clock: of the fleet, if its database is on another machine (`Fleet.clock`).
    other_metrics: of other parts in this process, shown with its own.
    indexer: the indexer of the same command; `/healthz` and `/readyz` cover it, too.
    command: the command with this process and others; `/healthz` and `/readyz` cover all of them.
    limits: shared by the processes of the command; None if this is the only one.
    nodes: calls the agents of hosts; None if no part does.
    delivery: rules for targets of subscriptions.
    index_backend: the kind of the index, see `index.backend`; None without one.
    traces: of the process; None: make none.
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
