"""Counts of the items that match a filter, grouped by fields, for every item type and route.

Stores count instances if the filter and the fields are stored. Otherwise the counter reads rows, up to the limit of one
request; beyond that the answer is marked partial.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.item_query import CountQuery, ItemQuery, default_order
from fleetlight.api.query.scope import choose_cells, scope_of
from fleetlight.cells.counting import MAX_ROWS
from fleetlight.listing.answer import Page, ReadOptions, proof_of
from fleetlight.listing.count_instances import InstanceCounter
from fleetlight.listing.sources import CellReader
from fleetlight.query.counts import MAX_GROUPS, CountRequest, limited
from fleetlight.query.filters import EVERYTHING, Filter
from fleetlight.resources.fields import Field
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.views.query2.instance import INSTANCE_VALUES
from fleetlight.views.query2.items import CELL
from fleetlight.views.query2.projection import Cells, cells_of
from fleetlight.views.query2.values import UNAVAILABLE, Cell, CellFacts, Facts, as_json, known, split

Group = tuple[tuple[int, Any], ...]
"""Status and value, as in answers, of each field of the grouping."""


@dataclass(frozen=True, slots=True)
class CountedGroups:
    """Counted groups. groups: their numbers of items, the largest first. is_partial: some items were not counted.

    proof: the cells counted, and their routes.
    """

    groups: Mapping[Group, int]
    is_partial: bool
    proof: Page


class QueryCounter:
    """Counts items. max_rows: limit on the rows that one request reads if no store can count."""

    def __init__(
        self, counter: InstanceCounter, query_engine: QueryEngine, cells: CellReader, *, max_rows: int = MAX_ROWS
    ) -> None:
        self._counter = counter
        self._query_engine = query_engine
        self._cells = cells
        self._max_rows = max_rows

    async def count(self, counting: CountQuery, caller: Caller, fresh: ReadOptions) -> CountedGroups:
        """Count all items that a caller may see. An item with a list is in the group of each of its members.

        Raises BadRequestError for a field whose values cannot be groups, and the errors of QueryEngine.answer.
        """
        is_of_instances = counting.known.name == INSTANCE_FIELDS.name
        if counting.as_of is not None or not is_of_instances or not all(map(_is_stored, counting.by)):
            return await self._count_rows(counting, caller, fresh)
        only, of_each = choose_cells(counting.filter, counting.known, await self._cells.cells(), None)
        stored, rest = split(of_each, INSTANCE_VALUES)
        if rest != EVERYTHING:
            return await self._count_rows(counting, caller, fresh)
        wanted = scope_of(caller, stored, all_projects=counting.all_projects)
        return await self._count_in_stores(counting, wanted, fresh, only)

    async def _count_in_stores(
        self, counting: CountQuery, wanted: Filter, fresh: ReadOptions, only: Collection[str] | None
    ) -> CountedGroups:
        by = tuple(name for each in counting.by if (name := INSTANCE_VALUES[each].stored) is not None)
        counted = await self._counter.count(CountRequest(wanted, INSTANCE_FIELDS, by), fresh, only=only)
        names = {answer.cell.uuid: answer.cell.name for answer in counted.cells}
        fields = [counting.known[name] for name in counting.by]
        groups = Counter[Group]()
        for cell_uuid, counts in counted.by_cell.items():
            cell = names.get(cell_uuid, cell_uuid)
            for stored, count in counts.groups.items():
                values = iter(stored)
                shown = (_of_store(field, cell if field.name == CELL else next(values), cell) for field in fields)
                groups[tuple(shown)] += count
        proof = Page(b"", 0, None, counted.cells, has_all_cells=counted.has_all_cells)
        return _counted(groups, counting, proof, is_partial=counted.total.is_partial)

    async def _count_rows(self, counting: CountQuery, caller: Caller, fresh: ReadOptions) -> CountedGroups:
        # Order by immutable fields, so that pages neither repeat nor miss a row.
        question = ItemQuery(
            counting.known,
            counting.by,
            counting.filter,
            default_order(counting.known),
            None,
            None,
            all_projects=counting.all_projects,
            as_of=counting.as_of,
        )
        groups = Counter[Group]()
        pages: list[Page] = []
        async for batch in self._query_engine.batches(question, caller, fresh):
            pages.append(batch.proof)
            for _, cells in batch.rows:
                groups.update(_groups_of_row(cells_of(cells), counting.by))
            if sum(page.rows for page in pages) >= self._max_rows:
                break
        return _counted(groups, counting, proof_of(pages), is_partial=batch.after is not None)


def _counted(groups: Counter[Group], counting: CountQuery, proof: Page, *, is_partial: bool) -> CountedGroups:
    """Sort the groups by size, then by value. Without fields there is one group, of all items."""
    if not counting.by:
        groups = Counter({(): groups.total()})
    ordered = sorted(groups.items(), key=lambda each: (-each[1], [(status, str(value)) for status, value in each[0]]))
    counts = limited(dict(ordered), MAX_GROUPS, is_partial=is_partial)
    return CountedGroups(counts.groups, counts.is_partial, proof)


def _is_stored(name: str) -> bool:
    """Whether stores can count by this field."""
    stored = INSTANCE_FIELDS.get(INSTANCE_VALUES[name].stored or "")
    return name == CELL or (stored is not None and (stored.is_sortable or stored.is_list))


def _of_store(field: Field, value: Any, cell: str) -> Cell:
    """Convert a stored value, or a member of a stored list, to the value in answers."""
    source = INSTANCE_VALUES[field.name]
    if source.stored is not None and INSTANCE_FIELDS[source.stored].is_list:
        return known(value, UNAVAILABLE)
    record = dict.fromkeys(source.needs) | ({} if source.stored is None else {source.stored: value})
    return as_json(source.make(Facts(record, None, CellFacts(cell))), field)


def _groups_of_row(cells: Cells, by: Sequence[str]) -> Iterator[Group]:
    """Yield the groups of a row. Raises BadRequestError for a value other than text, number, or a list of these."""
    return product(*(_members(tuple(cell), name) for cell, name in zip(cells, by, strict=True)))


def _members(cell: tuple[int, Any], name: str) -> Sequence[tuple[int, Any]]:
    status, value = cell
    members = value if isinstance(value, list) else [value]
    for member in members:
        if isinstance(member, list | dict):
            raise BadRequestError(f"by: '{name}' has values that make no groups: they are lists of lists, or objects")
    if isinstance(value, list) and not value:
        return [(int(ResultStatus.UNAVAILABLE), None)]
    return [
        (int(ResultStatus.UNAVAILABLE) if member is None and status == ResultStatus.NORMAL else status, member)
        for member in dict.fromkeys(members)
    ]
