"""`POST`, `PUT` and `DELETE /servers`, by microversion: what is accepted, what is answered, what comes of it."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.compute.quotas import UNLIMITED
from fleetlight.cells.fleet.compute.server_groups import ServerGroup, ServerGroups
from fleetlight.cells.model import NO_REQUEST, Cell, InstanceRow
from fleetlight.manager.operations.actions.accepting import Acceptance
from fleetlight.manager.operations.scheduling import hosts as scheduled_hosts
from fleetlight.manager.operations.scheduling.choose_cell import CellCapacity, is_enough, read_capacity
from tests.contract.compute_fleet import Api, ComputeFleet, microversion
from tests.support.values import IMAGE
from tests.support.waiting import wait_until

UNKNOWN = "11111111-2222-4333-8444-555555555555"
MINIMAL = {"name": "web", "flavorRef": "1", "imageRef": IMAGE}
ANSWER = {"id", "links", "OS-DCF:diskConfig", "security_groups", "adminPass"}
ADMIN = {"X-Project-Id": "red", "X-User-Id": "ada"}
MEMBER = ADMIN | {"X-Roles": "member"}
BLUE = {"X-Project-Id": "blue", "X-User-Id": "bob", "X-Roles": "member"}
READER = ADMIN | {"X-Roles": "reader"}
CHANGED = {
    *("id", "name", "status", "user_id", "tenant_id", "hostId", "image", "flavor", "created", "updated", "addresses"),
    *("links", "metadata", "accessIPv4", "accessIPv6", "OS-DCF:diskConfig"),
}


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    fleet.add_hosts()
    fleet.fleet.quotas.set_limits("red", {"instances": 1000, "cores": 10_000, "ram": 10_000_000})
    return fleet


def post(
    api: Api,
    values: dict[str, Any],
    version: str = "2.1",
    caller: dict[str, str] = MEMBER,
    hints: dict[str, str] | None = None,
) -> httpx.Response:
    body = {"server": MINIMAL | values} | ({} if hints is None else {"os:scheduler_hints": hints})
    return api.request("POST", "/v2.1/servers", caller | microversion(version), json=body)


def create(api: Api, fleet: ComputeFleet, version: str = "2.1", **values: Any) -> str:
    """A server that has been built."""
    response = post(api, values, version)
    assert response.status_code == 202, response.text
    fleet.work()
    return str(response.json()["server"]["id"])


def show(api: Api, server_id: str, version: str = "2.100") -> dict[str, Any]:
    response = api.get(f"/v2.1/servers/{server_id}", ADMIN, microversion(version))
    assert response.status_code == 200, response.text
    return dict(response.json()["server"])


def message(response: httpx.Response) -> str:
    [fault] = response.json().values()
    return str(fault["message"])


def test_server_is_being_built_at_once_and_active_when_its_host_is_done(api: Api, fleet: ComputeFleet) -> None:
    response = post(api, {"metadata": {"role": "web"}})
    assert response.status_code == 202
    server = response.json()["server"]
    assert set(server) == ANSWER
    assert server["security_groups"] == [{"name": "default"}]
    assert len(server["adminPass"]) == 12
    assert response.headers["location"] == server["links"][0]["href"] == f"http://api.test/v2.1/servers/{server['id']}"
    building = show(api, server["id"])
    assert (building["status"], building["OS-EXT-STS:task_state"], building["hostId"]) == ("BUILD", "scheduling", "")
    assert (building["addresses"], building["OS-EXT-SRV-ATTR:host"], building["progress"]) == ({}, None, 0)
    fleet.work()
    active = show(api, server["id"])
    assert (active["status"], active["OS-EXT-STS:task_state"]) == ("ACTIVE", None)
    assert active["addresses"]["private"][0]["version"] == 4
    assert active["metadata"] == {"role": "web"}
    assert active["OS-EXT-SRV-ATTR:host"] in {f"{cell}-host{number}" for cell in fleet.cells for number in range(2)}


def test_everything_that_was_asked_for_is_shown(api: Api, fleet: ComputeFleet) -> None:
    server_id = create(
        api,
        fleet,
        "2.100",
        networks="auto",
        description="first of many",
        tags=["b", "a", "b"],
        user_data="aGVsbG8=",
        config_drive="yes",
        accessIPv4="10.1.2.3",
        availability_zone="east",
        hostname="guest.example.org",
        security_groups=[{"name": "web"}],
        **{"OS-DCF:diskConfig": "AUTO"},
    )
    server = show(api, server_id)
    assert {name: server[name] for name in ("name", "description", "tags", "config_drive", "accessIPv4")} == {
        "name": "web",
        "description": "first of many",
        "tags": ["a", "b"],
        "config_drive": "True",
        "accessIPv4": "10.1.2.3",
    }
    assert server["OS-EXT-AZ:availability_zone"] == server["pinned_availability_zone"] == "east"
    assert server["OS-EXT-SRV-ATTR:host"].startswith("east-")
    assert (server["OS-EXT-SRV-ATTR:hostname"], server["OS-DCF:diskConfig"]) == ("guest.example.org", "AUTO")
    assert server["security_groups"] == [{"name": "web"}]
    assert server["image"]["id"] == IMAGE


@pytest.mark.parametrize(
    ("written", "kept"),
    [("2001:DB8:0:0::7", "2001:db8::7"), ("0:0:0:0:0:FFFF:1.2.3.4", "::ffff:1.2.3.4"), ("fd00::1", "fd00::1")],
)
def test_address_of_version_6_is_kept_in_its_canonical_form(
    api: Api, fleet: ComputeFleet, written: str, kept: str
) -> None:
    server_id = create(api, fleet, accessIPv6=written)
    assert show(api, server_id)["accessIPv6"] == kept
    changes: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", f"/v2.1/servers/{server_id}", {"server": {}}),
        ("POST", f"/v2.1/servers/{server_id}/action", {"rebuild": {"imageRef": IMAGE}}),
    ]
    for method, path, body in changes:
        [key] = body
        api.request("PUT", f"/v2.1/servers/{server_id}", json={"server": {"accessIPv6": "fd00::ffff"}})
        response = api.request(method, path, MEMBER, json={key: body[key] | {"accessIPv6": written}})
        assert response.status_code in {200, 202}, response.text
        assert response.json()["server"]["accessIPv6"] == show(api, server_id)["accessIPv6"] == kept


def test_description_is_the_name_until_218_and_null_after(api: Api, fleet: ComputeFleet) -> None:
    assert show(api, create(api, fleet, "2.18"))["description"] == "web"
    assert show(api, create(api, fleet, "2.19"))["description"] is None


def test_several_servers_are_numbered_and_the_first_is_described(api: Api, fleet: ComputeFleet) -> None:
    response = post(api, {"name": "many", "min_count": "2", "max_count": 3})
    assert set(response.json()["server"]) == ANSWER
    names = [server["name"] for server in api.get("/v2.1/servers?name=many", ADMIN).json()["servers"]]
    assert sorted(names) == ["many-1", "many-2", "many-3"]


def test_reservation_is_one_key_without_a_location(api: Api) -> None:
    response = post(api, {"return_reservation_id": True, "max_count": 2})
    assert response.status_code == 202
    assert set(response.json()) == {"reservation_id"}
    assert "location" not in response.headers


@pytest.mark.parametrize(
    ("version", "values"),
    [
        ("2.37", {}),
        ("2.36", {"networks": "none"}),
        ("2.57", {"networks": "none", "personality": []}),
        ("2.51", {"networks": "none", "tags": ["a"]}),
        ("2.73", {"networks": "none", "host": "north-host0"}),
        ("2.1", {"flavorRef": "no-such"}),
        ("2.1", {"imageRef": ""}),
        ("2.1", {"key_name": "no-such"}),
        ("2.1", {"user_data": None}),
        ("2.1", {"user_data": "a"}),
        ("2.1", {"accessIPv4": ""}),
        ("2.1", {"name": " blank"}),
        ("2.1", {"min_count": 3, "max_count": 2}),
        ("2.1", {"availability_zone": "no-such"}),
        ("2.1", {"availability_zone": "a:b:c:d"}),
        ("2.1", {"networks": [{"port": UNKNOWN}]}),
        ("2.1", {"networks": [{"fixed_ip": "10.0.0.1"}]}),
        ("2.1", {"block_device_mapping_v2": [{"source_type": "image", "uuid": IMAGE, "boot_index": 1}]}),
        ("2.90", {"networks": "none", "hostname": "web", "max_count": 2}),
        ("2.63", {"networks": "none", "trusted_image_certificates": ["one", "one"]}),
        ("2.1", {"colour": "red"}),
        ("2.1", {"max_count": None}),
        ("2.1", {"block_device_mapping_v2": [{"source_type": "image", "uuid": IMAGE, "device_name": "vd a"}]}),
        ("2.74", {"networks": "none", "host": None}),
    ],
)
def test_request_that_makes_no_sense_is_refused(api: Api, version: str, values: dict[str, Any]) -> None:
    assert post(api, values, version, ADMIN).status_code == 400


ROOT = {"source_type": "image", "destination_type": "local", "uuid": IMAGE, "boot_index": 0}
BLANK = {"source_type": "blank", "destination_type": "local"}


@pytest.mark.parametrize(
    ("devices", "status"),
    [
        *(([{**ROOT, "disk_bus": bus}], 202) for bus in ("fdc", "ide", "sata", "scsi", "usb", "virtio", "xen", "lxc")),
        *(([{**ROOT, "disk_bus": bus}], 400) for bus in ("nvme", "VIRTIO", "virtio ", " ", "é", "x" * 256, 1, None)),
        ([{**ROOT, "disk_bus": ""}], 202),
        *(([{**ROOT, "device_type": kind}], 202) for kind in ("cdrom", "disk", "floppy", "fs", "lun")),
        *(([{**ROOT, "device_type": kind}], 400) for kind in ("", "tape", "DISK", 1, None)),
        ([ROOT, {**BLANK, "disk_bus": "warp"}], 400),
        ([ROOT, {**BLANK, "boot_index": 1}], 202),
        ([ROOT, {**BLANK, "boot_index": None}], 202),
        ([ROOT, {**BLANK, "boot_index": "-7"}], 202),
        ([ROOT, {**BLANK, "boot_index": 2}], 400),
        ([ROOT, {**BLANK, "boot_index": 1}, {**BLANK, "boot_index": "1"}], 400),
        ([ROOT, {**BLANK, "boot_index": 10**30}], 400),
        ([{**BLANK, "boot_index": 1}], 400),
        ([ROOT, {"boot_index": -1}], 400),
        ([ROOT, {"boot_index": -1, "uuid": UNKNOWN}], 400),
        ([ROOT, {"boot_index": -1, "uuid": UNKNOWN, "destination_type": "local"}], 400),
        ([ROOT, {"no_device": True, "device_name": "vdb"}], 202),
        ([ROOT, {"no_device": True, "virtual_name": "ephemeral0"}], 400),
        ([ROOT, {**BLANK, "virtual_name": "ephemeral0"}], 400),
    ],
)
def test_block_devices_are_those_that_nova_knows(api: Api, devices: list[dict[str, Any]], status: int) -> None:
    answer = post(api, {"block_device_mapping_v2": devices})
    assert answer.status_code == status, answer.text


def test_bodies_that_are_none_are_refused(api: Api) -> None:
    documents: list[object] = [None, [], {}, {"server": MINIMAL, "other": 1}, {"server": []}]
    for document in documents:
        assert api.request("POST", "/v2.1/servers", MEMBER, json=document).status_code == 400


def test_image_on_a_local_root_disk_is_the_same_as_the_image(api: Api) -> None:
    root = {"source_type": "image", "destination_type": "local", "uuid": IMAGE, "boot_index": 0}
    assert post(api, {"block_device_mapping_v2": [root]}).status_code == 202
    volume = {"source_type": "volume", "destination_type": "volume", "uuid": UNKNOWN, "boot_index": 0}
    assert post(api, {"block_device_mapping_v2": [volume], "imageRef": ""}).status_code == 501


@pytest.mark.parametrize(
    ("flavor_id", "disks", "status"),
    [
        ("1", [{"volume_size": 1}], 400),
        ("1", [{}], 202),
        ("1", [{"volume_size": 1, "guest_format": "swap"}], 400),
        ("1", [{"guest_format": "swap"}], 202),
        ("1", [{"guest_format": "swap"}, {"guest_format": "swap"}], 400),
        ("5", [{"volume_size": 20}], 202),
        ("5", [{"volume_size": 10}, {"volume_size": "11"}], 400),
        ("5", [{"volume_size": 1}, {}], 400),
    ],
)
def test_new_disks_are_no_larger_than_the_flavor_allows(
    api: Api, flavor_id: str, disks: list[dict[str, Any]], status: int
) -> None:
    root = {"source_type": "image", "destination_type": "local", "uuid": IMAGE, "boot_index": 0}
    blank = {"source_type": "blank", "destination_type": "local", "boot_index": -1}
    devices = [root, *(blank | disk for disk in disks)]
    assert post(api, {"flavorRef": flavor_id, "block_device_mapping_v2": devices}).status_code == status


def test_only_administrators_choose_the_host(api: Api, fleet: ComputeFleet) -> None:
    forced = {"availability_zone": "south:south-host1"}
    refused = post(api, forced)
    assert (refused.status_code, "servers:create:forced_host" in message(refused)) == (403, True)
    wanted = {"networks": "none", "host": "south-host1"}
    assert post(api, wanted, "2.74").status_code == 403
    for nowhere in ({"host": "no-such"}, {"hypervisor_hostname": "south-host0"}):
        assert post(api, wanted | nowhere, "2.74", ADMIN).status_code == 400
    for values, version in ((forced, "2.1"), (wanted, "2.74")):
        created = post(api, values, version, ADMIN)
        assert created.status_code == 202, created.text
        fleet.work()
        server = show(api, created.json()["server"]["id"])
        assert server["OS-EXT-SRV-ATTR:host"] == "south-host1"
        assert server["pinned_availability_zone"] is None


@pytest.mark.parametrize(
    ("values", "host"),
    [
        ({"availability_zone": "north", "host": "south-host1"}, None),
        ({"availability_zone": "north", "hypervisor_hostname": "south-host1"}, None),
        ({"availability_zone": "south", "host": "south-host1", "hypervisor_hostname": "south-host1"}, "south-host1"),
        ({"availability_zone": "north:south-host1"}, "south-host1"),
        ({"availability_zone": "north:south-host1:south-host1"}, "south-host1"),
        ({"availability_zone": "north::south-host1"}, "south-host1"),
        ({"availability_zone": "no-such:south-host1"}, "south-host1"),
        ({"availability_zone": "south:south-host1:south-host0"}, None),
    ],
)
def test_host_that_is_named_beside_a_zone_has_to_be_in_it_and_one_that_the_zone_names_has_not(
    api: Api, fleet: ComputeFleet, values: dict[str, str], host: str | None
) -> None:
    created = post(api, {"networks": "none"} | values, "2.104", ADMIN)
    assert created.status_code == 202, created.text
    fleet.work()
    server = api.get(f"/v2.1/servers/{created.json()['server']['id']}", ADMIN, microversion("2.104")).json()["server"]
    zone = None if ":" in values["availability_zone"] else values["availability_zone"]
    assert (server["OS-EXT-SRV-ATTR:host"], server["pinned_availability_zone"]) == (host, zone)
    if host is None:
        assert (server["status"], "No valid host" in server["fault"]["message"]) == ("ERROR", True)
    else:
        assert (server["status"], server["OS-EXT-AZ:availability_zone"]) == ("ACTIVE", "south")


def test_group_keeps_its_members_apart(api: Api, fleet: ComputeFleet) -> None:
    group = fleet.fleet.server_groups.create("apart", "anti-affinity", project_id="red", user_id="ada")
    hints = {"group": group.uuid, "note": "kept"}
    ids = [
        post(api, {"availability_zone": "north"}, hints=hints).json()["server"]["id"],
        post(api, {"availability_zone": "north"}, hints=hints).json()["server"]["id"],
    ]
    fleet.work()
    servers = [show(api, server_id) for server_id in ids]
    assert {server["OS-EXT-SRV-ATTR:host"] for server in servers} == {"north-host0", "north-host1"}
    assert [server["server_groups"] for server in servers] == [[group.uuid]] * 2
    third = post(api, {"availability_zone": "north"}, hints=hints).json()["server"]["id"]
    fleet.work()
    assert show(api, third)["status"] == "ERROR"
    unknown = post(api, {}, hints={"group": UNKNOWN})
    assert unknown.status_code == 400


def test_nothing_fits_is_an_error_with_a_fault(api: Api, fleet: ComputeFleet) -> None:
    created = post(api, {"availability_zone": "north:no-such-host"}, "2.1", ADMIN)
    fleet.work()
    server = show(api, created.json()["server"]["id"])
    assert (server["status"], server["OS-EXT-SRV-ATTR:host"], server["fault"]["code"]) == ("ERROR", None, 500)
    assert "No valid host" in server["fault"]["message"]


def test_quota_is_a_matter_of_permission(api: Api, fleet: ComputeFleet) -> None:
    fleet.fleet.quotas.set_limits("blue", {"instances": 1})
    assert post(api, {}, caller=BLUE).status_code == 202
    refused = post(api, {}, caller=BLUE)
    assert (refused.status_code, "forbidden" in refused.json()) == (403, True)
    assert post(api, {"metadata": {f"k{number}": "v" for number in range(129)}}).status_code == 403


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 10**30, "9" * 30])
def test_more_servers_than_the_quota_allows_are_not_even_prepared(api: Api, count: object) -> None:
    refused = post(api, {"max_count": count})
    assert refused.status_code == 403
    assert "Quota exceeded for instances" in message(refused)


@pytest.mark.parametrize("count", [1001, 10**30])
def test_one_request_creates_a_thousand_servers_at_most_whatever_the_quota(
    api: Api, fleet: ComputeFleet, count: int
) -> None:
    fleet.fleet.quotas.set_limits("violet", dict.fromkeys(("instances", "cores", "ram"), UNLIMITED))
    refused = post(api, {"max_count": count}, caller=BLUE | {"X-Project-Id": "violet"})
    assert refused.status_code == 400
    assert message(refused) == "One request can create 1000 servers at most; send several."


def test_group_that_is_deleted_meanwhile_is_unknown(
    api: Api, fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = fleet.fleet.server_groups.create("gone", "affinity", project_id="red", user_id="ada")
    add_members = ServerGroups.add_members

    def after_its_deletion(self: ServerGroups, uuid: str, members: list[str], *, limit: int) -> None:
        self.delete(group.uuid, project_id=None)
        add_members(self, uuid, members, limit=limit)

    monkeypatch.setattr(ServerGroups, "add_members", after_its_deletion)
    answer = post(api, {}, hints={"group": group.uuid})
    assert (answer.status_code, "could not be found" in answer.text) == (400, True)


def test_security_group_without_a_name_means_nothing(api: Api, fleet: ComputeFleet) -> None:
    server = show(api, create(api, fleet, security_groups=[{}, {"name": "web"}]))
    assert server["security_groups"] == [{"name": "web"}]


def test_server_beside_one_that_there_is_not_finds_no_host(api: Api, fleet: ComputeFleet) -> None:
    accepted = post(api, {}, hints={"same_host": "no uuid"})
    assert accepted.status_code == 202
    fleet.work()
    assert show(api, accepted.json()["server"]["id"])["status"] == "ERROR"


@pytest.fixture
def theirs(fleet: ComputeFleet) -> str:
    """A server of another project, on one of the two hosts of its cell."""
    return fleet.create("north", project_id="blue", host="north-host1", node="north-host1")


def placed(api: Api, fleet: ComputeFleet, caller: dict[str, str], **hints: Any) -> tuple[int, str, str | None]:
    """Status of the answer, then that of the server, and its host."""
    response = post(api, {"availability_zone": "north"}, caller=caller, hints=hints)
    fleet.work()
    server = show(api, response.json()["server"]["id"])
    return response.status_code, server["status"], server["OS-EXT-SRV-ATTR:host"]


def test_hint_with_a_server_of_another_project_means_as_much_as_one_that_there_is_not(
    api: Api, fleet: ComputeFleet, theirs: str
) -> None:
    for uuid in (theirs, UNKNOWN):
        for hint in (uuid, [uuid]):
            assert placed(api, fleet, MEMBER, same_host=hint) == (202, "ERROR", None)
        own = fleet.create("north", project_id="red", host="north-host0", node="north-host0")
        assert placed(api, fleet, MEMBER, different_host=[uuid, own]) == (202, "ACTIVE", "north-host1")


def test_administrator_may_name_servers_of_any_project_in_hints(api: Api, fleet: ComputeFleet, theirs: str) -> None:
    assert placed(api, fleet, ADMIN, same_host=theirs) == (202, "ACTIVE", "north-host1")
    assert placed(api, fleet, ADMIN, different_host=theirs) == (202, "ACTIVE", "north-host0")


def test_hint_of_an_administrator_counts_when_an_administrator_moves_the_server(
    api: Api, fleet: ComputeFleet, theirs: str
) -> None:
    body = {"server": MINIMAL | {"availability_zone": "north"}, "os:scheduler_hints": {"different_host": theirs}}
    moved = api.request("POST", "/v2.1/servers", ADMIN, json=body).json()["server"]["id"]
    fleet.work()
    assert api.request("POST", f"/v2.1/servers/{moved}/action", ADMIN, json={"migrate": None}).status_code == 202
    fleet.work()
    assert show(api, moved)["OS-EXT-SRV-ATTR:host"] == "north-host0"


def test_hint_tells_nothing_of_the_cell_of_another_projects_server(api: Api, fleet: ComputeFleet) -> None:
    """Of an own one the answer would be 409."""
    there = fleet.create("south", project_id="blue")
    fleet.fleet.set_disabled(fleet.cells["south"].uuid, disabled=True)
    try:
        answers = [post(api, {}, hints={"same_host": uuid}).status_code for uuid in (there, UNKNOWN)]
    finally:
        fleet.fleet.set_disabled(fleet.cells["south"].uuid, disabled=False)
    assert answers == [202, 202]
    fleet.work()


def test_only_administrators_see_that_a_server_is_in_a_group_of_another_project(api: Api, fleet: ComputeFleet) -> None:
    theirs = fleet.fleet.server_groups.create("theirs", "anti-affinity", project_id="blue", user_id="bob").uuid
    created = post(api, {}, caller=ADMIN, hints={"group": theirs})
    fleet.work()
    url, latest = f"/v2.1/servers/{created.json()['server']['id']}", microversion("2.104")
    change = {"server": {"name": "other"}}
    for caller, groups in ((ADMIN, [theirs]), (MEMBER, []), (READER, [])):
        assert api.get(url, caller, latest).json()["server"]["server_groups"] == groups
    for caller, groups in ((ADMIN, [theirs]), (MEMBER, [])):
        changed = api.request("PUT", url, caller | latest, json=change)
        assert changed.json()["server"]["server_groups"] == groups


def test_group_of_another_project_is_refused_like_one_that_there_is_not(api: Api, fleet: ComputeFleet) -> None:
    theirs = fleet.fleet.server_groups.create("theirs", "affinity", project_id="blue", user_id="bob").uuid
    answers = [post(api, {}, hints={"group": uuid}) for uuid in (theirs, UNKNOWN)]
    assert [answer.status_code for answer in answers] == [400, 400]
    assert message(answers[0]).replace(theirs, UNKNOWN) == message(answers[1])


def test_quota_holds_for_requests_that_come_at_once(api: Api, fleet: ComputeFleet) -> None:
    fleet.fleet.quotas.set_limits("green", {"instances": 2, "server_groups": 1})
    caller = {"X-Roles": "member", "X-Project-Id": "green", "X-User-Id": "gus"}
    group = {"server_group": {"name": "group", "policies": ["affinity"]}}
    for url, accepted, limit, body in (
        ("/v2.1/servers", 202, 2, {"server": MINIMAL}),
        ("/v2.1/os-server-groups", 200, 1, group),
    ):
        answers = api.at_once(6, "POST", url, caller, json=body)
        assert sorted(answer.status_code for answer in answers) == [accepted] * limit + [403] * (6 - limit)


def test_pending_resize_counts_against_the_quota(api: Api, fleet: ComputeFleet) -> None:
    caller = {"X-Roles": "member", "X-Project-Id": "teal"}
    server_id = post(api, {}, caller=caller).json()["server"]["id"]
    fleet.work()
    used = api.get("/v2.1/limits", caller).json()["limits"]["absolute"]["totalCoresUsed"]
    larger = api.get("/v2.1/flavors/3", caller).json()["flavor"]["vcpus"]
    assert larger > used
    url = f"/v2.1/servers/{server_id}/action"
    assert api.request("POST", url, caller, json={"resize": {"flavorRef": "3"}}).status_code == 202
    for _ in ("accepted", "carried out"):
        assert api.get("/v2.1/limits", caller).json()["limits"]["absolute"]["totalCoresUsed"] == larger
        fleet.work()


def test_revert_to_more_than_the_quota_is_refused(api: Api, fleet: ComputeFleet) -> None:
    caller = {"X-Roles": "member", "X-Project-Id": "plum"}
    server_id = post(api, {"flavorRef": "3"}, caller=caller).json()["server"]["id"]
    fleet.work()
    url = f"/v2.1/servers/{server_id}/action"
    assert api.request("POST", url, caller, json={"resize": {"flavorRef": "1"}}).status_code == 202
    fleet.work()
    cores = [api.get(f"/v2.1/flavors/{flavor}", caller).json()["flavor"]["vcpus"] for flavor in ("1", "3")]
    fleet.fleet.quotas.set_limits("plum", {"cores": cores[0]})
    assert api.request("POST", url, caller, json={"revertResize": None}).status_code == 403
    fleet.fleet.quotas.set_limits("plum", {"cores": cores[1]})
    assert api.request("POST", url, caller, json={"revertResize": None}).status_code == 202
    for _ in ("accepted", "carried out"):
        assert api.get("/v2.1/limits", caller).json()["limits"]["absolute"]["totalCoresUsed"] == cores[1]
        fleet.work()


def test_creation_that_its_cell_could_not_take_does_not_count(api: Api, fleet: ComputeFleet) -> None:
    caller = {"X-Roles": "member", "X-Project-Id": "gold"}
    engines = [fleet.native.engine(cell) for cell in fleet.cells.values()]
    try:
        for engine in engines:
            with engine.begin() as connection:
                connection.execute(text("ALTER TABLE jobs RENAME TO jobs_elsewhere"))
        assert post(api, {}, caller=caller).status_code in {500, 503}
    finally:
        for engine in engines:
            with engine.begin() as connection:
                connection.execute(text("ALTER TABLE jobs_elsewhere RENAME TO jobs"))
    assert api.get("/v2.1/limits", caller).json()["limits"]["absolute"]["totalInstancesUsed"] == 0


def test_event_of_the_creation_has_the_host_that_was_chosen(api: Api, fleet: ComputeFleet) -> None:
    created = post(api, {})
    fleet.work()
    server_id, request_id = created.json()["server"]["id"], created.headers["x-openstack-request-id"]
    url = f"/v2.1/servers/{server_id}/os-instance-actions/{request_id}"
    [event] = api.get(url, microversion("2.62")).json()["instanceAction"]["events"]
    assert event["host"] == show(api, server_id)["OS-EXT-SRV-ATTR:host"] is not None


def test_members_that_belong_together_go_to_the_cell_of_the_first(api: Api, fleet: ComputeFleet) -> None:
    """Though another cell has more room after it."""
    beside = fleet.fleet.server_groups.create("beside", "affinity", project_id="red", user_id="ada")
    ids = [post(api, {}, hints={"group": beside.uuid}).json()["server"]["id"] for _ in range(4)]
    fleet.work()
    shown = [show(api, server_id) for server_id in ids]
    assert {server["status"] for server in shown} == {"ACTIVE"}
    [host] = {server["OS-EXT-SRV-ATTR:host"] for server in shown}
    same = post(api, {}, hints={"same_host": ids[0]}).json()["server"]["id"]
    fleet.work()
    assert show(api, same)["OS-EXT-SRV-ATTR:host"] == host


def test_soft_policies_are_preferences(api: Api, fleet: ComputeFleet) -> None:
    for policy, hosts in (("soft-affinity", 1), ("soft-anti-affinity", 2)):
        group = fleet.fleet.server_groups.create(policy, policy, project_id="red", user_id="ada")
        ids = [
            post(api, {"availability_zone": "north"}, hints={"group": group.uuid}).json()["server"]["id"]
            for _ in range(3)
        ]
        fleet.work()
        shown = [show(api, server_id) for server_id in ids]
        assert [server["status"] for server in shown] == ["ACTIVE"] * 3
        assert len({server["OS-EXT-SRV-ATTR:host"] for server in shown}) == hosts


def test_reader_may_not_create_change_or_delete(api: Api, fleet: ComputeFleet) -> None:
    server_id = create(api, fleet)
    assert post(api, {}, caller=READER).status_code == 403
    assert api.request("PUT", f"/v2.1/servers/{server_id}", READER, json={"server": {}}).status_code == 403
    assert api.request("DELETE", f"/v2.1/servers/{server_id}", READER).status_code == 403


def test_servers_of_others_are_not_there(api: Api, fleet: ComputeFleet) -> None:
    server_id = create(api, fleet)
    assert api.request("PUT", f"/v2.1/servers/{server_id}", BLUE, json={"server": {}}).status_code == 404
    assert api.request("DELETE", f"/v2.1/servers/{server_id}", BLUE).status_code == 404
    for unknown in (UNKNOWN, "no-uuid"):
        assert api.request("DELETE", f"/v2.1/servers/{unknown}", MEMBER).status_code == 404


def test_update_answers_with_the_keys_of_its_microversion(api: Api, fleet: ComputeFleet) -> None:
    server_id = create(api, fleet)

    def put(version: str, **values: Any) -> dict[str, Any]:
        url = f"/v2.1/servers/{server_id}"
        response = api.request("PUT", url, MEMBER | microversion(version), json={"server": values})
        assert response.status_code == 200, response.text
        return dict(response.json()["server"])

    renamed = put("2.1", name="db", accessIPv6="fe80::1")
    assert set(renamed) == CHANGED | {"progress"}
    assert (renamed["name"], renamed["accessIPv6"]) == ("db", "fe80::1")
    assert set(renamed["addresses"]["private"][0]) == {"version", "addr"}
    assert put("2.19", description=None)["description"] is None
    assert set(put("2.73")) == CHANGED | {
        *("progress", "locked", "description", "tags", "trusted_image_certificates", "server_groups"),
        "locked_reason",
    }
    assert set(put("2.75")) == set(api.get(f"/v2.1/servers/{server_id}", MEMBER, microversion("2.75")).json()["server"])
    assert put("2.90", hostname="guest")["name"] == "db"
    too_new = {"server": {"description": "x"}}
    assert api.request("PUT", f"/v2.1/servers/{server_id}", MEMBER, json=too_new).status_code == 400


def test_pin_can_be_set_to_the_present_zone_and_taken_away(api: Api, fleet: ComputeFleet) -> None:
    server_id = create(api, fleet, availability_zone="east")

    def pin(zone: str | None) -> int:
        body = {"server": {"pinned_availability_zone": zone}}
        headers = MEMBER | microversion("2.104")
        return api.request("PUT", f"/v2.1/servers/{server_id}", headers, json=body).status_code

    assert [pin(zone) for zone in ("east", "north", None, "east")] == [200, 409, 200, 200]


def test_pin_is_that_of_the_zone_in_which_the_server_is_by_then(
    api: Api, fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_id = create(api, fleet, availability_zone="east")
    revise = Acceptance.revise

    def after_a_move(self: Acceptance, uuid: str, *values: Any) -> InstanceRow:
        moved = {"availability_zone": "elsewhere", "pinned_availability_zone": None}
        revise(self, uuid, lambda _record: moved, NO_REQUEST)
        return revise(self, uuid, *values)

    monkeypatch.setattr(Acceptance, "revise", after_a_move)
    body = {"server": {"pinned_availability_zone": "east"}}
    refused = api.request("PUT", f"/v2.1/servers/{server_id}", MEMBER | microversion("2.104"), json=body)
    assert refused.status_code == 409
    assert show(api, server_id)["pinned_availability_zone"] is None


def test_deleted_server_is_gone_when_its_host_is_done(api: Api, fleet: ComputeFleet) -> None:
    server_id = create(api, fleet)
    url = f"/v2.1/servers/{server_id}"
    assert api.request("DELETE", url, MEMBER).status_code == 204
    assert show(api, server_id)["OS-EXT-STS:task_state"] == "deleting"
    assert api.request("DELETE", url, MEMBER).status_code == 204
    fleet.work()
    assert api.get(url, ADMIN).status_code == 404
    assert api.request("DELETE", url, MEMBER).status_code == 404


@pytest.fixture
def nodes_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that the scheduler has read of a cell, one by one."""
    names: list[str] = []
    made = scheduled_hosts._host

    def read(row: Any, query: scheduled_hosts.HostQuery) -> scheduled_hosts.Host:
        host = made(row, query)
        names.append(host.nodename)
        return host

    monkeypatch.setattr(scheduled_hosts, "_host", read)
    return names


