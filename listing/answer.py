"""One page and its proof: the items, and for each cell where its rows came from and how fresh that is.

Also the choice of the cells that the index answers for, of pages and counts.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.listing.admission import NO_LIMIT, Admission
from fleetlight.listing.sources import CellFailure
from fleetlight.query.filters import Filter
from fleetlight.query.retention import may_match_forgotten
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_MOST_AHEAD_US = 2_000_000
"""Each process is within a second of the fleet's clock (fleetlight.cells.fleet.fleet_clock), or is not sure."""


class Consistency(StrEnum):
    """How fresh a request wants its answer (docs/architecture.md, "One merge, many sources")."""

    ANY = "any"
    BOUNDED = "bounded"
    STRONG = "strong"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading the index and the cells for one request.

    ask_live: uuids of the cells to read live, since the index may lack changes that the caller knows.
    cell_timeout_s: time limit of one cell. admission: the limits on the request's pages.
    """

    consistency: Consistency
    ask_live: Collection[str]
    cell_timeout_s: float
    admission: Admission = NO_LIMIT


class Route(StrEnum):
    """The source of one cell's rows. CHANGELOG: the cell itself, with its rows as they were at an earlier moment."""

    INDEX = "index"
    LIVE = "live"
    CHANGELOG = "changelog"
    INDEX_WHILE_DOWN = "index-while-down"
    SKIPPED = "skipped"


class CellAnswer(Struct, frozen=True, gc=False):
    """The contribution of one cell to an answer.

    watermark, age_s: the index has every change of the cell up to this sequence, as of so many seconds ago; None
        without index.
    failure: why the cell did not answer, or not in full; may name servers, so only operators may see it.
    left_out: number of damaged rows that the page lacks.
    is_complete: the merge had every row of the cell for this request, as of `age_s`, which is then at most
        `search.staleness_limit_s`.
    """

    cell: Cell
    route: Route
    is_complete: bool
    watermark: int | None = None
    age_s: float | None = None
    failure: str | None = None
    left_out: int = 0

    def lacking(self, reason: str | None) -> "CellAnswer":
        """Return this answer marked incomplete for `reason`; unchanged if that is None."""
        return self if reason is None else replace(self, is_complete=False, failure=self.failure or reason)

    @property
    def is_down(self) -> bool:
        """Whether the cell was asked and failed."""
        return self.failure is not None and self.route in {Route.INDEX_WHILE_DOWN, Route.SKIPPED}


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list.

    items: JSON objects, separated by commas. rows: their number, including rows that were left out.
    last: stored values of the order's keys at the last row, uuid last; None without rows.
    has_all_cells: whether `cells` are known to be all cells of the fleet.
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
        """Cells with damaged servers that the page lacks."""
        return [answer.cell for answer in self.cells if answer.left_out]

    @property
    def summary(self) -> str:
        """`index`, `cells` or `mixed`: the route as shown to callers who may not know the cells."""
        from_index = {answer.route in {Route.INDEX, Route.INDEX_WHILE_DOWN} for answer in self.cells}
        if from_index == {True}:
            return "index"
        return "mixed" if True in from_index else "cells"


@dataclass(frozen=True, slots=True)
class Freshness:
    """Freshness of the index at one moment: how far it is behind the cells, and for which cells it may answer.

    A list takes it once for all cells, after its request came and before it queries the index. It decides which cells
    the index answers for, and whether that answer is complete: the index's rows are no older than this moment
    (docs/decisions/0002-promise-completeness.md).
    now: microseconds since the epoch. limit_s: `search.staleness_limit_s`. is_sure: whether the clock is known to be
        right; otherwise nothing is fresh.
    """

    now: int
    limit_s: float
    is_sure: bool = field(default=True, kw_only=True)

    def answers(self, progress: CellProgress | None, consistency: Consistency) -> bool:
        """Whether a list takes a cell's rows from the index, whose progress in the cell is `progress`."""
        if progress is None or consistency is Consistency.STRONG:
            return False
        return consistency is Consistency.ANY or self.is_complete(progress)

    def is_complete(self, progress: CellProgress) -> bool:
        """Whether the index is known to have every change of a cell up to about now.

        A progress dated further in the future than two clocks may differ counts as stale: its clock was wrong, and it
        would stay fresh long after the indexer stopped.
        """
        limit_us = self.limit_s * MICROSECONDS_PER_SECOND
        behind_us = self.now - progress.fresh_as_of
        return self.is_sure and progress.is_complete and -min(limit_us, _MOST_AHEAD_US) <= behind_us <= limit_us

    def behind_s(self, progress: CellProgress) -> float:
        """Seconds since the moment up to which the index is known to be complete; negative if that is in the future."""
        return (self.now - progress.fresh_as_of) / MICROSECONDS_PER_SECOND

    def age_s(self, progress: CellProgress) -> float:
        """As `behind_s`, but never negative."""
        return max(0.0, (self.now - progress.fresh_as_of) / 1e6)


