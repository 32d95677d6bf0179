"""Removes the queues of disabled and removed cells, which would fill for ever.

The command that disables or removes a cell removes its queue when no indexer follows it. But it does not wait for a
follower whose lease was lost, and which may have reconnected and declared the queue again.
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
    """Removes our queue of a cell, with `is_gone` everything of ours on its bus; raises BusError."""

    def __call__(self, cell: Cell, *, is_gone: bool) -> None: ...


def release_nothing(cell: Cell, *, is_gone: bool) -> None:
    """For indexers that follow no bus of another program."""


class BusReleases:
    """Remembers the cells that an indexer left, and removes their queues. cells: returns the cells of the fleet."""

    def __init__(self, cells: Callable[[], Sequence[Cell]], leases: CellLeases, release: ReleasesBus) -> None:
        self._cells = cells
        self._leases = leases
        self._release = release
        self._left: dict[str, Cell] = {}

    def add(self, cells: Iterable[Cell]) -> None:
        """Remember cells that this indexer left, and will not follow again."""
        self._left |= {cell.uuid: cell for cell in cells if not cell.can.numbers_changes and cell.transport_url}

    def release(self, followed: Collection[str]) -> None:
        """Remove the queues of cells that are not `followed` (uuids) again. Raises FleetUnreachableError."""
        for uuid, cell in list(self._left.items()):
            if uuid not in followed:
                try:
                    with self._leases.unfollowed(cell, deadline_s=0, on_wait=lambda _: None):
                        known = next((each for each in self._cells() if each.uuid == uuid), None)
                        if known is None or known.disabled:
                            self._release(cell, is_gone=known is None)
                except LeaseHeldError:
                    # Another process leaves, removes, or follows the cell: the next call shows which.
                    continue
                except BusError as error:
                    _log.warning("indexer.queue_stays", cell=cell.name, reason=str(error))
            del self._left[uuid]
