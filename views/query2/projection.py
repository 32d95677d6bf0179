"""Rows of Query2: cells of the fields that were asked for, made where the row is read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from query.evaluate import matcher
from query.filters import EVERYTHING, Filter, leaves
from query.sort import SortOrder
from resources.fields import Record
from resources.query_fields.definitions import QueryFields
from views.projection import Projection
from views.query2.catalog import values_of
from views.query2.cell_facts import CellFacts
from views.query2.values import UNKNOWN, Cell, Facts, Make, shown

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_NO_ITEM = b""

Cells = Sequence[tuple[int, Any]]
"""The cells of an item, [status, value] each."""

Row = tuple[Sequence[Any], msgspec.Raw]
"""The position of an item, stored values of the keys of the order; the JSON of its cells."""

cells_of: Callable[[msgspec.Raw], Cells] = msgspec.json.Decoder(list[tuple[int, Any]]).decode
"""The cells that a row has."""


def _unknown(_facts: Facts) -> Cell:
    return UNKNOWN


class RowMaker:
    """Makes rows of the items of one type.

    names: what is asked for; a name that is no field has the status of one. rest: the filter that items are tried by,
    which no store was asked.
    """

    def __init__(self, known: QueryFields, names: Sequence[str], rest: Filter) -> None:
        values = values_of(known.name)
        self._columns = [shown(values[name].make, known[name]) if name in known else _unknown for name in names]
        self._tried: Mapping[str, Make] = {leaf.field: values[leaf.field].make for leaf in leaves(rest)}
        self._is_kept = None if rest == EVERYTHING else matcher(rest, known)
        made = [values[name] for name in (*names, *self._tried) if name in known]
        self.needs: frozenset[str] = frozenset().union(*(value.needs for value in made))
        self.of_cell: frozenset[str] = frozenset().union(*(value.of_cell for value in made))
        self.is_of_revision = any(value.is_revision for value in made)

    def cells(self, facts: Facts) -> Cells | None:
        """The cells of one item; None where the filter is not true."""
        if self._is_kept is not None and not self._is_kept(
            {name: make(facts)[1] for name, make in self._tried.items()}
        ):
            return None
        return [column(facts) for column in self._columns]


class QueryRows(Projection):
    """Rows of instances (`Row`) as the items of a list, and nothing for one that the maker leaves out.

    cells: by their uuids. cells_are_down: whether the rows are of cells that do not answer. is_past: whether they are
    as of an earlier moment.
    """

    fields: tuple[str, ...]

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
        # An index may give the JSON of any of them, and values are made of what it says.
        record = {
            name: _decode(value) if isinstance(value, msgspec.Raw) else value
            for name, value in zip(self.fields, values, strict=False)
        }
        return self.render_record(record, cell_uuid, values[len(self.fields)] if self.shows_revision else None)

    def render_record(self, record: Record, cell_uuid: str = "", revision: int | None = None) -> bytes:
        cell = self._cells.get(cell_uuid) or CellFacts(cell_uuid)
        counted = revision if cell.is_configured_here else None
        facts = Facts(record, counted, cell, self._cells_are_down, self._is_past)
        cells = self._maker.cells(facts)
        return _NO_ITEM if cells is None else _encode((self._order.values(record), cells))

    def of_cell_that_is_down(self) -> "QueryRows":
        return QueryRows(self._maker, order=self._order, cells=self._cells, cells_are_down=True)
