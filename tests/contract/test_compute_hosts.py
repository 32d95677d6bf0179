"""Services, availability zones and hypervisors, by microversion."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.native import nodes
from fleetlight.cells.kinds.native.nodes import ComputeService
from fleetlight.cells.model import Cell
from fleetlight.manager.operations.hosts import cell_nodes
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.amount import Amount
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import MEMBER, AnyRequest, Api, ComputeFleet, microversion
from tests.support.values import IMAGE

SERVICE = {"id", "binary", "host", "zone", "status", "state", "updated_at", "disabled_reason"}
SHORT = {"id", "hypervisor_hostname", "state", "status"}
DESCRIBED = SHORT | {"hypervisor_type", "hypervisor_version", "host_ip", "service"}
NUMBERS = {
    "vcpus",
    "memory_mb",
    "local_gb",
    "vcpus_used",
    "memory_mb_used",
    "local_gb_used",
    "free_ram_mb",
    "free_disk_gb",
    "current_workload",
    "running_vms",
    "disk_available_least",
}
ZONES = "/v2.1/os-availability-zone"
HYPERVISORS = "/v2.1/os-hypervisors"
SERVICES = "/v2.1/os-services"
HOSTS = "/v2.1/os-hosts"


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    """Two hosts in the cell north, one in east, none in south; one instance."""
    capacity = Amount.of_gib(vcpus=8, memory_mib=16384, disk_gib=100)
    hosts = [NewHost(f"n{number}", capacity, node=f"n{number}.example.org") for number in (1, 2)]
    nodes_in(fleet.native, fleet.cells["north"]).add_hosts(hosts)
    nodes_in(fleet.native, fleet.cells["east"]).add_hosts([NewHost("e1", capacity, availability_zone="sunrise")])
    fleet.create("north", host="n1", node="n1.example.org", display_name="web")
    return fleet


@pytest.fixture
def api(fleet: ComputeFleet, api: Api) -> Iterator[Api]:
    """Every service is enabled and up again after the test."""
    yield api
    for cell in fleet.cells.values():
        nodes = nodes_in(fleet.native, cell)
        for service in nodes.services():
            nodes.update_service(service.uuid, disabled=False, disabled_reason=None, forced_down=False)


def services(api: Api, version: str = "2.53", query: str = "") -> dict[str, dict[str, Any]]:
    response = api.get(SERVICES + query, microversion(version))
    assert response.status_code == 200, response.text
    return {service["host"]: service for service in response.json()["services"]}


def hypervisors(api: Api, path: str, version: str) -> list[dict[str, Any]]:
    response = api.get(HYPERVISORS + path, microversion(version))
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["hypervisors"]
    return found


@pytest.mark.parametrize(
    ("version", "keys", "id_type"),
    [("2.1", SERVICE, int), ("2.11", SERVICE | {"forced_down"}, int), ("2.53", SERVICE | {"forced_down"}, str)],
)
def test_services_have_exactly_the_keys_of_the_microversion(
    api: Api, version: str, keys: set[str], id_type: type
) -> None:
    found = services(api, version)
    assert list(found) == ["e1", "n1", "n2"]
    assert set(found["e1"]) == keys
    assert isinstance(found["e1"]["id"], id_type)
    assert (found["e1"]["zone"], found["e1"]["status"], found["e1"]["state"]) == ("sunrise", "enabled", "up")


def test_services_are_filtered(api: Api) -> None:
    assert list(services(api, query="?host=n1&binary=nova-compute")) == ["n1"]
    assert services(api, query="?binary=nova-scheduler") == {}
    assert api.get(SERVICES + "?color=red", microversion("2.75")).status_code == 400


def test_services_are_changed_by_word_until_2_52(api: Api) -> None:
    named = {"host": "n1", "binary": "nova-compute"}
    disabled = api.request("PUT", f"{SERVICES}/disable", json=named)
    assert disabled.json() == {"service": named | {"status": "disabled"}}
    reason = api.request("PUT", f"{SERVICES}/disable-log-reason", json=named | {"disabled_reason": "broken"})
    assert reason.json() == {"service": named | {"status": "disabled", "disabled_reason": "broken"}}
    assert (services(api)["n1"]["status"], services(api)["n1"]["disabled_reason"]) == ("disabled", "broken")
    assert api.request("PUT", f"{SERVICES}/enable", json=named).status_code == 200
    assert (services(api)["n1"]["status"], services(api)["n1"]["disabled_reason"]) == ("enabled", None)
    forced = api.request("PUT", f"{SERVICES}/force-down", microversion("2.11"), json=named | {"forced_down": True})
    assert forced.json() == {"service": named | {"forced_down": True}}
    assert services(api)["n1"]["state"] == "down"


class ForgettingNodes:
    """In place of NodeRpcs. forgotten: which nodes of which cells were not to be shown any more as they were."""

    def __init__(self) -> None:
        self.forgotten: list[tuple[str, list[str]]] = []

    def forget(self, cell: Cell, nodes: Collection[str]) -> None:
        self.forgotten.append((cell.name, list(nodes)))


@pytest.mark.usefixtures("api")
def test_what_a_host_said_is_forgotten_when_it_goes_down_and_comes_back(fleet: ComputeFleet) -> None:
    north, remembering = fleet.cells["north"], ForgettingNodes()
    agents = AgentAddresses(fleet.native.engine(north), north)
    agents.set("n1", "10.0.0.1:1811")
    api = fleet.api(nodes=remembering)
    named = {"host": "n1", "binary": "nova-compute"}
    for forced_down in (True, False):
        values = named | {"forced_down": forced_down}
        assert api.request("PUT", f"{SERVICES}/force-down", microversion("2.11"), json=values).status_code == 200
    agents.set("n1", None)
    assert remembering.forgotten == [("north", ["n1.example.org"])] * 2


@pytest.mark.parametrize(
    ("word", "version", "values", "status"),
    [
        ("explode", "2.1", {}, 404),
        ("force-down", "2.10", {}, 404),
        ("force-down", "2.11", {}, 400),
        ("disable-log-reason", "2.1", {}, 400),
        ("enable", "2.1", {"host": "nowhere"}, 404),
        ("enable", "2.1", {"color": "red"}, 400),
        ("enable", "2.1", {"disabled_reason": None}, 400),
        ("enable", "2.11", {"forced_down": None}, 400),
        ("enable", "2.53", {}, 400),
    ],
)
def test_wrong_changes_by_word_are_refused(
    api: Api, word: str, version: str, values: dict[str, Any], status: int
) -> None:
    body = {"host": "n1", "binary": "nova-compute"} | values
    assert api.request("PUT", f"{SERVICES}/{word}", microversion(version), json=body).status_code == status


def test_services_are_changed_by_uuid_from_2_53(api: Api) -> None:
    url, asked = f"{SERVICES}/{services(api)['n2']['id']}", microversion("2.53")
    changed = api.request("PUT", url, asked, json={"status": "disabled", "disabled_reason": "broken"})
    assert changed.json()["service"] == services(api)["n2"]
    assert changed.json()["service"]["disabled_reason"] == "broken"
    assert api.request("PUT", url, asked, json={"forced_down": True}).json()["service"]["status"] == "disabled"
    for wrong in ({}, {"status": "enabled", "disabled_reason": "x"}, {"disabled_reason": "x"}, {"status": "up"}):
        assert api.request("PUT", url, asked, json=wrong).status_code == 400
    unknown = f"{SERVICES}/00000000-0000-4000-8000-000000000000"
    assert api.request("PUT", unknown, asked, json={"status": "enabled"}).status_code == 404
    assert api.request("PUT", f"{SERVICES}/1", asked, json={"status": "enabled"}).status_code == 400


def test_service_is_removed(api: Api, fleet: ComputeFleet) -> None:
    nodes = nodes_in(fleet.native, fleet.cells["south"])
    nodes.add_hosts([NewHost("s1", Amount.of_gib(1, 1, 1))])
    url = f"{SERVICES}/{services(api)['s1']['id']}"
    assert api.request("DELETE", url, microversion("2.53")).status_code == 204
    assert api.request("DELETE", url, microversion("2.53")).status_code == 404
    assert "s1" not in services(api)


@pytest.mark.parametrize("path", [SERVICES, HYPERVISORS, f"{HYPERVISORS}/detail", f"{ZONES}/detail"])
def test_hosts_are_for_administrators(api: Api, path: str) -> None:
    assert api.get(path, MEMBER).status_code == 403


def test_zones_are_those_of_the_services(api: Api) -> None:
    up = {"available": True}
    assert api.get(ZONES, {"X-Roles": "reader"}).json()["availabilityZoneInfo"] == [
        {"zoneName": "nova", "zoneState": up, "hosts": None},
        {"zoneName": "sunrise", "zoneState": up, "hosts": None},
    ]
    api.request("PUT", f"{SERVICES}/disable", json={"host": "e1", "binary": "nova-compute"})
    internal, nova, sunrise = api.get(f"{ZONES}/detail").json()["availabilityZoneInfo"]
    assert internal == {"zoneName": "internal", "zoneState": up, "hosts": {}}
    assert set(nova["hosts"]["n1"]["nova-compute"]) == {"available", "active", "updated_at"}
    assert sunrise == {"zoneName": "sunrise", "zoneState": {"available": False}, "hosts": None}


@pytest.mark.parametrize(
    ("version", "full", "id_type"),
    [
        ("2.1", DESCRIBED | NUMBERS | {"cpu_info"}, int),
        ("2.53", DESCRIBED | NUMBERS | {"cpu_info"}, str),
        ("2.88", DESCRIBED | {"uptime"}, str),
    ],
)
def test_hypervisors_have_exactly_the_keys_of_the_microversion(
    fleet: ComputeFleet, version: str, full: set[str], id_type: type
) -> None:
    moment = system_clock()
    api = fleet.api(clock=lambda: moment)
    short, long = hypervisors(api, "", version)[0], hypervisors(api, "/detail", version)[0]
    assert set(short) == SHORT
    assert isinstance(short["id"], id_type)
    assert set(long) == full
    assert set(long["service"]) == {"id", "host", "disabled_reason"}
    shown = api.get(f"{HYPERVISORS}/{short['id']}", microversion(version)).json()["hypervisor"]
    assert shown == long


def test_processors_are_a_text_until_2_27(api: Api) -> None:
    described = hypervisors(api, "/detail", "2.28")[0]["cpu_info"]
    assert set(described) == {"arch", "model", "vendor", "features", "topology"}
    assert described["topology"] == {"sockets": 1, "cores": 8, "threads": 1}
    assert json.loads(hypervisors(api, "/detail", "2.27")[0]["cpu_info"]) == described


def test_statistics_are_sums_until_2_87(api: Api) -> None:
    numbers = api.get(f"{HYPERVISORS}/statistics").json()["hypervisor_statistics"]
    assert set(numbers) == NUMBERS | {"count"}
    assert (numbers["count"], numbers["vcpus"]) == (3, 24)
    assert api.get(f"{HYPERVISORS}/statistics", microversion("2.87")).status_code == 200
    assert api.get(f"{HYPERVISORS}/statistics", microversion("2.88")).status_code == 404


def test_hypervisors_have_pages_from_2_33(api: Api) -> None:
    asked = microversion("2.33")
    names = []
    url = f"{HYPERVISORS}?limit=2"
    while url:
        page = api.get(url, asked).json()
        names += [item["hypervisor_hostname"] for item in page["hypervisors"]]
        url = page.get("hypervisors_links", [{"href": ""}])[0]["href"]
    assert names == ["e1", "n1.example.org", "n2.example.org"]
    assert len(hypervisors(api, "?limit=2", "2.32")) == 3
    assert api.get(f"{HYPERVISORS}?marker=77", asked).status_code == 400


def test_hypervisors_are_searched_and_show_their_servers(api: Api) -> None:
    (old,) = hypervisors(api, "/n1/search", "2.52")
    assert set(old) == SHORT
    (old,) = hypervisors(api, "/n1/servers", "2.52")
    assert [server["name"] for server in old["servers"]] == ["web"]
    assert "servers" not in hypervisors(api, "/e1/servers", "2.52")[0]
    (new,) = hypervisors(api, "?hypervisor_hostname_pattern=n1&with_servers=true", "2.53")
    assert new["servers"] == old["servers"]
    assert "servers" not in hypervisors(api, "?with_servers=1", "2.74")[0]
    assert hypervisors(api, "?with_servers=1", "2.75")[0]["servers"] == []
    shown = api.get(f"{HYPERVISORS}/{new['id']}?with_servers=1", microversion("2.53")).json()["hypervisor"]
    assert shown["servers"] == old["servers"]


@pytest.mark.parametrize(
    ("path", "version", "status"),
    [
        ("/nothing/search", "2.1", 404),
        ("/n1/search", "2.53", 404),
        ("/n1/servers", "2.53", 404),
        ("?hypervisor_hostname_pattern=nothing", "2.53", 404),
        ("?hypervisor_hostname_pattern=n&limit=1", "2.53", 400),
        ("?with_servers=perhaps", "2.53", 400),
        ("?with_servers=t", "2.53", 400),
        ("?with_servers=1&with_servers=1", "2.53", 400),
        ("?limit=1&limit=1", "2.52", 200),
        ("?limit=1&limit=1", "2.53", 400),
        ("?hypervisor_hostname_pattern=a%20b", "2.53", 400),
        ("?color=red", "2.53", 400),
        ("/77", "2.52", 404),
        ("/77", "2.53", 400),
        ("/1/uptime", "2.88", 404),
    ],
)
def test_wrong_questions_about_hypervisors_are_refused(api: Api, path: str, version: str, status: int) -> None:
    assert api.get(HYPERVISORS + path, microversion(version)).status_code == status


UPTIME = re.compile(r" \d\d:\d\d:\d\d up 0 days,  0:0\d,  0 users,  load average: 0.00, 0.00, 0.00")


@pytest.mark.parametrize("version", ["2.1", "2.53", "2.87", "2.88"])
def test_simulated_host_is_up_since_it_joined_unless_it_is_down(api: Api, version: str) -> None:
    """Until 2.87 by itself, later with the other things about a hypervisor."""
    short = next(each for each in hypervisors(api, "", version) if each["hypervisor_hostname"] == "e1")
    url = f"{HYPERVISORS}/{short['id']}" + ("/uptime" if version != "2.88" else "")
    shown = api.get(url, microversion(version)).json()["hypervisor"]
    assert UPTIME.fullmatch(shown["uptime"]), shown
    assert version == "2.88" or shown == short | {"uptime": shown["uptime"]}
    service = services(api)["e1"]["id"]
    api.request("PUT", f"{SERVICES}/{service}", microversion("2.53"), json={"forced_down": True})
    down = api.get(url, microversion(version))
    assert (down.json()["hypervisor"]["uptime"] is None) if version == "2.88" else (down.status_code == 400)


def test_uptime_is_counted_by_the_clock_that_the_api_is_given(fleet: ComputeFleet) -> None:
    tomorrow = system_clock() + 24 * 3600 * 1_000_000
    shown = hypervisors(fleet.api(clock=lambda: tomorrow), "/detail", "2.88")[0]
    assert " up 1 day, " in shown["uptime"]


def test_hosts_are_listed_until_2_42(api: Api) -> None:
    zones = {host["host_name"]: host["zone"] for host in api.get(HOSTS, microversion("2.42")).json()["hosts"]}
    assert zones == {"e1": "sunrise", "n1": "nova", "n2": "nova"}
    assert api.get(f"{HOSTS}?zone=sunrise").json() == {
        "hosts": [{"host_name": "e1", "service": "compute", "zone": "sunrise"}]
    }
    assert api.get(f"{HOSTS}?zone=nowhere").json() == {"hosts": []}


def test_host_shows_what_its_projects_use(fleet: ComputeFleet, api: Api) -> None:
    body = {"name": "big", "flavorRef": "2", "imageRef": IMAGE, "availability_zone": "nova:n2"}
    created = api.request("POST", "/v2.1/servers", json={"server": body})
    assert created.status_code == 202, created.text
    fleet.work()
    shown = [part["resource"] for part in api.get(f"{HOSTS}/n2").json()["host"]]
    assert {part["host"] for part in shown} == {"n2"}
    amounts = {part["project"]: (part["cpu"], part["memory_mb"], part["disk_gb"]) for part in shown}
    used = (1, 2048, 20)
    assert amounts == {"(total)": (8, 16384, 100), "(used_now)": used, "(used_max)": used, "demo": used}
    assert [part["resource"]["project"] for part in api.get(f"{HOSTS}/e1").json()["host"]] == [
        "(total)",
        "(used_now)",
        "(used_max)",
    ]


@pytest.mark.parametrize("word", ["disable", "Disable", "DISABLE"])
def test_host_is_disabled_and_enabled(api: Api, word: str) -> None:
    changed = api.request("PUT", f"{HOSTS}/n1", json={"status": word})
    assert (changed.status_code, changed.json()) == (200, {"host": "n1", "status": "disabled"})
    assert services(api)["n1"]["status"] == "disabled"
    assert api.request("PUT", f"{HOSTS}/n1", json={"status": "enable"}).json()["status"] == "enabled"
    assert services(api)["n1"]["status"] == "enabled"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nowhere", None, 404),
        ("PUT", "/nowhere", {"status": "enable"}, 404),
        ("PUT", "/n1", {}, 400),
        ("PUT", "/n1", {"status": "broken"}, 400),
        ("PUT", "/n1", {"status": "enable", "color": "red"}, 400),
        ("PUT", "/n1", {"status": "disable", "maintenance_mode": "enable"}, 501),
        ("GET", "/n1/startup", None, 501),
        ("GET", "/n1/shutdown", None, 501),
        ("GET", "/n1/reboot", None, 501),
        ("GET", "/nowhere/reboot", None, 404),
    ],
)
def test_what_hosts_cannot_do_is_refused(api: Api, method: str, path: str, body: Any, status: int) -> None:
    content = {} if body is None else {"json": body}
    assert api.request(method, HOSTS + path, **content).status_code == status
    assert api.request(method, HOSTS + path, MEMBER, **content).status_code == (
        400 if body is not None and status == 400 else 403
    )
    assert api.request(method, HOSTS + path, microversion("2.43"), **content).status_code == 404
    assert services(api)["n1"]["status"] == "enabled"


@pytest.fixture
def api_without_east(fleet: ComputeFleet, api: Api) -> Iterator[Api]:
    """The services were listed before the cell east went down."""
    assert api.get(SERVICES).headers["Fleetlight-Complete"] == "true"
    east = fleet.cells["east"]
    fleet.fleet.add_cell("east", east.kind, "sqlite:////nowhere/east.db", "memory://")
    yield api
    fleet.fleet.add_cell("east", east.kind, east.database_url, "memory://")


def test_services_of_a_cell_that_is_down_are_absent_until_2_68_and_unknown_from_2_69(api_without_east: Api) -> None:
    answer = api_without_east.get(SERVICES, microversion("2.69"))
    assert answer.headers["Fleetlight-Complete"] == "false"
    unknown = {"binary": "nova-compute", "host": "e1", "status": "UNKNOWN"}
    *answering, last = answer.json()["services"]
    assert ([service["host"] for service in answering], last) == (["n1", "n2"], unknown)
    assert all(set(service) == SERVICE | {"forced_down"} for service in answering)
    assert list(services(api_without_east, "2.68")) == ["n1", "n2"]
    assert services(api_without_east, "2.69", "?host=e1") == {"e1": unknown}
    assert services(api_without_east, "2.69", "?host=n1").keys() == {"n1"}
    assert services(api_without_east, "2.69", "?binary=nova-compute").keys() == {"e1", "n1", "n2"}
    assert services(api_without_east, "2.69", "?binary=nova-scheduler") == {}


@pytest.mark.parametrize(
    ("method", "path", "version", "body"),
    [
        ("GET", f"{HOSTS}/e1", "2.42", None),
        ("PUT", f"{HOSTS}/e1", "2.42", {"status": "disable"}),
        ("GET", f"{HYPERVISORS}/1", "2.52", None),
        ("GET", f"{HYPERVISORS}/e1/search", "2.52", None),
        ("GET", f"{HYPERVISORS}?marker=1", "2.52", None),
        ("GET", "/v2.1/os-migrations?marker=00000000-0000-4000-8000-000000000000", "2.59", None),
        ("GET", f"{HYPERVISORS}/00000000-0000-4000-8000-000000000000", "2.53", None),
        ("GET", f"{HYPERVISORS}?hypervisor_hostname_pattern=e1", "2.53", None),
        ("PUT", f"{SERVICES}/disable", "2.52", {"host": "e1", "binary": "nova-compute"}),
        ("PUT", f"{SERVICES}/00000000-0000-4000-8000-000000000000", "2.53", {"status": "enabled"}),
        ("DELETE", f"{SERVICES}/00000000-0000-4000-8000-000000000000", "2.53", None),
    ],
)
def test_what_may_be_in_a_cell_that_is_down_is_not_called_unknown(
    api_without_east: Api, method: str, path: str, version: str, body: Any
) -> None:
    content = {} if body is None else {"json": body}
    answer = api_without_east.request(method, path, microversion(version), **content)
    expected = (500, "computeFault") if method == "GET" else (503, "serviceUnavailable")
    assert (answer.status_code, *answer.json()) == expected, answer.text


@pytest.mark.parametrize("place", [{"host": "e1"}, {"hypervisor_hostname": "e1"}, {"availability_zone": "sunrise:e1"}])
def test_server_for_a_host_whose_cell_is_down_is_not_put_elsewhere(
    fleet: ComputeFleet, api_without_east: Api, place: dict[str, str]
) -> None:
    before = fleet.fleet.quotas.counts("demo")
    server = {"name": "web", "flavorRef": "1", "imageRef": IMAGE, "networks": "none", **place}
    refused = api_without_east.request("POST", "/v2.1/servers", microversion("2.74"), json={"server": server})
    assert refused.status_code == 503, refused.text
    assert fleet.fleet.quotas.counts("demo") == before


def test_what_a_cell_has_that_answers_is_found_while_another_one_is_down(api_without_east: Api) -> None:
    assert api_without_east.get(f"{HOSTS}/n1").status_code == 200
    for version in ("2.52", "2.53"):
        node = hypervisors(api_without_east, "", version)[0]
        path = f"{HYPERVISORS}/{node['id']}"
        assert api_without_east.get(path, microversion(version)).json()["hypervisor"]["id"] == node["id"]


@pytest.fixture
def east_goes_down_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell east says which nodes it has, and is down when it is asked for their servers."""
    servers_on = CellNodes.servers_on

    def ask(self: CellNodes, hosts: Collection[str]) -> Mapping[str, Sequence[tuple[str, str]]]:
        if "e1" in hosts:
            raise CellUnreachableError("east", "it has just gone down")
        return servers_on(self, hosts)

    monkeypatch.setattr(CellNodes, "servers_on", ask)


