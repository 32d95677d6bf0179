"""The relays of the cells of a fleet, also of those that are registered while they run."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event

import structlog

from cells.errors import DatabaseUrlError, FleetUnreachableError
from cells.model import Cell
from cli.errors import CommandError
from cli.following import run_relay
from cli.parts import Part, stop_all
from cli.settings import Settings

_log = structlog.get_logger(__name__)


def run_relays(settings: Settings, choose_cells: Callable[[], Sequence[Cell]], stop: Event) -> None:
    """Relay the changes of some native cells, each in a thread of its own, until `stop` is set.

    choose_cells: which; raises FleetUnreachableError. It is asked every `fleet.cells_refresh_interval_s`: a new cell is
    taken in, one whose addresses changed is relayed anew, and one that is not chosen any more is let go.
    Raises CommandError when a relay made a mistake.
    """
    running: dict[Cell, Part] = {}
    while not stop.is_set():
        try:
            chosen = choose_cells()
        except FleetUnreachableError as error:
            _log.warning("relay.fleet_unreachable", reason=error.reason)
        else:
            stop_all([running.pop(cell) for cell in running.keys() - set(chosen)])
            for cell in chosen:
                if cell not in running:
                    running[cell] = Part(f"relay-{cell.name}", partial(_relay, settings, cell), stop.set)
                    _log.info("relay.cell_started", cell=cell.name)
        stop.wait(settings.fleet.cells_refresh_interval_s)
    parts = list(running.values())
    stop_all(parts)
    if any(part.has_failed for part in parts):
        raise CommandError("a relay failed; the log says why")


def _relay(settings: Settings, cell: Cell, stop: Event) -> None:
    try:
        run_relay(settings, cell, stop)
    except DatabaseUrlError as error:
        # The other cells go on, and this one as soon as its address is another one.
        _log.error("relay.cell_unusable", cell=cell.name, reason=str(error))
