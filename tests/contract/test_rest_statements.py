"""Statements of contracts/nova-rest about single requests, one line each: microversion, what is asked for, status.

What takes more than one request is in the tests of its resource.
"""

from typing import Any

import pytest

from fleetlight.cells.fleet.compute.default_images import DEFAULT_IMAGES
from fleetlight.cells.fleet.compute.quotas import DEFAULT_CLASS
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, microversion

IMAGE = DEFAULT_IMAGES[0].id
UNKNOWN = "11111111-2222-4333-8444-555555555555"
ROOT = {"source_type": "image", "destination_type": "local", "boot_index": 0, "uuid": IMAGE}
BLANK = {"source_type": "blank", "destination_type": "local", "boot_index": -1}
VOLUME = {"source_type": "volume", "destination_type": "volume", "boot_index": -1}
NO_NETWORK: dict[str, Any] = {"networks": "none"}


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    """Nobody works: what is created stays as it was accepted."""
    fleet.add_hosts(1)
    fleet.fleet.quotas.set_class(DEFAULT_CLASS, dict.fromkeys(("instances", "cores", "ram"), -1))
    return fleet


def create(api: Api, version: str, values: dict[str, Any], hints: object = None) -> Any:
    has_networks = int(version.split(".")[1]) >= 37
    server: dict[str, Any] = {
        "name": "web",
        "flavorRef": "1",
        "imageRef": IMAGE,
        **(NO_NETWORK if has_networks else {}),
        **values,
    }
    document: dict[str, Any] = {"server": {name: value for name, value in server.items() if value is not ...}}
    if hints is not None:
        document["os:scheduler_hints"] = hints
    return api.request("POST", "/v2.1/servers", microversion(version), json=document)


