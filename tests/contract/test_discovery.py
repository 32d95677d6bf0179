"""`GET /fleetlight/sd/{name}`: the instances of a saved view as targets, of which none goes because a cell is down."""

from collections.abc import Iterator
from typing import Any

import pytest

from fleetlight.api.monitoring import discovery
from fleetlight.api.monitoring.discovery import LastComplete
from fleetlight.api.settings import ApiSettings
from tests.contract.compute_fleet import Api, BrokenCells, ComputeFleet, compute_fleet, searching
from tests.contract.test_query_views import ADA, BOB, ELSEWHERE, ROOT, save
from tests.contract.test_series import Clock

ALIVE = searching(enabled=False)


def addresses(number: int) -> list[dict[str, Any]]:
    given = (("net", f"10.0.0.{number}", 4, "fixed"), ("net", f"fd00:0::{number}", 6, "fixed"))
    floating = ("pub", f"192.0.2.{number}", 4, "floating")
    kept = [dict(zip(("label", "address", "version", "type"), each, strict=True)) for each in (*given, floating)]
    return [{"mac": "fa:16:3e:00:00:01", "meta": {}, "port_uuid": None, "device_name": None, **each} for each in kept]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        for number, cell in enumerate(("north", "east", "south"), 1):
            values: dict[str, Any] = {"display_name": f"web-{number}", "project_id": "red", "vm_state": "active"}
            fleet.create(cell, **values, ip_addresses=addresses(number), metadata={"team/unit": "a"}, tags=["x", "y"])
        fleet.create("north", display_name="bare", project_id="red", vm_state="active", ip_addresses=[])
        fleet.create("north", display_name="off", project_id="red", vm_state="stopped", ip_addresses=addresses(8))
        fleet.create("north", display_name="blue", project_id="blue", vm_state="active", ip_addresses=addresses(9))
        fleet.index()
        yield fleet


@pytest.fixture
def api(fleet: ComputeFleet) -> Iterator[Api]:
    yield fleet.api()
    for user in ("ada", "bob", "root"):
        for view in fleet.fleet.saved_views.seen_by(user, None, all_projects=True):
            fleet.fleet.saved_views.remove(view.id)


def found(api: Api, query: str = "port=9100", user: dict[str, str] = ADA, name: str = "busy") -> dict[str, Any]:
    """The labels of each target."""
    answer = api.get(f"/fleetlight/sd/{name}?{query}", user)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return {target: group["labels"] for group in answer.json() for target in group["targets"]}


def test_instances_of_a_saved_view_are_targets_with_its_fields_as_labels(api: Api) -> None:
    save(api, fields=["name", "project_id", "tags", "metadata", "locked", "task_state"])
    targets = found(api)
    assert targets.keys() == {"10.0.0.1:9100", "10.0.0.2:9100", "10.0.0.3:9100"}
    labels = targets["10.0.0.1:9100"]
    assert {name.removeprefix("__meta_fleetlight_"): value for name, value in labels.items()} == {
        "name": "web-1",
        "uuid": labels["__meta_fleetlight_uuid"],
        "project_id": "red",
        "tags": ",x,y,",
        "metadata_team_unit": "a",
        "locked": "false",
        "complete": "true",
    }


@pytest.mark.parametrize(
    ("query", "target"),
    [
        ("address=fixed&port=80", "10.0.0.1:80"),
        ("address=floating&port=80", "192.0.2.1:80"),
        ("version=6&port=80", "[fd00::1]:80"),
        ("network=net&port=80", "10.0.0.1:80"),
        ("network=pub&port=80", None),
    ],
)
def test_address_of_a_target_is_chosen(api: Api, query: str, target: str | None) -> None:
    save(api, filter='name == "web-1"')
    assert [*found(api, query)] == ([] if target is None else [target])


def test_view_is_found_by_name_or_id_if_the_caller_sees_it(api: Api) -> None:
    view = save(api, shared=True, name="web / all").json()
    assert len(found(api, name=view["id"])) == len(found(api, user=BOB, name=view["id"])) == 3
    assert api.get(f"/fleetlight/sd/{view['id']}?port=1", ELSEWHERE).status_code == 404
    for user in (ADA, ROOT):
        save(api, user | {"X-Project-Id": "red"}, shared=True, filter="" if user == ROOT else 'name == "web-1"')
    assert len(found(api)) == 1
    assert "by its id" in api.get("/fleetlight/sd/busy?port=1", BOB).text
    assert api.get("/fleetlight/sd/busy?port=1", BOB).status_code == 409


