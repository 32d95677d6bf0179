"""The request for one page of a list: filter, order, position and limit."""

from dataclasses import dataclass
from typing import Any

from fleetlight.query.filters import Filter, leaves
from fleetlight.query.sort import SortOrder
from fleetlight.resources.fields import ItemType


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request to any source.

    after: the stored values of `order.keys` after which the page starts, uuid last; None for the first page. It is a
        position, not a row: the row itself may have changed, moved or gone.
    limit: the most rows, at least 1.
    fields: names of the needed fields; None for all. A source may return more.
    """

    filter: Filter
    order: SortOrder
    limit: int
    after: tuple[Any, ...] | None = None
    fields: tuple[str, ...] | None = None

    @property
    def item_type(self) -> ItemType:
        """The type of the listed items."""
        return self.order.item_type

    def fields_to_read(self, *others: Filter) -> tuple[str, ...] | None:
        """`fields` with those of the order, and of the filters `others`, which the source applies itself."""
        if self.fields is None:
            return None
        tried = (leaf.field for node in others for leaf in leaves(node))
        read = {*self.fields, *(key.field for key in self.order.keys), *tried}
        return tuple(name for name in self.item_type if name in read)
