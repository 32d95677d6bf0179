"""`GET /fleetlight/metrics/instances`: servers as gauges, and whether what is missing may still be there."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleetlight.api.monitoring.instance_gauges import KEPT_S, OTHER
from tests.contract.compute_fleet import CELLS, MEMBER, Api, BrokenCells, ComputeFleet, compute_fleet, searching
from tests.contract.test_series import Clock

PATH = "/fleetlight/metrics/instances"
Samples = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        fleet.fill(6, vm_state="active", availability_zone="a")
        fleet.create("north", vm_state="active", task_state="rebooting", availability_zone="a", project_id="red")
        fleet.create("north", vm_state="stopped", availability_zone="a", project_id="red")
        fleet.create("north", vm_state="stopped", task_state="powering-on", availability_zone="a", project_id="blue")
        fleet.create("north", vm_state="building")
        fleet.operations("north").delete(fleet.create("north", vm_state="active"))
        fleet.create("north", vm_state="active", forthcoming=True)
        fleet.index()
        yield fleet


def scraped(fleet: ComputeFleet, api: Api, query: str = "") -> dict[str, Samples]:
    """The samples of each metric, by their labels; cells by their names."""
    response = api.get(PATH + query)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain")
    names = {cell.uuid: name for name, cell in fleet.cells.items()}
    return {
        family.name: {
            tuple(names.get(label, label) for label in sample.labels.values()): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(response.text)
    }


def test_servers_are_counted_by_cell_status_and_zone(fleet: ComputeFleet) -> None:
    found = scraped(fleet, fleet.api())
    assert found["fleetlight_instances"] == {
        ("north", "ACTIVE", "a"): 2,
        ("north", "REBOOT", "a"): 1,
        ("north", "SHUTOFF", "a"): 2,
        ("north", "BUILD", ""): 1,
        ("east", "ACTIVE", "a"): 2,
        ("south", "ACTIVE", "a"): 2,
    }
    assert found["fleetlight_instances_complete"] == {(cell,): 1 for cell in CELLS}
    assert all(age < 60 for age in found["fleetlight_instances_age_seconds"].values())
    assert found["fleetlight_project_instances"] == {}


def test_projects_are_counted_where_that_is_asked_for_and_the_rest_is_one(fleet: ComputeFleet) -> None:
    found = {query: scraped(fleet, fleet.api(), query) for query in ("?projects=1", "?projects=2", "?projects=100")}
    assert [each["fleetlight_project_instances"] for each in found.values()] == [
        {("demo",): 7, (OTHER,): 3},
        {("demo",): 7, ("red",): 2, (OTHER,): 1},
        {("demo",): 7, ("red",): 2, ("blue",): 1, (OTHER,): 0},
    ]


def test_all_that_scrape_at_once_cost_one_count_of_the_index_and_no_cell(fleet: ComputeFleet) -> None:
    clock = Clock()
    cells = BrokenCells(fleet, failing_after=dict.fromkeys(CELLS, 0))
    api = fleet.api(clock=clock, pool=cells, search=searching(staleness_limit_s=1e12))
    fleet.searcher.counted = 0
    assert {response.status_code for response in api.at_once(5, "GET", PATH)} == {200}
    assert fleet.searcher.counted == 1
    clock.now += (KEPT_S + 1) * 1_000_000
    assert api.get(PATH).status_code == 200
    assert fleet.searcher.counted == 2


def test_cell_of_which_the_index_is_old_is_not_complete_and_not_asked(fleet: ComputeFleet) -> None:
    fleet.index("east", age_s=5000)
    try:
        found = scraped(fleet, fleet.api(pool=BrokenCells(fleet, failing_after={"east": 0})))
    finally:
        fleet.index("east")
    assert found["fleetlight_instances"][("east", "ACTIVE", "a")] == 2
    assert found["fleetlight_instances_complete"] == {("north",): 1, ("east",): 0, ("south",): 1}
    assert found["fleetlight_instances_age_seconds"][("east",)] >= 5000


def test_cell_that_is_down_and_not_indexed_is_not_complete(fleet: ComputeFleet) -> None:
    broken = BrokenCells(fleet, failing_after={"east": 0})
    found = scraped(fleet, fleet.api(pool=broken, search=searching(enabled=False)))
    assert {cell for cell, *_ in found["fleetlight_instances"]} == {"north", "south"}
    assert found["fleetlight_instances_complete"] == {("north",): 1, ("east",): 0, ("south",): 1}


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [("?projects=101", 400, "0 to 100"), ("?projects=-1", 400, "0 to 100"), ("?project=1", 400, "'project'")],
)
def test_what_cannot_be_counted_is_refused(fleet: ComputeFleet, query: str, status: int, says: str) -> None:
    response = fleet.api().get(PATH + query)
    assert (response.status_code, says in response.text) == (status, True), response.text


def test_gauges_are_for_administrators(fleet: ComputeFleet) -> None:
    assert fleet.api().get(PATH, MEMBER).status_code == 403