@pytest.mark.usefixtures("east_goes_down_between")
@pytest.mark.parametrize("path", ["", "/detail"])
def test_a_cell_that_goes_down_before_it_says_which_servers_it_has_makes_a_list_incomplete(api: Api, path: str) -> None:
    newest = microversion("2.75")
    whole = api.get(f"{HYPERVISORS}{path}", newest)
    assert (len(whole.json()["hypervisors"]), whole.headers["Fleetlight-Complete"]) == (3, "true")
    answer = api.get(f"{HYPERVISORS}{path}?with_servers=true", newest)
    assert answer.headers["Fleetlight-Complete"] == "false"
    shown = [item["hypervisor_hostname"] for item in answer.json()["hypervisors"] if "servers" in item]
    assert shown == ["n1.example.org", "n2.example.org"]


@pytest.mark.usefixtures("east_goes_down_between")
def test_pages_of_hypervisors_go_on_behind_a_cell_that_went_down(api: Api) -> None:
    seen, url = [], f"{HYPERVISORS}?with_servers=true&limit=1"
    while url:
        page = api.get(url, microversion("2.75")).json()
        seen += [item["hypervisor_hostname"] for item in page["hypervisors"]]
        url = page["hypervisors_links"][0]["href"] if "hypervisors_links" in page else ""
    assert seen == ["n1.example.org", "n2.example.org"]


