"""Saved views in the fleet database."""

from dataclasses import replace

import pytest

from fleetlight.cells.errors import QuotaExceededError, ResourceExistsError, ResourceNotFoundError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.saved_views import MAX_OF_USER, ViewContent

BUSY = ViewContent("busy", "instance", 'vm_state == "active"', ["name", "host"], ["-ctime"], shared=False)


def test_view_is_kept_as_it_was_saved(fleet: Fleet) -> None:
    added = fleet.saved_views.add("ada", "red", BUSY)
    assert fleet.saved_views.find(added.id) == added
    assert added.content == BUSY


def test_name_is_taken_once_for_each_owner(fleet: Fleet) -> None:
    views = fleet.saved_views
    busy = views.add("ada", "red", BUSY)
    views.add("bob", "red", BUSY)
    views.add("ada", "red", replace(BUSY, name="Busy"))
    with pytest.raises(ResourceExistsError, match="'busy'"):
        views.add("ada", "blue", BUSY)
    with pytest.raises(ResourceExistsError, match="'Busy'"):
        views.replace(busy.id, "red", replace(BUSY, name="Busy"))
    assert views.find(busy.id).content.name == "busy"


def test_own_views_come_first_and_then_those_that_the_project_shares(fleet: Fleet) -> None:
    views = fleet.saved_views
    for name in ("z", "a"):
        views.add("ada", "blue", replace(BUSY, name=name))
    for project in ("red", "blue", None):
        views.add(f"bob-{project}", project, replace(BUSY, name=f"of {project}", shared=project is not None))
    views.add("bob-red", "red", BUSY)

    def seen(project: str | None, *, all_projects: bool = False) -> list[str]:
        return [view.content.name for view in views.seen_by("ada", project, all_projects=all_projects)]

    assert seen("red") == ["a", "z", "of red"]
    assert seen(None) == ["a", "z"]
    assert seen("green", all_projects=True) == ["a", "z", "of blue", "of red"]


def test_view_is_replaced_as_a_whole_and_removed(fleet: Fleet) -> None:
    views = fleet.saved_views
    added = views.add("ada", "red", BUSY)
    other = ViewContent("nodes", "node", "", ["name"], [], shared=True)
    views.replace(added.id, "blue", other)
    assert views.find(added.id) == replace(added, project_id="blue", content=other)
    views.remove(added.id)
    views.remove(added.id)
    with pytest.raises(ResourceNotFoundError):
        views.find(added.id)
    with pytest.raises(ResourceNotFoundError):
        views.replace(added.id, "blue", other)


def test_user_has_a_limited_number_of_views(fleet: Fleet) -> None:
    for number in range(MAX_OF_USER):
        fleet.saved_views.add("ada", "red", replace(BUSY, name=str(number)))
    with pytest.raises(QuotaExceededError):
        fleet.saved_views.add("ada", "red", BUSY)
    assert len(fleet.saved_views.seen_by("ada", "red", all_projects=False)) == MAX_OF_USER
    fleet.saved_views.add("bob", "red", BUSY)
