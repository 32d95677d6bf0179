"""What is seen of the answer to a question while it comes about; nothing of it costs one that is not explained."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetlight.cells.model import Cell
from fleetlight.listing.explanation import Observer
from fleetlight.listing.list_items import CellItems
from fleetlight.query.filters import Filter


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
    """listing: of the pages of instances. items: what each cell gave of other items, or the index of it.

    why_not_indexed: of those that gave them themselves.
    """

    listing: Observer = field(default_factory=Observer)
    plan: QueryPlan | None = None
    items: Sequence[CellItems] = ()
    why_not_indexed: str = ""
