"""Saved views over HTTP: who sees them, who changes them, and what is refused."""

from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.query.saved_views import MAX_FILTER
from fleetlight.cells.fleet.saved_views import MAX_OF_USER
from tests.contract.compute_fleet import Api, ComputeFleet
from tests.support.fleets.identity import ProgramsOnly

ADA, BOB, ROOT = (
    {"X-User-Id": user, "X-Roles": role, "X-Project-Id": project}
    for user, role, project in (("ada", "member", "red"), ("bob", "reader", "red"), ("root", "admin", "demo"))
)
ELSEWHERE = {"X-User-Id": "eve", "X-Roles": "member", "X-Project-Id": "blue"}


@pytest.fixture
def api(fleet: ComputeFleet, api: Api) -> Iterator[Api]:
    yield api
    for user in ("ada", "bob", "root"):
        for view in fleet.fleet.saved_views.seen_by(user, None, all_projects=True):
            fleet.fleet.saved_views.remove(view.id)


def save(api: Api, user: dict[str, str] = ADA, **values: Any) -> httpx.Response:
    body = {"name": "busy", "what": "instance", "filter": 'vm_state == "active"', "fields": ["name"]} | values
    return api.request("POST", "/fleetlight/views", user, json=body)


def seen(api: Api, user: dict[str, str]) -> list[Any]:
    answer = api.get("/fleetlight/views", user)
    assert answer.status_code == 200
    views: list[Any] = answer.json()["views"]
    return views


def change(api: Api, method: str, view: Any, user: dict[str, str], **values: Any) -> httpx.Response:
    content = {name: view[name] for name in ("name", "what", "filter", "fields", "order", "shared")} | values
    return api.request(
        method, f"/fleetlight/views/{view['id']}", user, **({"json": content} if method == "PUT" else {})
    )


def test_owner_saves_sees_changes_and_removes_a_view(api: Api) -> None:
    answer = save(api, order=["-ctime"])
    assert answer.status_code == 201
    view = answer.json()
    assert view == {
        "id": view["id"],
        "name": "busy",
        "what": "instance",
        "filter": 'vm_state == "active"',
        "fields": ["name"],
        "order": ["-ctime"],
        "shared": False,
        "owner": "ada",
        "mine": True,
    }
    assert seen(api, ADA) == [view]
    changed = change(api, "PUT", view, ADA, filter="", fields=["name", "tags"])
    assert changed.status_code == 200
    assert changed.json() == view | {"filter": "", "fields": ["name", "tags"]} == seen(api, ADA)[0]
    assert change(api, "DELETE", view, ADA).status_code == 204
    assert change(api, "DELETE", view, ADA).status_code == 404
    assert seen(api, ADA) == []


def test_own_view_is_there_for_nobody_else(api: Api) -> None:
    view = save(api).json()
    for user in (BOB, ELSEWHERE, ROOT):
        assert seen(api, user) == []
        assert change(api, "PUT", view, user).status_code == 404
        assert change(api, "DELETE", view, user).status_code == 404


def test_shared_view_is_seen_by_its_project_and_changed_by_its_owner(api: Api) -> None:
    view = save(api, shared=True).json()
    for user in (BOB, ROOT):
        assert seen(api, user) == [view | {"mine": False}]
        assert change(api, "PUT", view, user).status_code == 403
    assert change(api, "DELETE", view, BOB).status_code == 403
    assert seen(api, ELSEWHERE) == []
    assert change(api, "DELETE", view, ELSEWHERE).status_code == 404
    assert change(api, "DELETE", view, ROOT).status_code == 204
    assert seen(api, ADA) == []


def test_view_is_shared_with_the_project_of_its_last_change(api: Api) -> None:
    view = save(api, shared=True).json()
    assert change(api, "PUT", view, ADA | {"X-Project-Id": "blue"}).status_code == 200
    assert (len(seen(api, BOB)), len(seen(api, ELSEWHERE)), len(seen(api, ADA))) == (0, 1, 1)


@pytest.mark.parametrize(
    ("values", "status", "says"),
    [
        ({"filter": "vm_state ="}, 400, "vm_state"),
        ({"filter": 'vm_stat == "active"'}, 400, "vm_stat"),
        ({"filter": 'name == "' + "x" * MAX_FILTER + '"'}, 400, "filter"),
        ({"filter": 'name == "\0"'}, 400, "NUL"),
        ({"filter": 'host == "a"'}, 400, "host"),
        ({"fields": ["name", "vm_stat"]}, 400, "vm_state"),
        ({"fields": []}, 400, "fields"),
        ({"fields": ["name"] * 5}, 400, "fields"),
        ({"fields": [str(number) for number in range(201)]}, 400, "fields"),
        ({"order": ["tags"]}, 400, "order"),
        ({"order": ["name"] * 9}, 400, "order"),
        ({"what": "node"}, 404, "node"),
        ({"what": "nodes"}, 404, "nodes"),
        ({"name": ""}, 400, "name"),
        ({"name": "x" * 256}, 400, "name"),
        ({"name": "a\u202eb"}, 400, "name"),
        ({"name": "a\nb"}, 400, "name"),
        ({"shared": "yes"}, 400, "shared"),
        ({"owner": "bob"}, 400, "owner"),
    ],
)
def test_view_that_could_not_be_listed_is_refused(api: Api, values: dict[str, Any], status: int, says: str) -> None:
    answer = save(api, **values)
    assert (answer.status_code, says in answer.text) == (status, True), answer.text
    view = save(api).json()
    assert change(api, "PUT", view, ADA, **values).status_code == status
    assert seen(api, ADA) == [view]


def test_administrators_save_views_of_all_that_they_may_list(api: Api) -> None:
    assert save(api, ROOT, what="node", filter='role == "C"', fields=["name", "mtotal"]).status_code == 201


def test_name_is_taken_and_the_number_of_views_is_limited(api: Api) -> None:
    first = save(api).json()
    assert save(api).status_code == 409
    for number in range(1, MAX_OF_USER):
        assert save(api, name=f"view {number}").status_code == 201
    refused = save(api, name="one more")
    assert refused.status_code == 403
    assert f"{MAX_OF_USER} of {MAX_OF_USER} saved_views" in refused.text
    assert change(api, "PUT", first, ADA, name="view 1").status_code == 409
    assert change(api, "PUT", first, ADA, name="other").status_code == 200


class NoProject(ProgramsOnly):
    """A strategy of identity whose logins are for no project, as a token of Keystone's may be."""

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        return Caller("ada", None, frozenset({"member"}))


def test_login_without_a_project_shares_with_none(fleet: ComputeFleet, api: Api) -> None:
    without = fleet.api(identity=NoProject())
    assert "for none" in save(without, shared=True).text
    view = save(without).json()
    save(api, BOB, shared=True)
    assert seen(without, {}) == [view]
