"""Rows of Query2 as the items of a list: cells of the fields that were asked for, made where the row is read."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from query.evaluate import matcher
from query.filters import EVERYTHING, Filter, leaves
from query.sort import SortOrder
from resources.fields import Record
from resources.query_fields.definitions import QueryFields
from views.projection import Projection
from views.query2.values import Facts, Make, Values, as_json

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_UNKNOWN = (1, None)
_NO_ITEM = b""


class QueryRows(Projection):
    """Items are `[position, [[status, value], …]]`, and nothing for a row of which the filter is not true.

    position: stored values of the keys of the order, the uuid last.

    names: what is asked for; a name that is no field has the status of one. rest: what of the filter no store was
    asked (views.query2.pushdown). cells: the names of cells by their uuids.
    """

    fields: tuple[str, ...]

    def __init__(
        self,
        known: QueryFields,
        values: Values,
        names: Sequence[str],
        *,
        order: SortOrder,
        rest: Filter,
        cells: Mapping[str, str],
    ) -> None:
        self._columns = [(known[name], values[name].make) if name in known else None for name in names]
        self._tried: Mapping[str, Make] = {leaf.field: values[leaf.field].make for leaf in leaves(rest)}
        self._is_kept = None if rest == EVERYTHING else matcher(rest, known)
        self._cells = cells
        self._place = order.values
        needed = {key.field for key in order.keys}
        for name in (*names, *self._tried):
            needed |= values[name].needs if name in known else frozenset()
        self.fields = self.form = tuple(sorted(needed))

    def render(self, values: Sequence[Any], /, cell_uuid: str = "") -> bytes:
        record = {
            name: _decode(value) if isinstance(value, msgspec.Raw) else value
            for name, value in zip(self.fields, values, strict=False)
        }
        return self.render_record(record, cell_uuid)

    def render_record(self, record: Record, cell_uuid: str = "") -> bytes:
        facts = Facts(record, None, self._cells.get(cell_uuid, cell_uuid))
        if self._is_kept is not None and not self._is_kept(
            {name: make(facts)[1] for name, make in self._tried.items()}
        ):
            return _NO_ITEM
        cells = [_UNKNOWN if column is None else as_json(column[1](facts), column[0]) for column in self._columns]
        return _encode((self._place(record), cells))
