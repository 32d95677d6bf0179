"""What tells an indexer that something of a cell may differ from the index."""

from enum import StrEnum

from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress


class FollowedBy(StrEnum):
    CHANGES = "changes"  # the cell numbers them
    LOG = "log"  # that of its database server names what each commit has touched
    COMPARISONS = "comparisons"  # all of it is read now and then; notifications only make that sooner

    @property
    def is_close(self) -> bool:
        """Whether the index is whole up to a number, the watermark, and to be as fresh as searches want it."""
        return self is not FollowedBy.COMPARISONS


def followed_by(cell: Cell, progress: CellProgress | None) -> FollowedBy:
    """progress: of the cell, as the index says."""
    if cell.can.numbers_changes:
        return FollowedBy.CHANGES
    log = None if progress is None else progress.log
    return FollowedBy.LOG if log is not None and log.problem is None else FollowedBy.COMPARISONS
