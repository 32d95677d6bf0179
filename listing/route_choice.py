"""The choice of the cells that the index answers for, and the contribution of each cell, for pages and counts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.listing.answer import CellAnswer, Consistency, Freshness, Route
from fleetlight.listing.index_gateway import ProgressByCell
from fleetlight.listing.sources import CellFailure
from fleetlight.query.filters import Filter
from fleetlight.query.retention import may_match_forgotten


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
    """cells: uuids of those that the index answers for. too_short: horizons before which the request may want rows."""

    cells: Collection[str]
    too_short: Collection[int] = field(default=())


def choose_indexed(
    wanted: Filter,
    cells: Sequence[Cell],
    progress: ProgressByCell,
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
    return IndexedCells(indexed, too_short)


def answer_of(
    cell: Cell, live: LiveCell | None, progress: CellProgress | None, fresh: Freshness, decisive: Collection[str]
) -> CellAnswer:
    """Describe the contribution of a cell. live: None if the list did not read the cell live.

    decisive: the fields that decide which rows the answer has.
    """
    answer = _answer_of(cell, live, progress, fresh)
    if untold := sorted(cell.untold_fields.intersection(decisive)):
        return answer.lacking(f"cells of kind '{cell.kind}' do not tell the field '{untold[0]}' of the request")
    return answer


def _answer_of(cell: Cell, live: LiveCell | None, progress: CellProgress | None, fresh: Freshness) -> CellAnswer:
    if live is None and progress is not None:
        age_s = fresh.age_s(progress)
        return CellAnswer(cell, Route.INDEX, fresh.is_complete(progress), progress.watermark, age_s)
    if live is not None and live.failure is None:
        answer = CellAnswer(cell, Route.LIVE, is_complete=not live.damaged, left_out=live.left_out)
        return answer.lacking(live.lacks)
    failure = None if live is None else str(live.failure)
    if progress is None or (live is not None and not live.has_substitute):
        return CellAnswer(cell, Route.SKIPPED, is_complete=False, failure=failure)
    return CellAnswer(cell, Route.INDEX_WHILE_DOWN, False, progress.watermark, fresh.age_s(progress), failure)
