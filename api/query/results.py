"""A query as the engine gets it, and its result."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlight.api.caller import Caller
from fleetlight.api.query.item_query import ItemQuery
from fleetlight.api.query.observing import QueryObserver
from fleetlight.api.shared.proof import ReadOptions
from fleetlight.listing.answer import Page
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
    """A query with its caller and options: as of `QueryEngine.answer`."""

    question: ItemQuery
    caller: Caller
    fresh: ReadOptions
    only: Collection[str] | None
    observer: QueryObserver | None = None
