"""One page of a list, as values: what to keep, in which order, after which position, how many."""

from dataclasses import dataclass
from typing import Any

from fleetlight.query.filters import Filter, leaves
from fleetlight.query.sort import SortOrder
from fleetlight.resources.fields import ItemType


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request that every source understands alike.

    after: the stored values of `order.keys` at the row the page starts behind, uuid last; None for the first page.
        It is a position, not a row: the row itself may have changed, gone, or live elsewhere.
    limit: rows wanted, at least 1.
    fields: names of the fields that are needed of each row; None for all of them. A source may give more.
    """

    filter: Filter
    order: SortOrder
    limit: int
    after: tuple[Any, ...] | None = None
    fields: tuple[str, ...] | None = None

    @property
    def item_type(self) -> ItemType:
        """What is listed: the type whose order this is."""
        return self.order.item_type

    def fields_to_read(self, *others: Filter) -> tuple[str, ...] | None:
        """`fields`, and what else has to be read of a row: its position in the order, and what `others` are tried
        on."""
        if self.fields is None:
            return None
        tried = (leaf.field for node in others for leaf in leaves(node))
        read = {*self.fields, *(key.field for key in self.order.keys), *tried}
        return tuple(name for name in self.item_type if name in read)
