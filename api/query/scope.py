"""What a question reaches: the projects that its caller may see, and the cells that can have its items."""

from collections.abc import Collection, Sequence
from typing import Any

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import ForbiddenError
from fleetlight.cells.model import Cell
from fleetlight.query.evaluate import matcher
from fleetlight.query.filters import EVERYTHING, And, Eq, Filter, In, IsNull, Or, all_of, leaves, split_expressible
from fleetlight.resources.fields import ItemType
from fleetlight.views.query2.items import CELL

ALL_PROJECTS = "fleetlight:query:all_projects"
THERE = all_of(Eq("deleted", False), Eq("hidden", False))
"""Of the instances, those that are there, and meant."""


def scope_of(caller: Caller, wanted: Filter, *, all_projects: bool) -> Filter:
    """`wanted` of the instances that are there, and meant: those of the caller, or of all projects if it asks for them.

    Raises ForbiddenError.
    """
    return all_of(projects_of(caller, all_projects=all_projects), THERE, wanted)


def projects_of(caller: Caller, *, all_projects: bool) -> Filter:
    """The instances of the caller, or of all projects if it asks for them; deleted ones too. Raises ForbiddenError."""
    if all_projects and not caller.is_admin:
        raise ForbiddenError(ALL_PROJECTS)
    if all_projects:
        return EVERYTHING
    return Eq("user_id", caller.user_id) if caller.project_id is None else Eq("project_id", caller.project_id)


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
