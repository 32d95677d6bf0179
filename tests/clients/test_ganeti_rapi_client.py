"""Ganeti's client of its remote API, unmodified, against a running API."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.clients.conftest import INSTANCES
from tests.support.ganeti_client import RapiProgram
from tests.support.live_api import LiveApi
from tests.support.tls_front import tls_front


@pytest.fixture(scope="module")
def https(live: LiveApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with tls_front(tmp_path_factory.mktemp("tls"), live.url) as url:
        yield url


def program(ganeti_client: Path, https: str, live: LiveApi, cloud: str) -> RapiProgram:
    clouds = yaml.safe_load(live.clouds_file.read_text(encoding="utf-8"))["clouds"]
    account = clouds[cloud]["auth"]
    return RapiProgram(ganeti_client, https, account["username"], account["password"])


@pytest.fixture(scope="module")
def rapi(ganeti_client: Path, https: str, live: LiveApi) -> RapiProgram:
    return program(ganeti_client, https, live, "fleetlight")


def test_everything_that_reads_is_answered(rapi: RapiProgram) -> None:
    instances = rapi.call("GetInstances", bulk=True)
    nodes = rapi.call("GetNodes", bulk=True)
    assert len(instances) == INSTANCES
    assert sum(node["pinst_cnt"] for node in nodes) == INSTANCES
    instance, node = instances[0], nodes[0]
    calls = [
        ("GetVersion", 2),
        ("GetFeatures", []),
        ("GetOperatingSystems", []),
        ("GetClusterTags", []),
        ("GetNetworks", []),
        ("GetFilters", []),
    ]
    assert [said["returned"] for said in rapi.calls([(name, [], {}) for name, _ in calls])] == [
        says for _, says in calls
    ]
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
            ("ShutdownInstance", ["nothing"], {}),
        ]
    )
    assert [each["code"] for each in said] == [404, 404, 400, 501]
    assert "Unknown field" in said[2]["message"]


def test_member_sees_its_instances_and_nothing_else(ganeti_client: Path, https: str, live: LiveApi) -> None:
    member = program(ganeti_client, https, live, "fleetlight-demo")
    [instances, nodes] = member.calls([("GetInstances", [], {"bulk": True}), ("GetNodes", [], {})])
    assert 0 < len(instances["returned"]) < INSTANCES
    assert nodes["code"] == 404


def test_wrong_password_is_refused(ganeti_client: Path, https: str) -> None:
    [said] = RapiProgram(ganeti_client, https, "admin", "wrong").calls([("GetInstances", [], {})])
    assert said["code"] == 401
