"""Buses of cells that were left: no queue goes on filling of a cell that is disabled or removed.

The command that disables or removes a cell removes its queue too, when no indexer follows it. But a follower whose
lease was lost is not waited for, and may have reconnected, and made the queue again, since then.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

import structlog

from fleetlight.cells.model import Cell
from fleetlight.indexer.errors import LeaseHeldError
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.notifications.errors import BusError

_log = structlog.get_logger(__name__)


class ReleasesBus(Protocol):
    """Removes the queue of a cell, and all else that the cell has on its bus when it is gone; raises BusError."""

    def __call__(self, cell: Cell, *, is_gone: bool) -> None: ...


def release_nothing(cell: Cell, *, is_gone: bool) -> None:
    """For buses without exchanges that are not ours."""


class BusReleases:
    """The cells that an indexer has left, and whose buses it has to look after. cells: of the fleet."""

    def __init__(self, cells: Callable[[], Sequence[Cell]], leases: CellLeases, release: ReleasesBus) -> None:
        self._cells = cells
        self._leases = leases
        self._release = release
        self._left: dict[str, Cell] = {}

    def add(self, cells: Iterable[Cell]) -> None:
        """These were left, and are not to be followed."""
        self._left |= {cell.uuid: cell for cell in cells if not cell.can.numbers_changes and cell.transport_url}

    def release(self, followed: Collection[str]) -> None:
        """Release those that are not `followed` (uuids) again. Raises FleetUnreachableError."""
        for uuid, cell in list(self._left.items()):
            if uuid not in followed:
                try:
                    with self._leases.unfollowed(cell, deadline_s=0, on_wait=lambda _: None):
                        known = next((each for each in self._cells() if each.uuid == uuid), None)
                        if known is None or known.disabled:
                            self._release(cell, is_gone=known is None)
                except LeaseHeldError:
                    # Held by a process that leaves it last, removes it, or follows it again: the next look shows which.
                    continue
                except BusError as error:
                    _log.warning("indexer.queue_stays", cell=cell.name, reason=str(error))
            del self._left[uuid]
