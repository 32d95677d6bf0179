"""The stored view has the shapes of the compute API (contracts/nova-servers, section 7)."""

import hashlib
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fleetlight.resources.fields import to_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import PIECE_NAMES, BriefTemplate, FullTemplate, render_view
from tests.support.fleets.documents import make_record
from tests.support.oracles.shown_items import stored_item

VERSIONED_BASE = "http://fleet.example/v2.1"
PLAIN_BASE = "http://fleet.example"
NEWEST = 104
FLAVOR = {
    "flavorid": "m1.small",
    "vcpus": 2,
    "memory_mb": 2048,
    "root_gb": 20,
    "ephemeral_gb": 1,
    "swap": 512,
    "name": "small",
    "extra_specs": {"hw:cpu_policy": "dedicated"},
}
# Keys of a full item by the microversion that brought them, for everybody and for admins only.
PUBLIC_KEYS = {
    1: """id name status tenant_id user_id created updated hostId links metadata accessIPv4 accessIPv6 addresses image
        flavor key_name config_drive progress security_groups OS-DCF:diskConfig OS-EXT-AZ:availability_zone
        OS-EXT-STS:task_state OS-EXT-STS:vm_state OS-EXT-STS:power_state OS-SRV-USG:launched_at
        OS-SRV-USG:terminated_at os-extended-volumes:volumes_attached""",
    9: "locked",
    19: "description",
    26: "tags",
    63: "trusted_image_certificates",
    73: "locked_reason",
    90: "OS-EXT-SRV-ATTR:hostname",
    96: "pinned_availability_zone",
    100: "scheduler_hints",
}
ADMIN_KEYS = {
    1: "OS-EXT-SRV-ATTR:host OS-EXT-SRV-ATTR:hypervisor_hostname OS-EXT-SRV-ATTR:instance_name",
    3: """OS-EXT-SRV-ATTR:hostname OS-EXT-SRV-ATTR:kernel_id OS-EXT-SRV-ATTR:launch_index OS-EXT-SRV-ATTR:ramdisk_id
        OS-EXT-SRV-ATTR:reservation_id OS-EXT-SRV-ATTR:root_device_name OS-EXT-SRV-ATTR:user_data""",
}
# What needs more than the instance's own record: the state of its host, and its groups (which only `show` has).
NOT_IN_THE_VIEW = ("host_status", "server_groups")


def show(record: dict[str, Any], minor: int = NEWEST, *, is_admin: bool = True) -> dict[str, Any]:
    """The full item as a caller gets it."""
    template = FullTemplate(minor, is_admin=is_admin, versioned_base=VERSIONED_BASE, plain_base=PLAIN_BASE)
    item: dict[str, Any] = json.loads(stored_item(template, render_view(record)))
    return item


def keys_until(minor: int, keys: dict[int, str]) -> set[str]:
    return {key for since, names in keys.items() if since <= minor for key in names.split()}


@pytest.mark.parametrize("minor", range(1, NEWEST + 1))
def test_keys_of_every_microversion(minor: int) -> None:
    record = make_record()
    public = keys_until(minor, PUBLIC_KEYS)
    assert set(show(record, minor, is_admin=False)) == public
    assert set(show(record, minor)) == public | keys_until(minor, ADMIN_KEYS)


def test_no_key_appears_twice_at_any_microversion() -> None:
    record = make_record(vm_state="error", fault={"code": 500, "created_at": 0, "message": "m", "details": "d"})
    for minor in range(1, NEWEST + 1):
        for is_admin in (True, False):
            template = FullTemplate(minor, is_admin=is_admin, versioned_base="v", plain_base="p")
            pairs = json.loads(stored_item(template, render_view(record)), object_pairs_hook=list)
            keys = [key for key, _ in pairs]
            assert len(keys) == len(set(keys))


def test_brief_item() -> None:
    template = BriefTemplate(1, versioned_base=VERSIONED_BASE, plain_base=PLAIN_BASE)
    record = make_record(uuid="f5dc173b-6804-445a-a6d8-c705dad5b5eb", display_name=None)
    assert json.loads(stored_item(template, render_view(record))) == {
        "id": "f5dc173b-6804-445a-a6d8-c705dad5b5eb",
        "name": None,
        "links": [
            {"rel": "self", "href": f"{VERSIONED_BASE}/servers/f5dc173b-6804-445a-a6d8-c705dad5b5eb"},
            {"rel": "bookmark", "href": f"{PLAIN_BASE}/servers/f5dc173b-6804-445a-a6d8-c705dad5b5eb"},
        ],
    }