@pytest.mark.usefixtures("east_goes_down_between")
def test_servers_of_one_host_whose_cell_went_down_are_not_said_to_be_none(api: Api) -> None:
    east = next(item for item in hypervisors(api, "", "2.53") if item["hypervisor_hostname"] == "e1")
    asked = [
        (f"/{east['id']}?with_servers=true", "2.75"),
        ("/e1/servers", "2.52"),
    ]
    for path, version in asked:
        answer = api.get(HYPERVISORS + path, microversion(version))
        assert (answer.status_code, answer.json()["computeFault"]["code"]) == (500, 500), answer.text


def test_no_host_has_run_an_audit_of_what_ran(api: Api) -> None:
    url = "/v2.1/os-instance_usage_audit_log"
    shown = api.get(f"{url}/2026-03-04 05:06:07").json()["instance_usage_audit_log"]
    assert shown == {
        "hosts_not_run": ["e1", "n1", "n2"],
        "log": {},
        "num_hosts": 3,
        "num_hosts_done": 0,
        "num_hosts_not_run": 3,
        "num_hosts_running": 0,
        "overall_status": "0 of 3 hosts done. 0 errors.",
        "period_beginning": "2026-02-01 00:00:00",
        "period_ending": "2026-03-01 00:00:00",
        "total_errors": 0,
        "total_instances": 0,
    }
    assert set(api.get(url).json()["instance_usage_audit_logs"]) == set(shown)
    for wrong in ("yesterday", "0001-01-01 00:00:00"):
        assert api.get(f"{url}/{wrong}").status_code == 400
    assert api.get(url, MEMBER).status_code == 403


