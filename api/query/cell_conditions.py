"""The conditions of a filter on cells and keys, so that only the cells that can have its items are asked."""

from collections.abc import Collection, Sequence
from typing import Any

from fleetlight.cells.model import Cell
from fleetlight.query.evaluate import matcher
from fleetlight.query.filters import EVERYTHING, And, Eq, Filter, In, IsNull, Or, leaves, split_expressible
from fleetlight.resources.fields import ItemType
from fleetlight.views.query2.items import CELL


def choose_cells(
    node: Filter, known: ItemType, cells: Sequence[Cell], only: Collection[str] | None
) -> tuple[Collection[str] | None, Filter]:
    """The uuids of the cells to ask, of those in `only`, None for all; and what else of the filter is to be true."""
    of_cells, rest = split_expressible(node, _is_of_cells)
    if of_cells == EVERYTHING:
        return only, node
    is_wanted = matcher(of_cells, known)
    return {cell.uuid for cell in cells if is_wanted({CELL: cell.name}) and (only is None or cell.uuid in only)}, rest


def conditions_on_cells(node: Filter) -> Filter:
    """What a filter says of `cell`, as far as `choose_cells` takes it from there."""
    return split_expressible(node, _is_of_cells)[0]


def keys_in(node: Filter, unique: str) -> Collection[Any] | None:
    """The values of a field that is never null, one of which an item has if the filter is true; None for any."""
    match node:
        case Eq(field, value) if field == unique:
            return {value}
        case In(field, values) if field == unique:
            return set(values)
        case IsNull(field) if field == unique:
            return set()
        case Or(terms):
            parts = [keys_in(term, unique) for term in terms]
            return None if None in parts else {key for part in parts for key in part or ()}
        case And(terms):
            return next((keys for term in terms if (keys := keys_in(term, unique)) is not None), None)
    return None


def _is_of_cells(part: Filter) -> bool:
    return all(leaf.field == CELL for leaf in leaves(part))
