"""What a caller may see: item types and projects; the part of every question that no caller writes."""

from api.http.errors import ForbiddenError, NotFoundError
from api.identity.caller import Caller
from api.query.visible_fields import visible_fields
from query.filters import EVERYTHING, Eq, Filter, all_of
from resources.query_fields.definitions import QueryFields

_COUNTED = "instance"
_THERE = all_of(Eq("deleted", False), Eq("hidden", False))


def counted_fields(item_type: str, caller: Caller) -> QueryFields:
    """The fields of an item type that is counted, as far as `caller` may see them. Raises NotFoundError for others."""
    if item_type != _COUNTED:
        raise NotFoundError(f"There are no counts of '{item_type}'; there are of: {_COUNTED}.")
    return visible_fields(item_type, caller)


def scope_of(caller: Caller, wanted: Filter, *, all_projects: bool) -> Filter:
    """`wanted` of the instances that are there, and meant: those of the caller, or of all projects if it asks for them.

    Raises ForbiddenError.
    """
    if all_projects and not caller.is_admin:
        raise ForbiddenError("fleetlight:query:all_projects")
    if all_projects:
        projects: Filter = EVERYTHING
    elif caller.project_id is None:
        projects = Eq("user_id", caller.user_id)
    else:
        projects = Eq("project_id", caller.project_id)
    return all_of(projects, _THERE, wanted)
