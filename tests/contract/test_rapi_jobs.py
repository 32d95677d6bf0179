"""Jobs that the remote API submits: their numbers, parameters, ends, and what is refused before there is one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetlight.cells.job_numbers import job_number, number_in_cell
from tests.contract.compute_fleet import CELLS, ComputeFleet, compute_fleet
from tests.support.rapi_calls import RapiCalls


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    """An instance in each cell on the first of its two hosts."""
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        for number, cell in enumerate(CELLS):
            name, node = f"web{number}.{cell}.example.com", f"{cell}-host0"
            fleet.create(cell, display_name=name, node=node, host=node)
        fleet.index()
        yield fleet


@pytest.fixture
def rapi(fleet: ComputeFleet) -> RapiCalls:
    return RapiCalls(fleet, fleet.api())


def status_of(rapi: RapiCalls, name: str) -> tuple[str, bool | None]:
    instance = rapi.get(f"/instances/{name}")
    return instance["status"], instance["oper_state"]


def test_numbers_of_jobs_say_their_cells_and_are_unique_in_the_fleet(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    numbers = [rapi.cell(cell).submit("PUT", "/redistribute-config") for cell in (*CELLS, *CELLS)]
    assert numbers == [10001, 10002, 10003, 20001, 20002, 20003]
    assert [job["id"] for job in rapi.get("/jobs")] == sorted(numbers)
    assert [job["id"] for job in rapi.cell("east").get("/jobs")] == [10002, 20002]
    assert rapi.job(20003)["id"] == 20003
    for cell in fleet.cells.values():
        assert number_in_cell(cell, job_number(cell, 7)) == 7
    assert [number_in_cell(fleet.cells["north"], number) for number in (2, 10002, 1, -9999, 2**53 + 1)] == [None] * 5


def test_job_keeps_its_parameters_and_who_asked(rapi: RapiCalls) -> None:
    body = {"timeout": 7, "comment": "tonight", "priority": 10}
    job = rapi.run("PUT", "/instances/web0/shutdown?reason=maintenance", body)
    [op] = job["ops"]
    trail = [(source, text) for source, text, _ in op.pop("reason")]
    assert trail == [("gnt:user", "maintenance"), ("gnt:library:rlib2:instances_name_shutdown", "")]
    assert op == {
        "OP_ID": "OP_INSTANCE_SHUTDOWN",
        "instance_name": "web0",
        "timeout": 7,
        "comment": "tonight",
        "priority": 10,
        "debug_level": 0,
        "dry_run": False,
        "force": False,
        "ignore_offline_nodes": False,
        "no_remember": False,
    }
    assert (job["summary"], job["status"], job["opresult"]) == (["INSTANCE_SHUTDOWN(web0)"], "success", [None])


def test_instance_is_stopped_started_and_rebooted(rapi: RapiCalls) -> None:
    name = "web1.east.example.com"
    rapi.result("PUT", f"/instances/{name}/shutdown")
    assert status_of(rapi, name) == ("ADMIN_down", False)
    rapi.result("PUT", f"/instances/{name}/shutdown")
    rapi.result("PUT", f"/instances/{name}/startup")
    assert status_of(rapi, name) == ("running", True)
    for kind in ("soft", "hard", "full"):
        rapi.result("POST", f"/instances/{name}/reboot?type={kind}")
    assert status_of(rapi, name) == ("running", True)


def test_what_is_not_to_be_remembered_stays_wanted(rapi: RapiCalls) -> None:
    rapi.result("PUT", "/instances/web0/shutdown?no_remember=1")
    assert status_of(rapi, "web0") == ("ERROR_down", False)
    rapi.result("PUT", "/instances/web0/shutdown")
    rapi.result("PUT", "/instances/web0/startup?no_remember=1")
    assert status_of(rapi, "web0") == ("ERROR_up", True)


def test_trial_run_changes_nothing(rapi: RapiCalls) -> None:
    assert rapi.result("PUT", "/instances/web0/shutdown?dry-run=1") is None
    assert status_of(rapi, "web0") == ("running", True)
    assert rapi.failure("PUT", "/instances/nothing/shutdown?dry-run=1")[1] == "unknown_entity"


def test_instance_is_found_in_any_cell_by_its_name_in_any_case_or_the_beginning_of_it(rapi: RapiCalls) -> None:
    names = ["web1.east.example.com", "WEB1.East.example.com", "web1.east", "web1"]
    assert [rapi.submit("PUT", f"/instances/{name}/shutdown") for name in names] == [10002, 20002, 30002, 40002]
    rapi.fleet.work()
    assert [rapi.job(number)["status"] for number in (10002, 40002)] == ["success"] * 2
    assert status_of(rapi, "web1") == ("ADMIN_down", False)


def test_instance_is_found_by_its_uuid(rapi: RapiCalls) -> None:
    uuid = rapi.get("/instances/web2")["uuid"]
    rapi.result("PUT", f"/instances/{uuid}/shutdown")
    assert status_of(rapi, "web2") == ("ADMIN_down", False)


def test_unknown_and_ambiguous_names_end_the_job(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    assert rapi.failure("PUT", "/instances/web/startup") == ("Instance 'web' not known", "unknown_entity")
    fleet.create("north", display_name="web0.north.other", node="north-host0")
    assert rapi.failure("PUT", "/instances/web0.north/startup")[1] == "unknown_entity"


def test_job_waits_for_those_that_it_depends_on(rapi: RapiCalls) -> None:
    rapi = rapi.cell("north")
    failing = rapi.submit("PUT", "/instances/nothing/startup")
    after_success = rapi.submit("PUT", "/instances/web0/shutdown", {"depends": [[failing, ["success"]]]})
    after_any_end = rapi.submit("PUT", "/instances/web0/startup", {"depends": [[failing, []]]})
    rapi.fleet.work()
    assert [rapi.job(number)["status"] for number in (failing, after_success, after_any_end)] == [
        "error",
        "error",
        "success",
    ]
    assert rapi.job(after_success)["opresult"] == [
        ["OpExecError", [f"job {failing}, which this one depends on, has ended with status error"]]
    ]


def test_waiting_job_is_canceled_and_ended_ones_are_not(rapi: RapiCalls) -> None:
    number = rapi.submit("PUT", "/instances/web0/shutdown")
    assert rapi.api.request("DELETE", f"/2/jobs/{number}").json() == [True, f"Job {number} will be canceled"]
    rapi.fleet.work()
    assert rapi.job(number)["status"] == "canceled"
    assert status_of(rapi, "web0") == ("running", True)
    for unknown in (number, 99, 10009, 10**30):
        assert rapi.api.request("DELETE", f"/2/jobs/{unknown}").json() == [False, f"Job {unknown} not found in queue"]


REFUSED: list[tuple[str, str, object, str]] = [
    ("PUT", "/instances/web0/shutdown", {"nope": 1}, "Invalid body parameters: nope"),
    ("PUT", "/instances/web0/shutdown", {"timeout": "soon"}, "Invalid body parameters: timeout"),
    ("PUT", "/instances/web0/shutdown", {"timeout": -1}, "Invalid body parameters: timeout"),
    ("PUT", "/instances/web0/shutdown", {"instance_name": "web1"}, "overwrite static parameters instance_name"),
    ("PUT", "/instances/web0/shutdown", {"dry_run": True}, "overwrite static parameters dry_run"),
    ("PUT", "/instances/web0/shutdown", {"reason": []}, "'reason' is a parameter of the address"),
    ("PUT", "/instances/web0/shutdown", ["timeout"], "must be an object"),
    ("PUT", "/instances/web0/shutdown?no_remember=x", None, "Invalid value for the 'no_remember' parameter"),
    ("PUT", "/instances/web0/shutdown", {"depends": [[5, []]]}, "no job 5 in the cell"),
    ("PUT", "/instances/web0/shutdown", {"depends": [["5", []]]}, "depends.0.0"),
    ("PUT", "/instances/web0/shutdown", {"depends": [[10001, ["nope"]]]}, "depends.0.1"),
    ("PUT", "/instances/web0/shutdown", {"priority": 1000}, "priority"),
    ("POST", "/instances/web0/reboot?type=cold", None, "reboot_type"),
    ("PUT", "/redistribute-config", None, "Each cell has a configuration of its own: name one"),
]


def test_wrong_requests_are_refused_before_there_is_a_job(rapi: RapiCalls) -> None:
    for method, path, body, says in REFUSED:
        status, message = rapi.refusal(method, path, body)
        assert (status, says in message) == (400, True), message
    assert rapi.get("/jobs") == []


def test_operation_on_a_node_that_is_offline_ends_with_the_reason(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    rapi.api.request(
        "PUT",
        f"/v2.1/os-services/{_service(rapi, 'north-host0')}",
        {"OpenStack-API-Version": "compute 2.53", "X-Roles": "admin"},
        json={"forced_down": True},
    )
    assert rapi.failure("PUT", "/instances/web0/shutdown") == ("Can't use offline node north-host0", "wrong_state")


def _service(rapi: RapiCalls, host: str) -> str:
    headers = {"OpenStack-API-Version": "compute 2.53"}
    [service] = rapi.api.get(f"/v2.1/os-services?host={host}", headers).json()["services"]
    found: str = service["id"]
    return found
