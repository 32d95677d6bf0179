"""Runs the workers of a fleet's cells; a module of its own, since its imports are slow."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.model import Cell
from fleetlight.cli.processes.cell_heartbeats import CellHeartbeats
from fleetlight.cli.processes.relaying import SendHeartbeat, no_heartbeat, run_for_cells, with_heartbeat
from fleetlight.cli.settings import Settings
from fleetlight.manager.operations.actions.accepting import Acceptance
from fleetlight.manager.operations.actions.reclaiming import Reclaimer
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.jobs.maintenance import MaintenanceTask
from fleetlight.manager.operations.jobs.metrics import WorkerMetrics
from fleetlight.manager.operations.jobs.pruning import Pruner
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.manager.operations.mapping_upkeep import MappingUpkeep
from fleetlight.manager.operations.nodes.opening import NodeRpcs
from fleetlight.manager.operations.opcodes.filters.applying import HeldJobs
from fleetlight.manager.operations.opcodes.instances.expire_reservations import Expirer
from fleetlight.manager.operations.opcodes.refresh import Refresher

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces

_EXPIRY_INTERVAL_S = 1.0
_HELD_JOBS_INTERVAL_S = 1.0
_REFRESH_LOOK_INTERVAL_S = 5.0


def run_workers(
    settings: Settings,
    fleet: Fleet,
    choose_cells: Callable[[], Sequence[Cell]],
    heartbeats: CellHeartbeats,
    stop: Event,
    *,
    rpcs: NodeRpcs | None = None,
    metrics: WorkerMetrics | None = None,
    traces: "Traces | None" = None,
) -> None:
    """Carry out the jobs of some native cells, each in a thread of its own, until `stop` is set.

    choose_cells, errors: as for `run_for_cells`. heartbeats: as for `run_relays`. rpcs: calls agents.
    metrics: count the workers' actions. traces: of the process; None makes no traces.
    """
    run = partial(
        with_heartbeat, partial(run_worker, settings, fleet, rpcs=rpcs, metrics=metrics, traces=traces), heartbeats
    )
    run_for_cells("worker", run, settings, choose_cells, stop)


def run_worker(
    settings: Settings,
    fleet: Fleet,
    cell: Cell,
    stop: Event,
    beat: SendHeartbeat = no_heartbeat,
    *,
    rpcs: NodeRpcs | None = None,
    metrics: WorkerMetrics | None = None,
    traces: "Traces | None" = None,
) -> None:
    """Carry out the jobs of one native cell, over connections of its own, until `stop` is set.

    rpcs, metrics, traces: as for `run_workers`.
    """
    engine = create_database_engine(
        cell.database_url, cell_uuid=cell.uuid, idle_transaction_timeout_s=settings.fleet.takeover_after_s
    )
    try:
        worker_of(settings, engine, fleet, cell, beat, rpcs=rpcs, metrics=metrics, traces=traces).run(stop)
    finally:
        engine.dispose()


def worker_of(
    settings: Settings,
    engine: Engine,
    fleet: Fleet,
    cell: Cell,
    beat: SendHeartbeat = no_heartbeat,
    *,
    rpcs: NodeRpcs | None = None,
    metrics: WorkerMetrics | None = None,
    traces: "Traces | None" = None,
) -> Worker:
    """Make a worker of one native cell. rpcs: calls the agents of its hosts. rpcs and metrics are the process's."""
    pruner = Pruner(engine, cell, kept_s=settings.fleet.jobs_kept_h * 3600, kept_count=settings.fleet.jobs_kept_count)
    metrics = metrics or WorkerMetrics()
    mappings = MappingUpkeep(NativeAdapter(cell, engine=engine), fleet, metrics)
    held, expirer = HeldJobs(engine, cell), Expirer(engine, cell)
    maintenance = [
        MaintenanceTask(pruner.prune),
        MaintenanceTask(mappings.step),
        MaintenanceTask(held.release, _HELD_JOBS_INTERVAL_S, rest_s=held.rest_s),
        MaintenanceTask(expirer.expire, _EXPIRY_INTERVAL_S, rest_s=expirer.rest_s),
    ]
    if settings.nodes.refresh_interval_s:
        refresher = Refresher(engine, cell, settings.nodes.refresh_interval_s)
        maintenance.append(MaintenanceTask(refresher.submit, _REFRESH_LOOK_INTERVAL_S, rest_s=refresher.rest_s))
    interval_s = settings.fleet.reclaim_instance_interval_s
    if interval_s:
        reclaimer = Reclaimer(Acceptance(engine, fleet, cell), engine, cell, interval_s)
        maintenance.append(MaintenanceTask(reclaimer.reclaim, interval_s))
    return new_worker(
        engine, fleet, cell, maintenance=maintenance, heartbeat=beat, rpcs=rpcs, metrics=metrics, traces=traces
    )