CREATE: list[tuple[str, dict[str, Any], int]] = [
    # 0: booleans and integers
    *(
        ("2.37", {"config_drive": word}, 202)
        for word in (True, "true", "TRUE", "on", "Yes", "1", False, "Off", "no", "0")
    ),
    *(("2.37", {"config_drive": word}, 400) for word in ("maybe", "tRUE", 1, 0, None)),
    *(("2.37", {"min_count": count}, status) for count, status in (("1", 202), (0, 400), ("one", 400))),
    # 1.2: names, references, texts
    *(("2.1", {"name": name}, 400) for name in (..., "", "web ", "x" * 256, "a\tb")),
    *(("2.1", {"flavorRef": flavor}, 400) for flavor in (..., "", "no-such")),
    *(("2.1", {"flavorRef": flavor}, 202) for flavor in (1, "http://nova/flavors/1")),
    *(("2.1", {"imageRef": image}, 400) for image in (..., "", "no-uuid")),
    *(("2.1", {"metadata": items}, 400) for items in ({"a": 1}, {"a": "x" * 256}, {"ä": "x"}, {"": "x"})),
    *(("2.1", {"accessIPv4": address}, 400) for address in ("", "::1")),
    *(("2.1", {"accessIPv6": address}, 400) for address in ("", "10.0.0.1")),
    *(("2.1", {"OS-DCF:diskConfig": word}, status) for word, status in (("AUTO", 202), ("auto", 400))),
    ("2.1", {"user_data": "x" * 65536}, 400),
    ("2.1", {"security_groups": ["web"]}, 400),
    ("2.1", {"os:scheduler_hints": {}}, 400),
    # networks
    *(("2.37", {"networks": networks}, 202) for networks in ("auto", "none", [{"uuid": UNKNOWN}])),
    *(("2.37", {"networks": networks}, 400) for networks in ("any", [{"port": UNKNOWN, "fixed_ip": "10.0.0.1"}])),
    ("2.37", {"networks": []}, 202),
    ("2.37", {"networks": [{"port": UNKNOWN}, {"port": UNKNOWN}]}, 400),
    ("2.37", {"networks": [{"uuid": UNKNOWN, "fixed_ip": "10.0.0.1"}], "max_count": 2}, 400),
    # files
    ("2.56", {"personality": [{"path": "/a", "contents": "aGk="}]}, 202),
    ("2.56", {"personality": [{"path": "/a", "contents": "aGk="}] * 6}, 403),
    ("2.56", {"personality": [{"path": "/" + "a" * 255, "contents": "aGk="}]}, 403),
    ("2.56", {"personality": [{"path": "/a", "contents": "eHh4" * 3500}]}, 403),
    # what microversions add
    ("2.18", {"description": "x"}, 400),
    ("2.19", {"description": None}, 202),
    ("2.52", {"tags": ["a", "a"]}, 202),
    *(("2.52", {"tags": tags}, 400) for tags in (["a,b"], ["a/b"], [""], ["x" * 61], [f"t{n}" for n in range(51)])),
    ("2.62", {"trusted_image_certificates": ["a"]}, 400),
    *(("2.63", {"trusted_image_certificates": names}, 202) for names in (["a"], None)),
    *(("2.63", {"trusted_image_certificates": names}, 400) for names in ([], [f"c{n}" for n in range(51)])),
    ("2.74", {"hypervisor_hostname": "north-host0"}, 202),
    ("2.74", {"host": "north-host0", "availability_zone": "north:north-host0"}, 400),
    ("2.89", {"hostname": "web"}, 400),
    *(("2.90", {"hostname": name}, 400) for name in ("a", "-ab", "ab-", "a" * 64, "a.b")),
    ("2.94", {"hostname": "a.b.example"}, 202),
    # zones
    *(("2.1", {"availability_zone": zone}, 202) for zone in ("north", "north:north-host0", "north::north-host0")),
    ("2.1", {"availability_zone": "south:north-host0:north-host0"}, 202),
    # 1.3: block devices
    ("2.1", {"block_device_mapping_v2": [ROOT | {"boot_index": "0"}]}, 202),
    ("2.1", {"block_device_mapping_v2": [ROOT], "imageRef": ...}, 400),
    ("2.1", {"block_device_mapping_v2": [ROOT], "block_device_mapping": [{"volume_id": UNKNOWN}]}, 400),
    *(
        ("2.67", {"block_device_mapping_v2": [ROOT, *more]}, 400)
        for more in (
            [ROOT],
            [BLANK | {"uuid": UNKNOWN}],
            [BLANK | {"volume_type": "fast"}],
            [VOLUME],
            [VOLUME | {"uuid": UNKNOWN, "volume_type": "fast"}],
            [BLANK | {"destination_type": "volume"}],
            [BLANK] * 3,
            [BLANK | {"volume_size": 0}],
            [BLANK | {"source_type": "tape"}],
            [BLANK | {"colour": "red"}],
        )
    ),
    ("2.37", {"block_device_mapping_v2": [ROOT | {"destination_type": "volume"}], "imageRef": ...}, 400),
    ("2.37", {"block_device_mapping_v2": [BLANK], "imageRef": ...}, 400),
    ("2.66", {"block_device_mapping_v2": [ROOT, BLANK | {"destination_type": "volume", "volume_type": "x"}]}, 400),
]


@pytest.mark.parametrize(("version", "values", "status"), CREATE)
def test_creation(api: Api, version: str, values: dict[str, Any], status: int) -> None:
    response = create(api, version, values)
    assert response.status_code == status, response.text
    if status == 202:
        assert set(response.json()["server"]) == {"id", "links", "OS-DCF:diskConfig", "security_groups", "adminPass"}


@pytest.mark.parametrize(
    ("hint", "value", "status"),
    [
        ("group", "no-uuid", 400),
        ("different_host", [UNKNOWN], 202),
        ("same_host", "no-uuid", 202),  # of a single one Nova's schema says only that it is text
        ("same_host", ["no-uuid"], 400),
        ("query", "[]", 202),
        ("query", {"a": 1}, 202),
        ("query", 5, 400),
        ("target_cell", 5, 400),
        ("different_cell", ["north"], 202),
        ("build_near_host_ip", "here", 400),
        ("build_near_host_ip", "10.0.0.1", 202),
        ("cidr", "24", 400),
        ("cidr", "/24", 202),
        ("anything", {"else": [1]}, 202),
    ],
)
def test_hint(api: Api, hint: str, value: object, status: int) -> None:
    response = create(api, "2.37", {}, {hint: value})
    assert response.status_code == status, response.text


