"""Requests that change something, by callers who mean no good, or ask twice, or at a bad moment."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from fleetlight.cells.tables import network_nics, nic_macs
from fleetlight.manager.operations.jobs.errors import NodeCallError
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.manager.operations.opcodes.instances import interfaces, node_claims
from fleetlight.manager.operations.opcodes.instances.expire_reservations import Expirer
from fleetlight.manager.operations.scheduling import hosts, select_destinations
from fleetlight.manager.operations.scheduling.hosts import Host
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from tests.contract.compute_fleet import ComputeFleet, compute_fleet
from tests.support.rapi_calls import RapiCalls

REAL: dict[str, Any] = {
    "__version__": 1,
    "mode": "create",
    "name": "web1.example.com",
    "disk_template": "plain",
    "disks": [{"size": 2048}],
    "nics": [{}],
    "os": "debian-12",
}
RESERVED: dict[str, Any] = {"__version__": 1, "forthcoming": True}
MODIFY = "/instances/web1.example.com/modify"
LONG = "9" * 400
UUID = "9b3a1e6e-2f3c-4a25-9d43-0d4a1d4f8f11"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts(3)
        yield fleet


@pytest.fixture
def whole(fleet: ComputeFleet) -> RapiCalls:
    return RapiCalls(fleet, fleet.api())


@pytest.fixture
def rapi(whole: RapiCalls) -> RapiCalls:
    return whole.cell("north")


REFUSED: list[tuple[str, str, object, str]] = [
    ("POST", "/instances", {**RESERVED, "name": "a\0b"}, "'a\\x00b' has a zero character"),
    ("POST", "/instances", {**RESERVED, "hvparams": {"a\0": 1}}, "'a\\x00' has a zero character"),
    ("POST", "/instances", {**RESERVED, "nics": [{"ip": "\0"}]}, "'\\x00' has a zero character"),
    ("POST", "/filters", {"predicates": [["jobid", ["=", "id", "\0"]]]}, "'\\x00' has a zero character"),
    ("POST", "/instances", {**RESERVED, "disks": [{"size": LONG}]}, "disks.0.size"),
    ("PUT", MODIFY, {"beparams": {"memory": f"{LONG}t"}}, "beparams.memory"),
    ("POST", "/instances/web1.example.com/disk/0/grow", {"amount": LONG}, "amount"),
    ("POST", "/instances", {**RESERVED, "expires_at": 2**63}, "expires_at"),
    ("PUT", MODIFY, {"priority": -20}, "priority"),
    ("PUT", "/networks/lan/connect", {"group_name": "x", "network_mode": "tube", "network_link": "x"}, "network_mode"),
    ("PUT", MODIFY, {"expires_at": 253_402_300_800}, "expires_at"),
]


def test_what_no_database_keeps_is_refused_before_there_is_a_job(rapi: RapiCalls) -> None:
    for method, path, body, says in REFUSED:
        status, message = rapi.refusal(method, path, body)
        assert (status, says in message) == (400, True), message
    assert rapi.get("/jobs") == []


WRONG: list[tuple[str, str, object, str]] = [
    ("PUT", MODIFY, {"disks": [["²", {}]]}, "unknown_entity"),
    ("PUT", MODIFY, {"nics": [["--5", {}]]}, "unknown_entity"),
    ("PUT", MODIFY, {"disks": [["add", {"size": LONG}]]}, "wrong_input"),
    ("PUT", MODIFY, {"beparams": {"minmem": 4096}}, "wrong_input"),
    ("PUT", MODIFY, {"hvparams": {"kernel_path": {"a": 1}}}, "wrong_input"),
    ("PUT", "/modify", {"beparams": {"vcpus": -3}}, "wrong_input"),
    ("PUT", "/modify", {"beparams": {"maxmem": -1}}, "wrong_input"),
    ("PUT", "/modify", {"beparams": {"minmem": 4096}}, "wrong_input"),
    ("PUT", "/modify", {"ndparams": {"spindle_count": 2**53}}, "wrong_input"),
    ("PUT", "/groups/default/modify", {"ipolicy": {"vcpu-ratio": 10**400}}, "wrong_input"),
    ("POST", "/instances", {**RESERVED, "name": "../x y"}, "wrong_input"),
    ("POST", "/instances", {**RESERVED, "tags": ["a b"]}, "wrong_input"),
    ("POST", "/instances", {**RESERVED, "instance_uuid": UUID}, "wrong_input"),
    ("POST", "/groups", {"name": UUID}, "wrong_input"),
    ("PUT", "/groups/default/rename", {"new_name": UUID}, "wrong_input"),
    ("POST", "/networks", {"network_name": UUID, "network": "10.0.0.0/24"}, "wrong_input"),
    ("POST", "/instances", {**RESERVED, "beparams": {"minmem": 4096}}, "wrong_input"),
    ("POST", "/instances", {**RESERVED, "hvparams": {"kernel_path": 7}}, "wrong_input"),
    ("POST", "/instances", {**REAL, "name": "web2", "expires_at": 5}, "wrong_input"),
    ("POST", "/instances/later/create", {"os": "nothing"}, "wrong_input"),
    ("POST", "/instances/later/create", {"hypervisor": "nothing"}, "wrong_state"),
    ("POST", "/instances/later/create", {"tags": ["a b"]}, "wrong_input"),
    ("POST", "/instances/later/create", {"beparams": {"minmem": 4096}}, "wrong_input"),
]


def test_what_cannot_be_meant_ends_the_job_with_a_reason(rapi: RapiCalls) -> None:
    rapi.result("POST", "/instances", REAL)
    rapi.result("POST", "/instances", {**REAL, "name": "later", "forthcoming": True})
    for method, path, body, reason in WRONG:
        assert rapi.failure(method, path, body)[1] == reason, (path, body)
    assert sorted(each["id"] for each in rapi.get("/instances")) == ["later", "web1.example.com"]
    assert rapi.result("POST", "/instances/later/create", {})


def test_job_waits_for_none_that_came_later_or_for_itself(rapi: RapiCalls) -> None:
    on_itself, on_a_later_one, on_an_earlier_one = (
        rapi.submit("PUT", "/modify", {"candidate_pool_size": 5, "depends": [[number, []]]})
        for number in (10_001, 30_001, 20_001)
    )
    assert (on_itself, on_a_later_one, on_an_earlier_one) == (10_001, 20_001, 30_001)
    rapi.fleet.work()
    for number, depends_on in ((on_itself, on_itself), (on_a_later_one, on_an_earlier_one)):
        text = f"job {depends_on}, which this one depends on, was not there before it"
        assert rapi.job(number)["opresult"] == [["OpExecError", [text]]]
    assert rapi.job(on_an_earlier_one)["status"] == "success"


def test_reservation_gets_room_as_soon_as_it_says_how_much(rapi: RapiCalls) -> None:
    uuid = rapi.result("POST", "/instances", RESERVED)
    rapi.result("PUT", f"/instances/{uuid}/modify", {"os_name": "debian-12"})
    assert rapi.get(f"/instances/{uuid}")["pnode"] is None
    huge = {"beparams": {"memory": 300_000}, "ignore_ipolicy": True}
    assert rapi.failure("PUT", f"/instances/{uuid}/modify", huge)[1] == "insufficient_resources"
    rapi.result("PUT", f"/instances/{uuid}/modify", {**huge, "beparams": {"memory": 250_000}})
    node = rapi.get(f"/instances/{uuid}")["pnode"]
    other = {**RESERVED, "pnode": node, "beparams": {"memory": 20_000}, "ignore_ipolicy": True}
    assert rapi.failure("POST", "/instances", other)[1] == "insufficient_resources"


def test_reservation_gets_a_second_node_with_mirrored_disks_and_gives_it_back(rapi: RapiCalls) -> None:
    uuid = rapi.result("POST", "/instances", {**RESERVED, "disk_template": "plain", "disks": [{"size": 1024}]})
    for template, count in (("drbd", 1), ("plain", 0)):
        rapi.result("PUT", f"/instances/{uuid}/modify", {"disk_template": template})
        assert len(rapi.get(f"/instances/{uuid}")["snodes"]) == count
        assert sum(node["sinst_cnt"] for node in rapi.get("/nodes?bulk=1")) == count


def expire(fleet: ComputeFleet) -> int:
    """How many jobs are queued that end reservations whose time is over."""
    return Expirer(fleet.engine("north"), fleet.cells["north"]).expire()


def test_reservation_that_was_let_end_later_stays_when_its_end_was_queued(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    extended, ended = (rapi.result("POST", "/instances", {**RESERVED, "expires_at": 5}) for _ in range(2))
    rapi.submit("PUT", f"/instances/{extended}/modify", {"expires_at": 4_000_000_000})
    assert (expire(fleet), expire(fleet)) == (2, 0)
    fleet.work()
    assert [each["id"] for each in rapi.get("/instances")] == [extended]
    assert ended != extended


def test_reservation_ends_though_the_job_that_was_to_end_it_was_canceled(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    rapi.result("POST", "/instances", {**RESERVED, "expires_at": 5})
    assert expire(fleet) == 1
    [*_, number] = sorted(each["id"] for each in rapi.get("/jobs"))
    assert rapi.api.request("DELETE", f"/2/jobs/{number}").json()[0] is True
    fleet.work()
    assert (rapi.job(number)["status"], expire(fleet)) == ("canceled", 1)
    fleet.work()
    assert rapi.get("/instances") == []


class BrokenHosts:
    """Hosts that can do nothing."""

    def call(self, call: NodeCall, key: str) -> Any:
        raise NodeCallError(call.host, call.name, "no power")


def test_reservation_that_cannot_be_made_real_ends_when_it_was_to(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    uuid = rapi.result("POST", "/instances", {**REAL, "forthcoming": True, "expires_at": 5})
    number = rapi.submit("POST", f"/instances/{uuid}/create", {})
    worker = Worker(fleet.engine("north"), fleet.fleet, fleet.cells["north"], ALL_OPERATIONS, BrokenHosts())
    assert worker.run_once()
    # While it is being made real its time is over.
    assert expire(fleet) == 1
    while worker.run_once():
        pass
    assert rapi.job(number)["status"] == "error"
    fleet.work()
    assert rapi.get("/instances") == []


def test_deletion_by_the_compute_api_gives_addresses_back(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    rapi.result("POST", "/networks", {"network_name": "lan", "network": "10.1.0.0/24"})
    to = {"group_name": "default", "network_mode": "bridged", "network_link": "br0"}
    rapi.result("PUT", "/networks/lan/connect", to)
    rapi.result("POST", "/instances", {**REAL, "nics": [{"network": "lan", "ip": "pool", "mac": "aa:00:00:00:00:01"}]})
    uuid = rapi.get("/instances/web1.example.com")["uuid"]
    assert rapi.api.request("DELETE", f"/v2.1/servers/{uuid}").status_code == 204
    fleet.work()
    with fleet.engine("north").connect() as connection:
        for table in (nic_macs, network_nics):
            assert connection.execute(select(func.count()).select_from(table)).scalar_one() == 0


def test_nodes_and_addresses_are_waited_for_in_one_order(rapi: RapiCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise two transactions could wait for each other for ever; SQLite has one writer at a time anyway."""
    to = {"group_name": "default", "network_mode": "bridged", "network_link": "br0"}
    for number, name in enumerate(("lan", "wan")):
        rapi.result("POST", "/networks", {"network_name": name, "network": f"10.{number}.0.0/24"})
        rapi.result("PUT", f"/networks/{name}/connect", to)
    waited: list[str] = []

    def wait(_connection: Connection, name: str) -> None:
        if name not in waited:
            waited.append(name)

    def noted(read: Callable[..., Host | None]) -> Callable[..., Host | None]:
        def read_host(*arguments: Any) -> Host | None:
            wait(arguments[0], "node")
            return read(*arguments)

        return read_host

    monkeypatch.setattr(interfaces, "wait_for_lock", wait)
    monkeypatch.setattr(node_claims, "read_locked_host", noted(hosts.read_locked_host))
    monkeypatch.setattr(select_destinations, "read_host", noted(hosts.read_host))
    second, first = (
        {"network": name, "ip": "pool", "mac": f"aa:00:00:00:00:0{name == 'lan':d}"} for name in ("wan", "lan")
    )
    rapi.result("POST", "/instances", {**REAL, "nics": [first, second]})
    by_creation = waited.copy()
    rapi.result("PUT", MODIFY, {"nics": [["remove", {}], ["remove", {}]], "ignore_ipolicy": True})
    waited.clear()
    more = {"beparams": {"memory": 2048}, "nics": [["add", second], ["add", first]]}
    rapi.result("PUT", MODIFY, more)
    assert waited == by_creation
    assert [name.split()[0] for name in waited] == ["node", "addresses", "addresses", "MAC", "MAC"]
    assert waited[1:3] == sorted(waited[1:3])


