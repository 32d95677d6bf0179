"""The scope of a query: the fields and projects that its caller may see, and the cells that can have matching items.

Only administrators see hosts and cells, as in the compute API. A field that a caller may not see does not exist for it:
in columns, filters and orders.
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
"""Instances that exist and are shown."""
_OF_LINKS = ("mode", "link", "bridge", "vlan")
_OF_ADMINISTRATORS = frozenset(
    {
        *(name for name, member in INSTANCE_FIELDS.members.items() if member.is_for_admins),
        "cell",
        "launched_on",
        # Details of faults are for administrators; the compute API shows the part for owners.
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
    """Return the fields of an item type that `caller` may use. Raises NotFoundError for an unknown type."""
    known = ITEM_TYPES.get(item_type)
    if known is None or not (caller.is_admin or item_type == "instance"):
        there_is = ", ".join(ITEM_TYPES) if caller.is_admin else "instance"
        raise NotFoundError(f"There is no item type '{item_type}'; there is: {there_is}.")
    return known if caller.is_admin else _of_owners(item_type)


@cache
def _of_owners(item_type: str) -> QueryFields:
    return ITEM_TYPES[item_type].without(_OF_ADMINISTRATORS)


def scope_of(caller: Caller, wanted: Filter, *, all_projects: bool) -> Filter:
    """Restrict `wanted` to existing instances of the caller's project, or of all projects on request.

    Raises ForbiddenError for a caller that may not see all projects.
    """
    return all_of(projects_of(caller, all_projects=all_projects), THERE, wanted)


def projects_of(caller: Caller, *, all_projects: bool) -> Filter:
    """Make the filter of the caller's instances, or of all projects, even deleted ones. Raises ForbiddenError."""
    if all_projects and not caller.is_admin:
        raise ForbiddenError(ALL_PROJECTS)
    if all_projects:
        return EVERYTHING
    return Eq("user_id", caller.user_id) if caller.project_id is None else Eq("project_id", caller.project_id)


def choose_cells(
    node: Filter, known: ItemType, cells: Sequence[Cell], only: Collection[str] | None
) -> tuple[Collection[str] | None, Filter]:
    """Split a filter: return the uuids of the cells to ask, within `only` (None: all), and the remaining filter."""
    of_cells, rest = split_expressible(node, _is_of_cells)
    if of_cells == EVERYTHING:
        return only, node
    is_wanted = matcher(of_cells, known)
    return {cell.uuid for cell in cells if is_wanted({CELL: cell.name}) and (only is None or cell.uuid in only)}, rest


def conditions_on_cells(node: Filter) -> Filter:
    """Return the conditions on `cell` that `choose_cells` takes out of a filter."""
    return split_expressible(node, _is_of_cells)[0]


def _is_of_cells(part: Filter) -> bool:
    return all(leaf.field == CELL for leaf in leaves(part))
