"""Live cells are read in batches that a page really needs, and the index continues where a cell stops."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import TypeVar

import pytest

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import InstanceRow
from fleetlight.listing.merge_sort import Row, merge_sorted
from fleetlight.listing.sources import BatchedSource, CellSource, LiveRow, RowsMovedError, live_batch_size
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortKey, SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.fleets.documents import TEMPLATE, make_record
from tests.support.played.played_listing import PlayedReader

ORDER = SortOrder.of(INSTANCE_FIELDS, [SortKey("uuid")])


T = TypeVar("T")


class NumberedCells(PlayedReader):
    """Cells that hold instances numbered from 1; remembers the requests of each cell."""

    def __init__(self, *, rows: int, answers: int = 1_000_000) -> None:
        self._rows = rows
        self._answers_left = answers
        self.requests: dict[str, list[PageRequest]] = {}

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        if self._answers_left == 0:
            raise CellUnreachableError(cell_uuid, "gone")
        self._answers_left -= 1
        self.requests.setdefault(cell_uuid, []).append(request)
        first = self._number_after(request)
        last = min(self._rows, first + request.limit - 1)
        return [InstanceRow(cell_uuid, 1, make_record(self._seed(cell_uuid) + n)) for n in range(first, last + 1)]

    def _number_after(self, request: PageRequest) -> int:
        return 1 if request.after is None else int(request.after[-1].replace("-", ""), 16) % 1000 + 1

    @staticmethod
    def _seed(cell_uuid: str) -> int:
        return int(cell_uuid) * 1000


def page_of(limit: int) -> PageRequest:
    return PageRequest(EVERYTHING, ORDER, limit)


def collect(sources: Sequence[CellSource | BatchedSource], limit: int) -> list[str]:
    async def run() -> list[str]:
        uuids: list[str] = []
        async with aclosing(merge_sorted(sources, ORDER)) as runs:
            async for run in runs:
                uuids += [row.position[-1] for row in run]
                if len(uuids) >= limit:
                    break
        return uuids[:limit]

    return asyncio.run(run())


def cell_source(reader: NumberedCells, number: int, limit: int, batch_size: int) -> CellSource:
    return CellSource(
        str(number),
        reader,
        page_of(limit),
        TEMPLATE,
        batch_size=batch_size,
        deadline_s=60,
        substitute=None,
    )


def test_no_cell_is_read_more_than_one_batch_beyond_what_the_page_needs() -> None:
    reader = NumberedCells(rows=500)
    sources = [cell_source(reader, number, limit=120, batch_size=30) for number in range(4)]
    assert len(collect(sources, limit=120)) == 120
    # All rows of the page are in the first cell, of which the page needs four batches.
    assert [len(reader.requests[str(number)]) for number in range(4)] == [4, 1, 1, 1]


def test_last_batch_asks_only_for_what_the_page_still_lacks() -> None:
    reader = NumberedCells(rows=500)
    collect([cell_source(reader, 0, limit=70, batch_size=30)], limit=70)
    assert [request.limit for request in reader.requests["0"]] == [30, 30, 10]


def test_exhausted_cell_is_not_asked_again() -> None:
    reader = NumberedCells(rows=5)
    assert len(collect([cell_source(reader, 0, limit=70, batch_size=30)], limit=70)) == 5
    assert len(reader.requests["0"]) == 1


def test_stand_in_continues_behind_the_last_row_of_the_cell() -> None:
    index = NumberedCells(rows=50)
    reader = NumberedCells(rows=50, answers=2)

    async def read(request: PageRequest) -> Sequence[Row]:
        rows = await index.read_page("0", request, 60)
        return [LiveRow(row, ORDER.values(row.record), TEMPLATE, lambda _row: b"") for row in rows]

    def substitute(rest: PageRequest) -> BatchedSource:
        return BatchedSource(read, rest, 30)

    source = CellSource("0", reader, page_of(50), TEMPLATE, batch_size=10, deadline_s=60, substitute=substitute)
    uuids = collect([source], limit=50)
    assert uuids == sorted(set(uuids))
    assert len(uuids) == 50
    assert source.has_substitute
    assert index.requests["0"][0].after == (uuids[19],)


def test_cell_whose_time_is_used_up_is_not_asked() -> None:
    reader = NumberedCells(rows=5)
    source = CellSource("0", reader, page_of(5), TEMPLATE, batch_size=5, deadline_s=0, substitute=None)
    assert collect([source], limit=5) == []
    assert source.failure is not None
    assert reader.requests == {}


class HungCell(NumberedCells):
    """A cell that uses up all the time it is given."""

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        await asyncio.sleep(timeout_s)
        raise CellUnreachableError(cell_uuid, f"no answer within {timeout_s:g} s")


def test_time_that_the_page_waits_for_a_hung_cell_is_not_taken_from_the_others() -> None:
    def source(number: int, reader: NumberedCells) -> CellSource:
        return CellSource(str(number), reader, page_of(40), TEMPLATE, batch_size=10, deadline_s=0.5, substitute=None)

    hung, healthy = source(0, HungCell(rows=0)), source(1, NumberedCells(rows=50))
    assert len(collect([hung, healthy], limit=40)) == 40
    assert hung.failure is not None
    assert healthy.failure is None


class SlowCell(NumberedCells):
    """A cell that takes 0.4 s for each batch, by a clock of its own; remembers how much time it was given."""

    def __init__(self, *, rows: int) -> None:
        super().__init__(rows=rows)
        self.now_s = 100.0
        self.given_s: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        self.given_s.append(timeout_s)
        self.now_s += 0.4
        return await super().read_page(cell_uuid, request, timeout_s)


def test_batches_of_a_cell_share_the_time_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = SlowCell(rows=500)
    monkeypatch.setattr("fleetlight.listing.sources.time", cell)
    source = CellSource("0", cell, page_of(100), TEMPLATE, batch_size=10, deadline_s=1.0, substitute=None)
    assert len(collect([source], limit=100)) == 30
    assert cell.given_s == pytest.approx([1.0, 0.6, 0.2])
    assert source.failure is not None


@pytest.mark.parametrize(("limit", "cells", "size"), [(1000, 1, 1000), (1000, 16, 79), (50, 16, 7), (1, 64, 1)])
def test_batches_spare_nearly_every_cell_a_second_one(limit: int, cells: int, size: int) -> None:
    assert live_batch_size(limit, cells) == size


class MovingRows(NumberedCells):
    """Whose rows are others each time they are read, though as many."""

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        rows = await super().read_page(cell_uuid, request, timeout_s)
        reading = len(self.requests[cell_uuid])
        return [InstanceRow(cell_uuid, 1, {**row.record, "uuid": f"{row.uuid[:-6]}{reading:06}"}) for row in rows]


@pytest.mark.parametrize("may_start_over", [True, False])
def test_cell_whose_rows_move_between_two_batches_did_not_deliver_everything(may_start_over: bool) -> None:
    by_name = SortOrder.of(INSTANCE_FIELDS, [SortKey("display_name")])
    source = CellSource(
        "0",
        MovingRows(rows=50),
        PageRequest(EVERYTHING, by_name, 20),
        TEMPLATE,
        batch_size=10,
        deadline_s=60,
        substitute=None,
        may_start_over=may_start_over,
    )

    async def read() -> list[int]:
        return [len(await source.next_batch()) for _ in range(2)]

    if may_start_over:
        with pytest.raises(RowsMovedError):
            asyncio.run(read())
    else:
        assert asyncio.run(read()) == [10, 0]
        assert "move" in str(source.failure)
