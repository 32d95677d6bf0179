"""The life of instances over the remote API: made, changed, moved, removed (contracts/ganeti-rapi, 5 and 6)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetlight.cells.tables import operating_systems
from tests.contract.compute_fleet import ComputeFleet, compute_fleet
from tests.support.rapi_calls import RapiCalls

NEW: dict[str, Any] = {
    "__version__": 1,
    "mode": "create",
    "name": "web1.example.com",
    "disk_template": "plain",
    "disks": [{"size": 2048}, {"size": "1g", "name": "data"}],
    "nics": [{}],
    "os": "debian-12",
    "beparams": {"memory": 512, "vcpus": 2},
    "tags": ["blue"],
}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts(3)
        fleet.index()
        yield fleet


@pytest.fixture
def rapi(fleet: ComputeFleet) -> RapiCalls:
    return RapiCalls(fleet, fleet.api()).cell("north")


def create(rapi: RapiCalls, **values: Any) -> Any:
    return rapi.result("POST", "/instances", {**NEW, **values})


def test_new_instance_runs_on_a_node_with_room(rapi: RapiCalls) -> None:
    [node] = create(rapi)
    instance = rapi.get("/instances/web1")
    assert (instance["name"], instance["pnode"], instance["status"]) == ("web1.example.com", node, "running")
    assert (instance["os"], instance["disk_template"], instance["snodes"]) == ("debian-12", "plain", [])
    assert (instance["disk.sizes"], instance["disk.names"]) == ([2048, 1024], [None, "data"])
    assert (instance["beparams"]["maxmem"], instance["beparams"]["minmem"], instance["beparams"]["vcpus"]) == (
        512,
        512,
        2,
    )
    assert (instance["tags"], instance["forthcoming"], instance["admin_state"]) == (["blue"], False, "up")
    [mac] = instance["nic.macs"]
    assert mac.startswith("aa:00:00:")
    assert rapi.get(f"/nodes/{node}")["pinst_list"] == ["web1.example.com"]


def test_new_instance_is_a_server_of_the_compute_api(rapi: RapiCalls) -> None:
    create(rapi, nics=[{"ip": "192.0.2.7"}])
    uuid = rapi.get("/instances/web1")["uuid"]
    server = rapi.api.get(f"/v2.1/servers/{uuid}", {"OpenStack-API-Version": "compute 2.60"}).json()["server"]
    assert (server["name"], server["status"], server["tags"]) == ("web1.example.com", "ACTIVE", ["blue"])
    assert (server["flavor"]["ram"], server["flavor"]["vcpus"], server["flavor"]["disk"]) == (512, 2, 3)
    assert [address["addr"] for addresses in server["addresses"].values() for address in addresses] == ["192.0.2.7"]
    stopped = rapi.api.request("POST", f"/v2.1/servers/{uuid}/action", json={"os-stop": None})
    assert stopped.status_code == 202
    rapi.fleet.work()
    assert rapi.get("/instances/web1")["status"] == "ADMIN_down"


def test_instance_that_is_not_to_start_is_down(rapi: RapiCalls) -> None:
    create(rapi, start=False)
    assert rapi.get("/instances/web1")["status"] == "ADMIN_down"


def test_instance_is_launched_when_it_is_started_first(rapi: RapiCalls) -> None:
    create(rapi, start=False)
    shown = f"/v2.1/servers/{rapi.get('/instances/web1')['uuid']}"

    def launched_at() -> object:
        return rapi.api.get(shown).json()["server"]["OS-SRV-USG:launched_at"]

    assert launched_at() is None
    rapi.result("PUT", "/instances/web1/startup")
    first = launched_at()
    assert first is not None
    rapi.result("PUT", "/instances/web1/shutdown")
    rapi.result("PUT", "/instances/web1/startup")
    assert launched_at() == first


def test_trial_run_tells_the_nodes_and_takes_nothing(rapi: RapiCalls) -> None:
    assert rapi.result("POST", "/instances?dry-run=1", NEW)[0].startswith("north-host")
    assert rapi.get("/instances") == []
    assert all(node["pinst_cnt"] == 0 for node in rapi.get("/nodes?bulk=1"))
    assert rapi.failure("POST", "/instances?dry-run=1", {**NEW, "os": "plan9"})[1] == "wrong_input"


def test_mirrored_disks_are_on_two_nodes_of_one_group(rapi: RapiCalls) -> None:
    primary, secondary = create(rapi, disk_template="drbd")
    assert primary != secondary
    instance = rapi.get("/instances/web1")
    assert (instance["pnode"], instance["snodes"], instance["disk_usage"]) == (primary, [secondary], 3072 + 2 * 128)
    assert rapi.get(f"/nodes/{secondary}")["sinst_list"] == ["web1.example.com"]
    rapi.result("PUT", "/instances/web1/migrate", {})
    instance = rapi.get("/instances/web1")
    assert (instance["pnode"], instance["snodes"], instance["status"]) == (secondary, [primary], "running")
    rapi.result("PUT", "/instances/web1/failover", {"target_node": primary})
    assert rapi.get("/instances/web1")["pnode"] == primary
    third = next(node["name"] for node in rapi.get("/nodes?bulk=1") if node["name"] not in {primary, secondary})
    rapi.result("POST", "/instances/web1/replace-disks", {"mode": "replace_new_secondary", "remote_node": third})
    assert rapi.get("/instances/web1")["snodes"] == [third]
    assert rapi.get(f"/nodes/{secondary}")["sinst_cnt"] == 0
    text, reason = rapi.failure("PUT", "/instances/web1/migrate", {"target_node": secondary})
    assert (reason, third in text) == ("wrong_input", True)


def test_each_kind_of_move_is_announced_as_what_it_is(rapi: RapiCalls) -> None:
    create(rapi, disk_template="drbd")
    uuid = rapi.get("/instances/web1")["uuid"]

    def announced(method: str, path: str, body: Any = None) -> list[str]:
        before = len(history())
        rapi.result(method, path, body)
        return [entry["event"] for entry in history()[: len(history()) - before]][::-1]

    def history() -> list[Any]:
        entries: list[Any] = rapi.api.get(f"/fleetlight/servers/{uuid}/history").json()["history"]
        return entries

    live = ["instance.live_migration_pre.start", "instance.live_migration_post_dest.end"]
    assert announced("PUT", "/instances/web1/migrate", {}) == live
    assert announced("PUT", "/instances/web1/migrate", {"allow_failover": True}) == live
    stopped_and_started = ["instance.power_off.start", "instance.power_on.end"]
    assert announced("PUT", "/instances/web1/failover", {}) == stopped_and_started
    rapi.result("PUT", f"/nodes/{rapi.get('/instances/web1')['pnode']}/role?force=1", "offline")
    assert announced("PUT", "/instances/web1/failover", {}) == ["instance.evacuate", "instance.power_on.end"]
    assert history()[0]["changed"]["node"][1] == rapi.get("/instances/web1")["pnode"]
    rapi.result("PUT", f"/nodes/{rapi.get('/instances/web1')['snodes'][0]}/role?force=1", "regular")
    rapi.result("PUT", "/instances/web1/shutdown")
    for path, body in (("failover", {}), ("migrate", {"allow_failover": True})):
        assert announced("PUT", f"/instances/web1/{path}", body) == ["instance.update"] * 2


def test_history_says_what_changed_of_what_ganeti_alone_knows(rapi: RapiCalls) -> None:
    primary, secondary = create(rapi, disk_template="drbd", start=False)
    third = next(node["name"] for node in rapi.get("/nodes?bulk=1") if node["name"] not in {primary, secondary})

    def changed() -> Any:
        path = f"/fleetlight/servers/{rapi.get('/instances/web1')['uuid']}/history"
        return rapi.api.get(path).json()["history"][0]["changed"]

    rapi.result("POST", "/instances/web1/replace-disks", {"mode": "replace_new_secondary", "remote_node": third})
    assert changed() == {"snodes": [[secondary], [third]]}
    rapi.result("PUT", "/instances/web1/modify", {"offline": True})
    assert changed()["admin_state"][1] == "offline"
    rapi.result("PUT", "/instances/web1/modify", {"offline": False})
    assert changed()["admin_state"][0] == "offline"


def test_compute_api_moves_no_mirrored_disks(rapi: RapiCalls) -> None:
    create(rapi, disk_template="drbd")
    before = rapi.get("/instances/web1")
    for body in ({"migrate": None}, {"os-migrateLive": {"host": None, "block_migration": "auto"}}, {"shelve": None}):
        headers = {"OpenStack-API-Version": "compute 2.60"}
        answer = rapi.api.request("POST", f"/v2.1/servers/{before['uuid']}/action", headers, json=body)
        assert (answer.status_code, "mirrored disks" in answer.text) == (409, True)
    assert rapi.get("/instances/web1") == before


def test_named_nodes_are_taken_and_checked(rapi: RapiCalls) -> None:
    assert create(rapi, disk_template="drbd", pnode="north-host1", snode="north-host2") == [
        "north-host1",
        "north-host2",
    ]
    for values, says in (
        ({"pnode": "north-host1", "snode": "north-host1", "disk_template": "drbd"}, "cannot be the primary"),
        ({"pnode": "north-host1", "disk_template": "drbd"}, "need a mirror node"),
        ({"pnode": "nowhere"}, "Node 'nowhere' not known"),
        ({"pnode": "north-host1", "iallocator": "hail"}, "Either a primary node or an allocator"),
        ({"group_name": "nothing"}, "Group 'nothing' not known"),
    ):
        text, _ = rapi.failure("POST", "/instances", {**NEW, "name": "web2", **values})
        assert says in text


def test_room_is_never_exceeded(rapi: RapiCalls) -> None:
    text, reason = rapi.failure("POST", "/instances", {**NEW, "beparams": {"memory": "200g"}})
    assert (reason, "violates policy" in text) == ("wrong_input", True)
    large = {**NEW, "ignore_ipolicy": True, "beparams": {"memory": "200g"}}
    assert len({create(rapi, **{**large, "name": f"large{number}"})[0] for number in range(3)}) == 3
    text, reason = rapi.failure("POST", "/instances", {**large, "name": "large4"})
    assert (reason, text) == (
        "insufficient_resources",
        "There is no room on any node for 1 processors, 204800 MiB of memory and 3 GiB of disk",
    )
    text, reason = rapi.failure("PUT", "/instances/large0/modify", {"beparams": {"vcpus": 65}, "ignore_ipolicy": True})
    assert reason == "insufficient_resources"
    assert rapi.get("/instances/large0")["beparams"]["vcpus"] == 1


def test_what_is_configured_can_be_changed(rapi: RapiCalls) -> None:
    create(rapi)
    changes = rapi.result(
        "PUT",
        "/instances/web1/modify",
        {
            "custom_beparams": {"maxmem": 1024},
            "hvparams": {"boot_order": "network"},
            "disks": [["add", {"size": 4096}], ["modify", 1, {"name": "logs"}], [0, {"name": "root"}]],
            "nics": [["add", {"mac": "02:00:00:00:00:01"}], ["remove", 0, {}]],
            "os_name": "ubuntu-24.04",
        },
    )
    assert ["be/maxmem", 1024] in changes
    assert ["disk/2", "add:size=4096,mode=rw"] in changes
    instance = rapi.get("/instances/web1")
    assert (instance["beparams"]["maxmem"], instance["beparams"]["minmem"]) == (1024, 512)
    assert (instance["disk.sizes"], instance["disk.names"]) == ([2048, 1024, 4096], ["root", "logs", None])
    assert (instance["nic.macs"], instance["custom_hvparams"]) == (["02:00:00:00:00:01"], {"boot_order": "network"})
    assert instance["os"] == "ubuntu-24.04"
    rapi.result("PUT", "/instances/web1/modify", {"hvparams": {"boot_order": "default"}})
    assert rapi.get("/instances/web1")["custom_hvparams"] == {}


WRONG_CHANGES: list[tuple[dict[str, Any], str]] = [
    ({}, "No changes submitted"),
    ({"disks": [["modify", 7, {"name": "x"}]]}, "There is no disk 7"),
    ({"disks": [["modify", 0, {"size": 1}]]}, "mode, name and spindles can be changed, and not size"),
    ({"disks": [["remove", "nothing", {}]]}, "There is no disk 'nothing'"),
    ({"disks": [["attach", 0, {}]]}, "cannot attach"),
    ({"disks": ["add"]}, "disks.0"),
    ({"disks": [["add", {"size": "big"}]]}, "no size in MiB"),
    ({"nics": [["add", {"mac": "nothing"}]]}, "no MAC address"),
    ({"nics": [["add", {"ip": "300.1.1.1"}]]}, "no IP address"),
    ({"nics": [["add", {"network": "lan"}]]}, "Network 'lan' not found"),
    ({"hvparams": {"nothing": 1}}, "has no parameter 'nothing'"),
    ({"hvparams": {"disk_aio": "nonsense"}}, "value 'nonsense' for parameter 'disk_aio': it has to be one of native"),
    ({"hvparams": {"boot_order": "cdrom"}}, "Parameter 'cdrom_image_path' has to be set"),
    ({"hvparams": {"migration_port": 1}}, "has 'migration_port' for all instances alike"),
    ({"os_name": "plan9"}, "OS 'plan9' not known"),
    ({"offline": True}, "running instance cannot be set offline"),
    ({"disk_template": "drbd"}, "converted by no host"),
    ({"beparams": {"vcpus": 9}}, "cpu-count value 9 is not in range [1, 8]"),
]


def test_wrong_changes_name_what_is_wrong_and_change_nothing(rapi: RapiCalls) -> None:
    create(rapi)
    before = rapi.get("/instances/web1")
    for body, says in WRONG_CHANGES:
        response = rapi.api.request("PUT", f"{rapi.base}/instances/web1/modify", json=body)
        if response.status_code == 400:
            assert says in response.json()["message"]
            continue
        rapi.fleet.work()
        job = rapi.job(response.json())
        assert (job["status"], says in str(job["opresult"])) == ("error", True), (body, job["opresult"])
    assert rapi.get("/instances/web1") == before


def test_parameters_that_are_set_are_told_from_those_that_the_cell_fills_in(rapi: RapiCalls) -> None:
    create(rapi, beparams={"maxmem": 512, "vcpus": 2, "always_failover": True})
    instance = rapi.get("/instances/web1")
    assert instance["custom_beparams"] == {"maxmem": 512, "vcpus": 2, "always_failover": True}
    rapi.result("PUT", "/instances/web1/modify", {"beparams": {"minmem": 256}})
    instance = rapi.get("/instances/web1")
    assert instance["custom_beparams"] == {"minmem": 256, "maxmem": 512, "vcpus": 2, "always_failover": True}
    create(rapi, name="web2", beparams={"auto_balance": False})
    rapi.result("PUT", "/instances/web2/modify", {"os_name": "ubuntu-24.04"})
    instance = rapi.get("/instances/web2")
    assert (instance["custom_beparams"], instance["beparams"]["maxmem"]) == ({"auto_balance": False}, 128)


def test_operating_system_gets_the_parameters_that_it_knows_alone(rapi: RapiCalls) -> None:
    with rapi.fleet.engine("north").begin() as connection:
        systems = operating_systems.update().where(operating_systems.c.name == "debian-12")
        connection.execute(systems.values(parameters=[["dhcp", "Whether to ask for an address"]]))
    unknown = {"osparams": {"dhcp": "yes", "size": "1"}}
    create(rapi, osparams={"dhcp": "yes"})
    refusals = [
        rapi.failure("POST", "/instances", {**NEW, "name": "web2", **unknown}),
        rapi.failure("POST", "/instances", {**NEW, "name": "web2", "osparams_secret": {"size": "1"}}),
        rapi.failure("POST", "/instances", {"__version__": 1, "forthcoming": True, "os": "debian-12", **unknown}),
        rapi.failure("PUT", "/instances/web1/modify", unknown),
        rapi.failure("PUT", "/instances/web1/modify", {**unknown, "os_name": "debian-12"}),
        rapi.failure("POST", "/instances/web1/reinstall", unknown),
    ]
    assert set(refusals) == {("OS 'debian-12' has no parameter 'size'", "wrong_input")}
    other = rapi.failure("PUT", "/instances/web1/modify", {"os_name": "ubuntu-24.04"})
    assert other == ("OS 'ubuntu-24.04' has no parameter 'dhcp'", "wrong_input")
    rapi.result("PUT", "/instances/web1/modify", {"os_name": "ubuntu-24.04", "osparams": {"dhcp": "default"}})
    assert rapi.get("/instances/web1")["os"] == "ubuntu-24.04"


def test_parameters_of_a_system_to_be_named_are_judged_when_the_reservation_becomes_real(rapi: RapiCalls) -> None:
    reserved = {"__version__": 1, "forthcoming": True, "name": "web1", "osparams": {"size": "1"}}
    rapi.result("POST", "/instances", {**reserved, "disk_template": "diskless"})
    text, reason = rapi.failure("POST", "/instances/web1/create", {"os": "debian-12"})
    assert (text, reason) == ("OS 'debian-12' has no parameter 'size'", "wrong_input")
    assert rapi.get("/instances/web1")["forthcoming"] is True


def test_parameters_of_a_hypervisor_are_judged_with_those_that_are_set_already(rapi: RapiCalls) -> None:
    image, boot = {"cdrom_image_path": "/install.iso"}, {"boot_order": "cdrom"}
    reserved = {"__version__": 1, "forthcoming": True, "name": "web1", "disk_template": "diskless", "hvparams": image}
    rapi.result("POST", "/instances", reserved)
    says = "Parameter 'cdrom_image_path' has to be set while parameter 'boot_order' has the value 'cdrom'"
    wrong = {"os": "debian-12", "hvparams": {**boot, "cdrom_image_path": "default"}}
    assert rapi.failure("POST", "/instances/web1/create", wrong) == (says, "wrong_input")
    rapi.result("POST", "/instances/web1/create", {"os": "debian-12", "hvparams": boot})
    assert rapi.get("/instances/web1")["custom_hvparams"] == {**image, **boot}
    failure = rapi.failure("PUT", "/instances/web1/modify", {"hvparams": {"cdrom_image_path": "default"}})
    assert failure == (says, "wrong_input")


RUNNING_OFFLINE: list[tuple[str, str, Any]] = [
    ("PUT", "/startup", None),
    ("POST", "/reboot", None),
    ("POST", "/reinstall", {"os": "debian-12"}),
    ("PUT", "/shutdown", None),
    ("PUT", "/migrate", {}),
    ("PUT", "/deactivate-disks", None),
]


def test_instance_that_is_offline_stays_so_whatever_would_run_it(rapi: RapiCalls) -> None:
    primary, secondary = create(rapi, disk_template="drbd", start=False)
    rapi.result("PUT", "/instances/web1/modify", {"offline": True})
    before = rapi.get("/instances/web1")
    assert before["status"] == "ADMIN_offline"
    for method, path, body in RUNNING_OFFLINE:
        text, reason = rapi.failure(method, f"/instances/web1{path}", body)
        assert (reason, "is marked to be offline" in text) == ("wrong_state", True), (path, text)
    assert rapi.get("/instances/web1") == before
    rapi.result("POST", "/instances/web1/recreate-disks", {})
    rapi.result("PUT", "/instances/web1/shutdown", {"force": True})
    rapi.result("PUT", "/instances/web1/failover", {})
    rapi.result("PUT", "/instances/web1/migrate", {"allow_failover": True, "target_node": primary})
    after = rapi.get("/instances/web1")
    assert (after["status"], after["pnode"], after["snodes"]) == ("ADMIN_offline", primary, [secondary])
    rapi.result("PUT", "/instances/web1/modify", {"offline": False})
    rapi.result("PUT", "/instances/web1/startup")
    assert rapi.get("/instances/web1")["status"] == "running"


def test_compute_api_runs_no_instance_that_is_offline(rapi: RapiCalls) -> None:
    create(rapi, start=False)
    rapi.result("PUT", "/instances/web1/modify", {"offline": True})
    before = rapi.get("/instances/web1")
    image = "3a8bc58e-4d60-546d-aa62-66b5b8bf0435"
    for body in (
        {"os-start": None},
        {"reboot": {"type": "HARD"}},
        {"rescue": None},
        {"rebuild": {"imageRef": image}},
    ):
        answer = rapi.api.request("POST", f"/v2.1/servers/{before['uuid']}/action", json=body)
        assert (answer.status_code, "is marked offline" in answer.text) == (409, True), (body, answer.text)
    assert rapi.get("/instances/web1") == before


def test_disk_grows_and_never_shrinks(rapi: RapiCalls) -> None:
    create(rapi)
    rapi.result("POST", "/instances/web1/disk/0/grow", {"amount": 1024})
    rapi.result("POST", "/instances/web1/disk/1/grow", {"amount": 2048, "absolute": True})
    assert rapi.get("/instances/web1")["disk.sizes"] == [3072, 2048]
    assert rapi.failure("POST", "/instances/web1/disk/0/grow", {"amount": 1, "absolute": True})[1] == "wrong_state"
    assert rapi.failure("POST", "/instances/web1/disk/7/grow", {"amount": 1})[1] == "wrong_input"


def test_instance_that_is_down_gets_another_name(rapi: RapiCalls) -> None:
    create(rapi)
    create(rapi, name="web2.example.com")
    assert rapi.failure("PUT", "/instances/web1/rename", {"new_name": "web3"})[1] == "wrong_state"
    rapi.result("PUT", "/instances/web1/shutdown")
    for name, reason in (("web2.example.com", "already_exists"), ("a b", "wrong_input"), ("", "wrong_input")):
        assert rapi.failure("PUT", "/instances/web1/rename", {"new_name": name})[1] == reason
    assert rapi.result("PUT", "/instances/web1/rename", {"new_name": "web3.example.com"}) == "web3.example.com"
    assert [each["id"] for each in rapi.get("/instances")] == ["web2.example.com", "web3.example.com"]
    create(rapi, name="web4.example.com")
    servers = rapi.api.get("/v2.1/servers/detail?all_tenants=1", {"X-OpenStack-Nova-API-Version": "2.90"}).json()
    hostnames = {server["name"]: server["OS-EXT-SRV-ATTR:hostname"] for server in servers["servers"]}
    # As creation makes it, which was asked for the last one.
    assert (hostnames["web3.example.com"], hostnames["web4.example.com"]) == ("web3-example-com", "web4-example-com")


def test_instance_is_removed_with_all_that_it_took(rapi: RapiCalls) -> None:
    create(rapi, disk_template="drbd", nics=[{"mac": "02:00:00:00:00:01"}])
    assert rapi.failure("POST", "/instances", {**NEW, "name": "x", "nics": [{"mac": "02:00:00:00:00:01"}]})[1] == (
        "resource_not_unique"
    )
    rapi.result("DELETE", "/instances/web1", {})
    assert rapi.get("/instances") == []
    assert all(node["pinst_cnt"] == node["sinst_cnt"] == 0 for node in rapi.get("/nodes?bulk=1"))
    create(rapi, nics=[{"mac": "02:00:00:00:00:01"}])
    assert rapi.failure("DELETE", "/instances/nothing")[1] == "unknown_entity"


def test_reinstallation_is_one_job_of_three_operations(rapi: RapiCalls) -> None:
    create(rapi)
    job = rapi.run("POST", "/instances/web1/reinstall", {"os": "ubuntu-24.04"})
    assert job["summary"] == ["INSTANCE_SHUTDOWN(web1)", "INSTANCE_REINSTALL(web1)", "INSTANCE_STARTUP(web1)"]
    assert job["opstatus"] == ["success"] * 3
    instance = rapi.get("/instances/web1")
    assert (instance["os"], instance["status"]) == ("ubuntu-24.04", "running")
    job = rapi.run("POST", "/instances/web1/reinstall?nostartup=1&os=debian-12")
    assert job["opstatus"] == ["success"] * 2
    assert rapi.refusal("POST", "/instances/web1/reinstall?reason=x", {"os": "debian-12"})[0] == 400


def test_several_are_made_by_jobs_of_their_own(rapi: RapiCalls) -> None:
    one = {name: value for name, value in NEW.items() if name != "__version__"}
    bodies = [{**one, "name": f"many{number}"} for number in range(3)]
    bodies += [{**one, "name": "large", "beparams": {"memory": "1t"}, "ignore_ipolicy": True}]
    # Ganeti's own client sends the short names, and jobs keep the long ones.
    bodies[1]["instance_name"], bodies[1]["os_type"] = bodies[1].pop("name"), bodies[1].pop("os")
    result = rapi.result("POST", "/instances-multi-alloc", {"instances": bodies})
    assert (result["allocatable"], result["failed"]) == (["many0", "many1", "many2"], ["large"])
    assert [rapi.job(number)["status"] for _, number in result["jobs"]] == ["success"] * 3
    assert [each["id"] for each in rapi.get("/instances")] == ["many0", "many1", "many2"]
    assert rapi.refusal("POST", "/instances-multi-alloc", {})[0] == 400
    twice = {"instances": [{**bodies[0], "os_type": "debian-12"}]}
    status, text = rapi.refusal("POST", "/instances-multi-alloc", twice)
    assert (status, "renamed to 'os_type'" in text) == (400, True)
    assert rapi.refusal("POST", "/instances-multi-alloc", {"instances": ["web"]})[0] == 400


def test_each_of_several_depends_on_the_jobs_that_it_names(rapi: RapiCalls) -> None:
    failing = rapi.submit("DELETE", "/instances/nothing")
    body = {"mode": "create", "disk_template": "diskless", "disks": [], "nics": [{}], "os_type": "debian-12"}
    depending = {"after": [[failing, ["success"]]], "anyway": [[failing, []]], "elsewhere": [[5, []]]}
    bodies = [{**body, "instance_name": name, "depends": depends} for name, depends in depending.items()]
    result = rapi.result("POST", "/instances-multi-alloc", {"instances": bodies})
    assert (result["allocatable"], result["failed"]) == (["after", "anyway"], ["elsewhere"])
    assert [rapi.job(number)["status"] for _, number in result["jobs"]] == ["error", "success"]


def test_what_simulated_hosts_cannot_do_fails_as_a_job(rapi: RapiCalls) -> None:
    create(rapi)
    for method, path, body in (
        ("PUT", "/export", {"destination": "north-host0"}),
        ("PUT", "/prepare-export?mode=local", None),
    ):
        assert rapi.failure(method, f"/instances/web1{path}", body)[1] == "OpExecError"


def test_what_is_known_of_an_instance_is_told_by_a_job(rapi: RapiCalls) -> None:
    create(rapi)
    number = rapi.api.get(f"{rapi.base}/instances/web1/info").json()
    rapi.fleet.work()
    [told] = rapi.job(number)["opresult"]
    assert told["web1.example.com"]["disks"][1]["size"] == 1024


WRONG_CREATIONS: list[tuple[dict[str, Any], int | str, str]] = [
    ({"__version__": 0}, 400, "version 0 is no longer supported"),
    ({"__version__": 2}, 400, "Unsupported request data version 2"),
    ({"mode": None}, 400, "mode missing"),
    ({"nothing": 1}, 400, "nothing"),
    ({"os_type": "debian-12"}, 400, "renamed to 'os_type'"),
    ({"disks": [{}]}, 400, "disks.0.size"),
    ({"disks": [{"size": 1}] * 17}, 400, "disks"),
    ({"nics": [{}] * 9}, 400, "nics"),
    ({"beparams": {"memory": 1, "maxmem": 1}}, 400, "beparams"),
    ({"os": None}, "wrong_input", "No guest OS"),
    ({"hypervisor": "xen-pvm"}, "wrong_state", "not enabled in the cluster"),
    ({"hvparams": {"disk_aio": "nonsense"}}, "wrong_input", "value 'nonsense' for parameter 'disk_aio'"),
    ({"forthcoming": True, "hvparams": {"nic_type": "tin"}}, "wrong_input", "value 'tin' for parameter 'nic_type'"),
    ({"disk_template": "rbd"}, "wrong_state", "not enabled in cluster"),
    ({"disk_template": "diskless"}, "wrong_input", "has no disks"),
    ({"mode": "import"}, "wrong_input", "cannot import"),
    ({"name": "9b3a1e6e-2f3c-4a25-9d43-0d4a1d4f8f11"}, "wrong_input", "cannot look like a UUID"),
    ({"ip_check": True}, "wrong_input", "needs name_check"),
    ({"forthcoming": True, "commit": True}, "wrong_input", "exclude each other"),
]


def test_wrong_creations_are_refused_with_the_reason_and_leave_nothing(rapi: RapiCalls) -> None:
    for values, status, says in WRONG_CREATIONS:
        response = rapi.api.request("POST", f"{rapi.base}/instances", json={**NEW, **values})
        if response.status_code == 200:
            rapi.fleet.work()
            [[_, arguments]] = rapi.job(response.json())["opresult"]
            assert (arguments[1], says in arguments[0]) == (status, True), (values, arguments)
        else:
            message = response.json()["message"].replace("&#x27;", "'")
            assert (response.status_code, says in message) == (status, True), (values, message)
    assert rapi.get("/instances") == []
    assert all(node["pinst_cnt"] == 0 for node in rapi.get("/nodes?bulk=1"))
