"""What we answer over the databases of a Nova deployment is what Nova's own API answers, request by request.

Build requests are compared apart, since Nova lists them before everything else, whatever the order
(docs/reference/compatibility.md).
"""

import json
from typing import Any

import httpx
import pytest

from tests.contract.compute_fleet import Api
from tests.nova.questions import DEMO, OTHER, REQUESTS, USAGE, USER, Asked, identifier, requests_for
from tests.support.fleets.nova_fleet import NovaFleet
from tests.support.servers.nova import NovaWorld

# The databases are made before the first test, which takes Nova a while.
pytestmark = [pytest.mark.own_servers, pytest.mark.no_rerun, pytest.mark.timeout(600)]

_BUILD_REQUESTS = {identifier(name) for name in ("waiting", "waiting-elsewhere", "arrived")}


def ask(api: Api, asked: Asked) -> httpx.Response:
    roles = "admin" if asked.is_admin else "member"
    who = {"X-Project-Id": asked.project, "X-User-Id": USER, "X-Roles": roles}
    return api.get(f"/v2.1{asked.path}", who, {"OpenStack-API-Version": f"compute {asked.version}"})


def without_build_requests(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [server for server in body["servers"] if server["id"] not in _BUILD_REQUESTS]


def comparable(server: dict[str, Any]) -> dict[str, Any]:
    """A server without the address that it was asked at, and without what Nova makes up at each look."""
    plain: dict[str, Any] = json.loads(
        json.dumps(server).replace('"http://nova/', '"/').replace('"http://api.test/', '"/')
    )
    if server.get("name") == "never-updated" or server["id"] in _BUILD_REQUESTS:
        plain.pop("updated", None)
    if server.get("status") in {"DELETED", "SOFT_DELETED"}:
        # Nova shows none where deleted servers are listed.
        plain.pop("host_status", None)
    plain["tags"] = sorted(plain.get("tags", ()))
    return plain


def is_same(asked: Asked, answer: httpx.Response, nova: NovaWorld) -> bool:
    """Whether both answers say the same."""
    status, body = nova.answer(asked)
    if answer.status_code != status:
        return False
    if status != 200:
        return True
    if "server" in body:
        return comparable(answer.json()["server"]) == comparable(body["server"])
    ours, theirs = without_build_requests(answer.json()), without_build_requests(body)
    return [comparable(server) for server in ours] == [comparable(server) for server in theirs]


def test_cells_are_listed_as_nova_lists_them(fleet: NovaFleet, nova_deployment: NovaWorld) -> None:
    api = fleet.api()
    answers = {asked: ask(api, asked) for asked in requests_for(nova_deployment.server)}
    assert [str(asked) for asked, answer in answers.items() if not is_same(asked, answer, nova_deployment)] == []
    lists = [answer for asked, answer in answers.items() if answer.status_code == 200]
    assert {answer.headers["Fleetlight-Complete"] for answer in lists} == {"true"}


def test_index_lists_what_nova_lists_after_a_comparison(fleet: NovaFleet, nova_deployment: NovaWorld) -> None:
    fleet.fill_index()
    api = fleet.api(uses_index=True)
    answers = {asked: ask(api, asked) for asked in requests_for(nova_deployment.server)}
    assert [str(asked) for asked, answer in answers.items() if not is_same(asked, answer, nova_deployment)] == []
    routes = ask(api, REQUESTS[0]).headers["Fleetlight-Route"]
    assert "index" in routes
    assert "live" not in routes


def test_build_requests_are_listed_until_their_server_has_a_cell(fleet: NovaFleet) -> None:
    listed = ask(fleet.api(), REQUESTS[0]).json()["servers"]
    waiting = {server["id"]: server for server in listed if server["status"] == "BUILD"}
    assert set(waiting) == {identifier("waiting"), identifier("waiting-elsewhere")}
    one = waiting[identifier("waiting")]
    assert one["metadata"] == {"of": "a build request"}
    assert one["tags"] == ["waiting"]
    assert one["pinned_availability_zone"] == "east"
    # Its build request is still there, and its cell knows better.
    assert [server["status"] for server in listed if server["id"] == identifier("arrived")] == ["ACTIVE"]


def test_server_in_a_cell_of_nova_cannot_be_changed(fleet: NovaFleet) -> None:
    who = {"X-Project-Id": DEMO, "X-User-Id": USER, "X-Roles": "member"}
    address = f"/v2.1/servers/{identifier('web-1')}"
    refused = fleet.api().request("POST", f"{address}/action", who, json={"os-stop": None})
    assert refused.status_code == 501
    assert fleet.api().request("DELETE", address, who).status_code == 501


def test_usage_of_each_project_is_what_nova_says(fleet: NovaFleet, nova_deployment: NovaWorld) -> None:
    answer = fleet.api().get("/fleetlight/usage?from=2026-11-01T12:00:00Z&to=2026-11-01T13:30:00Z")
    _, nova = nova_deployment.answer(USAGE)
    ours = {
        row["project"]: (
            row["instance_hours"],
            row["vcpu_hours"],
            row["memory_gib_hours"] * 1024,
            row["disk_gib_hours"],
        )
        for row in answer.json()["usage"]
    }
    assert set(ours) == {DEMO, OTHER}
    assert ours == {
        usage["tenant_id"]: pytest.approx(
            tuple(usage[f"total_{name}"] for name in ("hours", "vcpus_usage", "memory_mb_usage", "local_gb_usage"))
        )
        for usage in nova["tenant_usages"]
    }
    assert {each["why"].partition(":")[0] for each in answer.json()["cells"]} == {"it keeps no changes"}
    assert answer.headers["Fleetlight-Complete"] == "true"
