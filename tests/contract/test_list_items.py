"""What a server looks like in both lists and alone, at every microversion, by every way of answering (section 7)."""

from typing import Any

import pytest

from fleetlight.manager.operations.hosts.cell_nodes import NewHost
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.amount import Amount
from tests.contract.answering import Asked, words
from tests.contract.compute_fleet import MEMBER, ComputeFleet, microversion
from tests.support.values import IMAGE

pytestmark = pytest.mark.no_rerun

LATEST = microversion("2.104")
EVERYBODY, ADMINS = 1, 1000
VOLUMES = ("7a1d5a0a-90b1-4f36-8f6e-1e2d3c4b5a69", "7a1d5a0a-90b1-4f36-8f6e-1e2d3c4b5a70")
GROUP = "f3d86fe6-4246-4be8-b87c-eb894626c741"

# Section 7.3: each key with the first microversion that shows it to administrators and to others.
KEYS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(
        words(
            "id name status tenant_id user_id created updated hostId links metadata accessIPv4 accessIPv6 addresses"
            " image flavor key_name config_drive OS-DCF:diskConfig OS-EXT-AZ:availability_zone OS-EXT-STS:task_state"
            " OS-EXT-STS:vm_state OS-EXT-STS:power_state OS-SRV-USG:launched_at OS-SRV-USG:terminated_at"
            " os-extended-volumes:volumes_attached security_groups"
        ),
        (EVERYBODY, EVERYBODY),
    ),
    **dict.fromkeys(
        (f"OS-EXT-SRV-ATTR:{name}" for name in ("host", "hypervisor_hostname", "instance_name")), (EVERYBODY, ADMINS)
    ),
    **dict.fromkeys(
        (
            f"OS-EXT-SRV-ATTR:{name}"
            for name in words("kernel_id ramdisk_id launch_index reservation_id root_device_name user_data")
        ),
        (3, ADMINS),
    ),
    "OS-EXT-SRV-ATTR:hostname": (3, 90),
    "locked": (9, 9),
    "host_status": (16, ADMINS),
    "description": (19, 19),
    "tags": (26, 26),
    "trusted_image_certificates": (63, 63),
    "locked_reason": (73, 73),
    "pinned_availability_zone": (96, 96),
    "scheduler_hints": (100, 100),
}
WITH_PROGRESS = {"progress": (EVERYBODY, EVERYBODY)}
WITH_FAULT = {"fault": (EVERYBODY, EVERYBODY)}
ALONE = {"server_groups": (71, 71)}

FULL: dict[str, Any] = {
    "display_name": "full",
    "created_at": 1_700_000_000_999_999,
    "updated_at": 1_700_000_001_999_999,
    "launched_at": 1_700_000_002_000_003,
    "host": "north-host0",
    "node": "node-1",
    "availability_zone": "north",
    "pinned_availability_zone": "north",
    "metadata": {"é": "“", "id": "x"},
    "access_ip_v4": "192.0.2.1",
    "access_ip_v6": "2001:db8::1",
    "auto_disk_config": True,
    "config_drive": "True",
    "key_name": "key",
    "image_ref": IMAGE,
    "image_properties": {"hw_machine_type": "q35", "os_type": None},
    "flavor": {
        "flavorid": "a/b",
        "name": "m1",
        "memory_mb": 512,
        "vcpus": 2,
        "root_gb": 3,
        "ephemeral_gb": 4,
        "swap": 5,
        "extra_specs": {"hw:cpu_policy": "shared"},
    },
    "ip_addresses": [
        {"label": "one", "address": "10.0.0.1", "version": 4, "mac": "m1"},
        {"label": "one", "address": "192.0.2.9", "version": 4, "mac": "m1", "type": "floating"},
        {"label": "two", "address": "fd00::1", "version": 6, "mac": "m2"},
        {"label": "one", "address": "10.0.0.2", "version": 4, "mac": "m3"},
    ],
    "block_devices": [{"volume_id": VOLUMES[0], "delete_on_termination": True}, {"volume_id": VOLUMES[1]}],
    "security_groups": ["default", "default"],
    "server_groups": [GROUP],
    "scheduler_hints": {"same_host": ["h"]},
    "tags": ["t"],
    "locked": True,
    "locked_by": "admin",
    "locked_reason": "why",
    "user_data": "QQ==",
    "progress": 7,
}
FAULT = {"code": 404, "created_at": 1_700_000_000_000_000, "message": "broken", "details": "trace"}
SERVERS: dict[str, dict[str, Any]] = {
    "full": FULL,
    "bare": {"display_name": None, "vm_state": "building", "power_state": 0, "launched_at": None, "progress": None},
    "failed": {"vm_state": "error", "fault": {**FAULT, "code": 500}, "host": "north-host0"},
    "refused": {"vm_state": "error", "fault": FAULT},
    "recovered": {"vm_state": "stopped", "fault": FAULT},
}