@pytest.mark.parametrize("base", ["http://[::1]:8774", "http://fleet.example/100%25/%b"])
def test_address_goes_into_links_as_it_is(base: str) -> None:
    bases: dict[str, Any] = {"versioned_base": f"{base}/v2.1", "plain_base": base}
    record = make_record(uuid="abc", image_ref="def", flavor_id="ghi")
    for template in (BriefTemplate(1, **bases), FullTemplate(1, is_admin=False, **bases)):
        item = json.loads(stored_item(template, render_view(record)))
        assert [link["href"] for link in item["links"]] == [f"{base}/v2.1/servers/abc", f"{base}/servers/abc"]
        if "image" in item:
            assert item["image"]["links"][0]["href"] == f"{base}/images/def"
            assert item["flavor"]["links"][0]["href"] == f"{base}/flavors/ghi"


def test_every_piece_of_a_view_is_a_json_text() -> None:
    view = dict(zip(PIECE_NAMES, map(json.loads, render_view(make_record())), strict=True))
    assert view["public"]["name"] == "web-1"
    assert view["admin"]["OS-EXT-SRV-ATTR:host"] == "node-1"
    assert (view["image"], view["flavor_id"], view["fault"]) == ("", None, None)
    assert len(view["ends"]) == 14


def test_instance_that_has_nothing_but_its_uuid_is_rendered() -> None:
    item = show(dict.fromkeys(INSTANCE_FIELDS) | {"uuid": "f5dc173b-6804-445a-a6d8-c705dad5b5eb"})
    assert item["status"] == "UNKNOWN"
    assert item["tenant_id"] == item["user_id"] == item["hostId"] == item["accessIPv4"] == item["image"] == ""
    assert item["flavor"] == item["metadata"] == item["addresses"] == {}
    assert item["tags"] == item["os-extended-volumes:volumes_attached"] == []
    assert item["created"] is None
    assert item["name"] is None


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"vm_state": "active"}, {"status": "ACTIVE", "progress": 7}),
        ({"vm_state": "building"}, {"status": "BUILD", "progress": 7, "addresses": {}}),
        ({"vm_state": "resized"}, {"status": "VERIFY_RESIZE", "progress": 7}),
        ({"vm_state": "active", "task_state": "migrating"}, {"status": "MIGRATING", "progress": 7}),
        ({"vm_state": "active", "task_state": "rebooting"}, {"status": "REBOOT"}),
        ({"vm_state": "stopped"}, {"status": "SHUTOFF"}),
        ({"vm_state": "error"}, {"status": "ERROR"}),
        ({"vm_state": "active", "deleted": True}, {"status": "DELETED"}),
    ],
)
def test_status_and_what_depends_on_it(changes: dict[str, Any], shown: dict[str, Any]) -> None:
    item = show(make_record(progress=7, **changes))
    assert {key: item[key] for key in shown} == shown
    assert ("progress" in item) == ("progress" in shown)


