"""A count that has to read rows ends where one request may cost no more, and says so."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from fleetlight.api.query.counting import QueryCounter
from fleetlight.api.query.item_query import CountQuery
from fleetlight.api.query.results import QueryResult
from fleetlight.listing.answer import Consistency, Page, ReadOptions
from fleetlight.query.filters import EVERYTHING
from fleetlight.resources.query_fields.catalog import ITEM_TYPES

FRESH = ReadOptions(Consistency.BOUNDED, (), 1.0)
BY_STATUS = CountQuery(ITEM_TYPES["instance"], ["status"], EVERYTHING, all_projects=True)


class _ThreeBatches:
    """Gives two rows at a time, and notes how many batches were asked for."""

    def __init__(self) -> None:
        self.given = 0

    async def batches(self, *_asked: Any) -> AsyncIterator[QueryResult]:
        rows = [(["uuid"], msgspec.Raw(b'[[0,"running"]]'))] * 2
        for number in range(3):
            self.given += 1
            yield QueryResult(rows, ["uuid"] if number < 2 else None, Page(b"", 2, None, []))


@pytest.mark.parametrize(
    ("max_rows", "batches", "is_partial"), [(1, 1, True), (2, 1, True), (3, 2, True), (5, 3, False), (9, 3, False)]
)
def test_rows_are_read_up_to_the_limit(max_rows: int, batches: int, *, is_partial: bool) -> None:
    query_engine: Any = _ThreeBatches()
    nothing: Any = None
    counter = QueryCounter(nothing, query_engine, nothing, max_rows=max_rows)
    counted = asyncio.run(counter.count(BY_STATUS, nothing, FRESH))
    assert counted.groups == {((0, "running"),): 2 * batches}
    assert (query_engine.given, counted.is_partial) == (batches, is_partial)