def test_one_host_is_asked_for_alone(api: Api) -> None:
    node, service = hypervisors(api, "", "2.53")[0], services(api)["n1"]
    asked = ["?hypervisor_hostname_pattern=N1.", f"/{node['id']}"]
    requests = [f"{HOSTS}/n1", *(HYPERVISORS + each for each in asked), f"{SERVICES}?host=n1"]
    with rows_read() as read:
        for url in requests:
            read.clear()
            assert api.get(url, microversion("2.42" if HOSTS in url else "2.53")).status_code == 200
            assert sum(read.values()) <= 1, (url, read)
        read.clear()
        changed = api.request("PUT", f"{SERVICES}/{service['id']}", microversion("2.53"), json={"status": "enabled"})
        assert (changed.status_code, sum(read.values())) == (200, 2), "once before, once under its lock"


@contextmanager
def rows_read() -> Iterator[Counter[str]]:
    """How many services and nodes are made of rows meanwhile, by their class."""
    read: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((nodes, "_node"), (nodes, "to_service"), (cell_nodes, "to_service")):
            made = getattr(module, name)
            patch.setattr(module, name, lambda row, made=made, name=name: read.update([name]) or made(row))
        yield read


def test_two_who_change_a_service_at_once_undo_nothing_of_each_other(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    service = next(each for each in api.get(SERVICES, microversion("2.53")).json()["services"] if each["host"] == "n1")
    update = CellNodes.update_service

    def after_somebody_else(self: CellNodes, uuid: str, **values: Any) -> ComputeService:
        update(self, uuid, disabled=False, disabled_reason=None, forced_down=True)
        return update(self, uuid, **values)

    monkeypatch.setattr(CellNodes, "update_service", after_somebody_else)
    url = f"{SERVICES}/{service['id']}"
    changed = api.request("PUT", url, microversion("2.53"), json={"status": "disabled"}).json()["service"]
    assert (changed["status"], changed["forced_down"], changed["state"]) == ("disabled", True, "down")


def test_hosts_and_services_that_are_changed_and_removed_at_once_are_as_one_of_them_says(
    fleet_of_any_database: ComputeFleet,
) -> None:
    fleet = fleet_of_any_database
    fleet.add_hosts(1)
    api, name = fleet.api(), "north-host0"
    (service,) = nodes_in(fleet.native, fleet.cells["north"]).services(host=name)
    one, by_uuid, by_host = f"{SERVICES}/{service.uuid}", microversion("2.53"), {"host": name, "binary": "nova-compute"}
    changes: list[AnyRequest] = [
        ("PUT", f"{HOSTS}/{name}", {}, {"json": {"status": "disable"}}),
        ("PUT", f"{HOSTS}/{name}", {}, {"json": {"status": "enable"}}),
        ("PUT", f"{SERVICES}/disable-log-reason", {}, {"json": by_host | {"disabled_reason": "x"}}),
        ("PUT", one, by_uuid, {"json": {"status": "disabled", "disabled_reason": "y"}}),
        ("PUT", one, by_uuid, {"json": {"forced_down": True}}),
    ]
    answers = api.together(changes * 3)
    assert [answer.status_code for answer in answers] == [200] * 15, [answer.text for answer in answers]
    left, disabled = services(api)[name], [("disabled", reason) for reason in (None, "x", "y")]
    assert (left["status"], left["disabled_reason"]) in {("enabled", None), *disabled}
    assert left["state"] == "down"
    removal: AnyRequest = ("DELETE", one, by_uuid, {})
    statuses = [answer.status_code for answer in api.together([*changes, removal, *changes, removal, *changes])]
    removals = sorted(statuses[5:12:6])
    assert removals == [204, 404]
    assert {*statuses} <= {200, 204, 404}
    assert name not in services(api)
    assert api.get(f"{HOSTS}/{name}").status_code == 404


def test_host_that_is_removed_in_the_same_moment_is_not_there(
    api: Api, fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    capacity = Amount.of_gib(vcpus=8, memory_mib=16384, disk_gib=100)
    nodes_in(fleet.native, fleet.cells["south"]).add_hosts([NewHost("s1", capacity)])
    update = CellNodes.update_service

    def after_somebody_else(self: CellNodes, uuid: str, **values: Any) -> ComputeService:
        self.remove_service(uuid)
        return update(self, uuid, **values)

    monkeypatch.setattr(CellNodes, "update_service", after_somebody_else)
    answer = api.request("PUT", f"{HOSTS}/s1", json={"status": "disable"})
    assert (answer.status_code, list(answer.json())) == (404, ["itemNotFound"])
    monkeypatch.undo()
