"""Answers about items other than instances, from the cells, with live values from nodes."""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fleetlight.api.query.item_query import ItemQuery
from fleetlight.api.query.live import LiveNodes, Observers
from fleetlight.api.query.results import QueryPlan, QueryRequest, QueryResult, with_uncertain
from fleetlight.api.query.scope import choose_cells, conditions_on_cells
from fleetlight.cells.kinds.native.agent_addresses import AgentAddress
from fleetlight.listing.answer import Page
from fleetlight.listing.list_items import CellItems, ItemLister
from fleetlight.listing.sources import CellReader
from fleetlight.query.filters import EVERYTHING, Filter, In, keys_in
from fleetlight.resources.fields import Record
from fleetlight.resources.node import AGENT_ADDRESS
from fleetlight.views.query2.catalog import values_of
from fleetlight.views.query2.projection import Row, RowMaker
from fleetlight.views.query2.values import CellFacts, Facts, Make, split_live

_encode = msgspec.json.Encoder().encode


class _Item(NamedTuple):
    cell_uuid: str
    facts: Facts


class _Positioned(NamedTuple):
    """An item with its position (fleetlight.views.query2.projection.Row), and its sort key."""

    sort_key: Any
    position: Sequence[Any]
    item: _Item


class ItemPages:
    """Reads all items of a query, and returns them page by page."""

    def __init__(self, items: ItemLister, cells: CellReader, live: LiveNodes) -> None:
        self._items = items
        self._cells = cells
        self._live = live

    async def pages(self, asked: QueryRequest, limit: int) -> AsyncIterator[QueryResult]:
        """Yield at least one page, of at most `limit` rows each. Raises FleetUnreachableError."""
        question, fresh, observer = asked.question, asked.fresh, asked.observer
        known = question.known
        cells = await self._cells.cells()
        only, rest = choose_cells(question.filter, known, cells, asked.only)
        values = values_of(known.name)
        before, behind = split_live(rest, values)
        tried, maker = RowMaker(known, (), before), RowMaker(known, question.names, behind)
        sorted_by = [key.field for key in question.order.keys]
        live_in_order = {name for name in sorted_by if values[name].is_live}
        live = maker.live | live_in_order
        needed = tried.needs | maker.needs | {*sorted_by}
        keys = keys_in(rest, known.unique)
        items = await self._items.list_items(
            known.name,
            needed,
            cell_timeout_s=fresh.cell_timeout_s,
            keys=keys,
            only=only,
            consistency=fresh.consistency,
            ask_live=fresh.ask_live,
            admission=fresh.admission,
        )
        if observer is not None:
            of_cells = conditions_on_cells(question.filter)
            observer.plan = QueryPlan(cells, only, of_cells, _named(known.unique, keys), rest, needed, keys)
            observer.items, observer.why_not_indexed = items.by_cell, items.why_not_indexed
        found: Sequence[_Item] = [
            item for of_cell in items.by_cell for item in _items_of(of_cell) if tried.keeps(item.facts)
        ]
        # Look for agents only if a field needs them.
        agents = _agents_of(found) if live else {}
        observers = await self._live.observers_of(cells, agents, fresh)
        if live_in_order or behind != EVERYTHING:
            # The filter or the order needs live values, so ask all nodes now.
            found = [item for item in await self._with_live(found, live, observers) if maker.keeps(item.facts)]
            observers = {}
        positioned = _placed(question, found, [values[name].make for name in sorted_by])
        answers = with_uncertain([each.answer for each in items.by_cell], tried.uncertain | maker.uncertain)
        for begin in range(0, max(len(positioned), 1), limit):
            part = positioned[begin : begin + limit]
            complete = await self._with_live([each.item for each in part], live, observers)
            rows = list(_rows(maker, part, complete))
            after = rows[-1][0] if begin + limit < len(positioned) else None
            yield QueryResult(rows, after, Page(b"", len(rows), None, answers, items.has_all_cells))

    async def _with_live(
        self, found: Sequence[_Item], fields: Collection[str], observers: Observers
    ) -> Sequence[_Item]:
        """Ask all nodes concurrently for these fields; returns the items with the values."""
        names: dict[str, list[str]] = {}
        for item in found if observers else ():
            names.setdefault(item.cell_uuid, []).append(item.facts.record["name"])
        said = await self._live.node_values(observers, names, fields)
        return [_with(item, said.get((item.cell_uuid, item.facts.record["name"]))) for item in found] if said else found


def _agents_of(nodes: Sequence[_Item]) -> Mapping[str, Sequence[AgentAddress]]:
    """Return the agents of the nodes, by cell uuid."""
    found: dict[str, list[AgentAddress]] = {}
    for node in nodes:
        record = node.facts.record
        if record.get(AGENT_ADDRESS) is not None:
            name, address = record["name"], record[AGENT_ADDRESS]
            agent = AgentAddress(name, name, address, record["offline"], record["vm_capable"])
            found.setdefault(node.cell_uuid, []).append(agent)
    return found


def _items_of(of_cell: CellItems) -> Iterator[_Item]:
    cell = of_cell.answer.cell
    facts = CellFacts(cell.name)
    return (_Item(cell.uuid, Facts(record, None, facts)) for record in of_cell.records)


def _with(item: _Item, said: Record | None) -> _Item:
    if said is None:
        return item
    return _Item(item.cell_uuid, Facts({**item.facts.record, **said}, None, item.facts.cell))


def _placed(question: ItemQuery, found: Sequence[_Item], makes: Sequence[Make]) -> Sequence[_Positioned]:
    """Return the items after the marker, in their order."""
    order = question.order
    start = None if question.after is None else order.comparable(question.after)
    positioned: list[_Positioned] = []
    for item in found:
        position = [make(item.facts)[1] for make in makes]
        sort_key = order.comparable(position)
        if start is None or start < sort_key:
            positioned.append(_Positioned(sort_key, position, item))
    positioned.sort(key=lambda each: each.sort_key)
    return positioned


def _rows(maker: RowMaker, part: Sequence[_Positioned], complete: Sequence[_Item]) -> Iterator[Row]:
    for each, item in zip(part, complete, strict=True):
        cells = maker.cells(item.facts)
        if cells is not None:
            yield each.position, msgspec.Raw(_encode(cells))


def _named(unique: str, keys: Collection[Any] | None) -> Filter:
    """Make the filter for items with these keys."""
    return EVERYTHING if keys is None else In(unique, tuple(keys))
