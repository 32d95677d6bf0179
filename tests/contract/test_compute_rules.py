"""Rules of the contract that no other test states, section by section (contracts/nova-rest)."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from fleetlight.cells.fleet.compute.default_images import DEFAULT_IMAGES
from fleetlight.cells.fleet.compute.quotas import DEFAULT_CLASS
from fleetlight.manager.operations.native_cells import nodes_in
from tests.contract.compute_fleet import Api, ComputeFleet, microversion
from tests.contract.identity_site import Site

IMAGE = DEFAULT_IMAGES[0].id
UNKNOWN = "11111111-2222-4333-8444-555555555555"
SERVER = {"name": "web", "flavorRef": "1", "imageRef": IMAGE, "networks": "none"}
DEVICE = {"uuid": IMAGE, "source_type": "image", "destination_type": "local", "boot_index": 0, "tag": "a"}
NEWEST = "2.104"


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    fleet.add_hosts(1)
    fleet.fleet.quotas.set_class(DEFAULT_CLASS, {"instances": 100})
    return fleet


@pytest.fixture(scope="module")
def server(fleet: ComputeFleet) -> str:
    """A server that runs, and nobody changes."""
    return fleet.create("north", host="north-host0", flavor=fleet.fleet.flavors.find("1").payload())


def send(
    api: Api, method: str, path: str, version: str, body: object = None, *, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    return api.request(method, f"/v2.1{path}", {**(headers or {}), **microversion(version)}, json=body)


Row = tuple[str, str, str, object, int]
ROWS: Mapping[str, list[Row]] = {
    "1.2 what may be null, and what may not": [
        ("2.37", "POST", "/servers", {"server": SERVER | {name: None}}, 400)
        for name in ("key_name", "availability_zone", "security_groups", "accessIPv4", "user_data", "imageRef")
    ],
    "1.3 tags of block devices come, go and come back": [
        ("2.31", "POST", "/servers", {"server": SERVER | {"block_device_mapping_v2": [DEVICE], "networks": []}}, 400),
        ("2.32", "POST", "/servers", {"server": SERVER | {"block_device_mapping_v2": [DEVICE], "networks": []}}, 202),
        ("2.33", "POST", "/servers", {"server": SERVER | {"block_device_mapping_v2": [DEVICE], "networks": []}}, 400),
        ("2.41", "POST", "/servers", {"server": SERVER | {"block_device_mapping_v2": [DEVICE], "networks": []}}, 400),
        ("2.42", "POST", "/servers", {"server": SERVER | {"block_device_mapping_v2": [DEVICE], "networks": []}}, 202),
    ],
    "1.2 tags of networks come and go": [
        ("2.31", "POST", "/servers", {"server": SERVER | {"networks": [{"uuid": UNKNOWN, "tag": None}]}}, 400),
        ("2.32", "POST", "/servers", {"server": SERVER | {"networks": [{"uuid": UNKNOWN, "tag": "a"}]}}, 202),
        ("2.37", "POST", "/servers", {"server": SERVER | {"networks": [{"uuid": UNKNOWN, "tag": "a"}]}}, 400),
        ("2.42", "POST", "/servers", {"server": SERVER | {"networks": [{"uuid": UNKNOWN, "tag": "a"}]}}, 202),
    ],
    "9.1 what microversions add and take away": [
        ("2.36", "POST", "/servers", {"server": {**SERVER, "networks": []}}, 202),
        ("2.37", "POST", "/servers", {"server": {key: SERVER[key] for key in SERVER if key != "networks"}}, 400),
        ("2.36", "POST", "/servers", {"server": SERVER}, 400),
        ("2.57", "POST", "/servers", {"server": SERVER | {"personality": []}}, 400),
        ("2.51", "POST", "/servers", {"server": SERVER | {"tags": ["a"]}}, 400),
        ("2.73", "POST", "/servers", {"server": SERVER | {"host": "north-host0"}}, 400),
    ],
    "2.3 what was removed for good is gone before anything is looked up": [
        ("2.1", "POST", f"/servers/{UNKNOWN}/action", {"resetNetwork": None}, 410),
        ("2.1", "GET", f"/servers/{UNKNOWN}/os-virtual-interfaces", None, 410),
        ("2.104", "GET", f"/servers/{UNKNOWN}/consoles", None, 410),
        ("2.1", "GET", "/os-agents", None, 410),
        ("2.1", "DELETE", "/os-agents/1", None, 410),
        ("2.1", "GET", "/os-cells/detail", None, 410),
        ("2.1", "GET", "/os-fixed-ips/10.0.0.1", None, 410),
        ("2.1", "GET", "/os-fping", None, 410),
        ("2.1", "PUT", "/os-floating-ips-bulk/delete", {}, 410),
        ("2.1", "GET", "/os-floating-ip-dns/a/entries/b", None, 410),
    ],
    "2.3 unshelve says where, if it says something": [
        ("2.90", "POST", "/servers/{server}/action", {"unshelve": {}}, 400),
        ("2.91", "POST", "/servers/{server}/action", {"unshelve": {"host": None}}, 400),
        ("2.91", "POST", "/servers/{server}/action", {"unshelve": {"availability_zone": None}}, 409),
    ],
    "2.4 a rebuild may not set more metadata than the quota has": [
        (
            "2.1",
            "POST",
            "/servers/{server}/action",
            {"rebuild": {"imageRef": IMAGE, "metadata": {f"key{number}": "" for number in range(129)}}},
            403,
        ),
    ],
    "3.2 a tag is in the address, not in the body": [
        ("2.26", "PUT", "/servers/{server}/tags/a", {"tag": "a"}, 400),
        ("2.26", "PUT", "/servers/{server}/tags/a", None, 201),
    ],
    "3.5 to 3.7 bodies are checked before the server is looked up": [
        ("2.22", "POST", f"/servers/{UNKNOWN}/migrations/1/action", {"force_complete": True}, 400),
        ("2.22", "POST", f"/servers/{UNKNOWN}/migrations/1/action", {"force_complete": None}, 404),
        ("2.6", "POST", "/servers/{server}/remote-consoles", {"remote_console": {"protocol": "vnc"}}, 400),
        *(
            (
                version,
                "POST",
                f"/servers/{of}/remote-consoles",
                {"remote_console": {"protocol": protocol, "type": kind}},
                status,
            )
            for version, of, protocol, kind, status in (
                ("2.7", "{server}", "mks", "webmks", 400),
                ("2.8", "{server}", "mks", "webmks", 501),
                ("2.6", UNKNOWN, "rdp", "rdp-html5", 404),
                ("2.6", "{server}", "rdp", "rdp-html5", 400),
                ("2.6", "{server}", "vnc", "xvpvnc", 501),
            )
        ),
        ("2.1", "POST", "/servers/{server}/os-interface", {"interfaceAttachment": {"net": UNKNOWN}}, 400),
        ("2.1", "POST", "/servers/{server}/os-interface", {}, 501),
        (
            "2.1",
            "POST",
            "/servers/{server}/os-interface",
            {"interfaceAttachment": {"net_id": UNKNOWN, "port_id": UNKNOWN}},
            400,
        ),
        ("2.48", "POST", "/servers/{server}/os-volume_attachments", {"volumeAttachment": {"tag": "a"}}, 400),
        (
            "2.49",
            "POST",
            "/servers/{server}/os-volume_attachments",
            {"volumeAttachment": {"volumeId": UNKNOWN, "tag": "a"}},
            501,
        ),
    ],
    "4.6 only compute services can be changed, and numbers are numbers": [
        ("2.1", "PUT", "/os-services/disable", {"host": "north-host0", "binary": "nova-conductor"}, 400),
        ("2.52", "DELETE", "/os-services/one", None, 400),
        ("2.53", "PUT", "/os-services/disable", {"status": "disabled"}, 400),
    ],
}


@pytest.mark.parametrize("rule", ROWS)
def test_rule_holds(api: Api, server: str, rule: str) -> None:
    for version, method, path, body, status in ROWS[rule]:
        response = send(api, method, path.replace("{server}", server), version, body)
        assert response.status_code == status, (version, method, path, body, response.text)


@pytest.mark.parametrize("media_type", ["application/xml", "text/plain", "application/x-www-form-urlencoded"])
def test_body_that_is_no_json_is_refused_by_its_type(api: Api, media_type: str) -> None:
    response = api.request("POST", "/v2.1/servers", {"Content-Type": media_type}, content=b"{}")
    assert (response.status_code, "badMediaType" in response.json()) == (415, True)


def test_administrators_see_the_host_status_wherever_a_whole_server_is_shown(api: Api, fleet: ComputeFleet) -> None:
    """From 2.75 on an update and a rebuild answer with what the show of that microversion has (2.1, 2.4)."""
    uuid = fleet.create("north", host="north-host0", flavor=fleet.fleet.flavors.find("1").payload())
    path, rebuild = f"/servers/{uuid}", {"rebuild": {"imageRef": IMAGE}}
    for version in ("2.75", NEWEST):
        shown = set(send(api, "GET", path, version).json()["server"])
        assert "host_status" in shown
        assert set(send(api, "PUT", path, version, {"server": {}}).json()["server"]) == shown
    rebuilt = set(send(api, "POST", f"{path}/action", NEWEST, rebuild).json()["server"])
    assert rebuilt == (shown - {"OS-EXT-SRV-ATTR:user_data", "fault"}) | {"adminPass", "key_name", "user_data"}


def test_guest_cannot_be_moved_off_a_host_that_is_down(api: Api, fleet: ComputeFleet) -> None:
    """2.3: resize and migrate need the host up; evacuate needs it down."""
    uuid = fleet.create("east", host="east-host0", flavor=fleet.fleet.flavors.find("1").payload())
    nodes = nodes_in(fleet.native, fleet.cells["east"])
    service = nodes.services()[0].uuid
    nodes.update_service(service, disabled=False, disabled_reason=None, forced_down=True)
    moves: tuple[dict[str, Any], ...] = ({"resize": {"flavorRef": "2"}}, {"migrate": None})
    for body in moves:
        response = send(api, "POST", f"/servers/{uuid}/action", "2.1", body)
        assert (response.status_code, "conflictingRequest" in response.json()) == (409, True)
    nodes.update_service(service, disabled=False, disabled_reason=None, forced_down=False)


def test_host_name_of_a_name_without_letters_is_made_of_the_uuid(api: Api) -> None:
    created = send(api, "POST", "/servers", "2.37", {"server": SERVER | {"name": "…"}}).json()["server"]["id"]
    shown = send(api, "GET", f"/servers/{created}", "2.3").json()["server"]
    assert shown["OS-EXT-SRV-ATTR:hostname"] == f"Server-{created}"


def test_image_must_be_there_where_the_catalog_names_our_image_service(
    fleet: ComputeFleet, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any image is taken where it may be one of another service."""
    site = Site(fleet, tmp_path_factory.mktemp("users"))
    token = {"X-Auth-Token": site.log_in("ada")}
    for image, status in ((UNKNOWN, 400), (IMAGE.upper(), 202)):
        response = send(site.api, "POST", "/servers", "2.37", {"server": SERVER | {"imageRef": image}}, headers=token)
        assert response.status_code == status, response.text
    uuid = response.json()["server"]["id"]
    fleet.work()
    for body in ({"rebuild": {"imageRef": UNKNOWN}}, {"rescue": {"rescue_image_ref": UNKNOWN}}):
        assert send(site.api, "POST", f"/servers/{uuid}/action", "2.1", body, headers=token).status_code == 400
    assert send(fleet.api(), "POST", "/servers", "2.37", {"server": SERVER | {"imageRef": UNKNOWN}}).status_code == 202
