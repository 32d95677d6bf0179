"""`/fleetlight/index/failures` and `/audit`: messages that could not be indexed are seen, retried and dropped."""

from typing import Any

import pytest

from fleetlight.cells.fleet.audit_rounds import AuditRound
from fleetlight.cells.fleet.failures import Failure, FailureSummary
from tests.contract.compute_fleet import MEMBER, ComputeFleet
from tests.contract.conftest import own_fleet
from tests.support.fleets.documents import make_uuid
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.fleets.killed_work import ordered_work
from tests.support.played.producers import let_announce, refused_announcement
from tests.support.waiting import wait_until

FAILURES = "/fleetlight/index/failures"
fleet = own_fleet


def add(fleet: ComputeFleet, number: int, cell: str = "east", body: bytes = b"{}", uuid: str | None = None) -> str:
    failure_id = f"{number:036}"
    summary = FailureSummary(failure_id, fleet.cells[cell].uuid, "malformed", "no payload", uuid, number, 2_000_000)
    fleet.fleet.failures.add([Failure(summary, "key", {}, body)])
    return failure_id


def listed(fleet: ComputeFleet, query: str = "") -> Any:
    response = fleet.api().get(f"{FAILURES}{query}")
    assert response.status_code == 200, response.text
    return response.json()


def test_failure_is_shown_with_its_message_and_reason(fleet: ComputeFleet) -> None:
    failure_id = add(fleet, 1_000_000, body=b'{"oslo.message": "x"}', uuid="u")
    assert listed(fleet) == {
        "failures": [
            {
                "id": failure_id,
                "cell": "east",
                "reason": "malformed",
                "detail": "no payload",
                "instance": "u",
                "first_at": "1970-01-01T00:00:01.000000Z",
                "last_at": "1970-01-01T00:00:02.000000Z",
                "times": 1,
                "message": {"oslo.message": "x"},
            }
        ],
        "marker": None,
    }


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"no JSON", "no JSON"),
        (b"\xff", "\\xff"),
        (b"[1]", "[1]"),
        (b'{"a": NaN}', '{"a": NaN}'),
        (b'{"a": "\\ud800"}', '{"a": "\\ud800"}'),
        (b'{"a": ' + b"9" * 5000 + b"}", '{"a": ' + "9" * 5000 + "}"),
        (b'{"a":' * 100_000, '{"a":' * 100_000),
    ],
    ids=["text", "bytes", "list", "nan", "surrogate", "digits", "depth"],
)
def test_message_that_an_answer_cannot_carry_as_an_object_is_shown_as_text(
    fleet: ComputeFleet, body: bytes, shown: str
) -> None:
    add(fleet, 1, body=body)
    assert listed(fleet)["failures"][0]["message"] == shown


def test_pages_go_on_behind_their_marker_and_end(fleet: ComputeFleet) -> None:
    ids = [add(fleet, number) for number in range(5)]
    seen: list[str] = []
    query: str | None = "?limit=2"
    while query is not None:
        page = listed(fleet, query)
        seen += [each["id"] for each in page["failures"]]
        query = None if page["marker"] is None else f"?limit=2&marker={page['marker']}"
    assert seen == ids


def test_failures_of_one_cell_are_chosen_by_its_name(fleet: ComputeFleet) -> None:
    add(fleet, 1)
    north = add(fleet, 2, "north")
    assert [each["id"] for each in listed(fleet, "?cell=north")["failures"]] == [north]


@pytest.mark.parametrize(
    ("query", "status"), [("limit=0", 400), ("limit=101", 400), ("limit=x", 400), ("marker=x", 400), ("cell=x", 404)]
)
def test_query_that_makes_no_sense_is_refused(fleet: ComputeFleet, query: str, status: int) -> None:
    assert fleet.api().get(f"{FAILURES}?{query}").status_code == status


