"""A query as the engine gets it, its result, and what is seen of it while it comes about."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetlight.api.caller import Caller
from fleetlight.api.query.item_query import ItemQuery
from fleetlight.api.shared.proof import ReadOptions
from fleetlight.cells.model import Cell
from fleetlight.listing.answer import CellAnswer, Page
from fleetlight.listing.explanation import Observer
from fleetlight.listing.list_items import CellItems
from fleetlight.query.filters import Filter
from fleetlight.query.sort import SortOrder
from fleetlight.views.query2.projection import Row


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """How a question is asked.

    cells: all there are. asked: uuids of those that are asked; None for all. of_cells: the conditions on `cell`, which
    say so. pushed: the filter that stores, or cells, are asked. tried: the one that rows are tried by.
    fields, keys: what cells are asked for of items other than instances (fleetlight.cells.model.ItemsAdapter).
    """

    cells: Sequence[Cell]
    asked: Collection[str] | None
    of_cells: Filter
    pushed: Filter
    tried: Filter
    fields: Collection[str] = ()
    keys: Collection[Any] | None = None


@dataclass(slots=True)
class QueryObserver:
    """What is seen of the answer to a question; nothing of it costs one that is not explained.

    listing: of the pages of instances. items: what each cell gave of other items, or the index of it.

    why_not_indexed: of those that gave them themselves.
    """

    listing: Observer = field(default_factory=Observer)
    plan: QueryPlan | None = None
    items: Sequence[CellItems] = ()
    why_not_indexed: str = ""


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
