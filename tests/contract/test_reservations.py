"""Reservations over the remote API (contracts/ganeti-reservations): made, changed, made real, given up."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import pytest
from sqlalchemy import Engine, Executable
from sqlalchemy.event import listen, remove
from sqlalchemy.sql.elements import ReleaseSavepointClause, SavepointClause

from fleetlight.cells.fleet.compute.default_images import DEFAULT_IMAGES
from fleetlight.cells.kinds.native.items.nodes import read_node_records
from fleetlight.cells.model import NO_REQUEST
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.expire_reservations import Expirer
from fleetlight.manager.operations.submitting import JobSubmission
from tests.contract.compute_fleet import BrokenCells, ComputeFleet, microversion
from tests.contract.test_rapi_instances import fleet, rapi
from tests.support.rapi_calls import RapiCalls

__all__ = ["fleet", "rapi"]

FULL: dict[str, Any] = {
    "__version__": 1,
    "forthcoming": True,
    "name": "later.example.com",
    "disk_template": "plain",
    "disks": [{"size": 2048}],
    "os": "debian-12",
    "beparams": {"memory": 1024, "vcpus": 2},
}


@contextmanager
def statements() -> Iterator[list[Executable]]:
    """Those that are executed meanwhile, on any engine."""
    executed: list[Executable] = []
    listen(Engine, "before_execute", add := lambda _connection, statement, *_: executed.append(statement))
    try:
        yield executed
    finally:
        remove(Engine, "before_execute", add)


def reserve(rapi: RapiCalls, **values: Any) -> str:
    """The uuid of a reservation with these values and nothing else."""
    uuid: str = rapi.result("POST", "/instances", {"__version__": 1, "forthcoming": True, **values})
    return uuid


def cells_of(rapi: RapiCalls, uuid: str, *fields: str) -> list[list[Any]]:
    """Status and value of fields of an instance."""
    body = {"fields": list(fields), "qfilter": ["==", "uuid", uuid]}
    response = rapi.api.request("PUT", f"{rapi.base}/query/instance", {"Fleetlight-Consistency": "strong"}, json=body)
    assert response.status_code == 200, response.text
    [row] = response.json()["data"]
    found: list[list[Any]] = row
    return found


def test_reservation_needs_nothing_and_has_a_uuid(rapi: RapiCalls) -> None:
    uuid = reserve(rapi)
    names = ("name", "forthcoming", "status", "admin_state", "oper_state", "oper_ram", "pnode", "os", "disk_template")
    assert cells_of(rapi, uuid, *names) == [
        [2, None], [0, True], [0, "ADMIN_down"], [0, "down"], [0, False], [3, None], [2, None], [2, None], [2, None]
    ]  # fmt: skip
    assert reserve(rapi) != uuid
    ids = [each["id"] for each in rapi.get("/instances")]
    assert uuid in ids
    assert rapi.get(f"/instances/{uuid}")["forthcoming"] is True


def test_reservation_makes_none_of_its_statements_anew(fleet: ComputeFleet) -> None:
    """To make one takes as long as to carry it out."""
    engine, cell = fleet.engine("north"), fleet.cells["north"]
    submission, worker = JobSubmission(engine, cell), new_worker(engine, fleet.fleet, cell)
    unnamed = InstanceCreate.read(
        {"forthcoming": True, "disk_template": "plain", "disks": [{"size": 2048}], "os_type": "debian-12"}
    )
    with statements() as executed:
        for _ in range(2):
            submission.submit([unnamed], NO_REQUEST)
            worker.run_once()
    made = [each for each in executed if not isinstance(each, SavepointClause | ReleaseSavepointClause)]
    half = len(made) // 2
    assert [*map(id, made[half:])] == [*map(id, made[:half])]
    assert half <= 21


def test_what_is_free_of_all_nodes_costs_one_statement(fleet: ComputeFleet) -> None:
    costs = []
    for fields in ({"name"}, {"name", "mfree", "dfree"}):
        with statements() as executed, fleet.engine("north").connect() as connection:
            assert len(read_node_records(connection, fleet.cells["north"], fields, None)) == 3
        costs.append(len(executed))
    assert costs[1] == costs[0] + 1


def test_what_is_reserved_counts_for_all_that_places_and_not_for_the_node(rapi: RapiCalls) -> None:
    uuid = reserve(rapi, **{**FULL, "pnode": "north-host0"})
    node = rapi.get("/nodes/north-host0")
    assert (node["pinst_cnt"], node["pinst_list"]) == (1, ["later.example.com"])
    assert (node["mfree"], node["mtotal"]) == (262_144, 262_144)
    rapi.result("PUT", f"/instances/{uuid}/modify", {"beparams": {"memory": 2048}})
    assert rapi.get("/nodes/north-host0")["mfree"] == 262_144
    unnamed = reserve(rapi, pnode="north-host0", disk_template="diskless")
    node = rapi.get("/nodes/north-host0")
    assert (node["pinst_cnt"], node["pinst_list"]) == (2, ["later.example.com"])
    for each in (uuid, unnamed):
        rapi.result("DELETE", f"/instances/{each}")
    assert rapi.get("/nodes/north-host0")["pinst_cnt"] == 0


def test_compute_api_takes_nothing_of_what_is_reserved(rapi: RapiCalls, fleet: ComputeFleet) -> None:
    for number in range(3):
        reserve(rapi, pnode=f"north-host{number}", beparams={"memory": 262_144}, ignore_ipolicy=True)
    for cell in ("east", "south"):
        for number in range(3):
            values = {"pnode": f"{cell}-host{number}", "beparams": {"memory": 262_144}, "ignore_ipolicy": True}
            reserve(rapi.cell(cell), **values)
    image = DEFAULT_IMAGES[0].id
    server = {"name": "x", "imageRef": image, "flavorRef": "1", "networks": "none"}
    headers = {"OpenStack-API-Version": "compute 2.60", "X-Project-Id": "another"}
    created = rapi.api.request("POST", "/v2.1/servers", headers, json={"server": server})
    assert created.status_code == 202, created.text
    fleet.work()
    found = rapi.api.get(f"/v2.1/servers/{created.json()['server']['id']}", headers).json()["server"]
    assert (found["status"], found["fault"]["message"]) == (
        "ERROR",
        "No valid host was found. There are not enough hosts available.",
    )


def test_reservation_is_no_server(rapi: RapiCalls, fleet: ComputeFleet) -> None:
    uuid = reserve(rapi, **FULL)
    fleet.index()
    for consistency in ("any", "strong"):
        listed = rapi.api.get("/v2.1/servers", {"Fleetlight-Consistency": consistency}).json()["servers"]
        assert listed == []
    assert rapi.api.get(f"/v2.1/servers/{uuid}").status_code == 404
    for body in ({"os-start": None}, {"os-resetState": {"state": "active"}}, {"lock": None}, {"forceDelete": None}):
        assert rapi.api.request("POST", f"/v2.1/servers/{uuid}/action", json=body).status_code == 404, body
    assert rapi.api.request("DELETE", f"/v2.1/servers/{uuid}").status_code == 404
    assert rapi.api.request("PUT", f"/v2.1/servers/{uuid}", json={"server": {"name": "x"}}).status_code == 404


@pytest.mark.parametrize("version", ["2.1", "2.104"])
def test_reservation_is_no_server_while_its_cell_is_down(rapi: RapiCalls, fleet: ComputeFleet, version: str) -> None:
    uuid, server = reserve(rapi, **FULL), fleet.create("north")
    fleet.index()
    api = fleet.api(pool=BrokenCells(fleet, failing_after={"north": 0}))
    assert api.get(f"/v2.1/servers/{server}", microversion(version)).status_code == 200
    assert api.get(f"/v2.1/servers/{uuid}", microversion(version)).status_code == 404


def test_lists_of_servers_have_reservations_only_if_they_are_asked_for(rapi: RapiCalls, fleet: ComputeFleet) -> None:
    uuid = reserve(rapi, **FULL)
    fleet.index()
    for consistency in ("any", "strong"):
        listed = rapi.api.get(
            "/v2.1/servers?forthcoming=true&all_tenants=1", {"Fleetlight-Consistency": consistency}
        ).json()
        assert [server["id"] for server in listed["servers"]] == [uuid]
    assert rapi.api.get("/v2.1/servers?forthcoming=maybe").status_code == 400


def test_reservation_has_no_status_of_a_server(rapi: RapiCalls, fleet: ComputeFleet) -> None:
    reserve(rapi, **FULL)
    fleet.index()
    for consistency in ("any", "strong"):
        url = "/v2.1/servers/detail?forthcoming=true&all_tenants=1"
        [shown] = rapi.api.get(url, {"Fleetlight-Consistency": consistency}).json()["servers"]
        assert (shown["status"], "progress" in shown) == ("UNKNOWN", False)


def test_hypervisor_runs_no_reservation(rapi: RapiCalls) -> None:
    """What it takes up is taken, as by any other program that holds room."""
    reserve(rapi, **FULL)
    [*nodes] = rapi.api.get("/v2.1/os-hypervisors/detail").json()["hypervisors"]
    assert sum(node["memory_mb_used"] for node in nodes) > 0
    assert [node["running_vms"] for node in nodes] == [0] * len(nodes)
    assert rapi.api.get("/v2.1/os-hypervisors/statistics").json()["hypervisor_statistics"]["running_vms"] == 0
    new = {"OpenStack-API-Version": "compute 2.75"}
    listed = rapi.api.get("/v2.1/os-hypervisors?with_servers=true", new).json()["hypervisors"]
    assert [node["servers"] for node in listed] == [[]] * len(nodes)


def test_reservation_gets_what_it_lacks_by_its_uuid_and_then_becomes_real(rapi: RapiCalls) -> None:
    uuid = reserve(rapi)
    text, reason = rapi.failure("POST", f"/instances/{uuid}/create", {})
    assert reason == "wrong_input"
    assert all(name in text for name in ("name", "os_type", "disk_template"))
    assert rapi.result("PUT", f"/instances/{uuid}/rename", {"new_name": "now.example.com"}) == "now.example.com"
    rapi.result(
        "PUT",
        f"/instances/{uuid}/modify",
        {
            "disk_template": "plain",
            "disks": [["add", {"size": 2048}]],
            "os_name": "debian-12",
            "beparams": {"vcpus": 2},
        },
    )
    [node] = rapi.result("POST", "/instances/now/create", {})
    instance = rapi.get("/instances/now.example.com")
    assert (instance["uuid"], instance["pnode"], instance["forthcoming"]) == (uuid, node, False)
    assert (instance["status"], instance["disk.sizes"], instance["beparams"]["vcpus"]) == ("running", [2048], 2)
    assert rapi.failure("POST", f"/instances/{uuid}/create", {})[1] == "wrong_state"
    server = rapi.api.get(f"/v2.1/servers/{uuid}").json()["server"]
    assert (server["name"], server["status"]) == ("now.example.com", "ACTIVE")


def test_disk_of_a_reservation_gets_another_size_with_the_room_for_it(rapi: RapiCalls) -> None:
    uuid = reserve(rapi, **{**FULL, "disk_template": "drbd", "pnode": "north-host1", "snode": "north-host2"})
    for size, stored in (("3g", 3072), (1024, 1024)):
        told = rapi.result("PUT", f"/instances/{uuid}/modify", {"disks": [["modify", 0, {"size": size}]]})
        assert told == [["disk.size/0", stored]]
        assert rapi.get(f"/instances/{uuid}")["disk.sizes"] == [stored]
    large = {"disks": [[0, {"size": "100t"}]], "ignore_ipolicy": True}
    assert rapi.failure("PUT", f"/instances/{uuid}/modify", large)[1] == "insufficient_resources"
    assert "100t" not in str(rapi.get(f"/instances/{uuid}")["disk.sizes"])
    assert rapi.failure("PUT", f"/instances/{uuid}/modify", {"disks": [[0, {"vg": "x"}]]})[0] == (
        "Of a disk that is there mode, name, spindles and size can be changed, and not vg"
    )
    rapi.result("POST", f"/instances/{uuid}/create", {})
    assert rapi.get(f"/instances/{uuid}")["disk.sizes"] == [1024]


@pytest.mark.parametrize("by", ["name", "uuid"])
def test_commit_goes_to_the_reserved_nodes_and_merges_the_request(rapi: RapiCalls, by: str) -> None:
    uuid = reserve(rapi, **{**FULL, "disk_template": "drbd", "pnode": "north-host1", "snode": "north-host2"})
    name = uuid if by == "uuid" else "later.example.com"
    commit = {"__version__": 1, "commit": True, "name": name, "iallocator": "hail", "os": "ubuntu-24.04"}
    assert (
        rapi.failure("POST", "/instances", {**commit, "iallocator": None, "pnode": "north-host0"})[1] == "wrong_input"
    )
    assert rapi.result("POST", "/instances", commit) == ["north-host1", "north-host2"]
    instance = rapi.get(f"/instances/{uuid}")
    assert (instance["name"], instance["os"]) == ("later.example.com", "ubuntu-24.04")
    assert (instance["pnode"], instance["snodes"]) == ("north-host1", ["north-host2"])
    assert rapi.get("/nodes/north-host1")["mfree"] == 262_144 - 1024


def test_more_than_was_reserved_is_checked_as_growth(rapi: RapiCalls) -> None:
    reserve(rapi, pnode="north-host0", beparams={"memory": 200_000}, ignore_ipolicy=True)
    uuid = reserve(rapi, **{**FULL, "pnode": "north-host0"})
    grown = {"beparams": {"memory": 100_000}, "ignore_ipolicy": True}
    assert rapi.failure("PUT", f"/instances/{uuid}/modify", grown)[1] == "insufficient_resources"
    assert rapi.failure("POST", f"/instances/{uuid}/create", grown)[1] == "insufficient_resources"
    assert rapi.get(f"/instances/{uuid}")["forthcoming"] is True
    assert rapi.result("POST", f"/instances/{uuid}/create", {}) == ["north-host0"]


def test_reservation_on_a_drained_node_stays_and_cannot_be_made_real(rapi: RapiCalls, fleet: ComputeFleet) -> None:
    uuid = reserve(rapi, **{**FULL, "pnode": "north-host0"})
    nodes = nodes_in(fleet.native, fleet.cells["north"])
    [service] = [each for each in nodes.services() if each.host == "north-host0"]
    nodes.update_service(service.uuid, disabled=True)
    assert rapi.failure("POST", f"/instances/{uuid}/create", {}) == (
        "Cannot use drained primary node 'north-host0'",
        "wrong_state",
    )
    assert rapi.get(f"/instances/{uuid}")["pnode"] == "north-host0"


def test_names_are_taken_by_reservations_too(rapi: RapiCalls) -> None:
    uuid = reserve(rapi, **FULL)
    for method, path, body in (
        ("POST", "/instances", FULL),
        ("POST", "/instances", {**FULL, "forthcoming": False, "mode": "create", "nics": []}),
        ("PUT", f"/instances/{reserve(rapi)}/rename", {"new_name": "later.example.com"}),
    ):
        text, reason = rapi.failure(method, path, body)
        assert (text, reason) == ("Instance 'later.example.com' is already in the cluster", "already_exists")
    assert rapi.result("PUT", f"/instances/{uuid}/rename", {"new_name": "later.example.com"}) == "later.example.com"


def test_reservation_moves_without_a_node(rapi: RapiCalls) -> None:
    uuid = reserve(rapi, **{**FULL, "disk_template": "drbd", "pnode": "north-host0", "snode": "north-host1"})
    rapi.result("PUT", f"/instances/{uuid}/failover", {})
    instance = rapi.get(f"/instances/{uuid}")
    assert (instance["pnode"], instance["snodes"]) == ("north-host1", ["north-host0"])
    replace = {"mode": "replace_new_secondary", "remote_node": "north-host2"}
    rapi.result("POST", f"/instances/{uuid}/replace-disks", replace)
    rapi.result("POST", f"/instances/{uuid}/replace-disks", {"mode": "replace_on_primary"})
    assert rapi.get(f"/instances/{uuid}")["snodes"] == ["north-host2"]
    assert [node["mfree"] for node in rapi.get("/nodes?bulk=1")] == [262_144] * 3


REFUSED = [
    ("PUT", "/startup", None),
    ("PUT", "/shutdown", {}),
    ("POST", "/reboot", {}),
    ("PUT", "/migrate", {}),
    ("POST", "/recreate-disks", {}),
    ("PUT", "/activate-disks", None),
    ("PUT", "/deactivate-disks", None),
    ("POST", "/disk/0/grow", {"amount": 1}),
    ("PUT", "/export", {"destination": "north-host0"}),
]


def test_what_needs_a_real_instance_is_refused(rapi: RapiCalls) -> None:
    uuid = reserve(rapi, **FULL)
    for method, path, body in REFUSED:
        text, reason = rapi.failure(method, f"/instances/{uuid}{path}", body)
        assert (reason, "forthcoming instances not supported" in text) == ("wrong_state", True), path
    assert rapi.failure("POST", f"/instances/{uuid}/reinstall", {})[1] == "wrong_state"
    assert rapi.refusal("PUT", f"/instances/{uuid}/modify", {"forthcoming": False})[0] == 400
    assert rapi.api.get(f"{rapi.base}/instances/{uuid}/console").status_code == 503


def test_unknown_reservation_is_unknown(rapi: RapiCalls) -> None:
    uuid = "9b3a1e6e-2f3c-4a25-9d43-0d4a1d4f8f11"
    assert rapi.api.get(f"{rapi.base}/instances/{uuid}").status_code == 404
    for name in (uuid, "nothing"):
        assert rapi.failure("POST", f"/instances/{name}/create", {})[1] == "unknown_entity"
        body = {"__version__": 1, "commit": True, "name": name}
        assert rapi.failure("POST", "/instances", body)[1] == "unknown_entity"


def test_reservation_ends_by_itself_unless_it_was_made_real(rapi: RapiCalls, fleet: ComputeFleet) -> None:
    ended, later, real = (reserve(rapi, **{**FULL, "name": name, "expires_at": at}) for name, at in
                          (("a", 1_000), ("b", 4_000_000_000), ("c", 4_000_000_000)))  # fmt: skip
    rapi.result("PUT", f"/instances/{later}/modify", {"expires_at": 2_000})
    rapi.submit("POST", f"/instances/{real}/create", {})
    assert rapi.failure("PUT", "/instances/c/modify", {"expires_at": 1_000})[1] == "wrong_state"
    expirer = Expirer(fleet.engine("north"), fleet.cells["north"], lambda: 1_500_000_000)
    assert expirer.expire() == 1
    assert expirer.rest_s() <= 0, "the job that ends it may be canceled"
    assert expirer.expire() == 0
    fleet.work()
    assert sorted(each["id"] for each in rapi.get("/instances")) == ["b", "c"]
    assert rapi.api.get(f"{rapi.base}/instances/{ended}").status_code == 404
    assert Expirer(fleet.engine("north"), fleet.cells["north"]).expire() == 1
    fleet.work()
    assert [each["id"] for each in rapi.get("/instances")] == ["c"]
    assert rapi.get(f"/instances/{real}")["status"] == "running"
    assert (expirer.expire(), expirer.rest_s()) == (0, inf)


def test_next_reservation_that_ends_is_known_before(rapi: RapiCalls, fleet: ComputeFleet) -> None:
    for name, at in (("a", 4_000_000_000), ("b", 3_000_000_000)):
        reserve(rapi, **{**FULL, "name": name, "expires_at": at})
    expirer = Expirer(fleet.engine("north"), fleet.cells["north"], lambda: 2_999_999_990_000_000)
    assert (expirer.expire(), expirer.rest_s()) == (0, 10.0)


def test_reservation_whose_end_is_taken_back_stays(rapi: RapiCalls, fleet: ComputeFleet) -> None:
    uuid = reserve(rapi, expires_at=1_000)
    rapi.result("PUT", f"/instances/{uuid}/modify", {"expires_at": "never"})
    assert Expirer(fleet.engine("north"), fleet.cells["north"]).expire() == 0
    assert rapi.refusal("PUT", f"/instances/{uuid}/modify", {"expires_at": "later"})[0] == 400


def test_policy_judges_how_many_interfaces_an_instance_is_left_with(rapi: RapiCalls) -> None:
    uuid = reserve(rapi, **{**FULL, "nics": [{}]})
    for method, path, body in (("POST", "create", {"nics": []}), ("PUT", "modify", {"nics": [["remove", {}]]})):
        text, reason = rapi.failure(method, f"/instances/{uuid}/{path}", body)
        assert (reason, "nic-count value 0 is not in range [1, 8]" in text) == ("wrong_input", True)
    assert rapi.result("POST", f"/instances/{uuid}/create", {"nics": [], "ignore_ipolicy": True})


def test_reservation_counts_in_the_quotas_of_its_project(rapi: RapiCalls, fleet: ComputeFleet) -> None:
    api, red = rapi.api, {"X-Project-Id": "red", "X-Roles": "admin", **microversion("2.37")}
    flavor = fleet.fleet.flavors.find("1")
    server = {"name": "web", "flavorRef": flavor.flavorid, "imageRef": DEFAULT_IMAGES[0].id, "networks": "none"}
    rapi.submit("POST", "/instances", FULL, headers=red)
    fleet.work()
    assert api.request("PUT", "/v2.1/os-quota-sets/red", json={"quota_set": {"cores": 2}}).status_code == 200
    used = api.get("/v2.1/os-quota-sets/red/detail").json()["quota_set"]
    assert [used[name]["in_use"] for name in ("instances", "cores", "ram")] == [1, 2, 1024]
    refused = api.request("POST", "/v2.1/servers", red, json={"server": server})
    assert (refused.status_code, "Quota exceeded for cores" in refused.text) == (403, True)
    rapi.result("DELETE", "/instances/later.example.com")
    assert api.request("POST", "/v2.1/servers", red, json={"server": server}).status_code == 202


def test_features_name_reservations(rapi: RapiCalls) -> None:
    assert sorted(rapi.get("/features")) == [
        "instance-create-reqv1",
        "instance-reinstall-reqv1",
        "instance-reservations",
        "node-evac-res1",
        "node-migrate-reqv1",
    ]


def test_request_of_the_whole_fleet_is_for_the_cell_with_the_most_room(fleet: ComputeFleet) -> None:
    rapi = RapiCalls(fleet, fleet.api())
    for cell in ("north", "east"):
        reserve(rapi.cell(cell), pnode=f"{cell}-host0", beparams={"memory": 200_000}, ignore_ipolicy=True)
    uuid = reserve(rapi, **FULL)
    assert cells_of(rapi, uuid, "cell") == [[0, "south"]]
    assert rapi.result("POST", "/instances/later/create", {})[0].startswith("south-host")
