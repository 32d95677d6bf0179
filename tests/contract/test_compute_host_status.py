"""`host_status` shows administrators what the service of a server's host is like (contracts/nova-servers, 7.3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetlight.manager.operations.hosts.cell_nodes import NewHost
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.amount import Amount
from tests.contract.compute_fleet import MEMBER, Api, compute_fleet, microversion

HOSTS = {"up": "UP", "down": "DOWN", "off": "MAINTENANCE", "unknown": "", None: ""}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        nodes = nodes_in(fleet.native, fleet.cells["north"])
        nodes.add_hosts([NewHost(host, Amount.of_gib(1, 1, 1)) for host in ("up", "down", "off")])
        services = {service.host: service.uuid for service in nodes.services()}
        nodes.update_service(services["down"], disabled=False, disabled_reason=None, forced_down=True)
        nodes.update_service(services["off"], disabled=True, disabled_reason=None, forced_down=False)
        for host in HOSTS:
            # A member that is called like a host must not be taken for one.
            fleet.create("north", host=host, display_name=str(host), metadata={"OS-EXT-SRV-ATTR:host": "up"})
        fleet.index()
        yield fleet.api()


def statuses(api: Api, consistency: str) -> dict[str, Any]:
    headers = {"Fleetlight-Consistency": consistency}
    servers = api.get("/v2.1/servers/detail", microversion("2.16"), headers).json()["servers"]
    return {server["name"]: server["host_status"] for server in servers}


@pytest.mark.parametrize("consistency", ["any", "strong"])
def test_list_shows_the_state_of_each_host_by_every_route(api: Api, consistency: str) -> None:
    assert statuses(api, consistency) == {str(host): status for host, status in HOSTS.items()}


def test_show_has_it_too(api: Api) -> None:
    for server in api.get("/v2.1/servers").json()["servers"]:
        shown = api.get(f"/v2.1/servers/{server['id']}", microversion("2.104")).json()["server"]
        assert shown["host_status"] == {str(host): status for host, status in HOSTS.items()}[server["name"]]


def test_nobody_else_sees_it_and_nobody_before_2_16(api: Api) -> None:
    for headers in ([microversion("2.16"), MEMBER], [microversion("2.15")]):
        for server in api.get("/v2.1/servers/detail", *headers).json()["servers"]:
            assert "host_status" not in server


def test_change_of_a_service_shows_at_once(tmp_path: Path) -> None:
    with compute_fleet(tmp_path) as fleet:
        nodes_in(fleet.native, fleet.cells["north"]).add_hosts([NewHost("h", Amount.of_gib(1, 1, 1))])
        uuid = fleet.create("north", host="h")
        api = fleet.api()

        def status(method: str, path: str, version: str = "2.104", **content: Any) -> Any:
            response = api.request(method, f"/v2.1/{path}", microversion(version), **content)
            assert response.status_code in {200, 202}, response.text
            server = response.json().get("server") or response.json()["servers"][0]
            return server.get("host_status")

        renamed = {"server": {"name": "new"}}
        service = api.get("/v2.1/os-services", microversion("2.53")).json()["services"][0]["id"]
        changes: dict[str, dict[str, Any]] = {
            "MAINTENANCE": {"status": "disabled"},
            "DOWN": {"forced_down": True},
            "UP": {"forced_down": False, "status": "enabled"},
        }
        for expected, change in changes.items():
            changed = api.request("PUT", f"/v2.1/os-services/{service}", microversion("2.53"), json=change)
            assert changed.status_code == 200, changed.text
            assert status("GET", "servers/detail") == status("GET", f"servers/{uuid}") == expected
            assert status("PUT", f"servers/{uuid}", json=renamed) == expected
        assert status("PUT", f"servers/{uuid}", "2.74", json=renamed) is None
        assert status("POST", f"servers/{uuid}/action", "2.75", json={"rebuild": {"imageRef": uuid}}) == "UP"
        member = api.request("PUT", f"/v2.1/servers/{uuid}", MEMBER | microversion("2.75"), json=renamed)
        assert "host_status" not in member.json()["server"]
