"""A query as the engine gets it, and its result."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlight.api.caller import Caller
from fleetlight.api.query.item_query import ItemQuery
from fleetlight.api.query.observing import QueryObserver
from fleetlight.api.shared.proof import ReadOptions
from fleetlight.listing.answer import CellAnswer, Page
from fleetlight.query.sort import SortOrder
from fleetlight.views.query2.projection import Row


@dataclass(frozen=True, slots=True)
class QueryResult:
    """rows: in their order. after: the position of the row to go on after; None at the end.

    proof: which cells the rows are of, and how they were asked.
    """

    rows: Sequence[Row]
    after: Sequence[Any] | None
    proof: Page


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query with its caller and options: as of `QueryEngine.answer`.

    read_by: the order in which instances are read, where it is not that of the question; their positions are as ever.
    """

    question: ItemQuery
    caller: Caller
    fresh: ReadOptions
    only: Collection[str] | None
    observer: QueryObserver | None = None
    read_by: SortOrder | None = None


def with_uncertain(answers: Sequence[CellAnswer], cells: Collection[str]) -> Sequence[CellAnswer]:
    """The same, of which those of `cells` (names) are not complete: see fleetlight.views.query2.projection.RowMaker."""
    reason = "the filter is about values that could not be fetched"
    return [answer.lacking(reason if answer.cell.name in cells else None) for answer in answers]
