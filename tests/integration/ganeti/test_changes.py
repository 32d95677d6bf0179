"""Requests that change something, to a real Ganeti cluster and to a native cell: how each ends (contracts/ganeti-rapi).

Of the cluster only a group, a network and an instance of the tests are changed; all are removed, and their jobs too.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from scripts.servers.certificates import unchecked_tls
from tests.contract.compute_fleet import compute_fleet
from tests.support.rapi_calls import RapiCalls
from tests.support.servers.real_cluster import RealCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.night

NAME = f"changes-{uuid4().hex[:8]}"
INSTANCE = f"{NAME}.gnt.example"
GROUP, NET, NOTHING = f"/groups/{NAME}", f"/networks/{NAME}", f"/instances/{NAME}"
CONNECTED = {"group_name": NAME, "network_mode": "bridged", "network_link": "br7"}
ENDED = {"success", "error", "canceled"}
Call = tuple[str, str, Any]
CALLS: list[Call] = [
    ("POST", "/groups", {"name": NAME}),
    ("POST", "/groups", {"name": NAME}),
    ("PUT", f"{GROUP}/tags?tag=a&tag=b", None),
    ("DELETE", f"{GROUP}/tags?tag=nothing", None),
    ("GET", f"{GROUP}/tags", None),
    ("PUT", f"{GROUP}/modify", {"ndparams": {"spindle_count": 2}, "priority": 10}),
    ("POST", "/networks", {"network_name": NAME, "network": "10.9.0.0/24", "gateway": "10.9.0.1", "tags": ["t"]}),
    ("PUT", f"{NET}/connect", CONNECTED),
    ("DELETE", NET, None),
    ("PUT", f"{NET}/disconnect", {"group_name": NAME}),
    ("DELETE", NET, None),
    ("DELETE", GROUP, None),
    ("PUT", f"{NOTHING}/startup", None),
    # Refused before there is a job.
    ("POST", "/groups", {"name": NAME, "group_name": NAME}),
    ("POST", "/groups", {"name": NAME, "alloc_policy": "never"}),
    ("POST", "/groups", {"name": NAME, "nothing": 1}),
    ("POST", "/groups", [NAME]),
    ("POST", "/groups", None),
    ("PUT", f"{GROUP}/modify", {"group_name": NAME}),
    ("PUT", f"{GROUP}/modify", {"priority": 5}),
    ("PUT", f"{GROUP}/modify", {"depends": [["x", []]]}),
    ("PUT", f"{NET}/connect", {**CONNECTED, "network_mode": "tube"}),
    ("PUT", f"{NOTHING}/shutdown", {"timeout": "soon"}),
    ("POST", f"{NOTHING}/reboot?type=cold", None),
    ("POST", f"{NOTHING}/disk/0/grow", {}),
    ("POST", "/instances", {"name": NAME}),
    ("POST", "/instances", {"__version__": 2, "name": NAME}),
    ("PUT", f"/nodes/{NAME}/role", "master"),
    ("DELETE", "/jobs/999999999", None),
]


def life(os_type: str, node: str) -> list[Call]:
    """Of an instance without disks, which every cluster can have."""
    unchecked = {"ip_check": False, "name_check": False}
    new = {
        "__version__": 1,
        "mode": "create",
        "instance_name": INSTANCE,
        "disk_template": "diskless",
        "disks": [],
        "nics": [{}],
        "os_type": os_type,
        "pnode": node,
        "start": False,
        **unchecked,
    }
    address = f"/instances/{INSTANCE}"
    return [
        ("POST", "/instances", {**new, "nics": []}),
        ("POST", "/instances?dry-run=1", new),
        ("POST", "/instances", new),
        ("POST", "/instances", new),
        ("PUT", f"{address}/startup", None),
        ("PUT", f"{address}/startup", None),
        ("POST", f"{address}/reboot?type=hard", None),
        ("PUT", f"{address}/tags?tag=a", None),
        ("GET", f"{address}/tags", None),
        ("DELETE", f"{address}/tags?tag=b", None),
        ("PUT", f"{address}/modify", {"beparams": {"minmem": 128, "maxmem": 256}}),
        ("PUT", f"{address}/modify", {}),
        ("PUT", f"{address}/rename", {"new_name": f"new-{INSTANCE}", **unchecked}),
        ("POST", f"{address}/disk/0/grow", {"amount": 1024}),
        ("PUT", f"{address}/shutdown", None),
        ("PUT", f"{address}/shutdown", None),
        ("PUT", f"{address}/modify", {"offline": True}),
        ("PUT", f"{address}/startup", None),
        ("POST", f"{address}/reboot?type=hard", None),
        ("PUT", f"{address}/shutdown", None),
        ("PUT", f"{address}/shutdown", {"force": True}),
        ("PUT", f"{address}/modify", {"offline": False}),
        ("PUT", f"{address}/rename", {"new_name": f"new-{INSTANCE}", **unchecked}),
        ("DELETE", f"/instances/new-{INSTANCE}", None),
        ("DELETE", f"/instances/new-{INSTANCE}", None),
    ]


@pytest.fixture
def cluster(ganeti_cluster: RealCluster) -> Iterator[RealCluster]:
    """Whatever a failed test has left of what it makes is removed."""
    with ganeti_cluster.alone():
        first = _newest_job(ganeti_cluster) + 1
        try:
            yield ganeti_cluster
        finally:
            if _ask(ganeti_cluster, "GET", GROUP, None).status_code == 200:
                ganeti_cluster.run("gnt-network", "disconnect", NAME, NAME)
                ganeti_cluster.run("gnt-network", "remove", NAME)
                ganeti_cluster.run("gnt-group", "remove", NAME)
            for name in (INSTANCE, f"new-{INSTANCE}"):
                if _ask(ganeti_cluster, "GET", f"/instances/{name}", None).status_code == 200:
                    ganeti_cluster.run("gnt-instance", "remove", "--force", name)
            ganeti_cluster.run("gnt-job", "archive", *map(str, range(first, _newest_job(ganeti_cluster) + 1)))


def _newest_job(cluster: RealCluster) -> int:
    newest: int = max(job["id"] for job in _ask(cluster, "GET", "/jobs", None).json())
    return newest


def _ask(cluster: RealCluster, method: str, path: str, body: Any) -> httpx.Response:
    content = {} if body is None else {"json": body}
    account = ("admin", "secret")
    # Whose certificate it is, the adapter looks at.
    return httpx.request(method, f"{cluster.url}/2{path}", auth=account, verify=unchecked_tls(), timeout=60, **content)


def _of_cluster(cluster: RealCluster, call: Call) -> Any:
    def job(number: int) -> Any:
        found: list[Any] = []

        def has_ended() -> bool:
            found.append(_ask(cluster, "GET", f"/jobs/{number}", None).json())
            return found[-1]["status"] in ENDED

        wait_until(has_ended)
        return found[-1]

    return _outcome(_ask(cluster, *call), job)


def _of_cell(rapi: RapiCalls, call: Call) -> Any:
    method, path, body = call
    content = {} if body is None else {"json": body}

    def job(number: int) -> Any:
        rapi.fleet.work()
        return rapi.job(number)

    return _outcome(rapi.api.request(method, f"{rapi.base}{path}", **content), job)


def _outcome(response: httpx.Response, job: Callable[[int], Any]) -> Any:
    """What a request has brought: a status, or what the job has brought, texts of errors left out."""
    said = response.json()
    if response.status_code != 200:
        return response.status_code, said["code"], said["explain"]
    if not isinstance(said, int):
        return said
    ended = job(said)
    [result] = ended["opresult"]
    if ended["status"] == "error":
        kind, (_text, *reason) = result
        result = [kind, *reason]
    return ended["status"], result


def test_each_request_ends_as_in_the_cluster(cluster: RealCluster, tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        rapi = RapiCalls(fleet, fleet.api(), "/cells/north/2")
        ours = [(call, _of_cell(rapi, call)) for call in CALLS]
    assert ours == [(call, _of_cluster(cluster, call)) for call in CALLS]


def test_instance_lives_as_in_the_cluster(cluster: RealCluster, tmp_path: Path) -> None:
    nodes = sorted(node["id"] for node in _ask(cluster, "GET", "/nodes", None).json())
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts()
        rapi = RapiCalls(fleet, fleet.api(), "/cells/north/2")
        ours = [(call, _without_result(_of_cell(rapi, call))) for call in life("debian-12", "north-host0")]
    theirs = [_without_result(_of_cluster(cluster, call)) for call in life("noop+default", nodes[0])]
    assert ours == [(call, outcome) for (call, _), outcome in zip(ours, theirs, strict=True)]


def _without_result(outcome: Any) -> Any:
    """Names of nodes differ, and so do uuids."""
    match outcome:
        case ("success", _):
            return "success"
    return outcome
