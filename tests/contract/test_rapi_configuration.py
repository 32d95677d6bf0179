"""Groups, networks, nodes, tags and parameters of cells, changed over Ganeti's remote API."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.tables import compute_nodes, instances, network_nics, networks
from fleetlight.resources.query_fields.ganeti import kept_in_part
from tests.contract.compute_fleet import ComputeFleet, compute_fleet
from tests.support.rapi_calls import RapiCalls

NETWORK = {"network_name": "front", "network": "192.0.2.0/29", "gateway": "192.0.2.1", "tags": ["blue"]}


@contextmanager
def small_fleet(folder: Path, new_database: Callable[[], str] | None = None) -> Iterator[ComputeFleet]:
    """Two hosts in each cell, and an instance on the first one of `east`."""
    with compute_fleet(folder, new_database=new_database) as fleet:
        fleet.add_hosts()
        fleet.create("east", display_name="web1.example.com", node="east-host0", host="east-host0", tags=["old"])
        yield fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with small_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RapiCalls]:
    """For requests that change nothing: one fleet for all of them."""
    with small_fleet(tmp_path_factory.mktemp("unchanged")) as fleet:
        rapi = RapiCalls(fleet, fleet.api(), "/cells/east/2")
        rapi.result("POST", "/networks", NETWORK)
        yield rapi


@pytest.fixture
def rapi(fleet: ComputeFleet) -> RapiCalls:
    return RapiCalls(fleet, fleet.api(), "/cells/east/2")


def test_group_is_made_changed_renamed_and_removed(rapi: RapiCalls) -> None:
    body = {"name": "rack", "alloc_policy": None, "ndparams": {"ssh_port": "2222"}, "ipolicy": {"vcpu-ratio": 2}}
    assert rapi.result("POST", "/groups", body) is None
    group = rapi.get("/groups/rack")
    assert (group["alloc_policy"], group["custom_ndparams"], group["serial_no"]) == ("preferred", {"ssh_port": 2222}, 1)
    assert (group["ipolicy"]["vcpu-ratio"], group["custom_ipolicy"]) == (2.0, {"vcpu-ratio": 2.0})
    change = {"alloc_policy": "unallocable", "custom_ndparams": {"ssh_port": "default", "spindle_count": 3}}
    assert rapi.result("PUT", "/groups/rack/modify", change) == [["ndparams", "{'spindle_count': 3}"]]
    group = rapi.get("/groups/rack")
    assert (group["alloc_policy"], group["custom_ndparams"], group["serial_no"]) == (
        "unallocable",
        {"spindle_count": 3},
        2,
    )
    assert rapi.result("PUT", "/groups/rack/rename", {"new_name": "row"}) == "row"
    assert rapi.result("DELETE", "/groups/row") is None
    assert [group["name"] for group in rapi.get("/groups")] == ["default"]


@pytest.mark.parametrize(
    ("asked", "text", "reason"),
    [
        (("POST", "/groups", {"name": "default"}), "already exists as a node group", "already_exists"),
        (("POST", "/groups", {"name": "a/b"}), "Invalid name", "wrong_input"),
        (("POST", "/groups", {"name": "x", "ndparams": {"no": 1}}), "Unknown node parameter 'no'", "wrong_input"),
        (("POST", "/groups", {"name": "x", "ndparams": {"ssh_port": "a"}}), "Invalid value 'a'", "wrong_input"),
        (("POST", "/groups", {"name": "x", "diskparams": {"tape": {}}}), "Unknown disk template 'tape'", "wrong_input"),
        (("POST", "/groups", {"name": "x", "ipolicy": {"std": {}}}), "Invalid keys in ipolicy: 'std'", "wrong_input"),
        (("POST", "/groups", {"name": "x", "hv_state": {"kvm": {}}}), "not kept here", "wrong_input"),
        (("PUT", "/groups/default/modify", {}), "at least one modification", "wrong_input"),
        (("PUT", "/groups/default/rename", {"new_name": "default"}), "clashes with existing", "already_exists"),
        (("PUT", "/groups/none/rename", {"new_name": "x"}), "Node group 'none' not found", "unknown_entity"),
        (("PUT", "/groups/default/assign-nodes", {"nodes": ["x"]}), "Node 'x' not known", "unknown_entity"),
        (
            ("DELETE", "/groups/default", None),
            "not empty, has the following nodes: east-host0, east-host1",
            "wrong_state",
        ),
        (("DELETE", "/groups/none", None), "Node group 'none' not found", "unknown_entity"),
    ],
)
def test_what_a_group_cannot_be_ends_the_job(
    unchanged: RapiCalls, asked: tuple[str, str, Any], text: str, reason: str
) -> None:
    failed, why = unchanged.failure(*asked)
    assert (text in failed, why) == (True, reason), failed


def test_trial_run_changes_nothing_and_tells_what_is_wrong(rapi: RapiCalls) -> None:
    assert rapi.result("POST", "/groups?dry-run=1", {"name": "rack"}) is None
    assert [group["name"] for group in rapi.get("/groups")] == ["default"]
    assert rapi.failure("DELETE", "/groups/default?dry-run=1")[1] == "wrong_state"


def test_nodes_move_to_another_group_and_take_no_instance_apart(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    rapi.result("POST", "/groups", {"name": "rack"})
    kept = kept_in_part({"snodes": ["east-host1"]})
    with writing(fleet.engine("east")) as connection:
        connection.execute(update(instances).values(ganeti=kept))
    body = {"nodes": ["east-host1"]}
    text, why = rapi.failure("PUT", "/groups/rack/assign-nodes", body)
    assert ("get split by this change" in text, "web1.example.com" in text, why) == (True, True, "OpExecError")
    rapi.result("PUT", "/groups/rack/assign-nodes?force=1", body)
    assert rapi.get("/groups/rack")["node_list"] == ["east-host1"]
    rapi.result("PUT", "/groups/default/assign-nodes", {"nodes": ["EAST-HOST1"]})
    assert rapi.get("/groups/default")["node_cnt"] == 2


def test_network_is_made_changed_renamed_and_removed(rapi: RapiCalls) -> None:
    body = {**NETWORK, "mac_prefix": None, "network6": None, "add_reserved_ips": ["192.0.2.3"]}
    assert rapi.result("POST", "/networks", body) is None
    network = rapi.get("/networks/front")
    assert (network["map"], network["tags"], network["free_count"]) == ("XX.X...X", ["blue"], 4)
    change = {"gateway": "none", "add_reserved_ips": ["192.0.2.4"], "remove_reserved_ips": ["192.0.2.3"]}
    rapi.result("PUT", "/networks/front/modify", {**change, "mac_prefix": "aa:bb:cc"})
    network = rapi.get("/networks/front")
    assert (network["map"], network["gateway"], network["mac_prefix"]) == ("X...X..X", None, "aa:bb:cc")
    assert network["serial_no"] == 2
    assert rapi.result("PUT", "/networks/front/rename", {"new_name": "back"}) == "back"
    assert rapi.result("DELETE", "/networks/back") is None
    assert rapi.get("/networks") == []


def test_network_is_connected_to_groups_once_and_kept_while_it_is(rapi: RapiCalls) -> None:
    rapi.result("POST", "/networks", NETWORK)
    body = {"group_name": "default", "network_mode": "bridged", "network_link": "br1"}
    rapi.result("PUT", "/networks/front/connect", body)
    assert rapi.get("/networks/front")["group_list"] == [["default", "bridged", "br1", ""]]
    again = rapi.run("PUT", "/networks/front/connect", {**body, "network_link": "br2"})
    assert (again["status"], again["oplog"][0][0][3]) == (
        "success",
        "Network 'front' is already mapped to group 'default'",
    )
    assert rapi.failure("DELETE", "/networks/front")[1] == "wrong_state"
    rapi.result("PUT", "/networks/front/disconnect", {"group_name": "default"})
    assert rapi.get("/networks/front")["group_list"] == []
    assert rapi.run("PUT", "/networks/front/disconnect", {"group_name": "default"})["status"] == "success"


def test_network_that_an_instance_is_in_stays(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    rapi.result("POST", "/networks", NETWORK)
    rapi.result(
        "PUT",
        "/networks/front/connect",
        {"group_name": "default", "network_mode": "routed", "network_link": "x", "network_vlan": "7"},
    )
    with writing(fleet.engine("east")) as connection:
        uuid, network = connection.scalar(select(instances.c.uuid)), connection.scalar(select(networks.c.uuid))
        nic = {"instance_uuid": uuid, "position": 0, "network_uuid": network, "address": "192.0.2.2"}
        connection.execute(insert(network_nics).values(**nic))
    assert rapi.failure("PUT", "/networks/front/disconnect", {"group_name": "default"}) == (
        "Network 'front' is used in group 'default' by: web1.example.com",
        "wrong_state",
    )
    for change in ({"gateway": "192.0.2.2"}, {"add_reserved_ips": ["192.0.2.2"]}):
        assert rapi.failure("PUT", "/networks/front/modify", change)[1] == "wrong_state"


@pytest.mark.parametrize(
    ("asked", "text", "reason"),
    [
        (("POST", "/networks", NETWORK), "Network with name 'front' already exists", "already_exists"),
        (("POST", "/networks", {**NETWORK, "network_name": "x", "network": "192.0.2.0/31"}), "prefix", "wrong_input"),
        (("POST", "/networks", {**NETWORK, "network_name": "x", "gateway": "10.0.0.1"}), "10.0.0.1 is", "wrong_input"),
        (("POST", "/networks", {**NETWORK, "network_name": "x", "mac_prefix": "a"}), "prefix 'a'", "wrong_input"),
        (("POST", "/networks", {**NETWORK, "network_name": "x", "network6": "a"}), "Invalid IPv6", "wrong_input"),
        (("POST", "/networks", {**NETWORK, "network_name": "x", "tags": ["a b"]}), "Tag 'a b'", "wrong_input"),
        (("PUT", "/networks/front/modify", {}), "at least one modification", "wrong_input"),
        (("PUT", "/networks/front/modify", {"remove_reserved_ips": ["192.0.2.2"]}), "not reserved", "wrong_state"),
        (("DELETE", "/networks/none", None), "Network 'none' not found", "unknown_entity"),
    ],
)
def test_what_a_network_cannot_be_ends_the_job(
    unchanged: RapiCalls, asked: tuple[str, str, Any], text: str, reason: str
) -> None:
    failed, why = unchanged.failure(*asked)
    assert (text in failed, why) == (True, reason), failed


def test_role_of_a_node_is_the_state_of_its_service(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    api = fleet.api()
    for role, status, state in (
        ("master-candidate", "enabled", "up"),
        ("drained", "disabled", "up"),
        ("offline", "enabled", "down"),
        ("regular", "enabled", "up"),
    ):
        rapi.result("PUT", "/nodes/east-host0/role?force=1", role)
        assert rapi.get("/nodes/east-host0/role") == role
        listed = api.get("/v2.1/os-services?host=east-host0").json()["services"]
        assert [(service["status"], service["state"]) for service in listed] == [(status, state)]


def test_node_is_modified(rapi: RapiCalls) -> None:
    body = {"vm_capable": True, "master_capable": False, "secondary_ip": "198.51.100.7", "ndparams": {"ovs": "yes"}}
    told = rapi.result("POST", "/nodes/east-host1/modify", body)
    assert told == [
        ["master_capable", "False"],
        ["vm_capable", "True"],
        ["secondary_ip", "198.51.100.7"],
        ["ndparams", "{'ovs': True}"],
    ]
    node = rapi.get("/nodes/east-host1")
    assert (node["sip"], node["master_capable"], node["ndparams"]["ovs"], node["serial_no"]) == (
        "198.51.100.7",
        False,
        True,
        2,
    )


@pytest.mark.parametrize(
    ("asked", "text", "reason"),
    [
        (("POST", "/nodes/east-host0/modify", {}), "at least one modification", "wrong_input"),
        (("POST", "/nodes/none/modify", {"offline": True}), "Node 'none' not known", "unknown_entity"),
        (
            ("POST", "/nodes/east-host0/modify", {"offline": True, "drained": True}),
            "more than one state",
            "wrong_input",
        ),
        (("POST", "/nodes/east-host0/modify", {"vm_capable": False}), "hosts 1 instances", "wrong_state"),
        (("POST", "/nodes/east-host0/modify", {"secondary_ip": "x"}), "valid IPv4 address", "wrong_input"),
        (("POST", "/nodes/east-host0/modify", {"powered": True}), "out of band", "wrong_state"),
        (
            ("POST", "/nodes/east-host0/modify", {"master_capable": False, "master_candidate": True}),
            "is not master capable",
            "wrong_state",
        ),
        (("POST", "/nodes/east-host0/powercycle?force=1", None), "no power to cycle", "environment_error"),
        (
            ("PUT", "/nodes/east-host0/storage/repair?storage_type=file&name=x", None),
            "can not be repaired",
            "wrong_input",
        ),
        (
            ("PUT", "/nodes/east-host0/storage/repair?storage_type=lvm-vg&name=x", None),
            "Failed to repair",
            "OpExecError",
        ),
        (
            ("PUT", "/nodes/east-host0/storage/modify?storage_type=lvm-pv&name=x&allocatable=1", None),
            "Failed to modify",
            "OpExecError",
        ),
        (
            ("GET", "/nodes/east-host0/storage?storage_type=file&output_fields=a", None),
            "fields selected: a",
            "wrong_input",
        ),
    ],
)
def test_what_a_node_cannot_do_ends_the_job(
    unchanged: RapiCalls, asked: tuple[str, str, Any], text: str, reason: str
) -> None:
    failed, why = unchanged.failure(*asked)
    assert (text in failed, why) == (True, reason), failed


def test_storage_of_a_node_is_listed(rapi: RapiCalls) -> None:
    node = rapi.get("/nodes/east-host0")
    path = "/nodes/east-host0/storage?storage_type=lvm-vg&output_fields=node,type,name,size,free,allocatable"
    assert rapi.result("GET", path) == [
        ["east-host0", "lvm-vg", "xenvg", node["dtotal"], node["dfree"], True],
    ]
    assert rapi.result("GET", path.replace("lvm-vg", "lvm-pv")) == []


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [
        (("PUT", "/nodes/east-host0/role", "master"), 400, "Can't set 'master' role"),
        (("PUT", "/nodes/east-host0/role", {"role": "offline"}), 400, "must be a string"),
        (("PUT", "/nodes/east-host0/role", None), 400, "must be a string"),
        (("POST", "/nodes/east-host0/modify", None), 400, "must be an object"),
        (("POST", "/nodes/east-host0/modify", {"offline": "yes"}), 400, "Invalid body parameters: offline"),
        (("POST", "/nodes/east-host0/modify", {"colour": 1}), 400, "Invalid body parameters: colour"),
        (("POST", "/nodes/east-host0/modify", {"node_name": "x"}), 400, "Can't overwrite static parameters"),
        (("GET", "/nodes/east-host0/storage?storage_type=file", None), 400, "'output_fields' parameter"),
        (("PUT", "/nodes/east-host0/storage/repair?storage_type=file", None), 400, "'name' parameter"),
        (("POST", "/groups", {"name": "a", "group_name": "b"}), 400, "only one of them"),
        (("POST", "/groups", {}), 400, "group_name"),
        (("POST", "/groups", {"name": "a", "alloc_policy": "never"}), 400, "alloc_policy"),
        (("POST", "/networks", {"network_name": "a"}), 400, "network"),
        (("PUT", "/modify", {"compression_tools": []}), 403, "compression_tools"),
        (("PUT", "/modify", None), 400, "must be an object"),
        (("PUT", "/modify", {"candidate_pool_size": 0}), 400, "candidate_pool_size"),
    ],
)
def test_request_that_cannot_be_meant_submits_nothing(
    unchanged: RapiCalls, asked: tuple[str, str, Any], status: int, text: str
) -> None:
    before = unchanged.get("/jobs")
    found, message = unchanged.refusal(*asked)
    assert (found, text in message) == (status, True), message
    assert unchanged.get("/jobs") == before


@pytest.mark.parametrize("path", ["", "/instances/web1", "/nodes/east-host0", "/groups/default", "/networks/front"])
def test_tags_are_added_and_taken_away(rapi: RapiCalls, path: str) -> None:
    rapi.result("POST", "/networks", {**NETWORK, "tags": []})
    before = rapi.get(f"{path}/tags")
    body = {"tags": ["not", "these"]}
    job = rapi.run("PUT", f"{path}/tags?tag=b&tag=a&tag=b", body)
    assert (job["status"], job["opresult"]) == ("success", [None])
    assert job["ops"][0]["tags"] == ["b", "a", "b"]
    assert rapi.get(f"{path}/tags") == sorted({*before, "a", "b"})
    text, why = rapi.failure("DELETE", f"{path}/tags?tag=a&tag=zz")
    assert (text, why) == ("Tag(s) 'zz' not found", "unknown_entity")
    rapi.result("DELETE", f"{path}/tags?tag=a")
    assert rapi.get(f"{path}/tags") == sorted({*before, "b"})
    assert rapi.failure("PUT", f"{path}/tags?tag=a%20b")[1] == "wrong_input"


def test_tag_of_an_instance_is_one_of_the_compute_api_and_counted(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    before = rapi.get("/instances/web1")
    rapi.result("PUT", "/instances/web1/tags?tag=new")
    found = rapi.get("/instances/web1")
    assert (found["tags"], found["serial_no"]) == (["new", "old"], before["serial_no"] + 1)
    server = fleet.api().get(f"/v2.1/servers/{found['uuid']}", {"OpenStack-API-Version": "compute 2.26"})
    assert server.json()["server"]["tags"] == ["new", "old"]


def test_parameters_of_a_cell_are_changed_and_taken_away(rapi: RapiCalls) -> None:
    change = {
        "beparams": {"default": {"maxmem": "1g", "auto_balance": "no"}},
        "hvparams": {"kvm": {"acpi": False, "serial_speed": "9600"}},
        "os_hvp": {"debian-12": {"kvm": {"cpu_type": "host"}}},
        "osparams": {"debian-12": {"dhcp": "yes"}},
        "nicparams": {"link": "br9"},
        "ndparams": {"ssh_port": 2200},
        "ipolicy": {"vcpu-ratio": 6},
        "hidden_os": [["add", "rocky-9"]],
        "enabled_hypervisors": ["fake", "kvm"],
        "candidate_pool_size": 3,
        "mac_prefix": "02:00:00",
        "vg_name": "data",
        "uid_pool": [[100, 200]],
        "enabled_data_collectors": {"lv": False},
    }
    assert rapi.result("PUT", "/modify", change) is None
    info = rapi.get("/info")
    assert info["beparams"]["default"]["maxmem"] == 1024
    assert (info["beparams"]["default"]["minmem"], info["beparams"]["default"]["auto_balance"]) == (128, False)
    assert (info["hvparams"]["kvm"]["acpi"], info["hvparams"]["kvm"]["serial_speed"]) == (False, 9600)
    assert (info["os_hvp"], info["osparams"]) == (change["os_hvp"], change["osparams"])
    assert info["nicparams"]["default"] == {"mode": "bridged", "link": "br9", "vlan": ""}
    assert (info["ndparams"]["ssh_port"], info["ipolicy"]["vcpu-ratio"]) == (2200, 6.0)
    assert (info["default_hypervisor"], info["candidate_pool_size"], info["vg_name"]) == ("fake", 3, "data")
    assert (info["uid_pool"], info["hidden_os"]) == ([[100, 200]], ["rocky-9"])
    assert (info["enabled_data_collectors"]["lv"], info["enabled_data_collectors"]["drbd"]) == (False, True)
    assert rapi.get("/instances/web1")["hvparams"] == {}
    back = {
        "beparams": {"maxmem": "default"},
        "hvparams": {"kvm": {"acpi": "default"}},
        "osparams": {"debian-12": {"dhcp": "default"}},
        "hidden_os": [["remove", "rocky-9"]],
        "remove_uids": [[100, 200]],
    }
    rapi.result("PUT", "/modify", back)
    info = rapi.get("/info")
    assert (info["beparams"]["default"]["maxmem"], info["hvparams"]["kvm"]["acpi"]) == (128, True)
    assert (info["osparams"], info["hidden_os"], info["uid_pool"]) == ({}, [], [])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"force": True}, "at least one modification"),
        ({"beparams": {"cores": 1}}, "Unknown backend parameter 'cores'"),
        ({"hvparams": {"qemu": {}}}, "Unknown hypervisor 'qemu'"),
        ({"hvparams": {"kvm": {"init_script": "x"}}}, "Unknown hypervisor 'kvm' parameter 'init_script'"),
        ({"hvparams": {"kvm": {"disk_aio": "nonsense"}}}, "value 'nonsense' for parameter 'disk_aio'"),
        ({"hvparams": {"xen-hvm": {"cpu_weight": "0"}}}, "Invalid value 0 for parameter 'cpu_weight'"),
        ({"os_hvp": {"debian-12": {"kvm": {"disk_aio": "native"}}}}, "Parameter 'disk_cache' has to be 'none'"),
        ({"nicparams": {"mode": "tube"}}, "Invalid mode"),
        ({"enabled_hypervisors": ["qemu"]}, "invalid entries: 'qemu'"),
        ({"enabled_disk_templates": ["tape"]}, "invalid entries: 'tape'"),
        ({"mac_prefix": "02"}, "Invalid MAC address prefix"),
        ({"ipolicy": {"minmax": [{"min": {}}]}}, "has to have 'min' and 'max'"),
        ({"add_uids": [[9, 3]]}, "are no range"),
        ({"remove_uids": [[1, 2]]}, "are not in the pool"),
        ({"enabled_data_collectors": {"no": True}}, "Unknown data collector 'no'"),
    ],
)
def test_parameter_that_a_cell_cannot_have_ends_the_job(unchanged: RapiCalls, body: Any, text: str) -> None:
    before = unchanged.get("/info")
    failed, why = unchanged.failure("PUT", "/modify", body)
    assert (text in failed, why) == (True, "wrong_input"), failed
    assert unchanged.get("/info") == before


def test_hypervisor_that_an_instance_has_stays_enabled(fleet: ComputeFleet, rapi: RapiCalls) -> None:
    with writing(fleet.engine("east")) as connection:
        connection.execute(update(instances).values(ganeti=kept_in_part({"hypervisor": "kvm"})))
    text, why = rapi.failure("PUT", "/modify", {"enabled_hypervisors": ["fake"]})
    assert (text, why) == ("Cannot disable hypervisor 'kvm', as there are instances that use it", "wrong_state")


def test_request_of_the_whole_fleet_finds_the_cell_by_the_name(fleet: ComputeFleet) -> None:
    rapi = RapiCalls(fleet, fleet.api())
    rapi.result("POST", "/nodes/south-host1/modify", {"secondary_ip": "198.51.100.9"})
    assert rapi.get("/nodes/south-host1")["sip"] == "198.51.100.9"
    for path, body in (("/groups", {"name": "x"}), ("/networks", NETWORK)):
        status, text = rapi.refusal("POST", path, body)
        assert (status, "name one, as in /cells/" in text) == (400, True)


@pytest.mark.postgresql
def test_all_of_it_is_done_in_a_postgresql_database_too(
    tmp_path: Path, new_postgresql_database: Callable[[], str]
) -> None:
    with small_fleet(tmp_path, new_postgresql_database) as fleet:
        rapi = RapiCalls(fleet, fleet.api(), "/cells/east/2")
        rapi.result("POST", "/groups", {"name": "rack", "ipolicy": {"vcpu-ratio": 2}})
        rapi.result("PUT", "/groups/rack/modify", {"ndparams": {"ssh_port": 2222}})
        rapi.result("PUT", "/groups/rack/assign-nodes", {"nodes": ["east-host1"]})
        rapi.result("POST", "/networks", NETWORK)
        rapi.result("PUT", "/networks/front/modify", {"add_reserved_ips": ["192.0.2.3"]})
        connection = {"group_name": "rack", "network_mode": "bridged", "network_link": "br1"}
        rapi.result("PUT", "/networks/front/connect", connection)
        rapi.result("PUT", "/nodes/east-host1/role", "drained")
        for path in ("", "/instances/web1", "/nodes/east-host1", "/groups/rack", "/networks/front"):
            rapi.result("PUT", f"{path}/tags?tag=new")
        rapi.result("PUT", "/modify", {"beparams": {"maxmem": 512}, "hidden_os": [["add", "rocky-9"]]})
        body = {"predicates": [["opcode", ["==", "OP_ID", "OP_GROUP_REMOVE"]]], "action": ["RATE_LIMIT", 1]}
        assert rapi.api.request("POST", f"{rapi.base}/filters", json=body).status_code == 200
        assert rapi.failure("DELETE", "/groups/rack")[1] == "wrong_state"
        group, node, network = rapi.get("/groups/rack"), rapi.get("/nodes/east-host1"), rapi.get("/networks/front")
        assert (group["node_list"], group["tags"], group["ipolicy"]["vcpu-ratio"]) == (["east-host1"], ["new"], 2.0)
        assert (node["role"], node["tags"], node["ndparams"]["ssh_port"]) == ("D", ["new"], 2222)
        assert (network["map"], network["tags"]) == ("XX.X...X", ["blue", "new"])
        assert network["group_list"] == [["rack", "bridged", "br1", ""]]
        assert rapi.get("/instances/web1")["tags"] == ["new", "old"]
        info = rapi.get("/info")
        assert (info["beparams"]["default"]["maxmem"], info["hidden_os"], info["tags"]) == (512, ["rocky-9"], ["new"])


def test_whole_numbers_have_no_point_wherever_they_are_told_as_in_ganeti(rapi: RapiCalls) -> None:
    """`1.0` and `1` are one number, and two texts for what compares answers, or prints them."""
    rapi.result("PUT", "/modify", {"ndparams": {"cpu_speed": 2.0}, "ipolicy": {"vcpu-ratio": 8.0}})
    rapi.result("POST", "/nodes/east-host0/modify", {"ndparams": {"cpu_speed": 1.5}})
    with rapi.fleet.engine("east").begin() as connection:
        connection.execute(compute_nodes.update().values(created_at=1_700_000_000_000_000))
    question = {"fields": ["ndp/cpu_speed", "ctime", "ndparams"], "qfilter": None}
    texts = [
        rapi.api.request("PUT", f"{rapi.base}/query/node", json=question).text,
        *(rapi.api.get(f"{rapi.base}{path}").text for path in ("/nodes?bulk=1", "/groups?bulk=1", "/info")),
    ]
    assert "[[0,1.5],[0,1700000000]," in texts[0]
    assert "[[0,2],[0,1700000000]," in texts[0]
    told = {found for text in texts for found in re.findall(r'"(cpu_speed|[a-z]+-ratio|ctime)":([^,}]+)', text)}
    ctimes = {value for name, value in told if name == "ctime"}
    others = {(name, value) for name, value in told if name != "ctime"}
    assert others == {("cpu_speed", "1.5"), ("cpu_speed", "2"), ("spindle-ratio", "32"), ("vcpu-ratio", "8")}
    assert "1700000000" in ctimes
    assert not any(value.endswith(".0") for value in ctimes)
