"""The cells that a filter leaves: those of which its conditions on `cell` can be true. No others are asked."""

from collections.abc import Collection, Sequence

from cells.model import Cell
from query.evaluate import matcher
from query.filters import EVERYTHING, Filter, leaves, split_expressible
from resources.fields import ItemType
from views.query2.items import CELL


def choose_cells(
    node: Filter, known: ItemType, cells: Sequence[Cell], only: Collection[str] | None
) -> tuple[Collection[str] | None, Filter]:
    """The uuids of the cells to ask, of those in `only`, None for all; and what else of the filter is to be true."""
    of_cells, rest = split_expressible(node, _is_of_cells)
    if of_cells == EVERYTHING:
        return only, node
    is_wanted = matcher(of_cells, known)
    return {cell.uuid for cell in cells if is_wanted({CELL: cell.name}) and (only is None or cell.uuid in only)}, rest


def _is_of_cells(part: Filter) -> bool:
    return all(leaf.field == CELL for leaf in leaves(part))
