"""What a question reaches: the fields and the projects that its caller may see, and the cells that can have its items.

Only administrators learn of hosts and cells, as in the compute API. A field that a caller may not see is one that does
not exist: in columns, in filters and in orders.
"""

from collections.abc import Collection, Sequence
from functools import cache

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import ForbiddenError, NotFoundError
from fleetlight.cells.model import Cell
from fleetlight.query.evaluate import matcher
from fleetlight.query.filters import EVERYTHING, Eq, Filter, all_of, leaves, split_expressible
from fleetlight.resources.fields import ItemType
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.definitions import QueryFields
from fleetlight.resources.query_fields.instance import MAX_NICS
from fleetlight.resources.query_fields.parameters import HYPERVISOR_PARAMETERS
from fleetlight.views.query2.items import CELL

ALL_PROJECTS = "fleetlight:query:all_projects"
THERE = all_of(Eq("deleted", False), Eq("hidden", False))
"""Of the instances, those that are there, and meant."""
_OF_LINKS = ("mode", "link", "bridge", "vlan")
_OF_ADMINISTRATORS = frozenset(
    {
        *(name for name, member in INSTANCE_FIELDS.members.items() if member.is_for_admins),
        "cell",
        "launched_on",
        # Its details are for administrators; what owners may read of it, the compute API shows.
        "fault",
        "hidden",
        "instance_type_id",
        "pnode",
        "pnode.group",
        "pnode.group.uuid",
        "snodes",
        "snodes.group",
        "snodes.group.uuid",
        "hypervisor",
        "console",
        # Paths and devices of hosts.
        "network_port",
        "hvparams",
        "custom_hvparams",
        *(f"hv/{name}" for name in HYPERVISOR_PARAMETERS),
        "custom_nicparams",
        *(f"nic.{each}s" for each in _OF_LINKS),
        *(f"nic.{each}/{index}" for each in _OF_LINKS for index in range(MAX_NICS)),
    }
)


def visible_fields(item_type: str, caller: Caller) -> QueryFields:
    """The fields of an item type that `caller` may ask for. Raises NotFoundError for what is no item type."""
    known = ITEM_TYPES.get(item_type)
    if known is None or not (caller.is_admin or item_type == "instance"):
        there_is = ", ".join(ITEM_TYPES) if caller.is_admin else "instance"
        raise NotFoundError(f"There is no item type '{item_type}'; there is: {there_is}.")
    return known if caller.is_admin else _of_owners(item_type)


@cache
def _of_owners(item_type: str) -> QueryFields:
    return ITEM_TYPES[item_type].without(_OF_ADMINISTRATORS)


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


def _is_of_cells(part: Filter) -> bool:
    return all(leaf.field == CELL for leaf in leaves(part))