OF_LISTS = ("flavors", "os-keypairs", "os-services", "os-simple-tenant-usage", "limits", "os-server-groups")
OF_OTHERS = ("os-availability-zone", "os-availability-zone/detail", "os-aggregates", "extensions", "flavors/1")


@pytest.mark.parametrize(
    ("path", "strict_since"),
    [
        *((path, 75) for path in (*OF_LISTS, "os-quota-sets/demo", "os-quota-sets/demo/detail", "servers")),
        *((path, 102) for path in (*OF_OTHERS, "flavors/1/os-extra_specs", "os-quota-class-sets/default")),
        *((path, 59) for path in ("os-migrations",)),
        *((path, 53) for path in ("os-hypervisors",)),
    ],
)
def test_query_parameter_that_is_not_known(api: Api, path: str, strict_since: int) -> None:
    url = f"/v2.1/{path}?colour=red"
    assert api.get(url, microversion(f"2.{strict_since - 1}")).status_code == 200
    assert api.get(url, microversion(f"2.{strict_since}")).status_code == 400


ACTIONS: list[tuple[str, dict[str, Any], bool]] = [
    ("2.72", {"lock": {"locked_reason": ""}}, True),
    ("2.73", {"lock": {"locked_reason": "x" * 256}}, False),
    ("2.73", {"lock": {"reason": "x"}}, False),
    ("2.73", {"unlock": {"any": "thing"}}, True),
    ("2.1", {"rescue": {"rescue_image_ref": "no-uuid"}}, False),
    ("2.1", {"rescue": {"colour": "red"}}, False),
    ("2.1", {"changePassword": {}}, False),
    ("2.1", {"changePassword": {"adminPass": None}}, False),
    ("2.1", {"resize": {}}, False),
    ("2.1", {"resize": {"flavorRef": ""}}, False),
    ("2.1", {"resize": {"flavorRef": "2", "OS-DCF:diskConfig": "AUTO"}}, True),
    ("2.55", {"migrate": {"any": "thing"}}, True),
    ("2.56", {"migrate": {"any": "thing"}}, False),
    ("2.56", {"migrate": {"host": None}}, True),
    ("2.25", {"os-migrateLive": {"block_migration": "auto"}}, False),
    ("2.25", {"os-migrateLive": {"host": None}}, False),
    *(
        (f"2.{minor}", {"os-migrateLive": {"host": None, "block_migration": "auto", "force": True}}, 30 <= minor <= 67)
        for minor in (29, 30, 67, 68)
    ),
    *((f"2.{minor}", {"evacuate": {"force": True}}, 29 <= minor <= 67) for minor in (28, 29, 67, 68)),
    *((f"2.{minor}", {"evacuate": {"onSharedStorage": True}}, minor <= 13) for minor in (13, 14)),
    ("2.13", {"evacuate": {}}, False),
    ("2.76", {"unshelve": {"availability_zone": "north"}}, True),
    ("2.77", {"unshelve": {"availability_zone": "north"}}, True),
    ("2.77", {"unshelve": {"availability_zone": None}}, False),
    ("2.77", {"unshelve": {}}, False),
    ("2.90", {"unshelve": {"host": "north-host0"}}, False),
    ("2.91", {"unshelve": {"availability_zone": None, "host": "north-host0"}}, True),
    *(
        (f"2.{minor}", {"rebuild": {"imageRef": IMAGE, name: value}}, minor >= since)
        for since, name, value in (
            (19, "description", None),
            (54, "key_name", None),
            (57, "user_data", None),
            (63, "trusted_image_certificates", ["a"]),
            (90, "hostname", "web"),
        )
        for minor in (since - 1, since)
    ),
    ("2.93", {"rebuild": {"imageRef": IMAGE, "hostname": "a.b"}}, False),
    ("2.94", {"rebuild": {"imageRef": IMAGE, "hostname": "a.b"}}, True),
    ("2.1", {"rebuild": {"imageRef": IMAGE, "accessIPv4": ""}}, False),
    ("2.1", {"rebuild": {}}, False),
    ("2.1", {"os-resetState": {"state": "paused"}}, False),
    ("2.1", {"createImage": {}}, False),
    ("2.1", {"createBackup": {"name": "x", "backup_type": "daily", "rotation": -1}}, False),
    ("2.1", {"createBackup": {"name": "x", "backup_type": "daily", "rotation": "1"}}, True),
    *(("2.1", {"os-getConsoleOutput": {"length": length}}, length != -2) for length in (-2, -1, "50", None)),
    ("2.1", {"addSecurityGroup": {}}, False),
]


