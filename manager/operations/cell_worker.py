"""The worker of a native cell: the engine of jobs with all vocabularies and the cell's nodes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import NodesSettings
from fleetlight.manager.operations.jobs.maintenance import MaintenanceTask
from fleetlight.manager.operations.jobs.metrics import WorkerMetrics
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.manager.operations.nodes.cell_hosts import CellHosts
from fleetlight.manager.operations.nodes.opening import NodeRpcs
from fleetlight.manager.operations.nodes.refreshing import RefreshingHosts
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from fleetlight.resources.clock import Clock, system_clock

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces


class SimulatedHosts:
    """The hosts of a cell without agents: each call succeeds, since instances are only rows there."""

    def call(self, call: NodeCall, key: str) -> None:
        """Do nothing."""


def new_worker(
    engine: Engine,
    fleet: Fleet,
    cell: Cell,
    *,
    clock: Clock = system_clock,
    maintenance: Sequence[MaintenanceTask] = (),
    heartbeat: Callable[[], None] = lambda: None,
    rpcs: NodeRpcs | None = None,
    metrics: WorkerMetrics | None = None,
    traces: "Traces | None" = None,
) -> Worker:
    """Make a Worker. rpcs: calls the agents of hosts; None: jobs of hosts with an agent wait."""
    rpcs = rpcs or NodeRpcs(NodesSettings())
    nodes = RefreshingHosts(engine, cell, rpcs, CellHosts(engine, cell, rpcs, SimulatedHosts()))
    return Worker(
        engine,
        fleet,
        cell,
        ALL_OPERATIONS,
        nodes,
        clock=clock,
        maintenance=maintenance,
        heartbeat=heartbeat,
        metrics=metrics,
        traces=traces,
    )
