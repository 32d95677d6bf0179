"""Answers of native cells pass the schemas by which Nova checks its own answers, at every microversion."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet, microversion
from tests.support.values import IMAGE

pytestmark = pytest.mark.night

_SCRIPT = Path(__file__).resolve().parents[2] / "nova" / "check_answers.py"
_NEWEST = microversion("2.104")
_CALLERS: tuple[dict[str, str], ...] = ({}, {"X-Roles": "member"})


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        fleet.add_hosts()
        yield fleet


@pytest.fixture(scope="module")
def api(fleet: ComputeFleet) -> Api:
    return fleet.api()


def send(api: Api, method: str, path: str, body: Any, version: str = "2.104") -> Any:
    answer = api.request(method, f"/v2.1{path}", microversion(version), json=body)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


@pytest.fixture(scope="module")
def addresses(fleet: ComputeFleet, api: Api) -> list[tuple[str, str]]:
    """Addresses as Nova writes them, and of something that there is; what differs by microversion is in braces."""
    send(api, "POST", "/os-keypairs", {"keypair": {"name": "kp"}}, "2.10")
    group = send(
        api,
        "POST",
        "/os-server-groups",
        {"server_group": {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 2}}},
    )["server_group"]["id"]
    server = {"name": "web", "flavorRef": "1", "imageRef": IMAGE, "networks": "auto", "key_name": "kp"}
    hints = {"os:scheduler_hints": {"group": group}}
    made = [
        send(api, "POST", "/servers", {"server": server | {"metadata": {"a": "b"}, "tags": ["t"]}} | more)["server"][
            "id"
        ]
        for more in ({}, hints)
    ]
    fleet.work()
    send(api, "POST", f"/servers/{made[1]}/action", {"migrate": None})
    fleet.work()
    aggregate = send(api, "POST", "/os-aggregates", {"aggregate": {"name": "rack"}})["aggregate"]["id"]
    send(api, "POST", f"/os-aggregates/{aggregate}/action", {"add_host": {"host": "north-host0"}})
    send(api, "POST", "/flavors/1/os-extra_specs", {"extra_specs": {"hw:cpu_policy": "shared"}})
    private = {"name": "own", "ram": 1, "vcpus": 1, "disk": 1, "os-flavor-access:is_public": False}
    flavor = send(api, "POST", "/flavors", {"flavor": private})["flavor"]["id"]
    send(api, "POST", f"/flavors/{flavor}/action", {"addTenantAccess": {"tenant": "demo"}})
    one, moved = (f"/servers/{uuid}" for uuid in made)
    action = api.get(f"/v2.1{moved}/os-instance-actions", _NEWEST).json()["instanceActions"][0]["request_id"]
    since = "start=2020-01-01T00:00:00"
    of_servers = [
        *(("/servers/{id}", address) for address in (one, moved)),
        *((f"/servers/{{server_id}}/{part}", f"{one}/{part}") for part in _PARTS),
        ("/servers/{server_id}/metadata/{id}", f"{one}/metadata/a"),
        ("/servers/{server_id}/os-instance-actions/{id}", f"{moved}/os-instance-actions/{action}"),
    ]
    return [
        ("/servers", "/servers?limit=1"),
        ("/servers/detail", "/servers/detail?limit=1"),
        *of_servers,
        ("/flavors", "/flavors?limit=2"),
        ("/flavors/detail", "/flavors/detail?is_public=None"),
        ("/flavors/{id}", "/flavors/1"),
        ("/flavors/{flavor_id}/os-extra_specs", "/flavors/1/os-extra_specs"),
        ("/flavors/{flavor_id}/os-extra_specs/{id}", "/flavors/1/os-extra_specs/hw:cpu_policy"),
        ("/flavors/{flavor_id}/os-flavor-access", f"/flavors/{flavor}/os-flavor-access"),
        ("/os-keypairs/{id}", "/os-keypairs/kp"),
        ("/os-quota-sets/{id}", "/os-quota-sets/demo"),
        ("/os-quota-sets/{id}/detail", "/os-quota-sets/demo/detail"),
        ("/os-quota-sets/{id}/defaults", "/os-quota-sets/demo/defaults"),
        ("/os-quota-class-sets/{id}", "/os-quota-class-sets/default"),
        ("/os-simple-tenant-usage", f"/os-simple-tenant-usage?detailed=1&{since}"),
        ("/os-simple-tenant-usage/{id}", f"/os-simple-tenant-usage/demo?{since}"),
        ("/os-simple-tenant-usage/{id}", "/os-simple-tenant-usage/nobody"),
        ("/os-hypervisors/{id}", "/os-hypervisors/{hypervisor}"),
        ("/os-hypervisors/{id}/uptime", "/os-hypervisors/{hypervisor}/uptime"),
        ("/os-hypervisors/{id}/search", "/os-hypervisors/north/search"),
        ("/os-hypervisors/{id}/servers", "/os-hypervisors/north/servers"),
        ("/os-aggregates/{id}", f"/os-aggregates/{aggregate}"),
        ("/os-server-groups/{id}", f"/os-server-groups/{group}"),
        ("/os-hosts/{id}", "/os-hosts/north-host0"),
        *((path, path) for path in _LISTS),
    ]


_PARTS = (
    *("ips", "metadata", "os-instance-actions", "os-interface", "os-server-password", "os-volume_attachments"),
    *("os-security-groups", "topology", "shares", "tags", "migrations"),
)
_LISTS = (
    *("/os-keypairs", "/limits", "/os-availability-zone", "/os-availability-zone/detail", "/os-services"),
    *("/os-hypervisors", "/os-hypervisors/detail", "/os-hypervisors/statistics", "/os-aggregates", "/os-server-groups"),
    *("/os-migrations", "/os-hosts", "/extensions"),
)


@pytest.mark.timeout(300)
def test_every_answer_passes_the_schema_that_nova_has_for_its_own(
    api: Api, addresses: list[tuple[str, str]], nova_environment: str
) -> None:
    answers = []
    for minor in range(1, 105):
        version = microversion(f"2.{minor}")
        hypervisor = api.get("/v2.1/os-hypervisors", version).json()["hypervisors"][0]["id"]
        for route, address in addresses:
            for caller in _CALLERS if minor % 10 == 1 else _CALLERS[:1]:
                answer = api.get(f"/v2.1{address.replace('{hypervisor}', str(hypervisor))}", version, caller)
                assert answer.status_code in {200, 403, 404}, (route, minor, answer.text)
                if answer.status_code == 200:
                    answers.append({"route": f"GET {route}", "minor": minor, "body": answer.json()})
    assert {answer["route"].removeprefix("GET ") for answer in answers} == {route for route, _ in addresses}
    python = Path(nova_environment).parent / "bin" / "python"
    # With bytecode it starts in two seconds, without in twenty.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    lines = "\n".join(map(json.dumps, answers))
    said = subprocess.run(
        [python, "-P", "-W", "ignore", _SCRIPT],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert said.stdout.splitlines() == []
