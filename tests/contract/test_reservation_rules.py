"""Single rules of reservations (contracts/ganeti-reservations): disks, addresses, events, nodes, tags, collisions."""

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import select

from fleetlight.cells.tables import changes
from fleetlight.manager.operations.cell_worker import SimulatedHosts
from fleetlight.manager.operations.jobs.errors import NodeCallError
from fleetlight.manager.operations.jobs.nodes import NodeCall
from tests.contract.compute_fleet import ComputeFleet
from tests.contract.test_rapi_instances import fleet, rapi
from tests.support.rapi_calls import RapiCalls

__all__ = ["fleet", "rapi"]

RESERVED: dict[str, Any] = {
    "__version__": 1,
    "forthcoming": True,
    "name": "later",
    "disk_template": "drbd",
    "disks": [{"size": 1024}],
    "nics": [{"mac": "aa:00:00:00:00:01"}],
    "os": "debian-12",
    "pnode": "north-host0",
    "snode": "north-host1",
}
LATER = "/instances/later"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the calls of hosts, as they are made."""
    made: list[str] = []
    carry_out = SimulatedHosts.call

    def call(self: SimulatedHosts, call: NodeCall, key: str) -> Any:
        made.append(call.name)
        return carry_out(self, call, key)

    monkeypatch.setattr(SimulatedHosts, "call", call)
    return made


def events(fleet: ComputeFleet) -> Sequence[str]:
    with fleet.engine("north").connect() as connection:
        return connection.scalars(select(changes.c.event_type).order_by(changes.c.id)).all()


def test_no_host_is_called_for_a_reservation_and_its_life_is_told_in_order(
    rapi: RapiCalls, fleet: ComputeFleet, calls: list[str]
) -> None:
    uuid = rapi.result("POST", "/instances", RESERVED)
    rapi.result("PUT", f"{LATER}/modify", {"beparams": {"memory": 256}, "disks": [["add", {"size": 1024}]]})
    rapi.result("PUT", f"{LATER}/rename", {"new_name": "later.example.com"})
    rapi.result("PUT", f"{LATER}/failover", {})
    replace = {"mode": "replace_new_secondary", "remote_node": "north-host2"}
    rapi.result("POST", f"{LATER}/replace-disks", replace)
    rapi.result("PUT", f"{LATER}/tags?tag=a")
    assert rapi.result("GET", f"{LATER}/info")
    assert rapi.get(f"/instances/{uuid}/tags") == ["a"]
    assert calls == []
    rapi.result("POST", f"{LATER}/create", {})
    assert calls == ["create"]
    rapi.result("DELETE", LATER)
    told = [each for each in events(fleet) if each.startswith(("reservation", "instance"))]
    of_reservation = ["create.end", "update", "update", "move.end", "move.end", "update"]
    assert told[:6] == [f"reservation.{each}" for each in of_reservation]
    assert told[6:8] == ["instance.create.start", "instance.create.end"]
    assert told[-1] == "instance.delete.end"
    assert all(each.startswith("instance.") for each in told[8:])


def test_disks_are_forthcoming_with_their_instance(rapi: RapiCalls) -> None:
    rapi.result("POST", "/instances", RESERVED)

    def flags() -> tuple[bool, list[bool]]:
        [found] = rapi.result("GET", f"{LATER}/info?static=1").values()
        return found["forthcoming"], [disk["forthcoming"] for disk in found["disks"]]

    assert flags() == (True, [True])
    rapi.result("POST", f"{LATER}/create", {})
    assert flags() == (False, [False])


def test_address_of_a_reservation_is_taken_for_all_but_itself(rapi: RapiCalls) -> None:
    rapi.result("POST", "/instances", RESERVED)
    other = {**RESERVED, "name": "other"}
    assert rapi.failure("POST", "/instances", other)[1] == "resource_not_unique"
    rapi.result("POST", f"{LATER}/create", {"nics": RESERVED["nics"]})
    assert rapi.get(LATER)["nic.macs"] == ["aa:00:00:00:00:01"]


def test_other_uuid_than_that_of_the_reservation_is_refused(rapi: RapiCalls) -> None:
    rapi.result("POST", "/instances", RESERVED)
    commit = {
        "__version__": 1,
        "commit": True,
        "name": "later",
        "instance_uuid": "9b3a1e6e-2f3c-4a25-9d43-0d4a1d4f8f11",
    }
    assert rapi.failure("POST", "/instances", commit)[1] == "resource_not_unique"


def test_reservation_without_a_name_comes_first_and_shows_its_nodes(rapi: RapiCalls) -> None:
    rapi.result("POST", "/instances", RESERVED)
    unnamed = [rapi.result("POST", "/instances", {**RESERVED, "name": None, "nics": []}) for _ in range(2)]
    body = {"fields": ["uuid", "name", "pnode", "snodes", "status", "oper_state", "oper_ram", "oper_vcpus"]}
    answer = rapi.api.request("PUT", f"{rapi.base}/query/instance", {"Fleetlight-Consistency": "strong"}, json=body)
    rows = answer.json()["data"]
    assert [row[0][1] for row in rows[:2]] == sorted(unnamed)
    where = [[0, "north-host0"], [0, ["north-host1"]]]
    assert rows[0][1:] == [[2, None], *where, [0, "ADMIN_down"], [0, False], [3, None], [3, None]]
    assert [each["id"] for each in rapi.get("/instances")] == [*sorted(unnamed), "later"]


def test_of_a_commit_and_a_removal_at_once_one_wins(rapi: RapiCalls, fleet: ComputeFleet) -> None:
    rapi.result("POST", "/instances", RESERVED)
    commit, removal, again = (
        rapi.submit("POST", f"{LATER}/create", {}),
        rapi.submit("DELETE", LATER),
        rapi.submit("POST", f"{LATER}/create", {}),
    )
    fleet.work()
    ends = [rapi.job(number) for number in (commit, removal, again)]
    assert [job["status"] for job in ends] == ["success", "success", "error"]
    assert ends[2]["opresult"][0][1][1] in {"wrong_state", "unknown_entity"}
    assert rapi.get("/instances") == []


def test_failed_commit_is_told_and_leaves_the_reservation(
    rapi: RapiCalls, fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    rapi.result("POST", "/instances", RESERVED)
    before = rapi.get(LATER)

    def fail(_self: SimulatedHosts, call: NodeCall, _key: str) -> Any:
        raise NodeCallError(call.host, call.name, "no disk")

    monkeypatch.setattr(SimulatedHosts, "call", fail)
    text, kind = rapi.failure("POST", f"{LATER}/create", {"os": "ubuntu-24.04", "tags": ["x"]})
    assert ("no disk" in text, kind) == (True, "OpExecError")
    after = rapi.get(LATER)
    same = ("os", "tags", "forthcoming", "pnode", "snodes", "status", "disk.sizes", "nic.macs", "admin_state")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert events(fleet)[-2:] == ["instance.create.start", "reservation.commit.error"]
