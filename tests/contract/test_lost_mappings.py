"""A fleet database that is older than the cells: servers that no mapping names are found all the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fleet.tables import fleet_metadata
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import InstanceRow
from fleetlight.manager.operations.jobs.metrics import WorkerMetrics
from fleetlight.manager.operations.mapping_upkeep import MappingUpkeep
from tests.contract.compute_fleet import (
    CELLS,
    MEMBER,
    BrokenCells,
    ComputeFleet,
    compute_fleet,
    microversion,
    searching,
)
from tests.support.fleets.documents import make_uuid
from tests.support.servers.backups import Backup

HEADERS = {**MEMBER, "X-Project-Id": "demo", "X-User-Id": "ada"}
STRANGER = {**MEMBER, "X-Project-Id": "other", "X-User-Id": "bob"}


class OlderFleet:
    """A fleet whose database went back to before the server `new` was made in each cell, and `gone` deleted."""

    def __init__(self, fleet: ComputeFleet, folder: Path) -> None:
        self.fleet = fleet
        fleet.add_hosts(1)
        self.gone = fleet.create("east")
        backup = Backup(fleet.fleet.database.engine, folder, fleet_metadata)
        self.new = {cell: fleet.create(cell) for cell in CELLS}
        fleet.operations("east").delete(self.gone)
        backup.restore()
        assert all(fleet.fleet.mapping_of(uuid) is None for uuid in self.new.values())


@pytest.fixture
def older(fleet_of_any_database: ComputeFleet, tmp_path: Path) -> OlderFleet:
    return OlderFleet(fleet_of_any_database, tmp_path)


@pytest.fixture
def older_files(tmp_path: Path) -> Iterator[OlderFleet]:
    with compute_fleet(tmp_path) as fleet:
        yield OlderFleet(fleet, tmp_path)


class CountingPool(CellPool):
    """Notes which cells are asked for an instance."""

    asked: list[str]

    async def find(self, cell_uuid: str, uuid: str, timeout_s: float) -> InstanceRow | None:
        self.asked.append(cell_uuid)
        return await super().find(cell_uuid, uuid, timeout_s)


@pytest.mark.parametrize("is_indexed", [True, False])
def test_server_without_a_mapping_is_shown_by_its_id(older: OlderFleet, is_indexed: bool) -> None:
    if is_indexed:
        older.fleet.index()
    api = older.fleet.api(search=searching(enabled=is_indexed))
    for uuid in older.new.values():
        shown = api.get(f"/v2.1/servers/{uuid}", HEADERS)
        assert (shown.status_code, shown.json()["server"]["id"]) == (200, uuid)
        assert api.get(f"/v2.1/servers/{uuid}", STRANGER).status_code == 404
    assert api.get(f"/v2.1/servers/{older.gone}", HEADERS).status_code == 404
    assert sorted(api.ids("/v2.1/servers", HEADERS)) == sorted(older.new.values())


def test_server_without_a_mapping_can_be_changed_marked_and_deleted(older: OlderFleet) -> None:
    api, uuid = older.fleet.api(search=searching(enabled=False)), older.new["south"]
    renamed = api.request("PUT", f"/v2.1/servers/{uuid}", HEADERS, json={"server": {"name": "again"}})
    assert (renamed.status_code, renamed.json()["server"]["name"]) == (200, "again")
    assert uuid not in api.ids(f"/v2.1/servers?marker={uuid}", HEADERS)
    assert api.request("PUT", f"/2/instances/{uuid}/shutdown").status_code == 200
    assert api.request("DELETE", f"/v2.1/servers/{uuid}", HEADERS).status_code == 204
    older.fleet.work()
    assert api.get(f"/v2.1/servers/{uuid}", HEADERS).status_code == 404


def test_list_takes_the_token_of_a_server_without_a_mapping(older_files: OlderFleet) -> None:
    api = older_files.fleet.api()
    token = api.get(f"/v2.1/servers/{older_files.new['north']}", HEADERS).headers["Fleetlight-Token"]
    listed = api.get("/v2.1/servers", {**HEADERS, "Fleetlight-Consistency": f"at-least {token}"})
    assert listed.status_code == 200, listed.text


def test_server_of_a_cell_that_is_down_is_known_by_the_index_without_a_mapping(older_files: OlderFleet) -> None:
    older_files.fleet.index()
    api = older_files.fleet.api(pool=BrokenCells(older_files.fleet, failing_after={"south": 0}))
    shown = api.get(f"/v2.1/servers/{older_files.new['south']}", HEADERS, microversion("2.69"))
    assert (shown.status_code, shown.json()["server"]["status"]) == (200, "ACTIVE")
    assert shown.headers["Fleetlight-Complete"] == "false"


@pytest.mark.parametrize("stale", [(), ("east",), CELLS])
def test_unknown_server_costs_one_question_to_the_index_and_one_to_each_cell_that_it_is_not_fresh_of(
    older_files: OlderFleet, stale: tuple[str, ...]
) -> None:
    fleet = older_files.fleet
    fleet.index()
    for cell in stale:
        fleet.index(cell, age_s=5000)
    pool = CountingPool(fleet.fleet.cells, open_adapter)
    pool.asked = []
    api = fleet.api(pool=pool)
    before = fleet.searcher.asked
    assert api.get(f"/v2.1/servers/{make_uuid(77)}", HEADERS).status_code == 404
    assert sorted(pool.asked) == sorted(fleet.cells[cell].uuid for cell in stale)
    assert fleet.searcher.asked - before <= 2, "what it has of the instance, and how far it is"
    fleet.close_pool(pool)


def test_unknown_server_is_unknown_while_a_cell_is_down(older_files: OlderFleet) -> None:
    api = older_files.fleet.api(
        search=searching(enabled=False), pool=BrokenCells(older_files.fleet, failing_after={"south": 0})
    )
    assert api.get(f"/v2.1/servers/{make_uuid(77)}", HEADERS).status_code == 404


def test_worker_maps_what_the_fleet_database_has_lost_and_nothing_is_doubled(older: OlderFleet) -> None:
    fleet, registry = older.fleet, CollectorRegistry()
    metrics = WorkerMetrics(registry)
    for name, cell in fleet.cells.items():
        adapter = NativeAdapter(cell, engine=fleet.engine(name))
        upkeep = MappingUpkeep(adapter, fleet.fleet, metrics)
        while upkeep.step():
            pass
    for name, uuid in older.new.items():
        mapping = fleet.fleet.mapping_of(uuid)
        assert mapping is not None
        assert (mapping.cell_uuid, mapping.project_id, mapping.user_id) == (fleet.cells[name].uuid, "demo", "ada")
        assert not mapping.queued_for_delete
    gone = fleet.fleet.mapping_of(older.gone)
    assert gone is not None
    assert gone.queued_for_delete, "so that it counts against no quota"
    assert fleet.fleet.quotas.counts("demo")["instances"] == len(CELLS)
    compared = fleet.fleet.compared_mappings.all()
    repaired = {name: compared[cell.uuid].repaired for name, cell in fleet.cells.items()}
    assert repaired == {"north": 1, "east": 2, "south": 1}
    assert registry.get_sample_value("fleetlight_mappings_repaired_total", {"cell": fleet.cells["east"].uuid}) == 2
    api = fleet.api(search=searching(enabled=False))
    assert sorted(api.ids("/v2.1/servers", HEADERS)) == sorted(older.new.values())
    api.request("DELETE", f"/v2.1/servers/{older.new['south']}", HEADERS)
    fleet.work()
    deleted = fleet.fleet.mapping_of(older.new["south"])
    assert deleted is not None
    assert deleted.queued_for_delete
