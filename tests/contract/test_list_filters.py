"""What each filter of the server lists finds, by every way of answering (contracts/nova-servers, sections 4 and 8)."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.answering import Asked
from tests.contract.compute_fleet import CELLS, MEMBER, ComputeFleet, microversion

pytestmark = pytest.mark.no_rerun

LATEST = microversion("2.104")
SECOND = 1_000_000
FLAVOR = {"flavorid": "f.1", "name": "m1", "memory_mb": 512, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0, "swap": 0}


def addresses(*texts: str, kind: str = "fixed") -> list[dict[str, Any]]:
    return [
        {"label": "n", "address": text, "version": 6 if ":" in text else 4, "mac": "m", "type": kind} for text in texts
    ]


# Names of the servers, and in what they differ from a usual one.
SERVERS: dict[str, dict[str, Any]] = {
    "alpha": {
        "host": "host-1",
        "node": "node-1",
        "hostname": "guest-1",
        "availability_zone": "zone-1",
        "display_description": "first of all",
        "key_name": "key-1",
        "kernel_id": "kernel-1",
        "ramdisk_id": "ramdisk-1",
        "reservation_id": "r-alpha",
        "root_device_name": "/dev/sda",
        "config_drive": "True",
        "image_ref": "image-1",
        "flavor": FLAVOR,
        "user_id": "grace",
        "launch_index": 3,
        "launched_at": 1_700_000_000 * SECOND,
        "created_at": 1_600_000_000 * SECOND,
        "updated_at": 10 * SECOND,
        "progress": 50,
        "power_state": 4,
        "auto_disk_config": True,
        "access_ip_v4": "192.0.2.7",
        "access_ip_v6": "2001:db8::7",
        "locked": True,
        "locked_by": "owner",
        "tags": ["a", "b"],
        "ip_addresses": addresses("10.0.0.15", "fd00::15"),
    },
    "Beta": {"tags": ["a"], "updated_at": 20 * SECOND, "ip_addresses": addresses("10.0.1.5")},
    "gamma.x": {
        "task_state": "rebooting",
        "tags": ["a b", "c"],
        "ip_addresses": addresses("10.9.9.9", kind="floating"),
    },
    "délta": {"vm_state": "stopped", "updated_at": 30 * SECOND},
    "soft": {"vm_state": "soft-delete", "updated_at": 15 * SECOND},
    "stateless": {"vm_state": None, "power_state": None},
    "twin": {"hidden": True},
    "gone": {"updated_at": 25 * SECOND},
    "external": {"project_id": "other", "user_id": "grace", "updated_at": 12 * SECOND},
}
LIVE = {"alpha", "Beta", "gamma.x", "délta", "stateless"}
USUAL = LIVE - {"alpha"}


def fill(fleet: ComputeFleet) -> None:
    for number, (name, values) in enumerate(SERVERS.items()):
        cell = CELLS[number % len(CELLS)]
        uuid = fleet.create(cell, **{"display_name": name, "host": None, "hostname": "guest", **values})
        if name == "gone":
            fleet.operations(cell).delete(uuid)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", LIVE),
        # Patterns are searched for, and case counts.
        ("name=alpha", {"alpha"}),
        ("name=^.e", {"Beta"}),
        ("name=ta$", {"Beta", "délta"}),
        ("name=beta", set()),
        ("name=(?i)beta", {"Beta"}),
        ("name=Beta|alpha", {"Beta", "alpha"}),
        ("name=.x", {"gamma.x"}),
        ("name=\\.", {"gamma.x"}),
        ("name=é", {"délta"}),
        ("name=^d.lta$", {"délta"}),
        ("name=.*", LIVE),
        ("display_name=^alpha$", {"alpha"}),
        ("display_description=first", {"alpha"}),
        ("description=nowhere", LIVE),
        ("hostname=guest-1", {"alpha"}),
        ("hostname=guest", LIVE),
        ("key_name=key", {"alpha"}),
        ("node=node-", {"alpha"}),
        ("reservation_id=r-alpha", {"alpha"}),
        ("kernel_id=kernel", {"alpha"}),
        ("ramdisk_id=ramdisk", {"alpha"}),
        ("root_device_name=sda", {"alpha"}),
        ("config_drive=True", {"alpha"}),
        ("config_drive=^$", USUAL),
        ("locked_by=owner", {"alpha"}),
        ("locked_by=^adm", set()),
        ("availability_zone=zone", {"alpha"}),
        ("power_state=4", {"alpha"}),
        ("power_state=^[14]$", LIVE - {"stateless"}),
        ("progress=^5", {"alpha"}),
        ("progress=^0$", USUAL),
        ("launch_index=3", {"alpha"}),
        ("launch_index=", LIVE),
        ("created_at=^2020-09-13 12:26:40$", {"alpha"}),
        ("launched_at=2023-11-14 22:13:20", {"alpha"}),
        ("terminated_at=20", set()),
        ("access_ip_v4=192.0.2", {"alpha"}),
        ("access_ip_v6=db8", {"alpha"}),
        ("auto_disk_config=1", {"alpha"}),
        ("auto_disk_config=0", USUAL),
        # Exact values.
        ("host=host-1", {"alpha"}),
        ("host=host", set()),
        ("host=", set()),
        ("image=image-1", {"alpha"}),
        ("image=", USUAL),
        ("image_ref=image-1", {"alpha"}),
        ("flavor=f.1", {"alpha"}),
        ("flavor=f", set()),
        ("user_id=grace", {"alpha"}),
        ("vm_state=stopped", {"délta"}),
        ("vm_state=STOPPED", set()),
        ("task_state=rebooting", {"gamma.x"}),
        ("task_state=", set()),
        ("locked=1", {"alpha"}),
        ("locked=no", USUAL),
        # Changes: a server that never changed is never found, and the deleted are found too.
        ("changes-since=1970-01-01T00:00:20Z", {"Beta", "délta", "gone"}),
        ("changes-since=1970-01-01T00:00:20.000001Z", {"délta", "gone"}),
        ("changes-before=1970-01-01T00:00:20Z", {"alpha", "Beta", "soft"}),
        ("changes-since=1970-01-01T00:00:15Z&changes-before=1970-01-01T00:00:15Z", {"soft"}),
        ("changes-since=1970-01-01T02:00:20+02:00&changes-before=1970-01-01T00:00:20Z", {"Beta"}),
        ("changes-since=1970&deleted=false", {"alpha", "Beta", "délta"}),
        ("changes-since=1970&deleted=true", {"soft", "gone"}),
        # Tags.
        ("tags=a", {"alpha", "Beta"}),
        ("tags=a,b", {"alpha"}),
        ("tags=a,nowhere", set()),
        ("tags=a b", {"gamma.x"}),
        ("tags=a, b", set()),
        ("tags=A", set()),
        ("tags-any=b,c", {"alpha", "gamma.x"}),
        ("not-tags=a,b", LIVE - {"alpha"}),
        ("not-tags-any=a,b", LIVE - {"alpha", "Beta"}),
        ("tags=a&not-tags=b", {"Beta"}),
        ("tags-any=a,c&not-tags-any=b&tags=c", {"gamma.x"}),
        ("tags=a,,b", set()),
        # A part of a fixed address, which is no pattern; two of them find what either finds, and so does a uuid.
        ("ip=10.0.", {"alpha", "Beta"}),
        ("ip=.15", {"alpha"}),
        ("ip=^10", set()),
        ("ip=10.9", set()),
        ("ip6=fd00", {"alpha"}),
        ("ip=1.5&ip6=fd00", {"alpha", "Beta"}),
        ("ip=10.0.1&name=alpha", set()),
        # Deleted and soft-deleted servers.
        ("deleted=true", {"gone", "soft"}),
        ("deleted=TRUE ", {"gone", "soft"}),
        ("deleted=true&soft_deleted=", {"gone"}),
        ("deleted=true&soft_deleted=false", {"gone", "soft"}),
        ("deleted=false", LIVE),
        ("deleted=", LIVE),
        ("deleted=maybe", LIVE),
        ("deleted=false&soft_deleted=true", LIVE | {"soft"}),
        ("soft_deleted=false", LIVE | {"soft"}),
        ("status=deleted", {"gone"}),
        ("status=deleted&deleted=false", {"gone"}),
        ("status=deleted&status=active", {"alpha", "Beta", "gamma.x"}),
        ("status=soft_deleted", set()),
        ("status=soft_deleted&deleted=true", {"soft"}),
        ("status=soft_deleted&soft_deleted=1", {"soft"}),
        ("status=soft_deleted&changes-since=1970", {"soft"}),
        # A status takes the place of the raw states, of the task only if it stands for one.
        ("status=active&vm_state=stopped", {"alpha", "Beta", "gamma.x"}),
        ("status=active&task_state=rebooting", {"gamma.x"}),
        ("status=reboot&task_state=nowhere", {"gamma.x"}),
        ("status=active&status=nonsense", {"alpha", "Beta", "gamma.x"}),
        # Several at once.
        ("name=a&status=active&tags=a&host=host-1", {"alpha"}),
        ("name=a&status=shutoff&tags=a", set()),
    ],
)
def test_filter_finds(asked: Asked, query: str, names: set[str]) -> None:
    found = asked.names(quote(query, safe="=&"), LATEST)
    assert len(found) == len(set(found))
    assert set(found) == names


def test_uuid_is_exact_and_adds_to_what_an_address_finds(asked: Asked) -> None:
    ids = {server["name"]: server["id"] for server in asked.page("", LATEST)}
    assert asked.names(f"uuid={ids['alpha']}", LATEST) == ["alpha"]
    assert asked.names(f"uuid={ids['alpha'].upper()}", LATEST) == []
    assert asked.names(f"uuid={ids['alpha'][:-1]}", LATEST) == []
    assert set(asked.names(f"uuid={ids['délta']}&ip=10.0.1", LATEST)) == {"délta", "Beta"}


def test_what_another_project_has_is_found_by_no_filter(asked: Asked) -> None:
    external = next(server for server in asked.page("all_tenants=1", LATEST) if server["name"] == "external")
    for query in (
        f"uuid={external['id']}",
        "name=external",
        "user_id=grace&name=external",
        "changes-since=1970-01-01T00:00:12Z&changes-before=1970-01-01T00:00:12Z",
        "project_id=other",
        "ip=.&name=external",
    ):
        assert "external" not in asked.names(query, LATEST, MEMBER)
        assert "external" not in asked.names(query, LATEST)


def test_deleted_servers_of_their_project_show_to_members_only_as_changes(asked: Asked) -> None:
    assert set(asked.names("changes-since=1970-01-01T00:00:16Z", LATEST, MEMBER)) == {"Beta", "délta", "gone"}
    assert set(asked.names("deleted=true", LATEST, MEMBER)) == LIVE
    assert set(asked.names("deleted=true&soft_deleted=1&changes-since=1970-01-01T00:00:25Z", LATEST, MEMBER)) == {
        "délta",
        "gone",
    }


def test_hidden_server_is_never_listed(asked: Asked) -> None:
    for query in ("", "name=twin", "deleted=true", "all_tenants=1", "changes-since=1970", "soft_deleted=1"):
        assert "twin" not in asked.names(query, LATEST)