def test_each_of_several_instances_is_tried_by_itself_and_filtered(rapi: RapiCalls) -> None:
    def new(name: str, **values: Any) -> dict[str, Any]:
        return {**{key: REAL[key] for key in ("mode", "disk_template", "disks", "nics")}, "os_type": "debian-12",
                "instance_name": name, "pnode": "north-host0", **values}  # fmt: skip

    pause = {"predicates": [["opcode", ["=", "OP_ID", "OP_INSTANCE_CREATE"]]], "action": "PAUSE"}
    assert rapi.api.request("POST", f"{rapi.base}/filters", json=pause).status_code == 200
    most = {"beparams": {"memory": 262_000, "vcpus": 1}}
    wanted = [
        # Its claim is given up before the next one is tried.
        new("too-many", **most, nics=[{"mac": "nothing"}], ignore_ipolicy=True),
        new("fits", **most, ignore_ipolicy=True),
        new("real", commit=True),
    ]
    number = rapi.submit("POST", "/instances-multi-alloc", {"instances": wanted})
    rapi.fleet.work()
    job = rapi.job(number)
    [result] = job["opresult"]
    assert (result["allocatable"], result["failed"]) == (["fits"], ["too-many", "real"])
    assert [entry[3] for entry in job["oplog"][0]] == [
        "too-many: 'nothing' is no MAC address",
        "real: Reservations are made real one by one",
    ]
    [[_, made]] = result["jobs"]
    assert rapi.job(made)["status"] == "queued"