@pytest.mark.parametrize(("version", "body", "is_valid"), ACTIONS)
def test_body_of_an_action(api: Api, version: str, body: dict[str, Any], is_valid: bool) -> None:
    """It is checked before the server is looked up, which there is not."""
    response = api.request("POST", f"/v2.1/servers/{UNKNOWN}/action", microversion(version), json=body)
    expected = (404, "itemNotFound") if is_valid else (400, "badRequest")
    assert (response.status_code, next(iter(response.json()))) == expected, response.text


@pytest.mark.parametrize("body", [{"os-start": None}, {"os-stop": None}, {"reboot": {"type": "HARD"}}, {"pause": None}])
def test_server_that_waits_for_its_host_is_not_there_for_actions(api: Api, body: dict[str, Any]) -> None:
    uuid = create(api, "2.37", {}).json()["server"]["id"]
    assert api.request("POST", f"/v2.1/servers/{uuid}/action", json=body).status_code == 404
    refused = api.request("POST", f"/v2.1/servers/{uuid}/metadata", json={"metadata": {"a": "b"}})
    assert refused.status_code == 409
    assert refused.json()["conflictingRequest"]["message"].endswith("while it is in vm_state building")
    assert api.request("DELETE", f"/v2.1/servers/{uuid}").status_code == 204


