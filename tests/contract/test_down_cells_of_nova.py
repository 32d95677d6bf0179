"""A cell of Nova that is down: its servers come from the index, or as Nova's API database knows them (section 12)."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.compute_fleet import Api, microversion
from tests.support.documents import make_uuid
from tests.support.nova_fleet import NovaFleet, nova_fleet
from tests.support.nova_tables import SmallNova, small_nova

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
