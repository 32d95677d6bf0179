"""Ganeti's client of its remote API, unmodified, against a running API."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients.conftest import INSTANCES
from tests.support.servers.ganeti_client import RapiProgram, rapi_program
from tests.support.servers.live_api import LiveApi
from tests.support.servers.tls_front import tls_front
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def https(live: LiveApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with tls_front(tmp_path_factory.mktemp("tls"), live.url) as url:
        yield url


def program(ganeti_client: Path, https: str, live: LiveApi, cloud: str) -> AbstractContextManager[RapiProgram]:
    clouds = yaml.safe_load(live.clouds_file.read_text(encoding="utf-8"))["clouds"]
    account = clouds[cloud]["auth"]
    return rapi_program(ganeti_client, https, account["username"], account["password"])


@pytest.fixture(scope="module")
def rapi(ganeti_client: Path, https: str, live: LiveApi) -> Iterator[RapiProgram]:
    with program(ganeti_client, https, live, "fleetlight") as rapi:
        yield rapi


def test_everything_that_reads_is_answered(rapi: RapiProgram) -> None:
    instances = rapi.call("GetInstances", bulk=True)
    nodes = rapi.call("GetNodes", bulk=True)
    assert len(instances) == INSTANCES
    assert sum(node["pinst_cnt"] for node in nodes) == INSTANCES
    instance, node = instances[0], nodes[0]
    calls = [
        ("GetVersion", 2),
        ("GetOperatingSystems", ["cirros-0.6.3", "debian-12", "rocky-9", "ubuntu-24.04"]),
        ("GetClusterTags", []),
        ("GetNetworks", []),
        ("GetFilters", []),
    ]
    assert [said["returned"] for said in rapi.calls([(name, [], {}) for name, _ in calls])] == [
        says for _, says in calls
    ]
    assert {"node-evac-res1", "node-migrate-reqv1", "instance-reservations"} <= set(rapi.call("GetFeatures"))
    assert rapi.call("GetInfo")["name"] == "fleetlight"
    assert rapi.call("GetInstances") == sorted(each["name"] for each in instances)
    assert rapi.call("GetInstance", instance["name"]) == rapi.call("GetInstance", instance["uuid"]) == instance
    assert rapi.call("GetInstanceTags", instance["name"]) == instance["tags"]
    assert rapi.call("GetNodes") == sorted(each["name"] for each in nodes)
    assert rapi.call("GetNode", node["name"]) == {**node, "secondary_ip": node["sip"]}
    assert rapi.call("GetNodeRole", node["name"]) == "regular"
    assert rapi.call("GetNodeTags", node["name"]) == []
    assert rapi.call("GetGroups") == ["default", "default"]
    assert rapi.call("GetGroup", "default")["alloc_policy"] == "preferred"
    assert len(rapi.call("GetGroups", bulk=True)) == 2
    assert rapi.call("GetGroupTags", "default") == []


def test_queries_and_their_fields_are_answered(rapi: RapiProgram) -> None:
    [name, *_] = rapi.call("GetInstances")
    answer = rapi.call("Query", "instance", ["name", "oper_state", "nope"], ["==", "name", name])
    assert [field["kind"] for field in answer["fields"]] == ["text", "bool", "unknown"]
    assert answer["data"] == [[[0, name], [0, answer["data"][0][1][1]], [1, None]]]
    fields = rapi.call("QueryFields", "node")["fields"]
    assert {"name", "mfree", "pinst_list"} <= {field["name"] for field in fields}
    assert rapi.call("QueryFields", "job", fields=["id"])["fields"][0]["title"] == "ID"


def test_refusals_reach_the_program_with_their_reasons(rapi: RapiProgram) -> None:
    said = rapi.calls(
        [
            ("GetInstance", ["nothing"], {}),
            ("GetJobStatus", [10**9], {}),
            ("Query", ["instance", ["name"], ["==", "nope", 1]], {}),
            # There are two cells that it could be in.
            ("CreateGroup", ["rack"], {}),
        ]
    )
    assert [each["code"] for each in said] == [404, 404, 400, 400]
    assert "Unknown field" in said[2]["message"]


def test_member_sees_its_instances_and_nothing_else(ganeti_client: Path, https: str, live: LiveApi) -> None:
    with program(ganeti_client, https, live, "fleetlight-demo") as member:
        [instances, nodes] = member.calls([("GetInstances", [], {"bulk": True}), ("GetNodes", [], {})])
    assert 0 < len(instances["returned"]) < INSTANCES
    assert nodes["code"] == 404


def test_wrong_password_is_refused(ganeti_client: Path, https: str) -> None:
    with rapi_program(ganeti_client, https, "admin", "wrong") as stranger:
        [said] = stranger.calls([("GetInstances", [], {})])
    assert said["code"] == 401


@pytest.fixture(scope="module")
def of_cell(ganeti_client: Path, https: str, live: LiveApi) -> Iterator[RapiProgram]:
    """The client of one cell, which is a cluster of its own."""
    with program(ganeti_client, f"{https}/cells/cell2", live, "fleetlight") as of_cell:
        yield of_cell


def results(rapi: RapiProgram, *calls: tuple[str, list[Any], dict[str, Any]]) -> list[Any]:
    """The result of the job that each call submits, one after the other; every one has to succeed."""
    found = []
    for method, arguments, options in calls:
        ended = ending_of(rapi, rapi.call(method, *arguments, **options))
        assert ended["status"] == "success", (method, ended["opresult"])
        found += ended["opresult"]
    return found


def ending_of(rapi: RapiProgram, job: int) -> Any:
    """The job, when it has ended."""
    wait_until(lambda: rapi.call("GetJobStatus", job)["end_ts"])
    return rapi.call("GetJobStatus", job)


def test_groups_networks_and_tags_live_from_their_making_to_their_end(of_cell: RapiProgram) -> None:
    node = of_cell.call("GetNodes")[-1]
    told = results(
        of_cell,
        ("CreateGroup", ["rack"], {}),
        ("ModifyGroup", ["rack"], {"alloc_policy": "last_resort", "custom_ndparams": {"ssh_port": 2222}}),
        ("AssignGroupNodes", ["rack", [node]], {"force": True}),
        ("AddGroupTags", ["rack", ["blue", "red"]], {}),
        ("DeleteGroupTags", ["rack", ["red"]], {}),
        ("CreateNetwork", ["front", "192.0.2.0/28"], {"gateway": "192.0.2.1", "add_reserved_ips": "192.0.2.5"}),
        ("ConnectNetwork", ["front", "rack", "bridged", "br1"], {}),
        ("ModifyNetwork", ["front"], {"mac_prefix": "aa:bb:cc"}),
        ("AddNetworkTags", ["front", ["x"]], {}),
    )
    assert told[1] == [["ndparams", "{'ssh_port': 2222}"]]
    group, network = of_cell.call("GetGroup", "rack"), of_cell.call("GetNetwork", "front")
    assert (group["alloc_policy"], group["node_list"], group["tags"]) == ("last_resort", [node], ["blue"])
    assert (network["map"], network["mac_prefix"]) == ("XX...X.........X", "aa:bb:cc")
    assert (network["group_list"], network["tags"]) == ([["rack", "bridged", "br1", ""]], ["x"])
    results(
        of_cell,
        ("DisconnectNetwork", ["front", "rack"], {}),
        ("DeleteNetwork", ["front"], {}),
        ("RenameGroup", ["rack", "row"], {}),
        ("AssignGroupNodes", ["default", [node]], {}),
        ("DeleteGroup", ["row"], {}),
    )
    assert (of_cell.call("GetGroups"), of_cell.call("GetNetworks")) == (["default"], [])


def test_nodes_and_parameters_are_changed(of_cell: RapiProgram) -> None:
    node = of_cell.call("GetNodes")[0]
    results(
        of_cell,
        ("SetNodeRole", [node, "drained"], {}),
        ("ModifyNode", [node], {"secondary_ip": "198.51.100.7"}),
        ("AddNodeTags", [node, ["ssd"]], {}),
        ("ModifyCluster", [], {"beparams": {"default": {"spindle_use": 2}}}),
        ("AddClusterTags", [["site"]], {}),
        ("RedistributeConfig", [], {}),
    )
    found = of_cell.call("GetNode", node)
    assert (found["role"], found["sip"], found["tags"]) == ("D", "198.51.100.7", ["ssd"])
    assert of_cell.call("GetInfo")["beparams"]["default"]["spindle_use"] == 2
    assert of_cell.call("GetClusterTags") == ["site"]
    [units] = results(of_cell, ("GetNodeStorageUnits", [node, "lvm-vg", "name,size"], {}))
    assert units == [["xenvg", found["dtotal"]]]
    assert results(of_cell, ("EvacuateNode", [node], {"mode": "secondary-only"})) == [{"jobs": []}]
    results(of_cell, ("SetNodeRole", [node, "regular"], {"force": True}), ("DeleteNodeTags", [node, ["ssd"]], {}))
    assert of_cell.call("GetNodeRole", node) == "regular"


def test_filters_are_made_replaced_and_removed(of_cell: RapiProgram) -> None:
    predicates = [["jobid", [">", "id", "watermark"]], ["opcode", ["==", "OP_ID", "OP_TEST"]]]
    uuid = of_cell.call("AddFilter", 5, predicates, "PAUSE")
    assert of_cell.call("GetFilter", uuid)["predicates"] == predicates
    assert of_cell.call("ReplaceFilter", uuid, 6, predicates, ["RATE_LIMIT", 3]) == uuid
    assert [(each["priority"], each["action"]) for each in of_cell.call("GetFilters", bulk=True)] == [
        (6, ["RATE_LIMIT", 3])
    ]
    assert of_cell.call("DeleteFilter", uuid) is None
    assert of_cell.call("GetFilters") == []


def test_instances_live_from_their_making_to_their_end(of_cell: RapiProgram) -> None:
    primary, secondary, third = of_cell.call("GetNodes")[:3]
    name = "life.example.com"
    disks, nics = [{"size": 1024}, {"size": 2048}], [{"mac": "auto"}]
    made = {"os": "debian-12", "pnode": primary, "snode": secondary, "beparams": {"memory": 512}}
    told = results(
        of_cell,
        ("CreateInstance", ["create", name, "drbd", disks, nics], made),
        ("ShutdownInstance", [name], {}),
        ("StartupInstance", [name], {}),
        ("RebootInstance", [name], {"reboot_type": "soft"}),
        ("ModifyInstance", [name], {"beparams": {"vcpus": 2}}),
        ("GrowInstanceDisk", [name, 0, 1024], {}),
        ("MigrateInstance", [name], {}),
        ("FailoverInstance", [name], {}),
        ("ReplaceInstanceDisks", [name], {"mode": "replace_new_secondary", "remote_node": third}),
        ("AddInstanceTags", [name, ["blue"]], {}),
        ("ActivateInstanceDisks", [name], {}),
    )
    assert (told[0], told[4]) == ([primary, secondary], [["be/vcpus", 2]])
    found = of_cell.call("GetInstance", name)
    assert (found["pnode"], found["snodes"], found["status"]) == (primary, [third], "running")
    assert (found["disk.sizes"], found["beparams"]["vcpus"], found["tags"]) == ([2048, 2048], 2, ["blue"])
    results(
        of_cell,
        ("ShutdownInstance", [name], {}),
        ("DeactivateInstanceDisks", [name], {}),
        ("RecreateInstanceDisks", [name], {}),
        ("ReinstallInstance", [name], {"os": "ubuntu-24.04", "no_startup": True}),
        ("RenameInstance", [name, "after.example.com"], {}),
    )
    assert of_cell.call("GetInstance", "after.example.com")["os"] == "ubuntu-24.04"
    failed = ending_of(of_cell, of_cell.call("ExportInstance", "after.example.com", "local", secondary))
    assert failed["opresult"][0][0] == "OpExecError"
    results(of_cell, ("DeleteInstance", ["after.example.com"], {}))
    assert "after.example.com" not in of_cell.call("GetInstances")


def test_reservation_is_made_and_becomes_real(of_cell: RapiProgram) -> None:
    options = {"forthcoming": True, "os": "debian-12", "beparams": {"memory": 256}}
    [uuid] = results(
        of_cell, ("CreateInstance", ["create", "later.example.com", "plain", [{"size": 1024}], []], options)
    )
    reserved = of_cell.call("GetInstance", uuid)
    assert (reserved["forthcoming"], reserved["status"]) == (True, "ADMIN_down")
    commit = {"commit": True, "os": "debian-12"}
    made = ("CreateInstance", ["create", "later.example.com", "plain", [{"size": 1024}], [{}]], commit)
    assert results(of_cell, made, ("DeleteInstance", [uuid], {}))[0] == [reserved["pnode"]]


def test_several_instances_are_made_at_once(of_cell: RapiProgram) -> None:
    one = {"mode": "create", "disk_template": "plain", "disks": [{"size": 1024}], "nics": [{}], "os_type": "debian-12"}
    bodies = [{**one, "instance_name": f"many{number}.example.com"} for number in range(2)]
    [told] = results(of_cell, ("InstancesMultiAlloc", [bodies], {}))
    assert (told["allocatable"], told["failed"]) == ([body["instance_name"] for body in bodies], [])
    for _, job in told["jobs"]:
        assert ending_of(of_cell, job)["status"] == "success"
    results(of_cell, *(("DeleteInstance", [body["instance_name"]], {}) for body in bodies))
