"""The engine of queries for items of any type, used by every face.

It reads instances by pages of the list of instances (fleetlight.listing.list_instances), so an answer is as complete
and fresh as every list. It evaluates conditions that no store supports on each row here, and so reads more rows than it
returns. It reads all other items by fleetlight.listing.list_items.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.query.item_pages import ItemPages
from fleetlight.api.query.item_query import ItemQuery
from fleetlight.api.query.live import LiveNodes
from fleetlight.api.query.results import QueryObserver, QueryPlan, QueryRequest, QueryResult, with_uncertain
from fleetlight.api.query.scope import choose_cells, conditions_on_cells, scope_of
from fleetlight.api.shared.times import with_zone
from fleetlight.cells.errors import CellUnreachableError, PastNotKeptError
from fleetlight.cells.model import Cell
from fleetlight.listing.answer import Page, ReadOptions, Route, proof_of
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.list_items import ItemLister
from fleetlight.listing.past import PastLister
from fleetlight.listing.sources import CellFailure, CellReader
from fleetlight.query.filters import EVERYTHING, And, Filter, In
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID, SortOrder
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.instance_status import OBSERVED_FIELDS
from fleetlight.views.query2.catalog import values_of
from fleetlight.views.query2.projection import QueryRows, Row, RowMaker, UnfinishedRows, unfinished_rows
from fleetlight.views.query2.values import FACTS, CellFacts, split, split_live

MAX_ROWS_TRIED = 20_000
"""An answer with a limit reads at most so many rows; its marker leads to the rows that it has not examined."""

_encode = msgspec.json.Encoder().encode
_decode_rows = msgspec.json.Decoder(list[tuple[list[Any], msgspec.Raw]]).decode


class QueryEngine:
    """Answers queries. live: asks nodes for live values. max_limit: the largest page."""

    def __init__(
        self,
        lister: InstanceLister,
        past: PastLister,
        items: ItemLister,
        cells: CellReader,
        live: LiveNodes,
        *,
        max_limit: int,
    ) -> None:
        self._lister = lister
        self._past = past
        self._items = items
        self._cells = cells
        self._live = live
        self._item_pages = ItemPages(items, cells, live)
        self._max_limit = max_limit

    async def answer(
        self,
        question: ItemQuery,
        caller: Caller,
        fresh: ReadOptions,
        only: Collection[str] | None = None,
        *,
        observer: QueryObserver | None = None,
    ) -> QueryResult:
        """Return one page of a query. only: uuids of the cells whose items are wanted; None for all.

        observer: records how the answer is made. Raises ForbiddenError, FleetUnreachableError, QueryError.
        """
        limit = self._max_limit if question.limit is None else min(question.limit, self._max_limit)
        read = partial(self.batches, caller=caller, fresh=fresh, only=only, observer=observer)
        rows: Sequence[Row] = ()
        pages: list[Page] = []
        after, is_sure = None, True
        async for page in read(question, limit=limit):
            rows = page.rows if not pages else _merged(question, rows, page.rows)
            pages.append(page.proof)
            after = page.after
            if len(rows) >= limit or sum(each.rows for each in pages) >= MAX_ROWS_TRIED:
                break
            # The position behind the last row of a cell ends in None.
            is_within = after is not None and after[-1] is not None
            if is_within and is_sure and page.proof.is_complete and question.rows_move:
                # A row that moves into this page now would be in neither.
                if not question.by_cell and (whole := await _read_by_uuid(question, read)) is not None:
                    rows, pages, after = whole.rows, [whole.proof], None
                    break
                is_sure, pages[-1] = False, _with_moved(page.proof)
        if len(rows) > limit or (len(rows) == limit and after is not None):
            rows, after = rows[:limit], rows[limit - 1][0]
        return QueryResult(rows, after, proof_of(pages))

    def batches(
        self,
        question: ItemQuery,
        caller: Caller,
        fresh: ReadOptions,
        only: Collection[str] | None = None,
        *,
        limit: int | None = None,
        observer: QueryObserver | None = None,
        read_by: SortOrder | None = None,
    ) -> AsyncIterator[QueryResult]:
        """Yield all rows of a query in batches, at least one; the limit of the query does not count. See `answer`.

        If the order lets rows move, an instance may be in two batches, or in none; the proof of a batch covers only
        that batch. limit: rows of a batch; by default those of the largest page. read_by: see QueryRequest.
        """
        if question.known.name != INSTANCE_FIELDS.name:
            pages = self._item_pages.pages
        else:
            pages = self._pages_of_instances if question.by_cell is None else self._pages_by_cell
        return pages(QueryRequest(question, caller, fresh, only, observer, read_by), limit or self._max_limit)

    async def all_rows(
        self, question: ItemQuery, caller: Caller, fresh: ReadOptions, only: Collection[str] | None = None
    ) -> AsyncIterator[QueryResult]:
        """As `batches`, each row once; last, the instances that were in no batch, since they moved in the order."""
        read = partial(self.batches, caller=caller, fresh=fresh, only=only)
        seen, is_first = set[str](), True
        async for batch in read(question):
            # Servers of Nova change their cells, too, and so their place in the order of cells.
            if is_first and (batch.after is None or not (question.rows_move or question.by_cell)):
                yield batch
                continue
            rows = [row for row in batch.rows if row[0][-1] not in seen]
            yield replace(batch, rows=rows)
            seen.update(row[0][-1] for row in rows)
            is_first = False
        if is_first:
            return
        by_uuid = replace(question, by_cell=None)
        missed: list[str] = []
        async for batch in read(replace(by_uuid, names=()), read_by=INSTANCES_BY_UUID):
            missed += [row[0][-1] for row in batch.rows if row[0][-1] not in seen]
            yield replace(batch, rows=())
        if missed:
            of_missed = replace(by_uuid, filter=And((question.filter, In("uuid", tuple(missed)))))
            async for batch in read(of_missed, read_by=INSTANCES_BY_UUID):
                yield batch

    async def _pages_by_cell(self, asked: QueryRequest, limit: int) -> AsyncIterator[QueryResult]:
        """List the instances of one cell after the other. First all are asked for one: each page says what it lacks."""
        question, by_cell = asked.question, asked.question.by_cell
        if by_cell is None:
            raise AssertionError("the question is not of one cell after the other")
        in_any = replace(question, by_cell=None, after=None)
        first = await anext(self._pages_of_instances(replace(asked, question=in_any), 1))
        known = {answer.cell.uuid: answer.cell for answer in first.proof.cells}
        failed = {each.cell.uuid: str(each.failure) for each in first.proof.cells if each.is_down}
        down = {uuid: CellUnreachableError(known[uuid].name, reason) for uuid, reason in failed.items()}
        name, *begin = question.after or (None,)
        cells = sorted(known.values(), key=lambda cell: by_cell.comparable(cell.name))
        if name is not None:
            cells = [cell for cell in cells if not by_cell.comparable(cell.name) < by_cell.comparable(name)]
        if not cells:
            yield replace(first, rows=(), after=None)
            return

        def pages_of(cell: Cell, fresh: ReadOptions) -> AsyncIterator[QueryResult]:
            after = tuple(begin) if cell.name == name and begin[-1] is not None else None
            question = replace(in_any, after=after)
            in_cell = replace(asked, question=question, fresh=fresh, only={cell.uuid}, down=down)
            return self._pages_of_instances(in_cell, limit)

        # As of InstanceLister: what is taken from there while other cells are read must not be in neither.
        ahead = {
            each.uuid: [page async for page in pages_of(each, asked.fresh)] for each in cells if each.is_before_cells
        }
        answers = [answer for pages in ahead.values() for page in pages for answer in page.proof.cells]
        urls = {answer.cell.api_database_url for answer in answers if answer.route is Route.LIVE}
        beside = {cell.uuid for cell in cells if urls and cell.api_database_url in urls}
        fresh = replace(asked.fresh, ask_live=beside.union(asked.fresh.ask_live))
        for cell, later in zip(cells, (*cells[1:], None), strict=True):
            end = None if later is None else (later.name, *(None for _ in question.order.keys))
            if cell.uuid in ahead:
                for page in ahead[cell.uuid]:
                    yield _in_cell(cell.name, page, end, first.proof)
            else:
                async for page in pages_of(cell, fresh):
                    yield _in_cell(cell.name, page, end, first.proof)

    async def _pages_of_instances(self, asked: QueryRequest, limit: int) -> AsyncIterator[QueryResult]:
        question, observer = asked.question, asked.observer
        cells = await self._cells.cells()
        only, wanted_of_each = choose_cells(question.filter, question.known, cells, asked.only)
        stored, rest = split(wanted_of_each, values_of(question.known.name))
        if observer is not None:
            observer.plan = QueryPlan(cells, only, conditions_on_cells(question.filter), stored, rest)
        names = {cell.uuid: cell.name for cell in cells}
        maker = RowMaker(question.known, question.names, rest)
        is_past = question.as_of is not None
        # The configuration of cells, and live values of nodes, are only known as of now.
        facts, unread = await self._facts_of(cells, only, () if is_past else maker.of_cell, asked.fresh)
        # A missing fact of a cell may make the filter hide all of its rows.
        uncertain = {names[uuid] for uuid, missing in unread.items() if not maker.tried_of_cell.isdisjoint(missing)}
        observers = {} if is_past or not maker.live else await self._live.observers(cells, only, asked.fresh)
        projection = _projection(question, rest, maker, facts, has_live=bool(observers))
        wanted = scope_of(asked.caller, stored, all_projects=question.all_projects)
        # Read large pages if conditions are evaluated here, since most rows may not match.
        batch = limit if rest == EVERYTHING else self._max_limit
        after = question.after
        down = dict(asked.down) if question.as_of is None else await self._down_at(question.as_of, asked, only)
        has_more = True
        while has_more:
            request = PageRequest(wanted, asked.read_by or question.order, batch, after)
            page = await self._page(asked, request, projection, only, down)
            after = page.last
            has_more = page.rows == batch
            # Later pages of the answer neither wait for a failed cell again, nor have rows of it after missing ones.
            new = [each for each in page.cells if each.is_down and each.cell.uuid not in down]
            failed = {each.cell.uuid: str(each.failure) for each in new}
            down |= {uuid: CellUnreachableError(names.get(uuid, uuid), reason) for uuid, reason in failed.items()}
            items = b"[%b]" % page.items
            rows: Sequence[Row]
            if isinstance(projection, UnfinishedRows):
                rows = await self._live.finish(projection, unfinished_rows(items), observers)
            else:
                rows = _decode_rows(items)
            uncertain.update(projection.uncertain)
            answers = with_uncertain(page.cells, uncertain) if uncertain else page.cells
            proof = replace(page, items=b"", cells=answers)
            yield QueryResult(rows, after if has_more else None, proof)

    async def _facts_of(
        self, cells: Sequence[Cell], only: Collection[str] | None, wanted: Collection[str], fresh: ReadOptions
    ) -> tuple[Mapping[str, CellFacts], Mapping[str, Collection[str]]]:
        """Read the `wanted` facts of each cell, in one query per cell; returns them, and the missing ones by cell.

        Only native cells have such facts. Facts are missing if a cell does not answer in time.
        """
        asked = {cell.uuid for cell in cells if cell.can.takes_changes and (only is None or cell.uuid in only)}
        found: dict[str, dict[str, Sequence[Record]]] = {uuid: {} for uuid in asked}

        async def ask(item_type: str) -> None:
            items = await self._items.list_items(
                item_type,
                FACTS[item_type],
                cell_timeout_s=fresh.cell_timeout_s,
                only=asked,
                admission=fresh.admission,
            )
            for of_cell in items.by_cell:
                if of_cell.answer.is_complete:
                    found[of_cell.answer.cell.uuid][item_type] = of_cell.records

        if asked:
            await asyncio.gather(*map(ask, sorted(wanted)))
        facts = {
            cell.uuid: CellFacts(cell.name, is_configured_here=cell.can.takes_changes, items=found.get(cell.uuid))
            for cell in cells
        }
        return facts, {uuid: {*wanted} - items.keys() for uuid, items in found.items()}

    async def _down_at(self, moment: int, asked: QueryRequest, only: Collection[str] | None) -> dict[str, CellFailure]:
        """Check that the cells know the requested moment; returns those that are down.

        Raises BadRequestError if a cell does not know it.
        """
        if self._past.is_to_come(moment):
            raise BadRequestError(f"as_of: {with_zone(moment)} is still to come")
        with _telling_of_the_past(asked):
            return dict(await self._past.require(moment, only, asked.fresh.cell_timeout_s))

    async def _page(
        self,
        asked: QueryRequest,
        request: PageRequest,
        projection: QueryRows,
        only: Collection[str] | None,
        down: Mapping[str, CellFailure],
    ) -> Page:
        """Read a page of instances as of now, or of the requested moment."""
        fresh, moment = asked.fresh, asked.question.as_of
        observer = None if asked.observer is None else asked.observer.listing
        if moment is None:
            return await self._lister.list_page(request, projection, fresh, down=down, only=only, observer=observer)
        with _telling_of_the_past(asked):
            return await self._past.list_page(
                request, projection, fresh, moment, down=down, only=only, observer=observer
            )


def _projection(
    question: ItemQuery, rest: Filter, maker: RowMaker, facts: Mapping[str, CellFacts], *, has_live: bool
) -> QueryRows:
    """Make the projection of instances' rows. has_live: whether live values of nodes complete some rows."""
    if not has_live:
        return QueryRows(maker, order=question.order, cells=facts, is_past=question.as_of is not None)
    before, behind = split_live(rest, values_of(question.known.name))
    return UnfinishedRows(
        RowMaker(question.known, (), before),
        RowMaker(question.known, question.names, behind),
        observed=OBSERVED_FIELDS,
        order=question.order,
        cells=facts,
    )


