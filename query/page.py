"""One page of a list, as values: what to keep, in which order, after which position, how many."""

from dataclasses import dataclass
from typing import Any

from query.filters import Filter
from query.sort import SortOrder
from resources.fields import ItemType


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A question that every source understands alike.

    after: the stored values of `order.keys` at the row the page starts behind, uuid last; None for the first page.
        It is a position, not a row: the row itself may have changed, gone, or live elsewhere.
    limit: rows wanted, at least 1.
    """

    filter: Filter
    order: SortOrder
    limit: int
    after: tuple[Any, ...] | None = None

    @property
    def item_type(self) -> ItemType:
        """What is listed: the type whose order this is."""
        return self.order.item_type
