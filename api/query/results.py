"""A query as the engine gets it, its result, and the record of how it was made."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetlight.api.caller import Caller
from fleetlight.api.query.item_query import ItemQuery
from fleetlight.cells.model import Cell
from fleetlight.listing.answer import CellAnswer, Page, ReadOptions
from fleetlight.listing.explanation import Observer
from fleetlight.listing.list_items import CellItems
from fleetlight.listing.sources import CellFailure
from fleetlight.query.filters import Filter
from fleetlight.query.sort import SortOrder
from fleetlight.views.query2.projection import Row


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The plan of a query.

    cells: all cells. asked: uuids of the cells to ask; None for all. of_cells: the conditions on `cell` that select
    them. pushed: the filter for stores or cells. tried: the filter evaluated on rows here.
    fields, keys: of items other than instances, the query to cells (fleetlight.cells.model.ItemsAdapter).
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
    """The record of how a query is answered; queries without explanation have none.

    listing: of the pages of instances. items: other items of each cell, from the cell or the index.
    why_not_indexed: why cells were read live for them.
    """

    listing: Observer = field(default_factory=Observer)
    plan: QueryPlan | None = None
    items: Sequence[CellItems] = ()
    why_not_indexed: str = ""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """A page. rows: in order. after: the position after which the next page begins; None at the end.

    proof: the cells of the rows, and their routes.
    """

    rows: Sequence[Row]
    after: Sequence[Any] | None
    proof: Page


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A query with its caller and options, see `QueryEngine.answer`.

    read_by: the order in which instances are read, if it differs from the query's; positions are those of the query.
    down: by uuid, cells that are known to be down, and are not waited for.
    """

    question: ItemQuery
    caller: Caller
    fresh: ReadOptions
    only: Collection[str] | None
    observer: QueryObserver | None = None
    read_by: SortOrder | None = None
    down: Mapping[str, CellFailure] = field(default_factory=dict)


def with_uncertain(answers: Sequence[CellAnswer], cells: Collection[str]) -> Sequence[CellAnswer]:
    """Mark the answers of `cells` (names) incomplete: see fleetlight.views.query2.projection.RowMaker."""
    reason = "the filter is about values that could not be fetched"
    return [answer.lacking(reason if answer.cell.name in cells else None) for answer in answers]
