"""What is said of how a list came about."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from fleetlight.indexer.backends.base import BEING_RECONCILED, EPOCHS, REPAIRS, CellProgress
from fleetlight.listing.answer import Consistency, Freshness, IndexedCells
from fleetlight.listing.explanation import Observer, Reasons
from fleetlight.listing.merge_sort import Row
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS

NOW = 1_790_000_000_000_000
FRESH = Freshness(NOW, 5)
UNKNOWN = "the index does not know the cell: no indexer has read it as a whole yet, and `doctor` says what is missing"
SUSPECTED = CellProgress("c0", 7, NOW, is_complete=True).with_facts({(REPAIRS, "c0"): True})
RESTORED = CellProgress("c0", 7, NOW, is_complete=True).with_facts({(EPOCHS, "c0"): BEING_RECONCILED})
REQUEST = PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 1)


def progress(behind_s: float = 1, *, horizon: int = 0, is_complete: bool = True) -> CellProgress:
    return CellProgress("c0", 7, NOW - round(behind_s * 1e6), is_complete=is_complete, horizon=horizon)


@pytest.mark.parametrize(
    ("followed", "consistency", "no_index", "ask_live", "reason"),
    [
        (progress(), Consistency.STRONG, "it is off", (), "it is off"),
        (progress(), Consistency.STRONG, None, (), "consistency strong: cells only"),
        (None, Consistency.BOUNDED, None, (), UNKNOWN),
        (progress(), Consistency.ANY, None, ("c0",), "the index lacks a change that the list includes"),
        (
            progress(horizon=1_600_000_000_000_001),
            Consistency.ANY,
            None,
            (),
            "deleted rows from before 2020-09-13T12:26:40+00:00 may be wanted, which the index has no longer",
        ),
        (progress(9), Consistency.ANY, None, ("c1",), "consistency any: the index as it is, 9.0 s behind"),
        (
            progress(is_complete=False),
            Consistency.BOUNDED,
            None,
            (),
            "the index does not have all rows of the cell",
        ),
        (SUSPECTED, Consistency.BOUNDED, None, (), str(SUSPECTED.problem)),
        (RESTORED, Consistency.BOUNDED, None, (), "the cell was restored, and its index is being made equal to it"),
        (progress(5.1), Consistency.BOUNDED, None, (), "the index is stale: 5.1 s behind, and 5 s are allowed"),
        (progress(-6), Consistency.BOUNDED, None, (), "the index is stale: -6.0 s behind, and 5 s are allowed"),
        (progress(-2.1), Consistency.BOUNDED, None, (), "the index is stale: -2.1 s behind, and 5 s are allowed"),
        (progress(5), Consistency.BOUNDED, None, (), "the index is fresh: 5.0 s behind, and 5 s are allowed"),
        (progress(-2), Consistency.BOUNDED, None, (), "the index is fresh: -2.0 s behind, and 5 s are allowed"),
    ],
)
def test_each_cell_has_the_first_reason_that_holds(
    followed: CellProgress | None,
    consistency: Consistency,
    no_index: str | None,
    ask_live: Collection[str],
    reason: str,
) -> None:
    chosen = IndexedCells((), {1_600_000_000_000_001}, ())
    assert Reasons(consistency, 5, no_index, ask_live, chosen).of(followed, FRESH) == reason


class Batches:
    """A source that delivers what it was given, and then fails."""

    def __init__(self, *batches: Sequence[Row]) -> None:
        self._batches = list(batches)

    async def next_batch(self) -> Sequence[Row]:
        if not self._batches:
            raise ConnectionError("gone")
        return self._batches.pop(0)


class Item:
    position = (1,)
    item = b"{}"


def test_observer_counts_what_each_source_delivers_also_of_one_that_fails() -> None:
    observer = Observer()
    observer.give_up("before there was any")
    [index, cell] = observer.begin(
        REQUEST, {"c0": "why"}, [(None, Batches()), ("c0", Batches([Item(), Item()], [Item()]))]
    )

    async def read() -> None:
        with pytest.raises(ConnectionError):
            await index.next_batch()
        assert [len(await cell.next_batch()) for _ in range(2)] == [2, 1]

    asyncio.run(read())
    observer.give_up("the index failed")
    [attempt] = observer.attempts
    assert (attempt.request, attempt.why, attempt.failure) == (REQUEST, {"c0": "why"}, "the index failed")
    assert [(seen.cell_uuid, seen.batches, seen.rows) for seen in attempt.sources] == [(None, 1, 0), ("c0", 2, 3)]
    assert all(0 < seen.duration_s < 10 for seen in attempt.sources)
    assert observer.remarks == ["before there was any", "the index failed"]
