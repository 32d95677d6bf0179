"""Answers to questions about items of any type, for every face that asks them.

Instances come by pages of the one list of instances (listing.list_instances), so an answer is as complete, and as
fresh, as every list. What no store can be asked of a filter is tried on each row where it is read; then more rows are
read than are given. All other items come from the cells themselves (listing.list_items).
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from api.compute.protocol.proof import AskedFreshness
from api.http.errors import BadRequestError
from api.identity.caller import Caller
from api.query.observing import Plan, QuestionObserver
from api.query.places import choose_cells, conditions_on_cells, keys_in
from api.query.question import Question
from api.query.scope import scope_of
from cells.errors import CellUnreachableError, PastNotKeptError
from cells.model import Cell
from listing.answer import CellAnswer, Page
from listing.list_instances import InstanceLister
from listing.list_items import ItemLister
from listing.past import PastLister
from listing.sources import CellFailure, CellReader
from query.filters import EVERYTHING, Filter, In
from query.page import PageRequest
from resources.fields import Record, from_microseconds
from resources.instance import INSTANCE_FIELDS
from views.query2.catalog import values_of
from views.query2.cell_facts import FACTS, CellFacts
from views.query2.projection import QueryRows, Row, RowMaker
from views.query2.pushdown import split
from views.query2.values import Facts

MAX_ROWS_TRIED = 20_000
"""So many rows one answer with a limit reads; what it has not tried is behind the marker of its answer."""

_encode = msgspec.json.Encoder().encode
_decode_rows = msgspec.json.Decoder(list[tuple[list[Any], msgspec.Raw]]).decode


@dataclass(frozen=True, slots=True)
class Answer:
    """rows: in their order. after: the position of the row to go on after; None at the end.

    proof: which cells the rows are of, and how they were asked.
    """

    rows: Sequence[Row]
    after: Sequence[Any] | None
    proof: Page


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question with who asks it, and how: as of `Answerer.answer`."""

    question: Question
    caller: Caller
    fresh: AskedFreshness
    only: Collection[str] | None
    observer: QuestionObserver | None = None


