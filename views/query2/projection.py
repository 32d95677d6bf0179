"""Rows of Query2: cells of the fields that were asked for, made where the row is read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from query.evaluate import matcher
from query.filters import EVERYTHING, Filter, leaves
from query.sort import SortOrder
from resources.fields import Kind, Record
from resources.query_fields.definitions import QueryFields
from views.projection import Projection
from views.query2.catalog import values_of
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
        self.needs: frozenset[str] = frozenset().union(
            *(values[name].needs for name in (*names, *self._tried) if name in known)
        )

    def cells(self, facts: Facts) -> Cells | None:
        """The cells of one item; None where the filter is not true."""
        if self._is_kept is not None and not self._is_kept(
            {name: make(facts)[1] for name, make in self._tried.items()}
        ):
            return None
        return [column(facts) for column in self._columns]


class QueryRows(Projection):
    """Rows of instances (`Row`) as the items of a list, and nothing for one that the maker leaves out.

    cells: the names of cells by their uuids. cells_are_down: whether the rows are of cells that do not answer.
    """

    fields: tuple[str, ...]

    def __init__(
        self, maker: RowMaker, *, order: SortOrder, cells: Mapping[str, str], cells_are_down: bool = False
    ) -> None:
        self._maker = maker
        self._cells = cells
        self._cells_are_down = cells_are_down
        self._order = order
        self.fields = tuple(sorted(maker.needs | {key.field for key in order.keys}))
        self._structures = [name for name in self.fields if order.item_type[name].kind is Kind.OTHER]

    def render(self, values: Sequence[Any], /, cell_uuid: str = "") -> bytes:
        record = dict(zip(self.fields, values, strict=False))
        for name in self._structures:
            if isinstance(value := record[name], msgspec.Raw):
                record[name] = _decode(value)
        return self.render_record(record, cell_uuid)

    def render_record(self, record: Record, cell_uuid: str = "") -> bytes:
        facts = Facts(record, None, self._cells.get(cell_uuid, cell_uuid), self._cells_are_down)
        cells = self._maker.cells(facts)
        return _NO_ITEM if cells is None else _encode((self._order.values(record), cells))

    def of_cell_that_is_down(self) -> "QueryRows":
        return QueryRows(self._maker, order=self._order, cells=self._cells, cells_are_down=True)