def test_failure_is_dropped_once(fleet: ComputeFleet) -> None:
    failure_id = add(fleet, 1)
    statuses = [fleet.api().request("DELETE", f"{FAILURES}/{failure_id}").status_code for _ in range(2)]
    assert statuses == [204, 404]
    assert listed(fleet)["failures"] == []


def test_failure_whose_instance_the_cell_has_is_solved_by_a_retry(fleet: ComputeFleet) -> None:
    uuid = fleet.create("east")
    fleet.number_changes()
    solvable, unsolvable = add(fleet, 1, uuid=uuid), add(fleet, 2)
    api = fleet.api()
    ordered = [api.request("POST", f"{FAILURES}/{each}/retry").json() for each in (solvable, unsolvable)]
    assert [each["kind"] for each in ordered] == ["retry", "retry"]
    addresses = [f"/fleetlight/index/work/{each['id']}" for each in ordered]
    with in_thread(ordered_work(fleet.fleet, fleet.fleet_url, fleet.index_settings).run):
        wait_until(lambda: all(api.get(each).json()["ended_at"] for each in addresses), 60)
    first, second = (api.get(each).json() for each in addresses)
    assert (first["state"], first["result"]) == ("done", "1 solved, 0 not solved")
    assert (second["state"], [each["uuid"] for each in second["findings"]]) == ("failed", [unsolvable])
    assert [each["id"] for each in listed(fleet)["failures"]] == [unsolvable]


def test_retry_is_solved_once_its_reason_is_removed_and_its_instance_is_listed(fleet: ComputeFleet) -> None:
    east, api = fleet.fleet.cell("east"), fleet.api()
    refused = refused_announcement(east)
    fleet.fleet.failures.add([refused])

    def retried() -> Any:
        work = api.request("POST", f"{FAILURES}/{refused.id}/retry").json()
        wait_until(lambda: api.get(f"/fleetlight/index/work/{work['id']}").json()["ended_at"] is not None, 60)
        return api.get(f"/fleetlight/index/work/{work['id']}").json()

    with in_thread(ordered_work(fleet.fleet, fleet.fleet_url, fleet.index_settings).run):
        before = retried()
        assert (before["state"], [each["uuid"] for each in before["findings"]]) == ("failed", [refused.id])
        assert [each["id"] for each in listed(fleet)["failures"]] == [refused.id]
        assert api.ids("/v2.1/servers?all_tenants=1") == []
        let_announce(fleet.fleet, east)
        assert (retried()["result"], listed(fleet)["failures"]) == ("1 solved, 0 not solved", [])
    assert api.ids("/v2.1/servers?all_tenants=1") == [make_uuid(1)]


def test_failure_that_there_is_not_is_not_retried(fleet: ComputeFleet) -> None:
    assert fleet.api().request("POST", f"{FAILURES}/x/retry").status_code == 404
    assert not fleet.fleet.index_work.all()


def test_audit_shows_the_last_round_of_each_cell(fleet: ComputeFleet) -> None:
    for found in (1, 3):
        fleet.fleet.audit_rounds.record(fleet.cells["east"].uuid, AuditRound(1_000_000, 10, found, 1))
    shown = fleet.api().get("/fleetlight/index/audit").json()["rounds"]
    assert shown == [{"cell": "east", "at": "1970-01-01T00:00:01.000000Z", "compared": 10, "found": 3, "repaired": 1}]
    [east] = [each for each in fleet.api().get("/fleetlight/cells").json()["cells"] if each["name"] == "east"]
    assert east["drift"] == {"found": 3, "at": "1970-01-01T00:00:01.000000Z"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", FAILURES),
        ("POST", f"{FAILURES}/x/retry"),
        ("DELETE", f"{FAILURES}/x"),
        ("GET", "/fleetlight/index/audit"),
    ],
)
def test_members_are_refused(fleet: ComputeFleet, method: str, path: str) -> None:
    assert fleet.api().request(method, path, MEMBER).status_code == 403
