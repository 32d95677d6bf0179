"""A client that knows nothing of tokens lists what its project has just changed, however far the index is."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import (
    CELLS,
    MEMBER,
    Api,
    ComputeFleet,
    compute_fleet,
    hanging_pool,
    searching,
)
from tests.contract.test_tokens import NEW, cell_of, create, published
from tests.support.examples import examples
from tests.support.servers.backups import Backup
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_rerun

LIST = "/v2.1/servers"
AS_IT_IS = {"Fleetlight-Consistency": "any"}
OTHERS = {"X-Project-Id": "other", "X-Roles": "member"}


@pytest.fixture
def fleet(fleet_of_any_store: ComputeFleet) -> ComputeFleet:
    fleet_of_any_store.add_hosts()
    return fleet_of_any_store


def rename(api: Api, uuid: str, name: str) -> None:
    response = api.request("PUT", f"{LIST}/{uuid}", json={"server": {"name": name}})
    assert response.status_code == 200, response.text


def route(api: Api, *headers: dict[str, str]) -> str:
    return api.get(LIST, *headers).headers["Fleetlight-Route"]


def test_every_change_is_in_the_next_list(fleet: ComputeFleet) -> None:
    uuid, other = fleet.fill(2, host="north-host0")
    api = fleet.api()
    rename(api, uuid, "renamed")
    assert api.ids(f"{LIST}?name=renamed") == [uuid]
    assert api.ids(f"{LIST}?name=renamed", MEMBER) == [uuid], "of the same project"
    assert api.ids(f"{LIST}?name=renamed", AS_IT_IS) == []
    api.request("PUT", f"{LIST}/{uuid}/tags", NEW, json={"tags": ["red"]})
    assert api.ids(f"{LIST}?tags=red", NEW) == [uuid]
    api.request("POST", f"{LIST}/{uuid}/action", NEW, json={"os-stop": None})
    tasks = {server["id"]: server["OS-EXT-STS:task_state"] for server in api.get(f"{LIST}/detail").json()["servers"]}
    assert tasks == {uuid: "powering-off", other: None}
    new, _ = create(api)
    assert set(api.ids(LIST)) == {uuid, other, new}


def test_what_a_project_was_shown_is_in_its_next_list(fleet: ComputeFleet) -> None:
    """A client that waits for a server to be deleted asks for it until it is gone."""
    (uuid,) = fleet.fill(1, host="north-host0")
    api = fleet.api()
    assert api.request("DELETE", f"{LIST}/{uuid}").status_code == 204
    fleet.work()
    assert api.get(f"{LIST}/{uuid}").status_code == 404
    assert api.ids(LIST, AS_IT_IS) == [uuid]
    assert api.ids(LIST) == []


def test_change_by_an_administrator_is_in_the_next_list_of_the_project_and_of_all_projects(fleet: ComputeFleet) -> None:
    uuid, _ = fleet.fill(2, host="north-host0")
    api = fleet.api()
    operator = {"X-Project-Id": "operators", "X-Roles": "admin"}
    response = api.request("POST", f"{LIST}/{uuid}/action", operator, json={"os-resetState": {"state": "error"}})
    assert response.status_code == 202, response.text
    assert api.ids(f"{LIST}?status=ERROR", AS_IT_IS) == []
    assert api.ids(f"{LIST}?status=ERROR", MEMBER) == [uuid]
    assert api.ids(f"{LIST}?status=ERROR&all_tenants=1", operator) == [uuid]


def test_change_is_in_the_next_list_by_any_process(fleet: ComputeFleet) -> None:
    """Nothing but the fleet database is common to the processes, and no indexer gets on meanwhile."""
    uuids = fleet.fill(6)
    first, second = fleet.api(), fleet.api()
    for number, (changing, listing) in enumerate(itertools.permutations([first, second, fleet.api()], 2)):
        uuid, name = uuids[number], f"renamed-{number}"
        rename(changing, uuid, name)
        assert listing.ids(f"{LIST}?name={name}") == [uuid]
        answer = listing.get(f"{LIST}?name={name}", MEMBER)
        assert [server["id"] for server in answer.json()["servers"]] == [uuid]
        assert answer.headers["Fleetlight-Complete"] == "true"
    assert route(second, OTHERS) == "index", "nothing of another project's was changed"
    new, _ = create(first)
    assert new in second.ids(LIST, MEMBER)
    assert first.request("DELETE", f"{LIST}/{uuids[0]}").status_code == 204
    fleet.work()
    assert first.get(f"{LIST}/{uuids[0]}").status_code == 404, "seen by the one"
    assert uuids[0] not in second.ids(LIST, MEMBER), "so not listed by the other"


@pytest.mark.parametrize("lost", [1, 2])
def test_change_of_a_restored_cell_is_in_the_next_list(fleet: ComputeFleet, tmp_path: Path, lost: int) -> None:
    """It has a revision that was there before, or one that is lower than those that were."""
    uuid = fleet.create("south")
    fleet.number_changes()
    backup = Backup(fleet.engine("south"), tmp_path)
    changing, listing = fleet.api(), fleet.api()
    for number in range(lost):
        rename(changing, uuid, f"lost-{number}")
    fleet.number_changes()
    fleet.index(watermark=published(fleet, "south"))
    for api in (changing, listing):
        wait_until(lambda api=api: route(api, MEMBER) == "index")  # type: ignore[misc]  # a default is no argument
    backup.restore()
    rename(changing, uuid, "kept")
    for api in (changing, listing):
        assert api.ids(f"{LIST}?name=kept") == [uuid]


def test_other_processes_ask_the_cell_only_until_the_index_has_the_change(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(6)
    first, second = fleet.api(), fleet.api()
    rename(first, uuids[0], "renamed")
    cell = cell_of(fleet, uuids[0])
    assert [f"{name}=live" in route(second) for name in CELLS] == [name == cell for name in CELLS]
    fleet.number_changes()
    fleet.index(watermark=published(fleet, cell))
    wait_until(lambda: route(second, MEMBER) == "index")
    assert second.ids(f"{LIST}?name=renamed") == [uuids[0]]


def test_only_the_cell_is_asked_and_only_until_the_index_has_the_change(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(6)
    api = fleet.api()
    cells = [cell_of(fleet, uuid) for uuid in uuids]
    uuid = uuids[cells.index("east")]
    assert route(api, MEMBER) == "index"
    rename(api, uuid, "renamed")
    for number_them in (False, True):  # without a number, and with one
        if number_them:
            fleet.number_changes()
        assert [f"{cell}=live" in route(api) for cell in CELLS] == [cell == "east" for cell in CELLS]
    assert route(api, OTHERS) == "index"
    fleet.index(watermark=published(fleet, "east"))
    # How far the index is counts for a moment.
    wait_until(lambda: route(api, MEMBER) == "index")
    assert api.ids(f"{LIST}?name=renamed") == [uuid]


def test_what_nobody_has_changed_costs_nothing(fleet: ComputeFleet) -> None:
    uuids = fleet.fill(3)
    later = system_clock() + 3_600_000_000
    fleet.index(fresh_as_of=later)
    api = fleet.api(clock=lambda: later)
    for uuid in uuids:
        assert api.get(f"{LIST}/{uuid}").status_code == 200
    assert route(api, MEMBER) == "index"


def test_list_without_an_own_change_says_so(fleet: ComputeFleet) -> None:
    fleet.fill(6)
    uuid = fleet.create("south")
    with hanging_pool(fleet, "south") as pool:
        rename(fleet.api(), uuid, "renamed")
        api = fleet.api(search=searching(cell_timeout_s=0.2), pool=pool.cells)
        pool.gate.set()
        again = {"server": {"name": "renamed again"}}
        wait_until(lambda: api.request("PUT", f"{LIST}/{uuid}", json=again).status_code == 200)
        pool.gate.clear()
        response = api.get(LIST)
    assert "south=index-while-down" in response.headers["Fleetlight-Route"]
    assert response.headers["Fleetlight-Complete"] == "false"


def test_change_in_a_cell_that_has_just_joined_is_in_the_next_list(fleet: ComputeFleet) -> None:
    fleet.fill(3)
    api = fleet.api()
    assert len(api.ids(LIST)) == 3
    fleet.add_cell("west")
    uuid = fleet.create("west")
    rename(api, uuid, "far away")
    assert api.ids(f"{LIST}?name=far") == [uuid]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ComputeFleet, list[str]]]:
    with compute_fleet(tmp_path_factory.mktemp("busy")) as fleet:
        yield fleet, fleet.fill(6)


_NUMBERS = itertools.count()
_STEPS = st.one_of(
    st.tuples(st.just("rename"), st.integers(0, 5)),
    st.tuples(st.just("show"), st.integers(0, 5)),
    st.tuples(st.just("number"), st.just(0)),
    st.tuples(st.just("index"), st.integers(0, len(CELLS) - 1)),
    st.tuples(st.just("list"), st.just(0)),
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(_STEPS, min_size=5, max_size=30))
def test_no_list_is_older_than_what_its_project_did(
    busy: tuple[ComputeFleet, list[str]], steps: list[tuple[str, int]]
) -> None:
    fleet, uuids = busy
    api = fleet.api()
    fleet.index()
    names = {
        server["id"]: server["name"] for server in api.get(LIST, {"Fleetlight-Consistency": "strong"}).json()["servers"]
    }
    for step, which in [*steps, ("list", 0)]:
        match step:
            case "rename":
                names[uuids[which]] = f"name-{next(_NUMBERS)}"
                rename(api, uuids[which], names[uuids[which]])
            case "show":
                assert api.get(f"{LIST}/{uuids[which]}").json()["server"]["name"] == names[uuids[which]]
            case "number":
                fleet.number_changes()
            case "index":
                fleet.index(CELLS[which], watermark=published(fleet, CELLS[which]))
            case _:
                assert {server["id"]: server["name"] for server in api.get(LIST).json()["servers"]} == names
