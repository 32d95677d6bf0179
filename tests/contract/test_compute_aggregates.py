"""Aggregates of hosts (contracts/nova-rest, 4.7): groups of hosts, which can be what gives them their zone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleetlight.manager.operations.hosts.cell_nodes import NewHost
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.amount import Amount
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, compute_fleet, microversion
from tests.support.values import IMAGE

URL = "/v2.1/os-aggregates"
NEW = {"id", "name", "availability_zone", "created_at", "updated_at", "deleted", "deleted_at"}
FULL = NEW | {"hosts", "metadata"}
FLAVOR = {"flavorid": "1", "name": "m1.tiny", "memory_mb": 512, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0}
ROOM = Amount.of_gib(8, 16384, 100)


@contextmanager
def placed_hosts(folder: Path) -> Iterator[ComputeFleet]:
    """Hosts `free` and `other` in the default zone, and `placed` in a zone that it was given when it joined."""
    with compute_fleet(folder) as fleet:
        nodes_in(fleet.native, fleet.cells["north"]).add_hosts([NewHost("free", ROOM), NewHost("placed", ROOM, "west")])
        nodes_in(fleet.native, fleet.cells["east"]).add_hosts([NewHost("other", ROOM)])
        yield fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with placed_hosts(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def api(fleet: ComputeFleet) -> Api:
    return fleet.api()


def create(api: Api, name: str = "racks", **values: Any) -> int:
    """Makes an aggregate; returns its id."""
    response = api.request("POST", URL, json={"aggregate": {"name": name, **values}})
    assert response.status_code == 200, response.text
    number: int = response.json()["aggregate"]["id"]
    return number


def act(api: Api, number: int, **action: Any) -> httpx.Response:
    return api.request("POST", f"{URL}/{number}/action", json=action)


def add_host(api: Api, number: int, host: str) -> int:
    return act(api, number, add_host={"host": host}).status_code


def remove_host(api: Api, number: int, host: str) -> int:
    return act(api, number, remove_host={"host": host}).status_code


def update(api: Api, number: int, **values: Any) -> httpx.Response:
    return api.request("PUT", f"{URL}/{number}", json={"aggregate": values})


def zones(api: Api) -> dict[str, str]:
    return {each["host"]: each["zone"] for each in api.get("/v2.1/os-services").json()["services"]}


def test_aggregate_is_made_shown_changed_and_removed(api: Api) -> None:
    response = api.request("POST", URL, json={"aggregate": {"name": "racks", "availability_zone": "east"}})
    new = response.json()["aggregate"]
    assert (response.status_code, new.keys()) == (200, NEW)
    shown = api.get(f"{URL}/{new['id']}").json()["aggregate"]
    assert shown == {**new, "hosts": [], "metadata": {"availability_zone": "east"}}
    assert api.get(URL).json() == {"aggregates": [shown]}
    assert api.get(URL, microversion("2.41")).json()["aggregates"][0].keys() == FULL | {"uuid"}

    changed = update(api, new["id"], name="rows", availability_zone="west").json()["aggregate"]
    assert (changed["name"], changed["availability_zone"], changed["metadata"]) == (
        "rows",
        "west",
        {"availability_zone": "west"},
    )
    assert changed["updated_at"] is not None
    removed = api.request("DELETE", f"{URL}/{new['id']}")
    assert (removed.status_code, removed.content) == (200, b"")
    assert api.get(f"{URL}/{new['id']}").status_code == 404


def test_blanks_around_the_new_name_of_an_aggregate_do_not_count(api: Api) -> None:
    assert update(api, create(api), name=" renamed ").json()["aggregate"]["name"] == "renamed"


def test_hosts_join_and_leave_once(api: Api) -> None:
    number = create(api)
    for host in ("free", "placed", "other"):
        assert add_host(api, number, host) == 200
    assert add_host(api, number, "free") == 409
    assert add_host(api, number, "nobody") == 404
    assert api.get(f"{URL}/{number}").json()["aggregate"]["hosts"] == ["free", "other", "placed"]
    assert zones(api) == {"free": "nova", "placed": "west", "other": "nova"}, "there is no zone to be brought into"
    assert api.request("DELETE", f"{URL}/{number}").status_code == 400
    for host in ("free", "placed", "other"):
        assert remove_host(api, number, host) == 200
    assert remove_host(api, number, "free") == 404
    assert api.request("DELETE", f"{URL}/{number}").status_code == 200


def test_metadata_is_merged_and_a_null_removes(api: Api) -> None:
    number = create(api, availability_zone="east")
    act(api, number, set_metadata={"metadata": {"ssd": "true", "gpu": "no"}})
    response = act(api, number, set_metadata={"metadata": {"gpu": None, "availability_zone": None}})
    aggregate = response.json()["aggregate"]
    assert (aggregate["metadata"], aggregate["availability_zone"]) == ({"ssd": "true"}, None)


def test_zone_of_the_aggregate_is_that_of_its_hosts(fleet: ComputeFleet, api: Api) -> None:
    number = create(api, availability_zone="racks-zone")
    assert [add_host(api, number, host) for host in ("free", "other")] == [200, 200]
    assert zones(api)["free"] == zones(api)["other"] == "racks-zone"
    assert add_host(api, number, "placed") == 409, "it is in another zone"
    body = {"name": "s", "flavorRef": "1", "imageRef": IMAGE}
    created = api.request("POST", "/v2.1/servers", json={"server": {**body, "availability_zone": "racks-zone"}})
    fleet.work()
    shown = api.get(f"/v2.1/servers/{created.json()['server']['id']}").json()["server"]
    assert shown["OS-EXT-AZ:availability_zone"] == "racks-zone"
    assert shown["OS-EXT-SRV-ATTR:host"] in {"free", "other"}


def test_zone_follows_the_aggregate_and_the_last_one_lets_go_of_it(api: Api) -> None:
    first, second = create(api, "first", availability_zone="a"), create(api, "second", availability_zone="a")
    assert [add_host(api, number, "free") for number in (first, second)] == [200, 200]
    assert update(api, first, availability_zone="b").status_code == 400, "the other one says a"
    assert remove_host(api, second, "free") == 200
    assert zones(api)["free"] == "a"
    assert update(api, first, availability_zone="b").status_code == 200
    assert zones(api)["free"] == "b"
    assert act(api, first, set_metadata={"metadata": {"availability_zone": None}}).status_code == 200
    assert zones(api)["free"] == "nova"


def test_hosts_with_servers_stay_in_their_zone(fleet: ComputeFleet, api: Api) -> None:
    plain, zoned = create(api, "plain"), create(api, "zoned", availability_zone="east")
    uuid = fleet.create("north", host="free", node="free", flavor=FLAVOR)
    assert add_host(api, zoned, "free") == 409
    assert add_host(api, plain, "free") == 200, "that changes no zone"
    assert update(api, plain, availability_zone="east").status_code == 400
    assert act(api, plain, set_metadata={"metadata": {"availability_zone": "east"}}).status_code == 400
    assert zones(api)["free"] == "nova"
    fleet.operations("north").delete(uuid)
    assert update(api, plain, availability_zone="east").status_code == 200
    assert fleet.create("north", host="free", node="free", flavor=FLAVOR)
    assert remove_host(api, plain, "free") == 409
    assert zones(api)["free"] == "east"


def test_service_that_is_removed_leaves_its_aggregates(api: Api) -> None:
    number = create(api)
    add_host(api, number, "free")
    [service] = [each for each in api.get("/v2.1/os-services").json()["services"] if each["host"] == "free"]
    assert api.request("DELETE", f"/v2.1/os-services/{service['id']}").status_code == 204
    assert api.get(f"{URL}/{number}").json()["aggregate"]["hosts"] == []


REFUSALS: list[tuple[str, str, str, dict[str, Any] | None, int]] = [
    ("2.1", "POST", "", {"aggregate": {}}, 400),
    ("2.1", "POST", "", {"aggregate": {"name": "a", "metadata": {}}}, 400),
    ("2.1", "POST", "", {"aggregate": {"name": "a", "availability_zone": "x:y"}}, 400),
    ("2.1", "POST", "", {"aggregate": {"name": "taken"}}, 409),
    ("2.1", "PUT", "/{number}", {"aggregate": {}}, 400),
    ("2.1", "PUT", "/{number}", {"aggregate": {"name": "taken"}}, 200),
    ("2.1", "PUT", "/{other}", {"aggregate": {"name": "taken"}}, 409),
    ("2.1", "PUT", "/9999", {"aggregate": {"name": "a"}}, 404),
    ("2.1", "GET", "/9999", None, 404),
    ("2.1", "GET", "/first", None, 400),
    ("2.1", "DELETE", "/first", None, 400),
    ("2.1", "DELETE", "/9999", None, 404),
    ("2.1", "POST", "/{number}/action", {}, 400),
    ("2.1", "POST", "/{number}/action", {"paint": {}}, 400),
    ("2.1", "POST", "/{number}/action", {"add_host": {"host": "free"}, "remove_host": {"host": "free"}}, 400),
    ("2.1", "POST", "/{number}/action", {"set_metadata": {"metadata": {"availability_zone": ""}}}, 400),
    ("2.1", "POST", "/{number}/action", {"set_metadata": {"metadata": {"a": 1}}}, 400),
    ("2.1", "POST", "/{number}/action", {"add_host": {"host": "free"}, "remove_host": None}, 400),
    ("2.1", "PUT", "/{number}", {"aggregate": {"name": " "}}, 400),
    ("2.1", "POST", "", {"aggregate": {"name": " a"}}, 400),
    ("2.1", "POST", "/9999/action", {"add_host": {"host": "free"}}, 404),
    ("2.80", "POST", "/{number}/images", {"cache": [{"id": "x"}]}, 404),
    ("2.81", "POST", "/{number}/images", {"cache": []}, 400),
    ("2.81", "POST", "/{number}/images", {"cache": [{"id": "x"}]}, 400),
    ("2.81", "POST", "/{number}/images", {"cache": [{"id": IMAGE}, {"id": IMAGE}]}, 400),
    ("2.81", "POST", "/{number}/images", {"cache": [{"id": IMAGE}]}, 501),
]


@pytest.fixture(scope="module")
def two_aggregates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Mapping[str, int]]]:
    """The API of a fleet that no request of `REFUSALS` changes, and what their addresses call the aggregates in it."""
    with placed_hosts(tmp_path_factory.mktemp("fleet")) as fleet:
        api = fleet.api()
        yield api, {"number": create(api, "taken"), "other": create(api, "other")}


@pytest.mark.parametrize("row", REFUSALS, ids=str)
def test_requests_are_validated(
    two_aggregates: tuple[Api, Mapping[str, int]], row: tuple[str, str, str, dict[str, Any] | None, int]
) -> None:
    api, numbers = two_aggregates
    version, method, path, body, status = row
    content = {} if body is None else {"json": body}
    response = api.request(method, URL + path.format_map(numbers), microversion(version), **content)
    assert response.status_code == status, response.text


def test_aggregates_are_for_administrators(api: Api) -> None:
    number = create(api)
    for method, path, body in (
        ("GET", "", None),
        ("GET", f"/{number}", None),
        ("POST", "", {"aggregate": {"name": "mine"}}),
        ("PUT", f"/{number}", {"aggregate": {"name": "mine"}}),
        ("DELETE", f"/{number}", None),
        ("POST", f"/{number}/action", {"add_host": {"host": "free"}}),
    ):
        content = {} if body is None else {"json": body}
        assert api.request(method, URL + path, MEMBER, **content).status_code == 403