class LiveCell(Protocol):
    """The outcome of the query to one live cell.

    failure: why the cell did not answer in full. has_substitute: whether the index answered instead.
    damaged: number of unreadable rows. left_out: number of unreadable rows that the answer lacks.
    lacks: why other rows, such as announced instances, may be missing; None if none are.
    """

    @property
    def failure(self) -> CellFailure | None: ...

    @property
    def has_substitute(self) -> bool: ...

    @property
    def damaged(self) -> int: ...

    @property
    def left_out(self) -> int: ...

    @property
    def lacks(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class IndexedCells:
    """cells: uuids of those that the index answers for. too_short: horizons before which the request may want rows.

    beside_waiting: uuids of cells that are read live as are the servers of their deployment that wait for a cell.
    """

    cells: Collection[str]
    too_short: Collection[int]
    beside_waiting: Collection[str]


def choose_indexed(
    wanted: Filter,
    cells: Sequence[Cell],
    progress: Mapping[str, CellProgress],
    fresh: Freshness,
    *,
    consistency: Consistency,
    ask_live: Collection[str],
) -> IndexedCells:
    """Choose the cells that the index answers for. ask_live: uuids of cells that the list reads live in any case."""
    # The index keeps instances deleted since its horizon; a request that may want older ones reads the cell live.
    horizons = {each.horizon for each in progress.values()} - {0}
    too_short = [horizon for horizon in horizons if may_match_forgotten(wanted, horizon)]
    indexed = {
        cell.uuid
        for cell in cells
        if cell.uuid not in ask_live
        and fresh.answers(progress.get(cell.uuid), consistency)
        and progress[cell.uuid].horizon not in too_short
    }
    # A server may leave those that wait for a cell just before they are read, and the index of its cell lack it yet.
    waiting = {cell.api_database_url for cell in cells if cell.uuid not in indexed and cell.is_before_cells}
    beside = {cell.uuid for cell in cells if cell.api_database_url in waiting} if waiting else set()
    return IndexedCells(indexed - beside, too_short, beside & indexed)


def answer_of(
    cell: Cell, live: LiveCell | None, progress: CellProgress | None, fresh: Freshness, decisive: Collection[str]
) -> CellAnswer:
    """Describe the contribution of a cell. live: None if the list did not read the cell live.

    decisive: the fields that decide which rows the answer has.
    """
    failure = None if live is None or live.failure is None else str(live.failure)
    if live is not None and failure is None:
        answer = CellAnswer(cell, Route.LIVE, is_complete=not live.damaged, left_out=live.left_out).lacking(live.lacks)
    elif progress is None or (live is not None and not live.has_substitute):
        answer = CellAnswer(cell, Route.SKIPPED, is_complete=False, failure=failure)
    else:
        route = Route.INDEX if live is None else Route.INDEX_WHILE_DOWN
        is_complete = live is None and fresh.is_complete(progress)
        answer = CellAnswer(cell, route, is_complete, progress.watermark, fresh.age_s(progress), failure)
    if untold := sorted(cell.untold_fields.intersection(decisive)):
        return answer.lacking(f"cells of kind '{cell.kind}' do not tell the field '{untold[0]}' of the request")
    return answer


def proof_of(pages: Sequence[Page]) -> Page:
    """Join the proofs of all pages of an answer: for each cell, the worst of them."""
    worst: dict[str, CellAnswer] = {}
    for page in pages:
        for answer in page.cells:
            if answer.cell.uuid not in worst or not answer.is_complete:
                worst[answer.cell.uuid] = answer
    return Page(b"", 0, None, list(worst.values()), all(page.has_all_cells for page in pages))
