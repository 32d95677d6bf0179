"""Counts of rows of cells of any kind."""

from collections import Counter
from dataclasses import replace

from fleetlight.cells.errors import UnreadableRowError
from fleetlight.cells.model import CellAdapter, CountingAdapter, PartialRows
from fleetlight.query.counts import CountRequest, Counts, Group, limited
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder

_PAGE_ROWS = 1000
MAX_ROWS = 200_000
"""The most rows that are read for counting."""


def count_rows(adapter: CellAdapter, request: CountRequest) -> Counts:
    """Count in the cell's database if it can, otherwise page by page. Raises CellUnreachableError."""
    if isinstance(adapter, CountingAdapter):
        return adapter.count(request)
    return count_by_pages(adapter, request)


def count_by_pages(adapter: CellAdapter, request: CountRequest, max_rows: int = MAX_ROWS) -> Counts:
    """Count by reading all rows; a damaged row is in no group. Raises CellUnreachableError."""
    by_unique = SortOrder.of(request.item_type, ())
    page = PageRequest(request.filter, by_unique, _PAGE_ROWS, fields=request.by)
    groups = Counter[Group]()
    is_partial = False
    for _ in range(max_rows // _PAGE_ROWS):
        rows = adapter.read_page(page)
        is_partial = is_partial or isinstance(rows, PartialRows)
        for row in rows:
            try:
                groups.update(request.groups_of(row.record))
            except UnreadableRowError:
                is_partial = True
        if len(rows) < page.limit:
            return limited(groups, request.max_groups, is_partial=is_partial)
        page = replace(page, after=by_unique.values(rows[-1].record))
    return limited(groups, request.max_groups, is_partial=True)
