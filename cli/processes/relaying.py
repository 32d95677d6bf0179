"""Relays of the cells of a fleet, and whatever else runs for each cell, also of those registered while it runs."""

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
"""Called when work gets done, when there is none, and while a server is waited for that is away."""


def no_heartbeat() -> None:
    """For callers that take no heartbeats."""


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
    """Relay the changes of one native cell until `stop` is set; connections of its own.

    keys: what to sign with. clock: of the fleet: heartbeats say by it up to when a cell is known. traces: of the
    process; None: none are made.
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

    choose_cells, errors: as for `run_for_cells`. heartbeats: those of the threads are among them while they run. keys:
    what to sign with, which the function that chooses the cells refreshes. clock, traces: as of `run_relay`.
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
    """Have `run` for each of some cells, in a thread of its own, until `stop` is set.

    name: what such a thread is called in the log.
    choose_cells: which; raises FleetUnreachableError. It is asked every `fleet.cells_refresh_interval_s`: a new cell is
    taken in, one with changed addresses is begun anew, and one that is not chosen any more is left.
    Raises CommandError when a thread made a mistake.
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
        # The other cells go on, and this one as soon as its address is another one.
        _log.error(f"{name}.cell_unusable", cell=cell.name, reason=str(error))