def test_new_server_costs_other_cells_one_row_however_many_hosts_they_have(api: Api, nodes_read: list[str]) -> None:
    assert post(api, {}).status_code == 202
    [_] = {name.partition("-")[0] for name in nodes_read}


def test_server_for_a_host_is_placed_without_a_look_at_others(
    api: Api, fleet: ComputeFleet, nodes_read: list[str]
) -> None:
    fleet.work()
    nodes_read.clear()
    assert post(api, {"host": "east-host1", "networks": "none"}, "2.74", ADMIN).status_code == 202
    fleet.work()
    assert set(nodes_read) == {"east-host1"}


@pytest.fixture
def slow_cell(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The cell south answers the question for its room once the event is set."""
    gate = threading.Event()

    def read(engine: Engine, cell: Cell, *wanted: Any, **named: Any) -> CellCapacity:
        if cell.name == "south":
            gate.wait(60)
        return read_capacity(engine, cell, *wanted, **named)

    monkeypatch.setattr("fleetlight.manager.faces.servers.create.read_capacity", read)
    yield gate
    gate.set()


def test_slow_cell_does_not_hold_a_new_server(api: Api, fleet: ComputeFleet, slow_cell: threading.Event) -> None:
    response = post(api, {})
    assert response.status_code == 202, response.text
    assert not slow_cell.is_set()
    cell = fleet.fleet.mapping_of(response.json()["server"]["id"])
    assert cell is not None
    assert cell.cell_uuid in {fleet.cells["north"].uuid, fleet.cells["east"].uuid}


def test_slow_cell_is_waited_for_when_it_may_have_the_host(api: Api, slow_cell: threading.Event) -> None:
    threading.Timer(0.5, slow_cell.set).start()
    response = post(api, {"host": "south-host0", "networks": "none"}, "2.74", ADMIN)
    assert response.status_code == 202, response.text
    assert slow_cell.is_set()


def test_slow_cell_is_waited_for_when_no_other_has_room(api: Api, slow_cell: threading.Event) -> None:
    threading.Timer(0.5, slow_cell.set).start()
    assert post(api, {"availability_zone": "south"}).status_code == 202
    assert slow_cell.is_set()


@pytest.fixture
def group_with_late_member(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch, slow_cell: threading.Event
) -> ServerGroup:
    """A group whose first member comes to the slow cell while the next one is asked for, after the other cells were."""
    group = fleet.fleet.server_groups.create("late", "affinity", project_id="red", user_id="ada")

    def add_first(*asked: Any) -> bool:
        answer = is_enough(*asked)
        if answer and not fleet.fleet.server_groups.find(group.uuid, project_id="red").members:
            uuid = fleet.create("south", project_id="red", host="south-host0", node="south-host0")
            fleet.fleet.server_groups.add_members(group.uuid, [uuid], limit=10)
        return answer

    monkeypatch.setattr("fleetlight.manager.faces.servers.create.is_enough", add_first)
    return group


def _has_member(fleet: ComputeFleet, group: ServerGroup) -> bool:
    return bool(fleet.fleet.server_groups.find(group.uuid, project_id="red").members)


def test_next_member_waits_for_the_cell_that_the_first_came_to_meanwhile(
    api: Api, fleet: ComputeFleet, slow_cell: threading.Event, group_with_late_member: ServerGroup
) -> None:
    def answer_when_the_first_has_come() -> None:
        wait_until(lambda: _has_member(fleet, group_with_late_member))
        slow_cell.set()

    with ThreadPoolExecutor(1) as threads:
        answering = threads.submit(answer_when_the_first_has_come)
        response = post(api, {}, hints={"group": group_with_late_member.uuid})
        answering.result()
    assert response.status_code == 202, response.text
    fleet.work()
    server = show(api, response.json()["server"]["id"])
    assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", "south-host0")


def test_server_beside_one_in_a_cell_that_takes_none_is_refused(api: Api, fleet: ComputeFleet) -> None:
    there = fleet.create("south", project_id="red")
    fleet.fleet.set_disabled(fleet.cells["south"].uuid, disabled=True)
    try:
        refused = post(api, {}, hints={"same_host": there})
    finally:
        fleet.fleet.set_disabled(fleet.cells["south"].uuid, disabled=False)
    assert refused.status_code == 409


def test_next_member_is_refused_when_the_cell_of_the_first_goes_down_meanwhile(
    api: Api, fleet: ComputeFleet, group_with_late_member: ServerGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(engine: Engine, cell: Cell, *wanted: Any, **named: Any) -> CellCapacity:
        if cell.name == "south":
            wait_until(lambda: _has_member(fleet, group_with_late_member))
            raise CellUnreachableError(cell.name, "it is stopped")
        return read_capacity(engine, cell, *wanted, **named)

    monkeypatch.setattr("fleetlight.manager.faces.servers.create.read_capacity", late)
    refused = post(api, {}, hints={"group": group_with_late_member.uuid})
    assert refused.status_code == 409
    assert "does not answer" in message(refused)


def test_without_any_cell_that_answers_a_new_server_is_an_error_and_not_impossible(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_engine: Engine, cell: Cell, *_wanted: Any, **_named: Any) -> CellCapacity:
        raise CellUnreachableError(cell.name, "it is stopped")

    monkeypatch.setattr("fleetlight.manager.faces.servers.create.read_capacity", fail)
    refused = post(api, {})
    assert (refused.status_code, *refused.json()) == (503, "serviceUnavailable")
    assert int(refused.headers["Retry-After"]) > 0