class Answerer:
    """max_limit: the largest page."""

    def __init__(
        self, lister: InstanceLister, past: PastLister, items: ItemLister, cells: CellReader, *, max_limit: int
    ) -> None:
        self._lister = lister
        self._past = past
        self._items = items
        self._cells = cells
        self._max_limit = max_limit

    async def answer(
        self,
        question: Question,
        caller: Caller,
        fresh: AskedFreshness,
        only: Collection[str] | None = None,
        *,
        observer: QuestionObserver | None = None,
    ) -> Answer:
        """One page of the rows that a caller asks for. only: uuids of the cells whose items are wanted; None for all.

        observer: told how the answer comes about. Raises ForbiddenError, FleetUnreachableError, QueryError.
        """
        limit = self._max_limit if question.limit is None else min(question.limit, self._max_limit)
        rows: Sequence[Row] = ()
        pages: list[Page] = []
        after = None
        async for page in self._pages(_Asked(question, caller, fresh, only, observer), limit):
            rows = page.rows if not pages else _merged(question, rows, page.rows)
            pages.append(page.proof)
            after = page.after
            if len(rows) >= limit or sum(each.rows for each in pages) >= MAX_ROWS_TRIED:
                break
        if len(rows) > limit or (len(rows) == limit and after is not None):
            rows, after = rows[:limit], rows[limit - 1][0]
        return Answer(rows, after, proof_of(pages))

    async def batches(
        self, question: Question, caller: Caller, fresh: AskedFreshness, only: Collection[str] | None = None
    ) -> AsyncIterator[Answer]:
        """All rows that a caller asks for, in batches, of which at least one comes; the rest is as of `answer`.

        The limit of the question is not looked at. An instance that changes its place meanwhile may be in two batches,
        or in none; the proof of a batch covers it alone.
        """
        async for page in self._pages(_Asked(question, caller, fresh, only), self._max_limit):
            yield page

    def _pages(self, asked: _Asked, limit: int) -> AsyncIterator[Answer]:
        if asked.question.known.name == INSTANCE_FIELDS.name:
            return self._pages_of_instances(asked, limit)
        return self._page_of_items(asked, limit)

    async def _pages_of_instances(self, asked: _Asked, limit: int) -> AsyncIterator[Answer]:
        question, observer = asked.question, asked.observer
        cells = await self._cells.cells()
        only, wanted_of_each = choose_cells(question.filter, question.known, cells, asked.only)
        stored, rest = split(wanted_of_each, values_of(question.known.name))
        if observer is not None:
            observer.plan = Plan(cells, only, conditions_on_cells(question.filter), stored, rest)
        names = {cell.uuid: cell.name for cell in cells}
        maker = RowMaker(question.known, question.names, rest)
        is_past = question.as_of is not None
        # What is configured of a cell is known as of now alone.
        facts = await self._facts_of(cells, only, () if is_past else maker.of_cell, asked.fresh)
        projection = QueryRows(maker, order=question.order, cells=facts, is_past=is_past)
        wanted = scope_of(asked.caller, stored, all_projects=question.all_projects)
        # Where rows are tried here, most of a page may be left out.
        batch = limit if rest == EVERYTHING else self._max_limit
        after = question.after
        down = await self._down_then(asked, only)
        has_more = True
        while has_more:
            request = PageRequest(wanted, question.order, batch, after)
            page = await self._page(asked, request, projection, only, down)
            after = page.last
            has_more = page.rows == batch
            # No page of the same answer waits for a cell again, or has rows of it that follow those that are missing.
            failed = {each.cell.uuid: each.failure for each in page.cells if each.failure is not None}
            down |= {uuid: CellUnreachableError(names.get(uuid, uuid), reason) for uuid, reason in failed.items()}
            yield Answer(_decode_rows(b"[%b]" % page.items), after if has_more else None, replace(page, items=b""))

    async def _facts_of(
        self, cells: Sequence[Cell], only: Collection[str] | None, wanted: Collection[str], fresh: AskedFreshness
    ) -> Mapping[str, CellFacts]:
        """Of each cell what its instances need of it: only the facts that are `wanted`, each cell asked once.

        Cells of others tell of each instance all that they know of it. What a cell does not answer in time is missing.
        """
        asked = {cell.uuid for cell in cells if cell.can.takes_changes and (only is None or cell.uuid in only)}
        found: dict[str, dict[str, Sequence[Record]]] = {uuid: {} for uuid in asked}

        async def ask(item_type: str) -> None:
            items = await self._items.list_items(
                item_type, FACTS[item_type], cell_timeout_s=fresh.cell_timeout_s, only=asked
            )
            for of_cell in items.by_cell:
                if of_cell.answer.is_complete:
                    found[of_cell.answer.cell.uuid][item_type] = of_cell.records

        if asked:
            await asyncio.gather(*map(ask, sorted(wanted)))
        return {
            cell.uuid: CellFacts(cell.name, is_configured_here=cell.can.takes_changes, items=found.get(cell.uuid))
            for cell in cells
        }

    async def _down_then(self, asked: _Asked, only: Collection[str] | None) -> dict[str, CellFailure]:
        """The cells that are down, once it is known that all others can tell of the moment that is asked for.

        Raises BadRequestError.
        """
        moment = asked.question.as_of
        if moment is None:
            return {}
        if self._past.is_to_come(moment):
            raise BadRequestError(f"as_of: {_time_text(moment)} is still to come")
        with _telling_of_the_past(asked):
            return dict(await self._past.require(moment, only, asked.fresh.cell_timeout_s))

    async def _page(
        self,
        asked: _Asked,
        request: PageRequest,
        projection: QueryRows,
        only: Collection[str] | None,
        down: Mapping[str, CellFailure],
    ) -> Page:
        """A page of instances as of now, or of the moment that is asked for."""
        fresh, moment = asked.fresh, asked.question.as_of
        observer = None if asked.observer is None else asked.observer.listing
        if moment is None:
            return await self._lister.list_page(
                request,
                projection,
                fresh.consistency,
                down=down,
                cell_timeout_s=fresh.cell_timeout_s,
                ask_live=fresh.ask_live,
                only=only,
                observer=observer,
            )
        with _telling_of_the_past(asked):
            return await self._past.list_page(
                request,
                projection,
                moment,
                down=down,
                cell_timeout_s=fresh.cell_timeout_s,
                only=only,
                observer=observer,
            )

    async def _page_of_items(self, asked: _Asked, limit: int) -> AsyncIterator[Answer]:
        question, fresh, observer = asked.question, asked.fresh, asked.observer
        known, order = question.known, question.order
        cells = await self._cells.cells()
        only, rest = choose_cells(question.filter, known, cells, asked.only)
        maker = RowMaker(known, question.names, rest)
        needed = maker.needs | {key.field for key in order.keys}
        keys = keys_in(rest, known.unique)
        items = await self._items.list_items(
            known.name, needed, cell_timeout_s=fresh.cell_timeout_s, keys=keys, only=only
        )
        if observer is not None:
            of_cells = conditions_on_cells(question.filter)
            observer.plan = Plan(cells, only, of_cells, _named(known.unique, keys), rest, needed, keys)
            observer.items = items.by_cell
        makes = [values_of(known.name)[key.field].make for key in order.keys]
        start = None if question.after is None else order.comparable(question.after)
        placed: list[tuple[Any, Row]] = []
        for of_cell in items.by_cell:
            for record in of_cell.records:
                facts = Facts(record, None, CellFacts(of_cell.answer.cell.name))
                position = [make(facts)[1] for make in makes]
                place = order.comparable(position)
                if (start is None or start < place) and (row := maker.cells(facts)) is not None:
                    placed.append((place, (position, msgspec.Raw(_encode(row)))))
        placed.sort(key=lambda each: each[0])
        answers = [each.answer for each in items.by_cell]
        for begin in range(0, max(len(placed), 1), limit):
            rows = [row for _, row in placed[begin : begin + limit]]
            after = rows[-1][0] if begin + limit < len(placed) else None
            yield Answer(rows, after, Page(b"", len(rows), None, answers, items.has_all_cells))


