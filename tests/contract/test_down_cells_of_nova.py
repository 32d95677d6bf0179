"""A cell of Nova that is down: its servers come from the index, or as Nova's API database knows them (section 12)."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from fleetlight.cells.kinds.nova_db import tables
from tests.contract.compute_fleet import Api, microversion
from tests.support.fleets.documents import make_uuid
from tests.support.fleets.nova_fleet import NovaFleet, nova_fleet
from tests.support.fleets.nova_tables import SmallNova, small_nova
from tests.support.values import IMAGE

pytestmark = pytest.mark.no_rerun

UP, DOWN = make_uuid(1), [make_uuid(2), make_uuid(3)]


@pytest.fixture
def nova(tmp_path: Path) -> SmallNova:
    """A server in cell0, and two in cell1."""
    made = small_nova(tmp_path)
    made.add("cell0", 1, vm_state="error")
    made.add("cell1", 2)
    made.add("cell1", 3, vm_state="stopped")
    return made


@pytest.fixture
def fleet(nova: SmallNova, tmp_path: Path) -> Iterator[NovaFleet]:
    with nova_fleet(tmp_path, nova.urls) as fleet:
        yield fleet


def lose_cell1(tmp_path: Path) -> None:
    (tmp_path / "cell1.db").rename(tmp_path / "elsewhere.db")


def listed(api: Api, query: str = "", version: str = "2.69") -> httpx.Response:
    return api.get(f"/v2.1/servers/detail?all_tenants=1{query}", microversion(version))


def statuses(answer: httpx.Response) -> dict[str, str]:
    return {server["id"]: server["status"] for server in answer.json()["servers"]}


def test_servers_of_a_cell_that_is_down_are_what_the_api_database_knows_of_them(
    fleet: NovaFleet, tmp_path: Path
) -> None:
    lose_cell1(tmp_path)
    answer = listed(fleet.api())
    assert answer.headers["Fleetlight-Complete"] == "false"
    assert statuses(answer) == {UP: "ERROR"} | dict.fromkeys(DOWN, "UNKNOWN")
    assert [set(server) for server in answer.json()["servers"][:2]] == [
        {"id", "status", "tenant_id", "created", "links"}
    ] * 2


def test_they_are_missing_where_nova_has_no_word_for_them(fleet: NovaFleet, tmp_path: Path) -> None:
    lose_cell1(tmp_path)
    for answer in (listed(fleet.api(), version="2.68"), listed(fleet.api(), "&limit=5")):
        assert answer.headers["Fleetlight-Complete"] == "false"
        assert statuses(answer) == {UP: "ERROR"}


def test_index_answers_for_the_cell_with_filters_and_pages(fleet: NovaFleet, tmp_path: Path) -> None:
    fleet.fill_index()
    lose_cell1(tmp_path)
    api = fleet.api(uses_index=True)
    strong = {"Fleetlight-Consistency": "strong"}
    assert statuses(listed(api)) == {UP: "ERROR", DOWN[0]: "ACTIVE", DOWN[1]: "SHUTOFF"}
    assert statuses(listed(api, "&status=SHUTOFF")) == {DOWN[1]: "SHUTOFF"}
    assert statuses(listed(api, f"&limit=1&marker={DOWN[1]}")) == {DOWN[0]: "ACTIVE"}
    answer = api.get("/v2.1/servers/detail?all_tenants=1&limit=5", microversion("2.69"), strong)
    assert answer.headers["Fleetlight-Complete"] == "false"


def test_cell_that_is_back_answers_again(fleet: NovaFleet, tmp_path: Path) -> None:
    lose_cell1(tmp_path)
    api = fleet.api()
    assert listed(api).headers["Fleetlight-Complete"] == "false"
    (tmp_path / "elsewhere.db").rename(tmp_path / "cell1.db")
    answer = listed(api)
    assert answer.headers["Fleetlight-Complete"] == "true"
    assert statuses(answer) == {UP: "ERROR", DOWN[0]: "ACTIVE", DOWN[1]: "SHUTOFF"}


FLAVOR = {"flavorid": "m1", "name": "small", "memory_mb": 2048, "vcpus": 2, "root_gb": 20, "ephemeral_gb": 1, "swap": 0}


def enveloped(name: str, data: Mapping[str, object]) -> dict[str, object]:
    return {"nova_object.name": name, "nova_object.version": "1.0", "nova_object.data": data}


def add_spec(nova: SmallNova, uuid: str, **changes: object) -> None:
    flavor = enveloped("Flavor", {**FLAVOR, "extra_specs": {"hw:cpu_policy": "shared"}})
    image = enveloped("ImageMeta", {"id": IMAGE})
    data = {"user_id": "ada", "flavor": flavor, "image": image, "availability_zone": "east", **changes}
    row = {"instance_uuid": uuid, "spec": json.dumps(enveloped("RequestSpec", data))}
    nova.insert("api", tables.request_specs, row)


def shown(api: Api, uuid: str) -> httpx.Response:
    return api.get(f"/v2.1/servers/{uuid}", microversion("2.69"))


def test_server_whose_cell_is_down_is_shown_as_in_a_list_if_the_index_has_it(
    nova: SmallNova, fleet: NovaFleet, tmp_path: Path
) -> None:
    add_spec(nova, DOWN[0])
    fleet.fill_index()
    lose_cell1(tmp_path)
    api = fleet.api(uses_index=True)
    answer = shown(api, DOWN[0])
    assert answer.headers["Fleetlight-Complete"] == "false"
    listed = api.get("/v2.1/servers/detail?all_tenants=1", microversion("2.69")).json()["servers"]
    assert answer.json()["server"] == next(server for server in listed if server["id"] == DOWN[0])
    assert answer.json()["server"]["status"] != "UNKNOWN"


def test_server_whose_cell_is_down_is_shown_with_what_its_request_spec_says(
    nova: SmallNova, fleet: NovaFleet, tmp_path: Path
) -> None:
    add_spec(nova, DOWN[0])
    lose_cell1(tmp_path)
    answer = shown(fleet.api(), DOWN[0])
    assert answer.headers["Fleetlight-Complete"] == "false"
    server = answer.json()["server"]
    assert server["flavor"] == {
        "original_name": "small",
        "vcpus": 2,
        "ram": 2048,
        "disk": 20,
        "ephemeral": 1,
        "swap": 0,
        "extra_specs": {"hw:cpu_policy": "shared"},
    }
    assert (server["image"]["id"], server["user_id"]) == (IMAGE, "ada")
    assert (server["OS-EXT-AZ:availability_zone"], server["status"]) == ("east", "UNKNOWN")


def test_what_a_request_spec_does_not_say_is_unknown(nova: SmallNova, fleet: NovaFleet, tmp_path: Path) -> None:
    add_spec(nova, DOWN[0], image=None, availability_zone=None, user_id=None)
    lose_cell1(tmp_path)
    server = shown(fleet.api(), DOWN[0]).json()["server"]
    assert (server["image"], server["OS-EXT-AZ:availability_zone"], server["user_id"]) == ("", "UNKNOWN", "UNKNOWN")


def test_server_without_a_request_spec_is_not_found_unless_the_index_knows_it(fleet: NovaFleet, tmp_path: Path) -> None:
    fleet.fill_index()
    lose_cell1(tmp_path)
    assert shown(fleet.api(), DOWN[0]).status_code == 404
    assert shown(fleet.api(uses_index=True), DOWN[0]).status_code == 200
