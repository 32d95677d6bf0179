"""Rows of Query2: the values (cells) of the requested fields, made where the row is read."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fleetlight.query.evaluate import matcher
from fleetlight.query.filters import EVERYTHING, Filter, leaves, with_leaves
from fleetlight.query.sort import SortOrder
from fleetlight.query.tree import Matcher
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.definitions import QueryFields
from fleetlight.resources.query_fields.instance_status import Seen
from fleetlight.views.projection import Projection
from fleetlight.views.query2.catalog import values_of
from fleetlight.views.query2.values import NO_DATA, UNKNOWN, Cell, CellFacts, Facts, Make, shown

_encode = msgspec.json.Encoder().encode
_NO_ITEM = b""

Cells = Sequence[tuple[int, Any]]
"""The values of an item, each a pair [status, value]."""

Row = tuple[Sequence[Any], msgspec.Raw]
"""The position of an item (stored values of the order's keys), and the JSON of its values."""

cells_of: Callable[[msgspec.Raw], Cells] = msgspec.json.Decoder(list[tuple[int, Any]]).decode
"""Decodes the values of a row."""


def _unknown(_facts: Facts) -> Cell:
    return UNKNOWN


class RowMaker:
    """Makes rows of the items of one type.

    names: the requested fields; an unknown field gets the status for that. rest: the filter that no store has
    evaluated.
    live: the live fields of columns and filter, for which nodes are asked. tried_of_cell: the facts of cells that the
        filter needs (fleetlight.views.query2.values).
    uncertain: names of cells with items that were left out though they may match, since values for the filter could not
        be read.
    """

    def __init__(self, known: QueryFields, names: Sequence[str], rest: Filter) -> None:
        values = values_of(known.name)
        self._columns = [shown(values[name].make, known[name]) if name in known else _unknown for name in names]
        self._tried: Mapping[str, Make] = {leaf.field: values[leaf.field].make for leaf in leaves(rest)}
        self._is_kept = None if rest == EVERYTHING else matcher(rest, known)
        self._rest, self._known = rest, known
        is_of_instances = known.name == INSTANCE_FIELDS.name
        # A stored field of an instance has this status, too, while it is not set.
        self._fetched = {name for name in self._tried if values[name].is_live or not is_of_instances}
        self.tried_of_cell: frozenset[str] = frozenset().union(*(values[name].of_cell for name in self._tried))
        self.uncertain: set[str] = set()
        self._matchers: dict[frozenset[str], Matcher] = {}
        made = [values[name] for name in (*names, *self._tried) if name in known]
        self.live = frozenset(name for name in (*names, *self._tried) if name in known and values[name].is_live)
        self.needs: frozenset[str] = frozenset().union(*(value.needs for value in made))
        self.of_cell: frozenset[str] = frozenset().union(*(value.of_cell for value in made))
        self.is_of_revision = any(value.is_revision for value in made)

    def cells(self, facts: Facts) -> Cells | None:
        """Make the values of one item; None if it does not match the filter."""
        return [column(facts) for column in self._columns] if self.keeps(facts) else None

    def keeps(self, facts: Facts) -> bool:
        """Whether an item matches the filter."""
        if self._is_kept is None:
            return True
        made = {name: make(facts) for name, make in self._tried.items()}
        is_kept = self._is_kept({name: value for name, (_, value) in made.items()})
        if not is_kept and (missing := frozenset(name for name in self._fetched if made[name] == NO_DATA)):
            self._note_uncertain(facts, made, missing)
        return is_kept

    def _note_uncertain(self, facts: Facts, made: Mapping[str, Cell], missing: frozenset[str]) -> None:
        """Record the cell of an item that may match the filter by its missing values."""
        if self._may_be_kept(missing)({name: value for name, (_, value) in made.items()}):
            self.uncertain.add(facts.cell.name)

    def _may_be_kept(self, missing: frozenset[str]) -> Matcher:
        """Make the filter with conditions on missing fields taken as true; sound, since none is below a NOT."""
        if missing not in self._matchers:
            possible = with_leaves(self._rest, lambda leaf: EVERYTHING if leaf.field in missing else leaf)
            self._matchers[missing] = matcher(possible, self._known)
        return self._matchers[missing]


class QueryRows(Projection):
    """Renders rows of instances (`Row`) as items of a list; empty for a row that the maker leaves out.

    cells: facts by cell uuid. cells_are_down: whether the rows belong to down cells. is_past: whether they are of an
    earlier moment.
    """

    fields: tuple[str, ...]

    @property
    def uncertain(self) -> Collection[str]:
        """See RowMaker."""
        return self._maker.uncertain

    def __init__(
        self,
        maker: RowMaker,
        *,
        order: SortOrder,
        cells: Mapping[str, CellFacts],
        cells_are_down: bool = False,
        is_past: bool = False,
    ) -> None:
        self._maker = maker
        self._cells = cells
        self._cells_are_down = cells_are_down
        self._is_past = is_past
        self._order = order
        self.fields = tuple(sorted(maker.needs | {key.field for key in order.keys}))
        self.shows_revision = maker.is_of_revision

    def render(self, values: Sequence[Any], /, cell_uuid: str = "") -> bytes:
        record = dict(zip(self.fields, values, strict=False))
        return self.render_record(record, cell_uuid, values[len(self.fields)] if self.shows_revision else None)

    def render_record(self, record: Record, cell_uuid: str = "", revision: int | None = None) -> bytes:
        cell = self._cells.get(cell_uuid) or CellFacts(cell_uuid)
        counted = revision if cell.is_configured_here else None
        return self._item(Facts(record, counted, cell, self._cells_are_down, self._is_past), cell_uuid)

    def _item(self, facts: Facts, _cell_uuid: str) -> bytes:
        cells = self._maker.cells(facts)
        return _NO_ITEM if cells is None else _encode((self._order.values(facts.record), cells))

    def of_cell_that_is_down(self) -> "QueryRows":
        return QueryRows(self._maker, order=self._order, cells=self._cells, cells_are_down=True)


class UnfinishedRow(NamedTuple):
    """A row that still needs live values of nodes. position: see `Row`. For the rest see Facts."""

    position: Sequence[Any]
    cell_uuid: str
    revision: int | None
    cell_is_down: bool
    record: dict[str, Any]


class UnfinishedRows(QueryRows):
    """Renders rows of instances that still need live values of their nodes.

    tried: the part of the filter without live fields, as a maker without columns. maker: makes the values later.
    observed: the fields of the record that nodes need to be asked.
    """

    def __init__(
        self,
        tried: RowMaker,
        maker: RowMaker,
        *,
        observed: Sequence[str],
        order: SortOrder,
        cells: Mapping[str, CellFacts],
        cells_are_down: bool = False,
    ) -> None:
        super().__init__(tried, order=order, cells=cells, cells_are_down=cells_are_down)
        self._finisher = maker
        self._observed = observed
        self.fields = tuple(sorted({*self.fields, *maker.needs, *observed}))
        self.shows_revision = tried.is_of_revision or maker.is_of_revision

    @property
    def uncertain(self) -> Collection[str]:
        return self._maker.uncertain | self._finisher.uncertain

    def of_cell_that_is_down(self) -> "UnfinishedRows":
        return UnfinishedRows(
            self._maker,
            self._finisher,
            observed=self._observed,
            order=self._order,
            cells=self._cells,
            cells_are_down=True,
        )

    def finished(self, rows: Sequence[UnfinishedRow], seen: Mapping[str, Iterator[Seen | None]]) -> Sequence[Row]:
        """Finish the rows, and return those that match the rest of the filter.

        seen: by cell uuid, the reports of nodes about instances, in the order of the rows; without the cells, and the
        rows of down cells, for which no node was asked.
        """
        found: list[Row] = []
        for row in rows:
            cell = self._cells.get(row.cell_uuid) or CellFacts(row.cell_uuid)
            said = None if row.cell_is_down or row.cell_uuid not in seen else next(seen[row.cell_uuid])
            facts = Facts(row.record, row.revision, cell, row.cell_is_down, seen=said)
            made = self._finisher.cells(facts)
            if made is not None:
                found.append((row.position, msgspec.Raw(_encode(made))))
        return found

    def _item(self, facts: Facts, cell_uuid: str) -> bytes:
        if not self._maker.keeps(facts):
            return _NO_ITEM
        record = {name: facts.record[name] for name in self.fields}
        position = self._order.values(facts.record)
        return _encode(UnfinishedRow(position, cell_uuid, facts.revision, facts.cell_is_down, record))


unfinished_rows: Callable[[bytes], list[UnfinishedRow]] = msgspec.json.Decoder(list[UnfinishedRow]).decode
"""Decodes the rows of a page that UnfinishedRows has rendered."""
