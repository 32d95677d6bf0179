"""`POST /os-server-external-events`, by microversion: each event is answered by itself."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.identity import NoIdentity
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, microversion

URL = "/v2.1/os-server-external-events"
NOWHERE = "11111111-2222-4333-8444-555555555555"
ADMIN: dict[str, str] = {}


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    fleet.add_hosts()
    return fleet


@pytest.fixture(scope="module")
def placed(fleet: ComputeFleet) -> str:
    return fleet.create("north", host="north-host0", node="north-host0")


def post(api: Api, *events: dict[str, Any], version: str = "2.104", caller: dict[str, str] = ADMIN) -> httpx.Response:
    return api.request("POST", URL, caller | microversion(version), json={"events": list(events)})


def test_event_for_a_server_with_a_host_is_completed(api: Api, placed: str) -> None:
    event = {"name": "network-changed", "server_uuid": placed, "status": "in-progress", "tag": "t"}
    response = post(api, event, version="2.1")
    assert response.status_code == 200, response.text
    assert response.json() == {"events": [event | {"status": "completed", "code": 200}]}
    without_tag = {"name": "network-vif-plugged", "server_uuid": placed}
    assert post(api, without_tag).json() == {"events": [without_tag | {"status": "completed", "code": 200}]}


def test_each_event_that_reaches_no_host_says_why(api: Api, fleet: ComputeFleet, placed: str) -> None:
    unplaced = fleet.create("east")
    deleted = fleet.create("south", host="south-host0", deleted=True, vm_state="deleted")
    names = ("network-changed",) * 4 + ("volume-extended",)
    servers = (placed, unplaced, deleted, NOWHERE, placed)
    response = post(api, *({"name": name, "server_uuid": uuid} for name, uuid in zip(names, servers, strict=True)))
    assert response.status_code == 207
    answers = [(event["code"], event["status"]) for event in response.json()["events"]]
    assert answers == [(200, "completed"), (422, "failed"), (404, "failed"), (404, "failed"), (400, "failed")]
    assert [event["server_uuid"] for event in response.json()["events"]] == list(servers)


@pytest.mark.parametrize(
    ("name", "since"),
    [("volume-extended", 51), ("power-update", 76), ("accelerator-request-bound", 82), ("volume-reimaged", 93)],
)
def test_names_are_known_from_their_microversion_on(api: Api, placed: str, name: str, since: int) -> None:
    event = {"name": name, "server_uuid": placed, "tag": "t"}
    assert post(api, event, version=f"2.{since - 1}").status_code == 400
    assert post(api, event, version=f"2.{since}").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"events": []},
        {"events": [{"name": "network-changed"}]},
        {"events": [{"name": "nothing", "server_uuid": NOWHERE}]},
        {"events": [{"name": "network-changed", "server_uuid": "web"}]},
        {"events": [{"name": "network-changed", "server_uuid": NOWHERE, "status": "done"}]},
        {"events": [{"name": "network-changed", "server_uuid": NOWHERE, "tag": None}]},
        {"events": [{"name": "network-changed", "server_uuid": NOWHERE, "tag": "t" * 256}]},
        {"events": [{"name": "network-changed", "server_uuid": NOWHERE, "code": 200}]},
    ],
)
def test_wrong_events_are_refused(api: Api, body: Any) -> None:
    assert api.request("POST", URL, json=body).status_code == 400


class _Service(NoIdentity):
    """Whoever calls is a service."""

    async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
        return replace(await super().authenticate(headers, connection), roles=frozenset({"service"}))


def test_services_and_administrators_send_events_and_nobody_else(fleet: ComputeFleet, api: Api, placed: str) -> None:
    event = {"name": "network-changed", "server_uuid": placed}
    assert post(fleet.api(identity=_Service()), event).status_code == 200
    refused = post(api, event, caller=MEMBER)
    assert refused.status_code == 403
    assert "os_compute_api:os-server-external-events:create" in refused.text


def test_event_for_a_cell_that_is_down_is_an_error(api: Api, fleet: ComputeFleet) -> None:
    uuid = fleet.create("east", host="east-host0")
    east = fleet.cells["east"]
    fleet.fleet.add_cell("east", east.kind, "sqlite:////nowhere/east.db", "memory://")
    try:
        assert post(api, {"name": "network-changed", "server_uuid": uuid}).status_code == 503
    finally:
        fleet.fleet.add_cell("east", east.kind, east.database_url, "memory://")