OTHERS: list[tuple[str, str, str, Any, int]] = [
    # 4.1
    *(
        ("POST", "/flavors", "2.1", {"flavor": {"name": "x", "ram": 64, "vcpus": 1, "disk": 1} | wrong}, 400)
        for wrong in (
            {"ram": 0},
            {"vcpus": 0},
            {"disk": -1},
            {"swap": -1},
            {"rxtx_factor": 0},
            {"id": "a b!"},
            {"x": 1},
        )
    ),
    ("PUT", "/flavors/1", "2.54", {"flavor": {"description": "x"}}, 404),
    ("PUT", "/flavors/1", "2.55", {"flavor": {"description": "x", "name": "x"}}, 400),
    # 4.2
    *(
        ("POST", "/os-keypairs", "2.2", {"keypair": {"name": "x"} | wrong}, 400)
        for wrong in ({"type": "dsa"}, {"public_key": "none"}, {"name": "x "}, {"name": "a@b"}, {"user_id": "x"})
    ),
    ("POST", "/os-keypairs", "2.92", {"keypair": {"name": "x"}}, 400),
    # 4.4
    *(
        ("PUT", "/os-quota-sets/red", version, {"quota_set": {name: 5}}, status)
        for version, name, status in (
            ("2.35", "fixed_ips", 200),
            ("2.36", "fixed_ips", 400),
            ("2.56", "injected_files", 200),
            ("2.57", "injected_files", 400),
        )
    ),
    ("PUT", "/os-quota-sets/red", "2.1", {"quota_set": {"cores": -2}}, 400),
    # 4.5
    *(
        ("GET", f"/os-simple-tenant-usage/demo?{query}", "2.40", None, status)
        for query, status in (
            ("start=2020-01-01T00:00:00.123456", 200),
            ("start=2020-01-01%2000:00:00.123456", 200),
            ("start=2020-01-01", 400),
            ("start=2999-01-01T00:00:00", 400),
            ("limit=x", 400),
            ("start=2020-01-01T00:00:00&end=2020-01-01T00:00:00", 400),
            ("marker=none", 400),
        )
    ),
    # 4.7
    *(
        ("POST", "/os-server-groups", version, {"server_group": {"name": "x"} | values}, status)
        for version, values, status in (
            ("2.14", {"policies": ["soft-affinity"]}, 400),
            ("2.15", {"policies": ["soft-affinity"]}, 200),
            ("2.15", {"policies": ["affinity", "anti-affinity"]}, 400),
            ("2.15", {"policies": []}, 400),
            ("2.63", {"policy": "affinity"}, 400),
            ("2.64", {"policies": ["affinity"]}, 400),
            ("2.64", {"policy": "affinity", "rules": {"max_server_per_host": 2}}, 400),
            ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": "2"}}, 200),
            ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": 0}}, 400),
            ("2.64", {"policy": "anti-affinity", "rules": {"max_server_per_host": None}}, 400),
        )
    ),
    *(
        ("GET", f"/os-migrations?{query}", version, None, status)
        for version, query, status in (
            ("2.65", "changes-before=2020-01-01T00:00:00", 400),
            ("2.79", "user_id=x", 400),
            ("2.59", "limit=1&limit=1", 400),
            ("2.59", "host=x&host=y", 200),
            ("2.59", "changes-since=2026-W01-1", 400),
            ("2.59", "changes-since=2026-1", 200),
            ("2.59", f"limit={10**24}", 200),
            ("2.59", f"limit={'9' * 5000}", 200),
            ("2.66", "changes-before=2020-01-01T00:00:00", 200),
            ("2.80", "user_id=x", 200),
        )
    ),
    ("GET", "/os-aggregates/one", "2.1", None, 400),
    # Nova looks for the marker "" in some lists, and takes it for none in others.
    *(
        ("GET", f"/{path}?marker=", version, None, status)
        for path, version, status in (
            ("servers", "2.1", 200),
            ("servers/detail", "2.1", 200),
            ("os-migrations", "2.59", 200),
            ("flavors", "2.1", 400),
            ("os-keypairs", "2.35", 400),
            ("os-hypervisors", "2.33", 400),
        )
    ),
    # 4.4
    *(
        ("PUT", "/os-quota-sets/demo?colour=red", version, {"quota_set": {}}, status)
        for version, status in (("2.74", 200), ("2.75", 400))
    ),
    # 4.8
    *(
        ("GET", f"/{path}", version, None, status)
        for version, found in (("2.1", 200), ("2.35", 200), ("2.36", 404))
        for path, status in (
            ("images", 404),
            ("os-networks", found),
            ("os-volumes", found),
            ("os-floating-ips", found),
            ("os-security-groups", found),
            ("os-baremetal-nodes", found),
        )
    ),
]


@pytest.mark.parametrize("asked", OTHERS)
def test_request_about_something_else(api: Api, asked: tuple[str, str, str, Any, int]) -> None:
    method, path, version, body, status = asked
    content = {} if body is None else {"json": body}
    response = api.request(method, f"/v2.1{path}", microversion(version), **content)
    assert response.status_code == status, response.text


@pytest.mark.parametrize(
    "path",
    ["os-services", "os-hypervisors", "os-aggregates", "os-hosts", "os-migrations", "os-availability-zone/detail"],
)
def test_members_do_not_see_hosts(api: Api, path: str) -> None:
    refused = api.get(f"/v2.1/{path}", MEMBER)
    assert (refused.status_code, "os_compute_api:" in refused.json()["forbidden"]["message"]) == (403, True)
