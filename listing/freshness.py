"""Freshness of the index at one moment: how far it is behind the cells, and for which of them it may answer."""

from dataclasses import dataclass, field

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.listing.answer import Consistency
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


@dataclass(frozen=True, slots=True)
class Freshness:
    """One moment, for all cells of a list: a list over many cells asks several things of each of them.

    It is taken once for a list, behind its request and before the index is asked, and says both: which cells the index
    answers for, and whether that is complete. What the index gives afterwards is no older
    (docs/decisions/0003-promise-completeness.md).
    now: microseconds since the epoch. limit_s: `search.staleness_limit_s`. is_sure: whether it is known what time it
        is; otherwise nothing is fresh.
    """

    now: int
    limit_s: float
    is_sure: bool = field(default=True, kw_only=True)

    def answers(self, progress: CellProgress | None, consistency: Consistency) -> bool:
        """Whether the rows of a cell come from the index, which follows it as `progress` says."""
        if progress is None or consistency is Consistency.STRONG:
            return False
        return consistency is Consistency.ANY or self.is_complete(progress)

    def is_complete(self, progress: CellProgress) -> bool:
        """Whether the index is known to have all of a cell up to about now.

        A moment far in the future shows a clock that is wrong, and would stay fresh long after the indexer stopped.
        """
        limit_us = self.limit_s * MICROSECONDS_PER_SECOND
        return self.is_sure and progress.is_complete and abs(self.now - progress.fresh_as_of) <= limit_us

    def behind_s(self, progress: CellProgress) -> float:
        """Seconds since the moment up to which the index is known to be complete; negative if that is still to come."""
        return (self.now - progress.fresh_as_of) / MICROSECONDS_PER_SECOND

    def age_s(self, progress: CellProgress) -> float:
        """As `behind_s`, and never negative."""
        return max(0.0, (self.now - progress.fresh_as_of) / 1e6)
