"""The merge delivers the sorted whole, lazily, and never more of a source than it needs."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlight.indexer.backends.base import FoundRow
from fleetlight.listing.merge_sort import Row, merge_sorted
from fleetlight.query.sort import Collation, Direction, SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS

BY_NAME = SortOrder.of(INSTANCE_FIELDS, [SortKey("display_name", Direction.DESC)])


class ListSource:
    """Rows in batches of a size; remembers how many batches were asked for."""

    def __init__(
        self, positions: Sequence[tuple[str | None, str]], batch_size: int = 2, order: SortOrder = BY_NAME
    ) -> None:
        ordered = sorted(positions, key=order.comparable)
        self._batches = [ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size)]
        self.asked = 0

    async def next_batch(self) -> Sequence[Row]:
        self.asked += 1
        batch = self._batches.pop(0) if self._batches else []
        return [FoundRow(position, b"") for position in batch]


class HangingSource:
    """Never answers; knows whether it is still waited for."""

    def __init__(self) -> None:
        self.was_cancelled = False

    async def next_batch(self) -> Sequence[Row]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return ()


class FailingSource:
    async def next_batch(self) -> Sequence[Row]:
        raise OSError("gone")


def merged(
    sources: Sequence[ListSource], limit: int | None = None, order: SortOrder = BY_NAME
) -> list[tuple[object, ...]]:
    async def collect() -> list[tuple[object, ...]]:
        positions: list[tuple[object, ...]] = []
        async with aclosing(merge_sorted(sources, order)) as runs:
            async for run in runs:
                positions += [row.position for row in run]
                if limit is not None and len(positions) >= limit:
                    break
        return positions[:limit]

    return asyncio.run(collect())


names = st.none() | st.sampled_from(["", "a", "b", "ß", "\U0001f600"])
fleets = st.lists(st.lists(names, max_size=8), max_size=5)


@given(fleets, st.integers(1, 4))
def test_any_split_of_rows_over_sources_merges_to_the_sorted_whole(fleet: list[list[str | None]], size: int) -> None:
    rows = [
        [(name, f"{cell}-{number}") for number, name in enumerate(cell_names)] for cell, cell_names in enumerate(fleet)
    ]
    expected = sorted((row for cell_rows in rows for row in cell_rows), key=BY_NAME.comparable)
    assert merged([ListSource(cell_rows, size) for cell_rows in rows]) == expected


def test_instance_of_two_sources_comes_once_and_first_in_order_wins() -> None:
    moved = [ListSource([("new", "u1"), ("z", "u2")]), ListSource([("old", "u1"), ("a", "u3")])]
    assert merged(moved) == [("z", "u2"), ("old", "u1"), ("a", "u3")]


def test_source_is_asked_again_only_when_its_next_row_is_needed() -> None:
    sources = [ListSource([(name, name) for name in "zyxwv"]), ListSource([(name, name) for name in "fedcb"])]
    assert merged(sources, limit=2) == [("z", "z"), ("y", "y")]
    assert [source.asked for source in sources] == [1, 1]
    assert merged([], limit=2) == []


def test_failure_of_one_source_ends_the_wait_for_the_others() -> None:
    hanging = HangingSource()

    async def first() -> list[Row]:
        return await anext(merge_sorted([hanging, FailingSource()], BY_NAME))

    with pytest.raises(OSError, match="gone"):
        asyncio.run(first())
    assert hanging.was_cancelled


def test_first_batches_are_fetched_at_the_same_time() -> None:
    """Each source answers only once all were asked."""

    async def collect() -> list[tuple[object, ...]]:
        barrier = asyncio.Barrier(3)

        class Meeting(ListSource):
            async def next_batch(self) -> Sequence[Row]:
                if self.asked == 0:
                    await barrier.wait()
                return await super().next_batch()

        sources = [Meeting([(name, name)]) for name in "abc"]
        async with asyncio.timeout(10):
            return [row.position async for run in merge_sorted(sources, BY_NAME) for row in run]

    assert asyncio.run(collect()) == [("c", "c"), ("b", "b"), ("a", "a")]


def test_sources_in_nice_order_merge_in_nice_order() -> None:
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey("display_name", collation=Collation.NICE)])
    rows = [("web-2", "b"), ("web-10", "a"), (None, "c"), ("web-1", "e"), ("web-01", "d"), ("web", "f")]
    sources = [ListSource(rows[start::2], order=order) for start in range(2)]
    assert [uuid for _, uuid in merged(sources, order=order)] == ["c", "f", "d", "e", "b", "a"]
