"""`GET /fleetlight/capacity`: what the nodes of all cells have, and what of it is taken."""

from typing import Any

import pytest
from sqlalchemy import update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.tables import allocations, instances, services
from tests.contract.compute_fleet import CELLS, MEMBER, BrokenCells, ComputeFleet, searching


@pytest.fixture
def fleet(fleet_of_any_database: ComputeFleet) -> ComputeFleet:
    """Two hosts in each cell."""
    fleet_of_any_database.add_hosts()
    return fleet_of_any_database


def take(fleet: ComputeFleet, cell: str, host: str, *, is_forthcoming: bool) -> None:
    """Two processors, 4 GiB of memory and 10 GiB of disk of a host."""
    uuid = fleet.create(cell, display_name="web", host=host, node=host)
    with writing(fleet.engine(cell)) as connection:
        connection.execute(update(instances).where(instances.c.uuid == uuid).values(forthcoming=is_forthcoming))
        taken = {"vcpus": 2, "memory_mib": 4096, "disk_gib": 10}
        connection.execute(update(allocations).where(allocations.c.instance_uuid == uuid).values(taken))


def shown(fleet: ComputeFleet, query: str = "") -> Any:
    response = fleet.api().get(f"/fleetlight/capacity{query}")
    assert response.status_code == 200, response.text
    return response


def of_cell(answer: Any, cell: str) -> Any:
    [found] = [each for each in answer["cells"] if each["cell"] == cell]
    return found


def test_used_reserved_and_free_are_told_apart(fleet: ComputeFleet) -> None:
    before = of_cell(shown(fleet).json(), "east")
    take(fleet, "east", "east-host0", is_forthcoming=False)
    take(fleet, "east", "east-host1", is_forthcoming=True)
    after = of_cell(shown(fleet).json(), "east")
    taken = {"vcpus": 2, "memory_mib": 4096, "disk_mib": 10_240}
    assert (before["used"], after["used"]) == (dict.fromkeys(taken, 0), taken)
    assert (before["reserved"], after["reserved"]) == (dict.fromkeys(taken, 0), taken)
    assert after["total"] == before["total"]
    assert after["free"] == {name: before["free"][name] - 2 * taken[name] for name in taken}
    assert after["largest_hole"]["memory_mib"] == before["largest_hole"]["memory_mib"] - 4096


def test_parts_are_by_zone_and_group_and_add_up_to_the_cell(fleet: ComputeFleet) -> None:
    with writing(fleet.engine("east")) as connection:
        connection.execute(update(services).where(services.c.host == "east-host1").values(availability_zone="another"))
    answer = shown(fleet).json()
    parts = [part for part in answer["parts"] if part["cell"] == "east"]
    assert [(part["zone"], part["group"], part["nodes"]) for part in parts] == [
        ("another", "default", 1),
        ("east", "default", 1),
    ]
    for name in ("vcpus", "memory_mib", "disk_mib"):
        assert sum(part["total"][name] for part in parts) == of_cell(answer, "east")["total"][name]


def test_nodes_of_one_cell_are_told_of_and_add_up_to_it(fleet: ComputeFleet) -> None:
    take(fleet, "east", "east-host1", is_forthcoming=False)
    answer = shown(fleet, "?cell=east&nodes=1&vcpus=1&memory_mib=1024&disk_mib=0").json()
    nodes = {each["node"]: each for each in answer["nodes"]}
    assert list(nodes) == ["east-host0", "east-host1"]
    assert nodes["east-host0"]["free"]["vcpus"] == nodes["east-host1"]["free"]["vcpus"] + 2
    [cell] = answer["cells"]
    assert cell["node"] is None
    assert sum(each["fits"] for each in nodes.values()) == cell["fits"]


@pytest.mark.parametrize(("query", "problem"), [("?nodes=1", "name it"), ("?cell=east&nodes=all", "0 or 1")])
def test_nodes_of_a_whole_fleet_are_refused(fleet: ComputeFleet, query: str, problem: str) -> None:
    response = fleet.api().get(f"/fleetlight/capacity{query}")
    assert response.status_code == 400
    assert problem in response.text


def test_nothing_is_free_on_a_host_that_is_disabled(fleet: ComputeFleet) -> None:
    whole = of_cell(shown(fleet).json(), "east")
    with writing(fleet.engine("east")) as connection:
        connection.execute(update(services).where(services.c.host == "east-host1").values(disabled=True))
    half = of_cell(shown(fleet).json(), "east")
    assert (half["nodes"], half["available_nodes"]) == (2, 1)
    assert half["total"] == whole["total"]
    assert half["free"]["memory_mib"] * 2 == whole["free"]["memory_mib"]


def test_room_for_a_size_is_counted_with_and_without_reservations(fleet: ComputeFleet) -> None:
    size = "?vcpus=2&memory_mib=4096&disk_mib=10240"
    before = of_cell(shown(fleet, size).json(), "east")
    take(fleet, "east", "east-host0", is_forthcoming=True)
    answer = shown(fleet, size).json()
    after = of_cell(answer, "east")
    assert before["fits"] == before["fits_without_reservations"] > 1
    assert (after["fits"], after["fits_without_reservations"]) == (before["fits"] - 1, before["fits"])
    assert sum(part["fits"] for part in answer["parts"] if part["cell"] == "east") == after["fits"]
    assert of_cell(shown(fleet).json(), "east")["fits"] is None


@pytest.mark.parametrize(
    "size", ["vcpus=2", "vcpus=2&memory_mib=4G&disk_mib=1", "vcpus=0&memory_mib=0&disk_mib=0", "vcpus=-1", "disk_mib=²"]
)
def test_what_is_no_size_is_refused(fleet: ComputeFleet, size: str) -> None:
    response = fleet.api().get(f"/fleetlight/capacity?{size}")
    assert response.status_code == 400
    assert "size" in response.json()["badRequest"]["message"]


def test_one_cell_is_chosen_by_its_name(fleet: ComputeFleet) -> None:
    assert [each["cell"] for each in shown(fleet, "?cell=east").json()["cells"]] == ["east"]
    assert fleet.api().get("/fleetlight/capacity?cell=nowhere").status_code == 404


def test_every_cell_that_answers_is_there_and_the_answer_says_it_is_complete(fleet: ComputeFleet) -> None:
    response = shown(fleet)
    assert response.headers["fleetlight-complete"] == "true"
    assert {each["cell"] for each in response.json()["cells"]} == set(CELLS)
    assert response.json()["missing"] == []


def test_cell_that_does_not_answer_is_marked(fleet: ComputeFleet) -> None:
    response = fleet.api(search=searching(cell_timeout_s=0.2), pool=BrokenCells(fleet, hanging=["east"])).get(
        "/fleetlight/capacity"
    )
    assert response.status_code == 200
    assert response.headers["fleetlight-complete"] == "false"
    assert [each["cell"] for each in response.json()["missing"]] == ["east"]
    assert {each["cell"] for each in response.json()["cells"]} == set(CELLS) - {"east"}


def test_only_administrators_are_told(fleet: ComputeFleet) -> None:
    assert fleet.api().get("/fleetlight/capacity", MEMBER).status_code == 403
