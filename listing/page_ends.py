"""Ends of pages, so that the next page begins there without a query.

A client that pages names the last row that it was shown. Its position in an order of what no instance ever changes is
known: to query it again costs a page from the index one request more, and a page from the cells two. Another process,
or one that has forgotten, queries it.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from fleetlight.query.sort import SortOrder

_KEPT = 4096


class PageEnds:
    """The ends of the newest pages, by caller: no caller learns a position from another caller's page."""

    def __init__(self) -> None:
        self._positions: OrderedDict[Hashable, tuple[Any, ...]] = OrderedDict()

    def remember(self, caller: Hashable, order: SortOrder, position: tuple[Any, ...]) -> None:
        """position: stored values of the order's keys at the last row, uuid last."""
        # A value that is not known yet may still become known.
        if not order.keeps_places or None in position:
            return
        self._positions[caller, order, position[-1]] = position
        self._positions.move_to_end((caller, order, position[-1]))
        if len(self._positions) > _KEPT:
            self._positions.popitem(last=False)

    def position_of(self, caller: Hashable, order: SortOrder, uuid: str) -> tuple[Any, ...] | None:
        """None if no page that was remembered ended with it."""
        return self._positions.get((caller, order, uuid))