def test_view_of_an_administrator_has_all_projects_if_it_asks_for_them(api: Api) -> None:
    save(api, ROOT, filter='project_id == "blue"')
    assert found(api, user=ROOT) == {}
    assert [*found(api, "port=1&all_projects=1", ROOT)] == ["10.0.0.9:1"]
    save(api)
    assert api.get("/fleetlight/sd/busy?port=1&all_projects=1", ADA).status_code == 403


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "port"),
        ("port=0", "65535"),
        ("port=65536", "65535"),
        ("port=1&address=any", "fixed, floating"),
        ("port=1&version=5", "4, 6"),
        ("port=1&limit=1", "limit"),
    ],
)
def test_what_makes_no_target_is_refused(api: Api, query: str, says: str) -> None:
    save(api)
    answer = api.get(f"/fleetlight/sd/busy?{query}", ADA)
    assert (answer.status_code, says in answer.text) == (400, True), answer.text


def test_view_of_nodes_and_one_with_too_many_instances_are_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    save(api, ROOT, what="node", filter="", name="hosts", fields=["name"])
    assert "'node'" in api.get("/fleetlight/sd/hosts?port=1", ROOT).text
    monkeypatch.setattr(discovery, "MAX_TARGETS", 2)
    save(api)
    answer = api.get("/fleetlight/sd/busy?port=1", ADA)
    assert (answer.status_code, "more than 2 targets" in answer.text) == (400, True)


def test_targets_are_found_by_one_page_of_the_index_and_no_cell(fleet: ComputeFleet) -> None:
    api = fleet.api(pool=BrokenCells(fleet, failing_after=dict.fromkeys(fleet.cells, 0)))
    save(api)
    found(api)
    fleet.searcher.asked = 0
    assert len(found(api)) == 3
    assert fleet.searcher.asked <= 2  # a page, and now and then how far the index follows


def test_while_a_cell_is_down_the_last_complete_answer_is_given_with_its_age(fleet: ComputeFleet, api: Api) -> None:
    clock = Clock()
    save(api)
    # A page of each cell, and then east does not answer any more.
    broken = fleet.api(pool=BrokenCells(fleet, failing_after={"east": 1}), search=ALIVE, clock=clock)
    complete = found(broken)
    clock.now += 90_000_000
    answer = broken.get("/fleetlight/sd/busy?port=9100", ADA)
    assert (answer.headers["Fleetlight-Complete"], answer.headers["Age"]) == ("false", "90")
    marks = {"__meta_fleetlight_complete": "false", "__meta_fleetlight_age_seconds": "90"}
    assert found(broken) == {target: labels | marks for target, labels in complete.items()}
    assert 'fleetlight_discoveries_total{answer="last"} 2.0' in broken.metrics()


def test_incomplete_discovery_is_an_error_where_nothing_complete_was_answered_before(
    fleet: ComputeFleet, api: Api
) -> None:
    broken = fleet.api(pool=BrokenCells(fleet, failing_after={"east": 1}), search=ALIVE)
    view = save(api).json()
    found(broken)
    # What was complete was so for this caller, this view, and this address alone.
    others = {"project": ({"X-Roles": "manager"}, "port=9100"), "port": ({}, "port=9101")}
    for headers, query in others.values():
        answer = broken.get(f"/fleetlight/sd/busy?{query}", ADA | headers)
        assert (answer.status_code, "keep the targets" in answer.text) == (503, True)
        assert answer.headers["Retry-After"] == "30"
    content = {name: view[name] for name in ("name", "what", "fields", "order", "shared")} | {"filter": ""}
    assert api.request("PUT", f"/fleetlight/views/{view['id']}", ADA, json=content).status_code == 200
    assert broken.get("/fleetlight/sd/busy?port=9100", ADA).status_code == 503


def test_incomplete_discovery_is_an_error_where_that_is_configured(fleet: ComputeFleet, api: Api) -> None:
    settings = ApiSettings(incomplete_discovery="error")
    broken = fleet.api(pool=BrokenCells(fleet, failing_after={"east": 1}), search=ALIVE, settings=settings)
    save(api)
    found(broken)
    assert broken.get("/fleetlight/sd/busy?port=9100", ADA).status_code == 503
    assert 'fleetlight_discoveries_total{answer="refused"} 1.0' in broken.metrics()


def test_oldest_answers_are_forgotten_when_they_are_too_large() -> None:
    last = LastComplete(max_bytes=150)
    group = {"targets": ["a:1"], "labels": {"name": "x" * 20}}
    for number, name in enumerate(("first", "second", "first", "third")):
        last.keep(name, number, [group])
    assert last.get("second") is None
    assert last.get("first") == (2, [group])
    assert last.get("third") == (3, [group])
