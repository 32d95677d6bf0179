"""Counts come by the routes that pages come by, and say what they cover."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import Cell, CellAdapter
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.listing.answer import Consistency, ReadOptions, Route
from fleetlight.listing.count_instances import CountResult, InstanceCounter
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.settings import SearchSettings
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import EVERYTHING
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.played.played_listing import PlayedReader
from tests.unit.listing.test_list_instances import Index

T = TypeVar("T")
CELLS = tuple(Cell(name, name, CellKind.NATIVE, "sqlite://", "") for name in ("c0", "c1"))
BY_HOST = CountRequest(EVERYTHING, INSTANCE_FIELDS, ("host",))
LIVE, INDEXED = {("a",): 2}, {("a",): 1, (None,): 4}


class CountingCell:
    """A cell that counts by itself."""

    cell: Any = None

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def count(self, request: CountRequest) -> Counts:
        assert request is BY_HOST
        return self._counts

    read_page = find = close = count


class Cells(PlayedReader):
    """Cells that say how many rows they have, but for those that are down."""

    def __init__(self, *, down: Collection[str] = (), counts: Counts | None = None) -> None:
        self._down = down
        self._counts = counts or Counts(LIVE)
        self.asked: list[str] = []

    async def cells(self) -> tuple[Cell, ...]:
        return CELLS

    async def ask(self, cell_uuid: str, question: Callable[[CellAdapter], T], timeout_s: float) -> T:
        self.asked.append(cell_uuid)
        if cell_uuid in self._down:
            raise CellUnreachableError(cell_uuid, "down")
        return question(cast(CellAdapter, CountingCell(self._counts)))


class CountedIndex(Index):
    """An index that counts in the cells that it follows, or fails to. stale: cells that it has been away from."""

    def __init__(self, *, error: Exception | None = None, stale: Collection[str] = ()) -> None:
        super().__init__(IndexUnavailableError("gone"), stale=stale)
        self._count_error = error

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        if self._count_error is not None:
            raise self._count_error
        return {uuid: Counts(INDEXED) for uuid in cells if uuid == "c0"}


def counted(
    cells: Cells,
    searcher: Index | None,
    consistency: Consistency = Consistency.BOUNDED,
    only: Collection[str] | None = None,
) -> CountResult:
    async def run() -> CountResult:
        settings = SearchSettings(enabled=True, index_deadline_s=60)
        index = IndexGateway(searcher, settings)
        found = await InstanceCounter(cells, index).count(
            BY_HOST, ReadOptions(consistency, (), settings.cell_timeout_s), only=only
        )
        if searcher is not None and isinstance(searcher, CountedIndex) and searcher._count_error is not None:
            assert index.safe_connect.is_tripped == isinstance(searcher._count_error, IndexUnavailableError)
        return found

    return asyncio.run(run())


def routes(found: CountResult) -> list[Route]:
    return [answer.route for answer in found.cells]


def test_index_counts_for_all_cells_that_it_follows() -> None:
    cells = Cells()
    found = counted(cells, CountedIndex())
    assert (found.by_cell, found.is_complete) == ({"c0": Counts(INDEXED), "c1": Counts()}, True)
    assert (found.total.groups, routes(found), cells.asked) == (INDEXED, [Route.INDEX] * 2, [])


def test_stale_cell_counts_itself_beside_the_index() -> None:
    found = counted(Cells(), CountedIndex(stale=["c1"]))
    assert (routes(found), found.is_complete) == ([Route.INDEX, Route.LIVE], True)
    assert found.total.groups == {("a",): 3, (None,): 4}


@pytest.mark.parametrize("error", [IndexUnavailableError("gone"), NotExpressibleError("the index", "this")])
def test_cells_count_when_the_index_cannot(error: Exception) -> None:
    cells = Cells()
    found = counted(cells, CountedIndex(error=error))
    assert (routes(found), found.is_complete, found.total.groups) == ([Route.LIVE] * 2, True, {("a",): 4})
    assert [str(error).split()[-1] in remark or "this" in remark for remark in found.remarks] == [True]


def test_index_stands_in_for_a_cell_that_is_down_and_the_answer_says_so() -> None:
    found = counted(Cells(down=["c0"]), CountedIndex(stale=["c0"]))
    assert (routes(found), found.is_complete) == ([Route.INDEX_WHILE_DOWN, Route.INDEX], False)
    assert found.by_cell["c0"] == Counts(INDEXED)


def test_cell_that_is_down_is_asked_once_and_counted_nowhere_without_an_index() -> None:
    cells = Cells(down=["c0"])
    found = counted(cells, CountedIndex(error=IndexUnavailableError("gone"), stale=["c0"]))
    assert (routes(found), found.is_complete) == ([Route.SKIPPED, Route.LIVE], False)
    assert found.by_cell == {"c1": Counts(LIVE)}
    assert cells.asked.count("c0") == 1


def test_cells_that_are_not_meant_are_neither_asked_nor_counted() -> None:
    cells = Cells()
    found = counted(cells, CountedIndex(), Consistency.STRONG, only={"c1"})
    assert (found.by_cell, cells.asked, found.is_complete) == ({"c1": Counts(LIVE)}, ["c1"], True)


def test_stale_cell_is_counted_by_the_index_where_that_is_enough() -> None:
    cells = Cells()
    found = counted(cells, CountedIndex(stale=["c0"]), Consistency.ANY)
    assert (found.total.groups, routes(found), cells.asked) == (INDEXED, [Route.INDEX] * 2, [])


def test_count_that_a_cell_has_cut_off_is_not_complete() -> None:
    found = counted(Cells(counts=Counts(LIVE, is_partial=True)), None)
    assert (found.is_complete, found.total.is_partial) == (False, True)
    assert [answer.is_complete for answer in found.cells] == [False, False]


def test_groups_of_many_cells_are_no_more_than_one_answer_may_have() -> None:
    request = CountRequest(EVERYTHING, INSTANCE_FIELDS, ("host",), 2)
    by_cell = {"c0": Counts({("a",): 1, ("b",): 1}), "c1": Counts({("b",): 1, ("c",): 1})}
    found = CountResult(request, by_cell, (), has_all_cells=True)
    assert (found.total.groups, found.total.is_partial, found.is_complete) == ({("a",): 1, ("b",): 2}, True, False)


def test_progress_names_both_cells() -> None:
    """Else the index would answer for none of them."""
    progress = asyncio.run(CountedIndex().progress())
    assert progress.keys() == {"c0", "c1"}
    assert all(isinstance(cell, CellProgress) and cell.fresh_as_of <= system_clock() for cell in progress.values())
