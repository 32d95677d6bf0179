"""How an indexer learns that something in a cell may differ from the index."""

from enum import StrEnum

from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress


class FollowedBy(StrEnum):
    CHANGES = "changes"  # the cell numbers them
    LOG = "log"  # the log of the database server names what each commit touched
    COMPARISONS = "comparisons"  # all rows are read at intervals; notifications only make that sooner

    @property
    def is_close(self) -> bool:
        """Whether the index is complete up to a watermark, and so as fresh as searches need it."""
        return self is not FollowedBy.COMPARISONS


def followed_by(cell: Cell, progress: CellProgress | None) -> FollowedBy:
    """How the cell is followed. progress: of the cell in the index."""
    if cell.can.numbers_changes:
        return FollowedBy.CHANGES
    log = None if progress is None else progress.log
    return FollowedBy.LOG if log is not None and log.problem is None else FollowedBy.COMPARISONS
