"""One page and its proof: the items, and for each cell where its rows came from and how fresh that is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


class Consistency(StrEnum):
    """What a request demands of its answer (docs/architecture.md, "One merge, many sources")."""

    ANY = "any"
    BOUNDED = "bounded"
    STRONG = "strong"


class Route(StrEnum):
    """Where the rows of one cell came from. CHANGELOG: from the cell itself, as they were at an earlier moment."""

    INDEX = "index"
    LIVE = "live"
    CHANGELOG = "changelog"
    INDEX_WHILE_DOWN = "index-while-down"
    SKIPPED = "skipped"


class CellAnswer(Struct, frozen=True, gc=False):
    """What one cell contributed.

    watermark, age_s: sequence and age in seconds that the index's rows of it are complete up to; None without index.
    failure: what kept the cell from answering itself, or whole, when it was asked; may name servers, so it is not for
    every caller.
    left_out: how many of its rows belong on the page and are not there, since they are damaged.
    is_complete: every row that the cell has for this request was there for the merge; as of that age, which is then no
        more than `search.staleness_limit_s`.
    """

    cell: Cell
    route: Route
    is_complete: bool
    watermark: int | None = None
    age_s: float | None = None
    failure: str | None = None
    left_out: int = 0

    def lacking(self, reason: str | None) -> "CellAnswer":
        """The same, and rows are missing for a reason; None: none are."""
        return self if reason is None else replace(self, is_complete=False, failure=self.failure or reason)

    @property
    def is_down(self) -> bool:
        """Whether the cell did not answer itself."""
        return self.failure is not None and self.route in {Route.INDEX_WHILE_DOWN, Route.SKIPPED}


@dataclass(frozen=True, slots=True)
class Page:
    """items: JSON objects, with commas between them. rows: how many, those that are left out among them.

    last: stored values of the order's keys at the last row, uuid last; None without rows.
    has_all_cells: whether `cells` are known to be all of the fleet.
    """

    items: bytes
    rows: int
    last: tuple[Any, ...] | None
    cells: Sequence[CellAnswer]
    has_all_cells: bool = True

    @property
    def is_complete(self) -> bool:
        return self.has_all_cells and all(answer.is_complete for answer in self.cells)

    @property
    def skipped_cells(self) -> list[Cell]:
        return [answer.cell for answer in self.cells if answer.route is Route.SKIPPED]

    @property
    def left_out(self) -> list[Cell]:
        """Cells with servers that belong on the page, and that it does not show."""
        return [answer.cell for answer in self.cells if answer.left_out]

    @property
    def summary(self) -> str:
        """`index`, `cells` or `mixed`: all that a caller sees that may not know the cells."""
        from_index = {answer.route in {Route.INDEX, Route.INDEX_WHILE_DOWN} for answer in self.cells}
        if from_index == {True}:
            return "index"
        return "mixed" if True in from_index else "cells"


@dataclass(frozen=True, slots=True)
class Freshness:
    """Freshness of the index at one moment: how far it is behind the cells, and for which of them it may answer.

    It is one moment for all cells of a list: a list over many cells asks several things of each of them.

    It is taken once for a list, behind its request and before the index is asked, and says both: which cells the index
    answers for, and whether that is complete. What the index gives afterwards is no older
    (docs/decisions/0002-promise-completeness.md).
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
