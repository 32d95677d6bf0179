"""What a caller may see: which projects; the part of every question that no caller writes."""

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import ForbiddenError
from fleetlight.query.filters import EVERYTHING, Eq, Filter, all_of

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
