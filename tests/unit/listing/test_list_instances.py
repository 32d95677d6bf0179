"""Decisions of the lister that no real index can be made to take: refusals, and failures in the middle of a merge."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.indexer.backends.base import CellProgress, FoundPage, FoundRow
from fleetlight.indexer.errors import IndexUnavailableError, IndexUnsealedError
from fleetlight.listing import index_gateway
from fleetlight.listing.answer import Consistency, Page, ReadOptions, Route
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.settings import SearchSettings
from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortKey, SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import BriefTemplate, ItemTemplate
from fleetlight.views.projection import Projection
from tests.support.fleets.documents import make_document, make_record
from tests.support.oracles.shown_items import stored_item
from tests.support.played.played_listing import PlayedReader, PlayedSearcher

TEMPLATE = BriefTemplate(1, versioned_base="http://api/v2.1", plain_base="http://api")
ORDER = SortOrder.of(INSTANCE_FIELDS, [SortKey("uuid")])
CELLS = tuple(Cell(f"c{number}", f"cell{number}", CellKind.NATIVE, "", "") for number in range(2))
ROWS = {"c0": [make_record(number) for number in (1, 3, 5)], "c1": [make_record(number) for number in (2, 4, 6)]}


T = TypeVar("T")


class Cells(PlayedReader):
    """Cells that hold ROWS, except those that are `down`."""

    def __init__(self, down: Collection[str] = ()) -> None:
        self._down = down
        self.asked: list[str] = []

    async def cells(self) -> tuple[Cell, ...]:
        return CELLS

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        self.asked.append(cell_uuid)
        if cell_uuid in self._down:
            raise CellUnreachableError(cell_uuid, "down")
        rows = [row for row in ROWS[cell_uuid] if request.after is None or row["uuid"] > request.after[-1]]
        return [InstanceRow(cell_uuid, 1, row) for row in rows[: request.limit]]


class Index(PlayedSearcher):
    """An index that knows both cells, `stale` ones since long ago, and answers so many searches before it fails."""

    def __init__(self, error: Exception, *, answers: int = 0, stale: Collection[str] = ()) -> None:
        self._error = error
        self._answers_left = answers
        self._stale = stale

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        if self._answers_left == 0:
            raise self._error
        self._answers_left -= 1
        records = sorted((record for uuid in cells for record in ROWS[uuid]), key=lambda record: str(record["uuid"]))
        assert isinstance(projection, ItemTemplate)
        documents = [make_document(int(record["uuid"].replace("-", ""), 16)) for record in records]
        return [
            FoundRow((document.id,), stored_item(projection, document.view))
            for document in documents
            if request.after is None or document.id > request.after[-1]
        ][: request.limit]

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        rows = await self.search(request, cells, projection)
        return FoundPage(b",".join([row.item for row in rows]), len(rows), rows[-1].position if rows else None)

    async def progress(self) -> Mapping[str, CellProgress]:
        return {
            cell.uuid: CellProgress(cell.uuid, 7, 0 if cell.uuid in self._stale else system_clock(), True)
            for cell in CELLS
        }


FRESH = ReadOptions(Consistency.BOUNDED, (), 5)


def listed(cells: Cells, searcher: Index) -> tuple[Page, IndexGateway]:
    async def run() -> tuple[Page, IndexGateway]:
        settings = SearchSettings(enabled=True, index_deadline_s=60)
        index = IndexGateway(searcher, settings)
        lister = InstanceLister(cells, index, settings)
        page = await lister.list_page(PageRequest(EVERYTHING, ORDER, 10), TEMPLATE, FRESH)
        return page, index

    return asyncio.run(run())


def routes(page: Page) -> list[Route]:
    return [answer.route for answer in page.cells]


def test_filter_that_the_index_cannot_express_is_answered_by_the_cells_without_the_flag() -> None:
    page, index = listed(Cells(), Index(NotExpressibleError("index", "this")))
    assert routes(page) == [Route.LIVE, Route.LIVE]
    assert page.rows == 6
    assert page.is_complete
    assert not index.safe_connect.is_tripped


def test_index_that_fails_beside_live_cells_is_replaced_for_the_whole_page() -> None:
    cells = Cells()
    page, index = listed(cells, Index(IndexUnavailableError("gone"), stale=["c1"]))
    assert routes(page) == [Route.LIVE, Route.LIVE]
    assert page.rows == 6
    assert index.safe_connect.is_tripped


def test_index_that_another_program_has_written_to_is_asked_again_by_the_next_list() -> None:
    with capture_logs() as logs:
        page, index = listed(Cells(), Index(IndexUnsealedError("written")))
    assert routes(page) == [Route.LIVE, Route.LIVE]
    assert page.rows == 6
    assert not index.safe_connect.is_tripped
    assert not logs


def test_stand_in_that_fails_leaves_the_cell_marked_and_does_not_ask_it_again() -> None:
    cells = Cells(down=["c1"])
    page, index = listed(cells, Index(IndexUnavailableError("gone"), stale=["c0", "c1"]))
    assert routes(page) == [Route.LIVE, Route.SKIPPED]
    assert page.rows == 3
    assert not page.is_complete
    assert index.safe_connect.is_tripped
    assert cells.asked.count("c1") == 1


@pytest.mark.parametrize("stale", [["c1"], ["c0", "c1"]])
def test_cell_that_is_down_comes_from_the_index_with_its_age(stale: list[str]) -> None:
    page, _ = listed(Cells(down=["c1"]), Index(IndexUnavailableError("gone"), answers=2, stale=stale))
    assert page.rows == 6
    assert page.cells[1].route is Route.INDEX_WHILE_DOWN
    assert page.cells[1].watermark == 7
    assert page.cells[1].age_s is not None
    assert page.cells[1].age_s > 1000
    assert not page.is_complete


async def test_flag_stays_up_while_the_index_tells_its_progress_but_has_no_instances() -> None:
    class Emptied(Index):
        asked = 0

        async def search(
            self, request: PageRequest, cells: Collection[str], projection: Projection
        ) -> Sequence[FoundRow]:
            self.asked += 1
            raise IndexUnavailableError("no such index")

    searcher = Emptied(IndexUnavailableError("no such index"))
    settings = SearchSettings(enabled=True, retry_after_s=0.001, index_deadline_s=60)
    index = IndexGateway(searcher, settings)
    await InstanceLister(Cells(), index, settings).list_page(PageRequest(EVERYTHING, ORDER, 10), TEMPLATE, FRESH)
    async with asyncio.timeout(10):
        while searcher.asked < 3:
            assert index.safe_connect.is_tripped
            await asyncio.sleep(0.001)
    index.close()


def test_servers_of_nova_that_no_cell_has_yet_are_read_before_all_cells() -> None:
    """Nova writes them to a cell first and forgets them here afterwards; each is to be seen in one of the two."""
    before = Cell("c1", "before", CellKind.NOVA_DB, "db", "", api_database_url="db")

    class MovingCells(Cells):
        def __init__(self) -> None:
            super().__init__()
            self._is_read = asyncio.Event()

        async def cells(self) -> tuple[Cell, ...]:
            return CELLS[0], before

        async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
            if cell_uuid == before.uuid:
                await asyncio.sleep(0)
                rows = await super().read_page(cell_uuid, request, timeout_s)
                self._is_read.set()
                return rows
            assert self._is_read.is_set()
            return await super().read_page(cell_uuid, request, timeout_s)

    page, _ = listed(MovingCells(), Index(IndexUnavailableError("gone")))
    assert page.rows == 6
    assert page.is_complete


class SlowIndex(Index):
    """An index that needs ten seconds for a page, by the clock that lists see."""

    def __init__(self) -> None:
        super().__init__(IndexUnavailableError("away"), answers=1)
        self._began, self._late_us = system_clock(), 0

    def now(self) -> int:
        return self._began + self._late_us

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        self._late_us = 10_000_000
        return await super().page(request, cells, projection)

    async def progress(self) -> Mapping[str, CellProgress]:
        return {cell.uuid: CellProgress(cell.uuid, 7, self._began, True) for cell in CELLS}


def test_list_that_was_fresh_when_the_index_was_chosen_is_complete_however_long_its_page_took() -> None:
    async def ask() -> Page:
        searcher = SlowIndex()
        settings = SearchSettings(enabled=True, staleness_limit_s=5)
        index = IndexGateway(searcher, settings, clock=searcher.now)
        return await InstanceLister(Cells(), index, settings).list_page(
            PageRequest(EVERYTHING, ORDER, 6), TEMPLATE, FRESH
        )

    page = asyncio.run(ask())
    assert page.is_complete
    assert [(answer.route, answer.age_s) for answer in page.cells] == [(Route.INDEX, 0.0)] * 2


def test_cells_answer_while_it_is_not_known_what_time_it_is() -> None:
    async def ask() -> Page:
        settings = SearchSettings(enabled=True)
        index = IndexGateway(SlowIndex(), settings, is_clock_sure=lambda: False)
        return await InstanceLister(Cells(), index, settings).list_page(
            PageRequest(EVERYTHING, ORDER, 6), TEMPLATE, FRESH
        )

    page = asyncio.run(ask())
    assert page.is_complete
    assert {answer.route for answer in page.cells} == {Route.LIVE}


class FollowedIndex(Index):
    """An index that follows its cells up to now, by the clock that lists see."""

    def __init__(self) -> None:
        super().__init__(IndexUnavailableError("away"), answers=2)
        self.now = system_clock()

    async def progress(self) -> Mapping[str, CellProgress]:
        return {cell.uuid: CellProgress(cell.uuid, 7, self.now, True) for cell in CELLS}


def test_list_stays_on_the_index_when_only_what_is_remembered_of_it_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_gateway, "_READ_AGAIN_AFTER_S", 0.0)
    searcher = FollowedIndex()

    async def ask() -> list[Page]:
        settings = SearchSettings(enabled=True, staleness_limit_s=5, index_deadline_s=60)
        index = IndexGateway(searcher, settings, clock=lambda: searcher.now)
        lister = InstanceLister(Cells(), index, settings)
        pages = []
        for _ in range(2):
            pages.append(await lister.list_page(PageRequest(EVERYTHING, ORDER, 6), TEMPLATE, FRESH))
            searcher.now += 10_000_000
        return pages

    assert [routes(page) for page in asyncio.run(ask())] == [[Route.INDEX, Route.INDEX]] * 2