@pytest.mark.parametrize(
    ("stored", "created", "launched"),
    [
        (0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000"),
        (1_378_180_892_774_549, "2013-09-03T04:01:32Z", "2013-09-03T04:01:32.774549"),
        (-1, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.999999"),
        (1_709_251_199_000_001, "2024-02-29T23:59:59Z", "2024-02-29T23:59:59.000001"),
    ],
)
def test_times_have_the_two_forms_of_the_contract(stored: int, created: str, launched: str) -> None:
    item = show(make_record(created_at=stored, launched_at=stored))
    assert item["created"] == created
    assert item["OS-SRV-USG:launched_at"] == launched
    assert item["OS-SRV-USG:terminated_at"] is None


def test_updated_is_the_creation_until_there_is_an_update() -> None:
    assert show(make_record(created_at=0, updated_at=None))["updated"] == "1970-01-01T00:00:00Z"
    assert show(make_record(created_at=0, updated_at=1_000_000))["updated"] == "1970-01-01T00:00:01Z"


def test_host_id_hides_the_host_and_differs_by_project() -> None:
    expected = hashlib.sha224(b"demonode-1").hexdigest()
    assert show(make_record(host="node-1", project_id="demo"))["hostId"] == expected
    assert show(make_record(host="node-1", project_id="other"))["hostId"] != expected
    assert show(make_record(host=None))["hostId"] == ""


def test_image_by_microversion() -> None:
    record = make_record(image_ref="abc", image_properties={"os_distro": "debian", "hw_disk_bus": None})
    links = [{"rel": "bookmark", "href": f"{PLAIN_BASE}/images/abc"}]
    assert show(record, 97)["image"] == {"id": "abc", "links": links}
    assert show(record, 98)["image"] == {"id": "abc", "links": links, "properties": {"os_distro": "debian"}}
    for minor in (97, 98):
        assert show(make_record(image_ref="", image_properties={"a": "b"}), minor)["image"] == ""


def test_flavor_by_microversion() -> None:
    record = make_record(flavor=FLAVOR, flavor_id="m1.small")
    assert show(record, 46)["flavor"] == {
        "id": "m1.small",
        "links": [{"rel": "bookmark", "href": f"{PLAIN_BASE}/flavors/m1.small"}],
    }
    assert show(record, 47)["flavor"] == {
        "vcpus": 2,
        "ram": 2048,
        "disk": 20,
        "ephemeral": 1,
        "swap": 512,
        "original_name": "small",
        "extra_specs": {"hw:cpu_policy": "dedicated"},
    }


def test_volumes_by_microversion_without_other_devices() -> None:
    record = make_record(
        block_devices=[
            {"volume_id": "v1", "delete_on_termination": True},
            {"volume_id": None, "delete_on_termination": True},
            {"volume_id": "v2", "delete_on_termination": False},
        ]
    )
    key = "os-extended-volumes:volumes_attached"
    assert show(record, 2)[key] == [{"id": "v1"}, {"id": "v2"}]
    assert show(record, 3)[key] == [
        {"id": "v1", "delete_on_termination": True},
        {"id": "v2", "delete_on_termination": False},
    ]


def test_addresses_are_grouped_by_network_with_floating_ones_last() -> None:
    floating = {"label": "blue", "address": "203.0.113.9", "version": 4, "mac": "fa:1", "type": "floating"}
    fixed = {"label": "blue", "address": "10.0.0.1", "version": 4, "mac": "fa:1", "meta": {}, "port_uuid": "p"}
    other = {"label": "green", "address": "fd00::1", "version": 6, "mac": "fa:2"}
    addresses = show(make_record(ip_addresses=[floating, fixed, other]))["addresses"]
    assert addresses["green"] == [
        {"addr": "fd00::1", "version": 6, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "fa:2"}
    ]
    assert [(entry["addr"], entry["OS-EXT-IPS:type"]) for entry in addresses["blue"]] == [
        ("10.0.0.1", "fixed"),
        ("203.0.113.9", "floating"),
    ]


def test_security_groups_are_absent_when_there_are_none() -> None:
    assert show(make_record(security_groups=["a", "a"]))["security_groups"] == [{"name": "a"}, {"name": "a"}]
    assert "security_groups" not in show(make_record(security_groups=[]))


@pytest.mark.parametrize(
    ("code", "is_admin", "has_details"), [(500, True, True), (500, False, False), (404, False, True)]
)
def test_details_of_a_server_error_are_for_admins(code: int, is_admin: bool, has_details: bool) -> None:
    fault = {"code": code, "created_at": 0, "message": "No valid host", "details": "Traceback"}
    shown = show(make_record(vm_state="error", fault=fault), is_admin=is_admin)["fault"]
    assert shown.pop("details", None) == ("Traceback" if has_details else None)
    assert shown == {"code": code, "created": "1970-01-01T00:00:00Z", "message": "No valid host"}


def test_fault_without_details_has_no_such_key() -> None:
    fault = {"code": 404, "created_at": 0, "message": "m", "details": ""}
    assert "details" not in show(make_record(vm_state="error", fault=fault))["fault"]


def test_fault_of_the_past_is_not_shown() -> None:
    fault = {"code": 500, "created_at": 0, "message": "m", "details": "d"}
    assert "fault" not in show(make_record(vm_state="active", fault=fault))


@pytest.mark.parametrize(
    "text",
    ["\\u002f", '"\\u002f', '"\\u002e', "\\u002e", '"/', '\\"\\u002f', "{", "}", "\n", "\u2028", "é", "\U0001f600"],
)
def test_text_of_users_is_never_taken_for_a_link(text: str) -> None:
    record = make_record(
        display_name=text, image_ref=text, metadata={text: text}, image_properties={text: text}, flavor_id=text
    )
    item = show(record)
    assert item["name"] == text
    assert item["metadata"] == {text: text}
    assert item["image"]["properties"] == {text: text}
    assert item["image"]["id"] == text
    assert item["image"]["links"][0]["href"] == f"{PLAIN_BASE}/images/{text}"
    assert show(record, 46)["flavor"]["id"] == text


def microseconds(text: str | None) -> int | None:
    return None if text is None else to_microseconds(datetime.fromisoformat(text if text.endswith("Z") else f"{text}Z"))


def record_of(item: dict[str, Any]) -> dict[str, Any]:
    """A record that must be rendered as `item`, the way back."""
    image = item["image"] or {}
    flavor = item["flavor"]
    is_embedded = "vcpus" in flavor
    attribute = {key.removeprefix("OS-EXT-SRV-ATTR:"): item[key] for key in item if key.startswith("OS-EXT-SRV-ATTR:")}
    return dict.fromkeys(INSTANCE_FIELDS) | {
        "uuid": item["id"],
        "display_name": item["name"],
        "project_id": item["tenant_id"],
        "user_id": item["user_id"],
        "created_at": microseconds(item["created"]),
        "updated_at": microseconds(item["updated"]),
        "launched_at": microseconds(item["OS-SRV-USG:launched_at"]),
        "terminated_at": microseconds(item["OS-SRV-USG:terminated_at"]),
        "metadata": item["metadata"],
        "access_ip_v4": item["accessIPv4"],
        "access_ip_v6": item["accessIPv6"],
        "ip_addresses": [
            {
                "label": label,
                "address": entry["addr"],
                "version": entry["version"],
                "mac": entry["OS-EXT-IPS-MAC:mac_addr"],
                "type": entry["OS-EXT-IPS:type"],
            }
            for label, entries in item["addresses"].items()
            for entry in entries
        ],
        "image_ref": image.get("id", ""),
        "image_properties": image.get("properties"),
        "flavor_id": flavor.get("id"),
        "flavor": {
            "vcpus": flavor["vcpus"],
            "memory_mb": flavor["ram"],
            "root_gb": flavor["disk"],
            "ephemeral_gb": flavor["ephemeral"],
            "swap": flavor["swap"],
            "name": flavor["original_name"],
            "extra_specs": flavor["extra_specs"],
        }
        if is_embedded
        else None,
        "key_name": item["key_name"],
        "config_drive": item["config_drive"],
        "progress": item.get("progress"),
        "security_groups": [group["name"] for group in item["security_groups"]],
        "auto_disk_config": item["OS-DCF:diskConfig"] == "AUTO",
        "availability_zone": item["OS-EXT-AZ:availability_zone"],
        "task_state": item["OS-EXT-STS:task_state"],
        "vm_state": item["OS-EXT-STS:vm_state"],
        "power_state": item["OS-EXT-STS:power_state"],
        "block_devices": [
            {"volume_id": volume["id"], "delete_on_termination": volume.get("delete_on_termination")}
            for volume in item["os-extended-volumes:volumes_attached"]
        ],
        "node": attribute.pop("hypervisor_hostname", None),
        **attribute,
        "locked": item.get("locked"),
        "display_description": item.get("description"),
        "tags": item.get("tags"),
        "trusted_image_certificates": item.get("trusted_image_certificates"),
        "locked_reason": item.get("locked_reason"),
        "pinned_availability_zone": item.get("pinned_availability_zone"),
        "scheduler_hints": item.get("scheduler_hints"),
    }


def href(item: dict[str, Any], relation: str) -> str:
    return next(str(link["href"]) for link in item["links"] if link["rel"] == relation)


@pytest.mark.samples
def test_samples_are_rendered_key_by_key_and_value_by_value(samples_dir: Path) -> None:
    compared = 0
    for path in sorted(samples_dir.glob("nova/api/servers/**/*.json")):
        body = json.loads(path.read_text())
        for item in body.get("servers") or [body["server"]]:
            if "name" not in item:
                continue  # an instance of a cell that is down: not a view
            folder = path.parent.name
            minor = int(folder.removeprefix("v2.")) if folder.startswith("v2.") else 1
            is_full = "addresses" in item
            record = record_of(item) if is_full else make_record(uuid=item["id"], display_name=item["name"])
            bases: dict[str, Any] = {
                "versioned_base": href(item, "self").partition("/servers/")[0],
                "plain_base": href(item, "bookmark").partition("/servers/")[0],
            }
            is_admin = "OS-EXT-SRV-ATTR:host" in item
            template = FullTemplate(minor, is_admin=is_admin, **bases) if is_full else BriefTemplate(1, **bases)
            rendered = json.loads(stored_item(template, render_view(record)))
            expected = {key: value for key, value in item.items() if key not in NOT_IN_THE_VIEW}
            # In the samples it belongs to no host and project that they show.
            if is_full:
                rendered["hostId"] = expected["hostId"]
            assert rendered == expected, path
            compared += 1
    assert compared >= 12