def fill(fleet: ComputeFleet) -> None:
    nodes_in(fleet.native, fleet.cells["north"]).add_hosts([NewHost("north-host0", Amount.of_gib(1, 1, 1), "north")])
    for name, values in SERVERS.items():
        fleet.create("north", **{"display_name": name, **values})


def listed(asked: Asked, name: str | None, minor: int = 104, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """The item of a server in the list of details."""
    servers = asked.page("", microversion(f"2.{minor}"), headers or {})
    return next(server for server in servers if server["name"] == name)


def shown(asked: Asked, name: str | None, minor: int = 104, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """The server alone."""
    url = f"/v2.1/servers/{listed(asked, name)['id']}"
    server: dict[str, Any] = asked.get(url, microversion(f"2.{minor}"), headers or {}).json()["server"]
    return server


@pytest.mark.parametrize("role", ["admin", "member"])
def test_item_has_exactly_the_keys_of_its_microversion(asked: Asked, role: str) -> None:
    headers = {"X-Roles": role}
    column = 0 if role == "admin" else 1
    boundaries = {
        since + step for keys in (KEYS, ALONE) for pair in keys.values() for since in pair for step in (-1, 0)
    }
    for minor in sorted({*boundaries, 46, 47, 69, 97, 98, 102, 104} & set(range(1, 105))):
        expected = {key for key, since in (KEYS | WITH_PROGRESS).items() if since[column] <= minor}
        assert set(listed(asked, "full", minor, headers)) == expected, f"list at 2.{minor}"
        alone = shown(asked, "full", minor, headers)
        assert set(alone) == expected | {key for key, since in ALONE.items() if since[column] <= minor}
        faulty = {key for key, since in (KEYS | WITH_FAULT).items() if since[column] <= minor} - {"security_groups"}
        assert set(listed(asked, "failed", minor, headers)) == faulty, f"list at 2.{minor}"
        alone.pop("server_groups", None)
        assert alone == listed(asked, "full", minor, headers), "lists and show differ in nothing else"


def test_short_item_has_three_keys_at_every_microversion(asked: Asked) -> None:
    for minor in (1, 16, 47, 69, 104):
        for headers in ({}, MEMBER):
            servers = asked.get("/v2.1/servers", microversion(f"2.{minor}"), headers).json()["servers"]
            assert {frozenset(server) for server in servers} == {frozenset({"id", "name", "links"})}
            assert None in [server["name"] for server in servers]


def test_values_are_derived_as_the_contract_says(asked: Asked) -> None:
    server = listed(asked, "full")
    base, uuid = "http://api.test", server["id"]
    assert server == server | {
        "links": [
            {"rel": "self", "href": f"{base}/v2.1/servers/{uuid}"},
            {"rel": "bookmark", "href": f"{base}/servers/{uuid}"},
        ],
        "status": "ACTIVE",
        "tenant_id": "demo",
        "user_id": "ada",
        "created": "2023-11-14T22:13:20Z",
        "updated": "2023-11-14T22:13:21Z",
        "OS-SRV-USG:launched_at": "2023-11-14T22:13:22.000003",
        "OS-SRV-USG:terminated_at": None,
        # printf demonorth-host0 | sha224sum
        "hostId": "059b90771a45daba7ecba0741d0fa7d7fe7666ad4a6a9fe06df3b701",
        "metadata": {"é": "“", "id": "x"},
        "accessIPv4": "192.0.2.1",
        "accessIPv6": "2001:db8::1",
        "OS-DCF:diskConfig": "AUTO",
        "config_drive": "True",
        "progress": 7,
        "security_groups": [{"name": "default"}, {"name": "default"}],
        "OS-EXT-AZ:availability_zone": "north",
        "OS-EXT-STS:power_state": 1,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": "node-1",
        "host_status": "UP",
        "tags": ["t"],
        "locked": True,
        "locked_reason": "why",
        "pinned_availability_zone": "north",
        "scheduler_hints": {"same_host": ["h"]},
    }
    assert server["addresses"] == {
        "one": [address("10.0.0.1", "m1"), address("10.0.0.2", "m3"), address("192.0.2.9", "m1", kind="floating")],
        "two": [address("fd00::1", "m2", 6)],
    }


def address(text: str, mac: str, version: int = 4, kind: str = "fixed") -> dict[str, Any]:
    return {"addr": text, "version": version, "OS-EXT-IPS:type": kind, "OS-EXT-IPS-MAC:mac_addr": mac}


def test_flavor_image_and_volumes_change_their_form(asked: Asked) -> None:
    link = {"rel": "bookmark", "href": "http://api.test/flavors/a/b"}
    assert listed(asked, "full", 46)["flavor"] == {"id": "a/b", "links": [link]}
    assert listed(asked, "full", 47)["flavor"] == {
        "vcpus": 2,
        "ram": 512,
        "disk": 3,
        "ephemeral": 4,
        "swap": 5,
        "original_name": "m1",
        "extra_specs": {"hw:cpu_policy": "shared"},
    }
    image = {"id": IMAGE, "links": [{"rel": "bookmark", "href": f"http://api.test/images/{IMAGE}"}]}
    assert listed(asked, "full", 97)["image"] == image
    assert listed(asked, "full", 98)["image"] == image | {"properties": {"hw_machine_type": "q35"}}
    assert listed(asked, "failed")["image"] == ""
    volumes = "os-extended-volumes:volumes_attached"
    assert listed(asked, "full", 2)[volumes] == [{"id": volume} for volume in VOLUMES]
    assert listed(asked, "full", 3)[volumes] == [
        {"id": VOLUMES[0], "delete_on_termination": True},
        {"id": VOLUMES[1], "delete_on_termination": False},
    ]
    assert listed(asked, "failed", 3)[volumes] == []


def test_project_in_the_address_is_in_every_link(asked: Asked) -> None:
    uuid = listed(asked, "full")["id"]
    base = "http://api.test"
    for path in ("servers", "servers/detail", f"servers/{uuid}"):
        body = asked.get(f"/v2.1/demo/{path}", microversion("2.46")).json()
        server = body.get("server") or next(server for server in body["servers"] if server["name"] == "full")
        hrefs = [link["href"] for link in server["links"]]
        assert hrefs == [f"{base}/v2.1/demo/servers/{uuid}", f"{base}/demo/servers/{uuid}"]
        if "flavor" in server:
            assert server["flavor"]["links"][0]["href"] == f"{base}/demo/flavors/a/b"
            assert server["image"]["links"][0]["href"] == f"{base}/demo/images/{IMAGE}"


def test_server_that_has_nothing_yet(asked: Asked) -> None:
    server = listed(asked, None)
    assert server == server | {
        "name": None,
        "status": "BUILD",
        "hostId": "",
        "addresses": {},
        "accessIPv4": "",
        "accessIPv6": "",
        "progress": None,
        "image": "",
        "key_name": None,
        "config_drive": "",
        "OS-DCF:diskConfig": "MANUAL",
        "OS-EXT-AZ:availability_zone": "",
        "OS-EXT-STS:power_state": 0,
        "OS-SRV-USG:launched_at": None,
        "OS-EXT-SRV-ATTR:host": None,
        "OS-EXT-SRV-ATTR:hypervisor_hostname": None,
        "host_status": "",
        "metadata": {},
        "tags": [],
        "locked": False,
        "locked_reason": None,
        "description": None,
        "flavor": {},
        "pinned_availability_zone": None,
        "trusted_image_certificates": None,
        "scheduler_hints": None,
    }
    assert shown(asked, None)["scheduler_hints"] == {}, "alone it has hints, none at all"
    assert shown(asked, None)["server_groups"] == []


def test_host_outside_of_every_aggregate_is_in_the_default_zone(asked: Asked) -> None:
    assert listed(asked, "failed")["OS-EXT-AZ:availability_zone"] == "nova"
    assert shown(asked, "failed", 1)["OS-EXT-AZ:availability_zone"] == "nova"


def test_fault_shows_where_something_failed_and_details_to_whom_they_belong(asked: Asked) -> None:
    plain = {"code": 500, "created": "2023-11-14T22:13:20Z", "message": "broken"}
    for look in (listed, shown):
        assert look(asked, "failed")["fault"] == plain | {"details": "trace"}
        assert look(asked, "failed", 104, MEMBER)["fault"] == plain
        assert look(asked, "refused", 104, MEMBER)["fault"] == plain | {"code": 404, "details": "trace"}
        assert "fault" not in look(asked, "recovered")