def test_what_several_cells_have_is_changed_only_where_a_cell_is_named(whole: RapiCalls) -> None:
    for cell in ("north", "east"):
        whole.cell(cell).result("POST", "/instances", REAL)
    for method, path, body in (
        ("DELETE", "/instances/web1.example.com", None),
        ("PUT", "/groups/default/modify", {"alloc_policy": "last_resort"}),
        ("PUT", "/groups/default/tags?tag=a", None),
    ):
        status, text = whole.refusal(method, path, body)
        assert (status, "name a cell, as in /cells/" in text) == (400, True), text
    whole.cell("east").result("DELETE", "/instances/web1.example.com")
    assert whole.result("PUT", "/instances/web1.example.com/shutdown") is None


def test_creation_that_is_asked_for_again_makes_no_second_instance(fleet: ComputeFleet, whole: RapiCalls) -> None:
    body = {**REAL, "forthcoming": True, "beparams": {"memory": 1024}}
    first, again = (whole.submit("POST", "/instances", body) for _ in range(2))
    fleet.work()
    after_its_end = whole.run("POST", "/instances", body)
    assert (whole.job(first)["status"], whole.job(again)["opresult"][0][1][1]) == ("success", "already_exists")
    assert after_its_end["opresult"][0][1][1] == "already_exists"
    assert len(whole.get("/instances")) == 1


def test_new_instance_goes_to_a_cell_that_has_its_group(whole: RapiCalls) -> None:
    whole.cell("south").result("POST", "/groups", {"name": "rack7"})
    whole.cell("south").result("PUT", "/groups/rack7/assign-nodes", {"nodes": ["south-host1"]})
    whole.cell("south").result("POST", "/instances", {**REAL, "pnode": "south-host1", "name": "first"})
    assert whole.result("POST", "/instances", {**REAL, "group_name": "rack7"}) == ["south-host1"]
