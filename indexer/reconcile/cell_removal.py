"""Removes a cell for good: no row of it stays in the index, and none comes back."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fleetlight.cells.errors import CellInUseError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import COMMIT_LOGS, EPOCHS, HORIZONS, REPAIRS, CellProgress, IndexWriter
from fleetlight.indexer.errors import LeaseHeldError
from fleetlight.indexer.reconcile.retention import LISTS_DELAY_S
from fleetlight.indexer.writing.checkpoints import forget_checkpoints
from fleetlight.indexer.writing.journaling import JOURNALS
from fleetlight.indexer.writing.leases import CellLeases

_POLL_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class CellRemovalResult:
    """rows: number removed from the index. mappings: number of the cell's mappings removed from the fleet database."""

    rows: int
    mappings: int


def remove_cell(
    fleet: Fleet,
    cell_uuid: str,
    writer: IndexWriter,
    leases: CellLeases,
    *,
    is_relayed: Callable[[Cell], bool],
    remove_bus: Callable[[Cell], None],
    deadline_s: float,
    on_wait: Callable[[LeaseHeldError], None],
    on_batch: Callable[[int], None],
    pause: Callable[[float], None] = time.sleep,
) -> CellRemovalResult:
    """Remove a disabled cell from the index, then from the fleet.

    The order matters. The cell is disabled first: indexers and relays leave it within `fleet.cells_refresh_interval_s`.
    Then this takes the leases, and waits for followers and relay, at most `deadline_s` each: a process that comes later
    finds the lease taken, and then the cell gone. Then the index is marked as not having the whole cell, and a `pause`
    follows: a list that began before, or remembers the old state, must not take the remaining rows for all. The index
    comes before the registry: if this is cut off between them, the cell is still registered and can be removed again,
    while rows of an unregistered cell would stay for ever. remove_bus: removes its queues, as far as possible. Raises
    CellInUseError, LeaseHeldError, LeaseLostError, UnknownCellError, FleetUnreachableError, and what the writer raises.
    """
    cell = _disabled(fleet, cell_uuid)
    with leases.removal(cell, deadline_s=deadline_s, on_wait=on_wait) as confirm:
        # The cell may have changed during the wait.
        cell = _disabled(fleet, cell_uuid)
        wait_for_relay(cell, is_relayed, deadline_s, on_wait)

        def between_batches(rows: int) -> None:
            confirm()
            on_batch(rows)

        forget_checkpoints(writer, cell_uuid=cell.uuid)
        if cell.uuid in writer.load_progress():
            writer.save_progress([CellProgress(cell.uuid, 0, 0, is_complete=False)])
            pause(LISTS_DELAY_S)
            confirm()
        rows = writer.remove_cell(cell.uuid, between_batches)
        writer.save_state(HORIZONS, {cell.uuid: None})
        for kind in (COMMIT_LOGS, EPOCHS, JOURNALS, REPAIRS):
            writer.save_state(kind, {cell.uuid: None})
        confirm()
        # No indexer empties the queue any more, and that of a Nova cell would go on filling.
        remove_bus(cell)
        return CellRemovalResult(rows, fleet.remove_cell(cell))


def wait_for_relay(
    cell: Cell, is_relayed: Callable[[Cell], bool], deadline_s: float, on_wait: Callable[[LeaseHeldError], None]
) -> None:
    """Wait at most `deadline_s` until the relay has left a disabled cell. Raises CellInUseError."""
    deadline_s = time.monotonic() + deadline_s
    has_waited = False
    while is_relayed(cell):
        if time.monotonic() >= deadline_s:
            raise CellInUseError(cell.name, "a relay still publishes its changes; stop that process first")
        if not has_waited:
            on_wait(LeaseHeldError(cell.name, "its relay"))
        has_waited = True
        time.sleep(_POLL_INTERVAL_S)


def _disabled(fleet: Fleet, cell_uuid: str) -> Cell:
    cell = fleet.cell(cell_uuid)
    if not cell.disabled:
        raise CellInUseError(cell.name, f"it is in use; disable it first: `fleetlight cell disable {cell.name}`")
    return cell
