"""The end of a cell: no row of it stays in the index, and none comes back."""

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
    """rows: of the index. mappings: of instances to the cell, in the fleet database."""

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

    The order matters. Disabled first: indexers and relays leave it within `fleet.cells_refresh_interval_s`. Then the
    leases, waiting at most `deadline_s` for its followers, and as long for its relay: a process that comes later finds
    the lease taken, and then the cell gone. Then the index says that it does not have the cell whole, and there is a
    `pause`: a list that has begun before, or remembers what the index said, must not find some of the rows gone and
    call the others all. The index before the registry: cut off in between, the cell is still there and can be removed
    again, while rows of a cell that is in no registry would stay for ever.

    remove_bus: removes its queues, as far as that is possible.
    Raises CellInUseError, LeaseHeldError, LeaseLostError, UnknownCellError, FleetUnreachableError, and what the writer
    raises.
    """
    cell = _disabled(fleet, cell_uuid)
    with leases.removal(cell, deadline_s=deadline_s, on_wait=on_wait) as confirm:
        # What was true before the wait need not be true any more.
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
        # No indexer would take anything out of its queue any more, and that of a cell of Nova's would go on filling.
        remove_bus(cell)
        return CellRemovalResult(rows, fleet.remove_cell(cell))


def wait_for_relay(
    cell: Cell, is_relayed: Callable[[Cell], bool], deadline_s: float, on_wait: Callable[[LeaseHeldError], None]
) -> None:
    """Wait until the relay has left a disabled cell, at most `deadline_s`. Raises CellInUseError."""
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