@contextmanager
def _telling_of_the_past(asked: QueryRequest) -> Iterator[None]:
    """Turn PastNotKeptError in the block into BadRequestError, which names the cell only to administrators."""
    try:
        yield
    except PastNotKeptError as error:
        earliest = f"as_of: the earliest moment that can be answered is {with_zone(error.earliest)}"
        more = f", because of cell '{error.cell}': {error.reason}" if asked.caller.is_admin else ""
        raise BadRequestError(earliest + more) from error


def _in_cell(name: str, page: QueryResult, end: Sequence[Any] | None, of_all: Page) -> QueryResult:
    """Make the page of a cell one of a list by cell. end: the position after its last one. of_all: of every cell."""
    rows = [((name, *position), row) for position, row in page.rows]
    proof = replace(proof_of([of_all, page.proof]), rows=page.proof.rows)
    return QueryResult(rows, end if page.after is None else (name, *page.after), proof)


async def _read_by_uuid(question: ItemQuery, read: Callable[..., AsyncIterator[QueryResult]]) -> QueryResult | None:
    """Read all rows by uuid (read: `batches`), and sort those behind the marker; None if there are too many."""
    rows: list[Row] = []
    pages: list[Page] = []
    async for page in read(replace(question, after=None), read_by=INSTANCES_BY_UUID):
        rows += page.rows
        pages.append(page.proof)
        if page.after is not None and sum(each.rows for each in pages) >= MAX_ROWS_TRIED:
            return None
    placed = sorted(((question.comparable(row[0]), row) for row in rows), key=itemgetter(0))
    begin = None if question.after is None else question.comparable(question.after)
    return QueryResult([row for place, row in placed if begin is None or place > begin], None, proof_of(pages))


def _with_moved(proof: Page) -> Page:
    return replace(proof, cells=[each.lacking("rows may have moved while they were read") for each in proof.cells])


def _merged(question: ItemQuery, rows: Sequence[Row], later: Sequence[Row]) -> Sequence[Row]:
    """Merge the rows of two pages; a row that has moved to the later page comes once."""

    def identity(row: Row) -> Any:
        return row[0][-1] if question.known.name == INSTANCE_FIELDS.name else tuple(row[0])

    found = {identity(row): row for row in (*later, *rows)}
    return sorted(found.values(), key=lambda row: question.comparable(row[0]))
