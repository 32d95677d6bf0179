"""Runs relays, or other work, for each cell of a fleet, including cells that are added meanwhile."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import structlog

from fleetlight.bus.bus import Publisher
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import DatabaseUrlError, FleetUnreachableError
from fleetlight.cells.fleet.cell_keys import Keyring
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.kinds.native.relay_metrics import RelayMetrics
from fleetlight.cells.model import Cell
from fleetlight.cli.interpreter import share_among_threads
from fleetlight.cli.processes.cell_heartbeats import CellHeartbeats
from fleetlight.cli.processes.parts import ProcessPart, raise_failure, stop_all
from fleetlight.cli.settings import Settings
from fleetlight.resources.clock import Clock

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces

_log = structlog.get_logger(__name__)


SendHeartbeat = Callable[[], None]
"""Called when work gets done, when there is none, and while a server that is down is awaited."""


def no_heartbeat() -> None:
    """For callers that need no heartbeats."""


def run_relay(
    settings: Settings,
    metrics: RelayMetrics,
    cell: Cell,
    stop: Event,
    beat: SendHeartbeat = no_heartbeat,
    *,
    keys: Keyring,
    clock: Clock,
    traces: "Traces | None" = None,
) -> None:
    """Relay the changes of one native cell, over connections of its own, until `stop` is set.

    keys: for signatures. clock: of the fleet, by which heartbeats say up to when a cell is complete. traces: of the
    process; None makes no traces.
    """
    takeover_after_s = settings.fleet.takeover_after_s
    engine = create_database_engine(cell.database_url, cell_uuid=cell.uuid, idle_transaction_timeout_s=takeover_after_s)
    publisher = Publisher(cell.transport_url, cell.uuid, settings.bus)
    try:
        Relay(
            engine,
            cell,
            publisher,
            settings.relay,
            clock,
            sign=partial(keys.sign, cell.uuid),
            heartbeat=beat,
            check_bus=publisher.check,
            metrics=metrics,
            takeover_after_s=takeover_after_s,
            traces=traces,
        ).run(stop)
    finally:
        publisher.close()
        engine.dispose()


def run_relays(
    settings: Settings,
    choose_cells: Callable[[], Sequence[Cell]],
    heartbeats: CellHeartbeats,
    metrics: RelayMetrics,
    stop: Event,
    *,
    keys: Keyring,
    clock: Clock,
    traces: "Traces | None" = None,
) -> None:
    """Relay the changes of some native cells, each in a thread of its own, until `stop` is set.

    choose_cells: as for `run_for_cells`; it also refreshes `keys`. heartbeats: includes those of the threads while they
    run. keys: for signatures. clock, traces: as for `run_relay`.
    """
    relay = partial(run_relay, settings, metrics, keys=keys, clock=clock, traces=traces)
    run = partial(with_heartbeat, relay, heartbeats)
    run_for_cells("relay", run, settings, choose_cells, stop)


def with_heartbeat(
    run: Callable[[Cell, Event, SendHeartbeat], None], heartbeats: CellHeartbeats, cell: Cell, stop: Event
) -> None:
    with heartbeats.of(cell) as heartbeat:
        run(cell, stop, heartbeat.give)


def run_for_cells(
    name: str,
    run: Callable[[Cell, Event], None],
    settings: Settings,
    choose_cells: Callable[[], Sequence[Cell]],
    stop: Event,
) -> None:
    """Call `run` for each chosen cell, in a thread of its own, until `stop` is set.

    name: how the log names these threads. choose_cells: is called every `fleet.cells_refresh_interval_s`: new cells are
    started, cells with changed addresses are restarted, and cells no longer chosen are stopped. It may raise
    FleetUnreachableError.
    Raises CommandError if a thread failed.
    """
    running: dict[Cell, ProcessPart] = {}
    while not stop.is_set():
        try:
            chosen = choose_cells()
        except FleetUnreachableError as error:
            _log.warning(f"{name}.fleet_unreachable", reason=error.reason)
        else:
            share_among_threads(len(chosen))
            unchosen = running.keys() - set(chosen)
            stop_all([running.pop(cell) for cell in unchosen])
            for cell in unchosen:
                _log.info(f"{name}.cell_left", cell=cell.name)
            for cell in chosen:
                if cell not in running:
                    running[cell] = ProcessPart(f"{name}-{cell.name}", partial(_run_usable, name, run, cell), stop.set)
                    _log.info(f"{name}.cell_started", cell=cell.name)
        stop.wait(settings.fleet.cells_refresh_interval_s)
    parts = list(running.values())
    stop_all(parts)
    raise_failure(parts)


def _run_usable(name: str, run: Callable[[Cell, Event], None], cell: Cell, stop: Event) -> None:
    try:
        run(cell, stop)
    except DatabaseUrlError as error:
        # The other cells go on; this one is started again once its address has changed.
        _log.error(f"{name}.cell_unusable", cell=cell.name, reason=str(error))