@contextmanager
def _telling_of_the_past(asked: _Asked) -> Iterator[None]:
    """Raises BadRequestError for a moment that a cell cannot tell of; only administrators learn which one it is."""
    try:
        yield
    except PastNotKeptError as error:
        earliest = f"as_of: the earliest moment that can be answered is {_time_text(error.earliest)}"
        more = f", because of cell '{error.cell}': {error.reason}" if asked.caller.is_admin else ""
        raise BadRequestError(earliest + more) from error


def _time_text(moment: int) -> str:
    return from_microseconds(moment).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _named(unique: str, keys: Collection[Any] | None) -> Filter:
    """The filter that cells are asked when only items with these keys are wanted."""
    return EVERYTHING if keys is None else In(unique, tuple(keys))


def _merged(question: Question, rows: Sequence[Row], later: Sequence[Row]) -> Sequence[Row]:
    """The rows of two pages in their order. One that has moved behind the page that it was on is there once."""

    def identity(row: Row) -> Any:
        return row[0][-1] if question.known.name == INSTANCE_FIELDS.name else tuple(row[0])

    found = {identity(row): row for row in (*later, *rows)}
    return sorted(found.values(), key=lambda row: question.order.comparable(row[0]))


def proof_of(pages: Sequence[Page]) -> Page:
    """What all pages of an answer cover, as of one: of each cell what is true of the worst of them."""
    worst: dict[str, CellAnswer] = {}
    for page in pages:
        for answer in page.cells:
            if answer.cell.uuid not in worst or not answer.is_complete:
                worst[answer.cell.uuid] = answer
    return Page(b"", 0, None, list(worst.values()), all(page.has_all_cells for page in pages))
