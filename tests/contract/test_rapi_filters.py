"""Filters of jobs over Ganeti's remote API, and what becomes of jobs by them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetlight.manager.operations.opcodes.filters.applying import HeldJobs
from tests.contract.compute_fleet import ComputeFleet, compute_fleet
from tests.support.rapi_calls import RapiCalls

GROUPS = ["opcode", ["=~", "OP_ID", "^OP_GROUP_"]]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        yield fleet


@pytest.fixture
def rapi(fleet: ComputeFleet) -> RapiCalls:
    return RapiCalls(fleet, fleet.api(), "/cells/east/2")


def change(rapi: RapiCalls, method: str, path: str, body: Any = None) -> Any:
    response = rapi.api.request(method, f"{rapi.base}{path}", **({} if body is None else {"json": body}))
    assert response.status_code == 200, response.text
    return response.json()


def add_group(rapi: RapiCalls, name: str, text: str = "") -> int:
    return rapi.submit("POST", f"/groups?reason={text}" if text else "/groups", {"name": name})


def status(rapi: RapiCalls, number: int) -> str:
    found: str = rapi.job(number)["status"]
    return found


def test_filter_is_made_replaced_and_removed(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    number = rapi.submit("PUT", "/redistribute-config")
    uuid = change(rapi, "POST", "/filters", {"priority": 3, "predicates": [GROUPS], "action": ["RATE_LIMIT", 2]})
    made = rapi.get(f"/filters/{uuid}")
    assert (made["priority"], made["predicates"], made["action"]) == (3, [GROUPS], ["RATE_LIMIT", 2])
    assert made["watermark"] == number
    assert [entry[:2] for entry in made["reason_trail"]] == [["gnt:library:rlib2:filters", ""]]
    body = {"action": "ACCEPT", "reason": [["gnt:client", "", 7]]}
    whole_fleet = RapiCalls(fleet, rapi.api)
    assert change(whole_fleet, "PUT", f"/filters/{uuid}", body) == uuid
    [replaced] = rapi.get("/filters?bulk=1")
    assert (replaced["priority"], replaced["predicates"], replaced["action"]) == (0, [], "ACCEPT")
    assert replaced["reason_trail"][0] == ["gnt:client", "", 7]
    assert change(whole_fleet, "DELETE", f"/filters/{uuid}", {}) is None
    assert rapi.get("/filters") == []
    assert rapi.refusal("DELETE", f"/filters/{uuid}") == (404, f"There is no filter '{uuid}'")
    assert change(rapi, "PUT", f"/filters/{uuid}", body) == uuid


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"priority": -1}, "priority"),
        ({"priority": "1"}, "priority"),
        ({"colour": 1}, "colour"),
        ([], "body"),
        ({"action": "STOP"}, "action"),
        ({"action": ["RATE_LIMIT", 0]}, "action"),
        ({"predicates": [["jobid"]]}, "predicates"),
        ({"predicates": [["moon", ["?", "id"]]]}, "There is no predicate 'moon'"),
        ({"predicates": [["jobid", ["?", "name"]]]}, "there is no field 'name'"),
        ({"predicates": [["jobid", ["=~", "id", "("]]]}, "jobid"),
        ({"predicates": [["opcode", ["near", "a", 1]]]}, "is no condition"),
        ({"reason": [["a", "b"]]}, "reason"),
    ],
)
def test_what_is_no_filter_is_refused(rapi: RapiCalls, body: Any, text: str) -> None:
    status, message = rapi.refusal("POST", "/filters", body)
    assert (status, text in message) == (400, True), message


def test_paused_jobs_stay_queued_and_are_in_the_way_of_nobody(rapi: RapiCalls) -> None:
    uuid = change(rapi, "POST", "/filters", {"predicates": [GROUPS], "action": "PAUSE"})
    held = add_group(rapi, "rack")
    tagged = rapi.run("PUT", "/groups/default/tags?tag=x")
    assert (status(rapi, held), tagged["status"]) == ("queued", "success")
    change(rapi, "DELETE", f"/filters/{uuid}")
    rapi.fleet.work()
    assert status(rapi, held) == "success"


def test_job_that_was_queued_before_is_held_too_and_can_be_canceled(rapi: RapiCalls) -> None:
    held = add_group(rapi, "rack")
    change(rapi, "POST", "/filters", {"predicates": [GROUPS], "action": "PAUSE"})
    rapi.fleet.work()
    assert status(rapi, held) == "queued"
    assert change(rapi, "DELETE", f"/jobs/{held}")[0] is True
    rapi.fleet.work()
    assert status(rapi, held) == "canceled"


def test_rejected_job_is_canceled_unless_an_earlier_filter_accepts_it(rapi: RapiCalls) -> None:
    change(rapi, "POST", "/filters", {"priority": 5, "predicates": [GROUPS], "action": "REJECT"})
    wanted = ["reason", ["&", ["==", "source", "gnt:user"], ["==", "reason", "urgent"]]]
    change(rapi, "POST", "/filters", {"priority": 1, "predicates": [wanted], "action": "ACCEPT"})
    change(rapi, "POST", "/filters", {"priority": 0, "action": "CONTINUE"})
    rejected, accepted = add_group(rapi, "rack"), add_group(rapi, "row", "urgent")
    rapi.fleet.work()
    assert (status(rapi, rejected), status(rapi, accepted)) == ("canceled", "success")


def test_watermark_is_the_newest_job_when_the_filter_was_made(rapi: RapiCalls) -> None:
    before = add_group(rapi, "a")
    newer = ["jobid", [">", "id", "watermark"]]
    change(rapi, "POST", "/filters", {"predicates": [newer, GROUPS], "action": "REJECT"})
    after = add_group(rapi, "b")
    rapi.fleet.work()
    assert (status(rapi, before), status(rapi, after)) == ("success", "canceled")


def test_only_so_many_jobs_are_under_way_at_once(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    change(rapi, "POST", "/filters", {"predicates": [GROUPS], "action": ["RATE_LIMIT", 2]})
    numbers = [add_group(rapi, name) for name in "abcde"]
    other = rapi.submit("PUT", "/redistribute-config")
    ended: list[int] = []
    held = HeldJobs(fleet.engine("east"), fleet.cells["east"])
    for expected in (2, 4, 5):
        fleet.work()
        ended = [number for number in numbers if status(rapi, number) == "success"]
        assert len(ended) == expected
        assert held.release() == min(2, 5 - expected)
    assert (ended, status(rapi, other)) == (numbers, "success")


def test_action_of_the_compute_api_is_not_filtered(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    uuid = fleet.create("east", display_name="web", node="east-host0", host="east-host0")
    change(rapi, "POST", "/filters", {"action": "REJECT"})
    api = fleet.api()
    assert api.request("POST", f"/v2.1/servers/{uuid}/action", json={"os-stop": None}).status_code == 202
    rejected = rapi.submit("PUT", "/redistribute-config")
    fleet.work()
    assert status(rapi, rejected) == "canceled"
    assert rapi.get("/instances/web")["admin_state"] == "down"
