"""Opens the parts of the API's application, as the settings say."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from fleetlight.api.command import Command
from fleetlight.api.identity.browser import BrowserIdentity
from fleetlight.api.limits.shared_limits import SharedLimits
from fleetlight.api.parts import ApiParts
from fleetlight.api.wing import opened_agents
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fleet.clock_metrics import measure_clock
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.settings import Settings
from fleetlight.indexer.backends.opening import open_searcher
from fleetlight.indexer.stream.liveness import Probes

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces


@asynccontextmanager
async def open_parts(
    settings: Settings,
    fleet: Fleet,
    identity: BrowserIdentity,
    *,
    indexer: Probes | None = None,
    command: Command | None = None,
    limits: SharedLimits | None = None,
    traces: "Traces | None" = None,
) -> AsyncIterator[ApiParts]:
    """Open the parts of the application for the block.

    indexer, command, limits, traces: parts outside this process; see fleetlight.api.app.ApiParts.
    """

    def cells() -> Sequence[Cell]:
        # Lists measure the freshness of the index by this clock.
        fleet.clock.look()
        return fleet.cells()

    pool = CellPool(
        cells,
        partial(open_adapter, statement_timeout_s=settings.search.cell_timeout_s),
        # A complete answer must not lack servers of a cell that joined longer ago than the staleness limit. The refresh
        # runs at half that limit, so that lists never wait for it and stay complete for a while if the fleet database
        # fails.
        refresh_interval_s=min(settings.fleet.cells_refresh_interval_s, settings.search.staleness_limit_s / 2),
        proves_for_s=settings.search.staleness_limit_s,
        deadline_s=settings.search.cell_timeout_s,
    )
    searcher = open_searcher(settings.index) if settings.search.enabled else None
    counted = CollectorRegistry()
    measure_clock(counted, fleet.clock)
    try:
        with opened_agents(settings.nodes, counted) as node_rpcs:
            yield ApiParts(
                cells=pool,
                fleet=fleet,
                native=NativeCells(fleet.cells, pool, max_attempts=settings.scheduler.max_attempts),
                identity=identity,
                searcher=searcher,
                index_backend=settings.index.backend if settings.search.enabled else None,
                soft_deletes=settings.fleet.reclaim_instance_interval_s > 0,
                rapi_users_file=settings.identity.rapi_users_file,
                api=settings.api,
                search=settings.search,
                clock=fleet.clock,
                other_metrics=(counted,),
                indexer=indexer,
                command=command,
                limits=limits,
                nodes=node_rpcs,
                delivery=settings.delivery,
                traces=traces,
            )
    finally:
        await pool.close()
        if searcher is not None:
            await searcher.close()
