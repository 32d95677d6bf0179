"""`POST /servers/{id}/action`, instance actions and migrations, by microversion."""

from typing import Any

import httpx
import pytest

from fleetlight.cells.model import NO_REQUEST, InstanceRow
from fleetlight.manager.operations.actions.accepting import Acceptance
from fleetlight.manager.operations.native_cells import nodes_in
from tests.contract.compute_fleet import Api, ComputeFleet, microversion
from tests.support.values import IMAGE

ADMIN = {"X-Project-Id": "red", "X-User-Id": "root"}
OTHER_ADMIN = {"X-Project-Id": "staff", "X-User-Id": "root"}
MEMBER = {"X-Project-Id": "red", "X-User-Id": "ada", "X-Roles": "member"}
READER = MEMBER | {"X-Roles": "reader"}
STRANGER = {"X-Project-Id": "blue", "X-User-Id": "bob", "X-Roles": "member"}
FLAVOR = {"flavorid": "1", "name": "m1.tiny", "memory_mb": 512, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0}
ACTION = {"action", "instance_uuid", "request_id", "user_id", "project_id", "start_time", "message"}
EVENT = {"event", "start_time", "finish_time", "result"}
MIGRATION = {
    *("id", "instance_uuid", "status", "source_compute", "source_node", "dest_compute", "dest_node", "dest_host"),
    *("old_instance_type_id", "new_instance_type_id", "created_at", "updated_at"),
}


@pytest.fixture(scope="module")
def fleet(fleet: ComputeFleet) -> ComputeFleet:
    fleet.add_hosts()
    return fleet


def new_server(fleet: ComputeFleet, **values: Any) -> str:
    """A server that is there already, on north-host0."""
    placed = {"host": "north-host0", "node": "north-host0", "flavor": FLAVOR, "project_id": "red", "user_id": "ada"}
    return fleet.create("north", **(placed | values))


def act(
    api: Api, server_id: str, body: object, version: str = "2.1", caller: dict[str, str] = MEMBER
) -> httpx.Response:
    return api.request("POST", f"/v2.1/servers/{server_id}/action", caller | microversion(version), json=body)


def status(api: Api, server_id: str) -> str:
    return str(api.get(f"/v2.1/servers/{server_id}", ADMIN).json()["server"]["status"])


@pytest.mark.parametrize(
    ("body", "state", "seen"),
    [
        ({"os-stop": None}, {}, (202, "ACTIVE", "SHUTOFF")),
        ({"os-start": {"any": "thing"}}, {"vm_state": "stopped"}, (202, "SHUTOFF", "ACTIVE")),
        ({"reboot": {"type": "Soft"}}, {}, (202, "REBOOT", "ACTIVE")),
        ({"reboot": {"type": "HARD"}}, {"vm_state": "stopped"}, (202, "SHUTOFF", "ACTIVE")),
        ({"pause": None}, {}, (202, "ACTIVE", "PAUSED")),
        ({"suspend": None}, {}, (202, "ACTIVE", "SUSPENDED")),
        ({"rescue": {"adminPass": "secret"}}, {}, (200, "ACTIVE", "RESCUE")),
        ({"resize": {"flavorRef": 2}}, {}, (202, "RESIZE", "VERIFY_RESIZE")),
        ({"shelve": None}, {}, (202, "ACTIVE", "SHELVED_OFFLOADED")),
        ({"changePassword": {"adminPass": "secret"}}, {}, (202, "PASSWORD", "ACTIVE")),
        ({"forceDelete": None}, {}, (202, "ACTIVE", None)),
    ],
)
def test_accepted_action_is_seen_at_once_and_finished_by_a_worker(
    api: Api, fleet: ComputeFleet, body: dict[str, Any], state: dict[str, Any], seen: tuple[int, str, str | None]
) -> None:
    code, meanwhile, after = seen
    server_id = new_server(fleet, **state)
    response = act(api, server_id, body)
    assert response.status_code == code, response.text
    assert response.content == (b'{"adminPass":"secret"}' if code == 200 else b"")
    assert status(api, server_id) == meanwhile
    fleet.work()
    if after is None:
        assert api.get(f"/v2.1/servers/{server_id}", ADMIN).status_code == 404
    else:
        assert status(api, server_id) == after


@pytest.mark.parametrize(
    ("version", "body", "code"),
    [
        ("2.1", {}, 400),
        ("2.1", {"os-stop": None, "os-start": None}, 400),
        ("2.1", {"dance": None}, 400),
        ("2.1", [], 400),
        ("2.1", {"reboot": {"type": "gently"}}, 400),
        ("2.1", {"reboot": {}}, 400),
        ("2.1", {"resize": {"flavorRef": "1"}}, 400),
        ("2.1", {"resize": {"flavorRef": "no-such"}}, 400),
        ("2.73", {"lock": {"locked_reason": ""}}, 400),
        ("2.77", {"unshelve": {}}, 400),
        ("2.16", {"trigger_crash_dump": None}, 404),
        ("2.17", {"trigger_crash_dump": {}}, 400),
        ("2.6", {"os-getVNCConsole": {"type": "novnc"}}, 404),
        ("2.5", {"os-getVNCConsole": {"type": "novnc"}}, 501),
        ("2.5", {"os-getVNCConsole": {"type": "spice-html5"}}, 400),
        ("2.5", {"os-getSPICEConsole": {"type": "spice-html5"}}, 501),
        ("2.5", {"os-getSPICEConsole": {"type": "novnc"}}, 400),
        ("2.5", {"os-getSerialConsole": {"type": "serial"}}, 501),
        ("2.5", {"os-getSerialConsole": {"type": "novnc"}}, 400),
        ("2.5", {"os-getRDPConsole": {"type": "rdp-html5"}}, 400),
        ("2.6", {"os-getRDPConsole": {"type": "rdp-html5"}}, 404),
        ("2.1", {"addFixedIp": {"networkId": ""}}, 400),
        ("2.1", {"addFixedIp": {"networkId": 1}}, 501),
        ("2.1", {"removeFloatingIp": {"address": "10.0"}}, 400),
        ("2.1", {"removeFloatingIp": {"address": "10.0.0.1"}}, 501),
        ("2.1", {"os-getConsoleOutput": {}}, 501),
        ("2.1", {"createImage": {"name": "x"}}, 501),
        ("2.1", {"resetNetwork": None}, 410),
        ("2.1", {"os-start": None}, 409),
        ("2.1", {"unshelve": None}, 409),
        ("2.76", {"unshelve": {"availability_zone": "north"}}, 409),
        ("2.91", {"unshelve": {}}, 409),
        ("2.1", {"restore": None}, 409),
        ("2.1", {"rebuild": {"imageRef": "no-uuid"}}, 400),
        ("2.57", {"rebuild": {"imageRef": IMAGE, "personality": []}}, 400),
        ("2.24", {"os-migrateLive": {"host": None, "block_migration": False}}, 400),
        ("2.25", {"os-migrateLive": {"host": None, "block_migration": "auto", "disk_over_commit": False}}, 400),
        ("2.25", {"os-migrateLive": {"host": "no-such", "block_migration": "auto"}}, 400),
        ("2.14", {"evacuate": {"host": "no-such"}}, 404),
        ("2.14", {"evacuate": {}}, 400),  # its host is up
    ],
)
def test_action_that_cannot_be_is_refused(api: Api, fleet: ComputeFleet, version: str, body: object, code: int) -> None:
    response = act(api, new_server(fleet), body, version, ADMIN)
    assert response.status_code == code, response.text


def test_refusal_names_the_action_and_the_state(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    fault = act(api, server_id, {"os-start": None}).json()["conflictingRequest"]
    assert fault["message"] == f"Cannot 'start' instance {server_id} while it is in vm_state active"


def test_bad_body_comes_before_the_lookup_and_the_lookup_before_the_policy(api: Api, fleet: ComputeFleet) -> None:
    server_id, unknown = new_server(fleet), "11111111-2222-4333-8444-555555555555"
    assert act(api, unknown, {"reboot": {}}).status_code == 400
    assert act(api, unknown, {"os-stop": None}).status_code == 404
    assert act(api, server_id, {"os-stop": None}, caller=STRANGER).status_code == 404
    assert act(api, server_id, {"os-start": None}, caller=READER).status_code == 403
    assert act(api, server_id, {"os-resetState": {"state": "error"}}).status_code == 403
    assert act(api, server_id, {"migrate": None}).status_code == 403


@pytest.mark.parametrize(
    ("vm_state", "body"),
    [
        ("paused", {"resize": {"flavorRef": "no-such"}}),
        ("paused", {"migrate": {"host": "no-such"}}),
        ("paused", {"evacuate": {"host": "no-such"}}),
        ("paused", {"rebuild": {"imageRef": IMAGE, "key_name": "no-such"}}),
        ("stopped", {"os-migrateLive": {"host": "no-such", "block_migration": "auto"}}),
        ("active", {"unshelve": {"availability_zone": "no-such"}}),
        ("active", {"unshelve": {"host": "no-such"}}),
        ("active", {"revertResize": None}),
    ],
)
def test_state_comes_before_what_the_body_names(
    api: Api, fleet: ComputeFleet, vm_state: str, body: dict[str, Any]
) -> None:
    server_id = new_server(fleet, vm_state=vm_state)
    response = act(api, server_id, body, "2.91", ADMIN)
    assert (response.status_code, list(response.json())) == (409, ["conflictingRequest"]), response.text
    assert vm_state in response.text


def test_lock_comes_before_what_the_body_names_and_the_policy_before_the_lock(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet, locked=True, locked_by="owner")
    assert "is locked" in act(api, server_id, {"resize": {"flavorRef": "no-such"}}).text
    assert act(api, server_id, {"unshelve": {"host": "no-such"}}, "2.91").status_code == 403


def test_locked_server_refuses_its_owner_but_no_administrator(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    assert act(api, server_id, {"lock": {"locked_reason": "mine"}}, "2.73").status_code == 202
    for body in ({"os-stop": None}, {"rebuild": {"imageRef": IMAGE}}):
        assert act(api, server_id, body).status_code == 409
    assert api.request("DELETE", f"/v2.1/servers/{server_id}", MEMBER).status_code == 409
    assert api.request("PUT", f"/v2.1/servers/{server_id}", MEMBER, json={"server": {}}).status_code == 200
    shown = api.get(f"/v2.1/servers/{server_id}", MEMBER, microversion("2.73")).json()["server"]
    assert (shown["locked"], shown["locked_reason"]) == (True, "mine")
    assert act(api, server_id, {"unlock": None}).status_code == 202
    assert act(api, server_id, {"lock": None}, caller=OTHER_ADMIN).status_code == 202
    assert act(api, server_id, {"unlock": None}).status_code == 403
    assert act(api, server_id, {"os-stop": None}, caller=OTHER_ADMIN).status_code == 202


def test_rebuild_answers_with_the_server_and_a_password(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    body = {"rebuild": {"imageRef": IMAGE, "name": "anew", "metadata": {"a": "b"}, "user_data": "aGVsbG8="}}
    response = act(api, server_id, body, "2.57")
    assert response.status_code == 202
    assert response.headers["location"].endswith(server_id)
    server = response.json()["server"]
    assert (server["status"], server["name"], server["metadata"]) == ("REBUILD", "anew", {"a": "b"})
    assert {"adminPass", "key_name", "user_data"} <= set(server)
    assert not {"OS-EXT-SRV-ATTR:user_data", "OS-EXT-STS:vm_state"} & set(server)
    fleet.work()
    assert status(api, server_id) == "ACTIVE"


def test_resize_is_confirmed_or_reverted(api: Api, fleet: ComputeFleet) -> None:
    confirmed, reverted = new_server(fleet), new_server(fleet)
    for server_id in (confirmed, reverted):
        assert act(api, server_id, {"resize": {"flavorRef": "2"}}).status_code == 202
    fleet.work()
    assert act(api, confirmed, {"confirmResize": None}).status_code == 204
    assert act(api, confirmed, {"confirmResize": None}).status_code == 400
    assert act(api, reverted, {"revertResize": None}).status_code == 202
    fleet.work()
    for server_id, flavor_id in ((confirmed, "2"), (reverted, "1")):
        server = api.get(f"/v2.1/servers/{server_id}", ADMIN).json()["server"]
        assert (server["status"], server["flavor"]["id"]) == ("ACTIVE", flavor_id)


def test_reset_state_gives_up_what_is_under_way(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    act(api, server_id, {"os-stop": None})
    assert act(api, server_id, {"os-resetState": {"state": "error"}}, caller=ADMIN).status_code == 202
    fleet.work()
    server = api.get(f"/v2.1/servers/{server_id}", ADMIN).json()["server"]
    assert (server["status"], server["OS-EXT-STS:task_state"]) == ("ERROR", None)


def test_security_groups_are_added_and_removed(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet, security_groups=["default"])
    assert act(api, server_id, {"addSecurityGroup": {"name": "web"}}).status_code == 202
    assert act(api, server_id, {"removeSecurityGroup": {"name": "default"}}).status_code == 202
    assert act(api, server_id, {"removeSecurityGroup": {"name": "default"}}).status_code == 404
    server = api.get(f"/v2.1/servers/{server_id}", ADMIN).json()["server"]
    assert server["security_groups"] == [{"name": "web"}]


def test_instance_action_has_the_keys_of_its_microversion(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    request_id = act(api, server_id, {"os-stop": None}).headers["x-openstack-request-id"]
    fleet.work()
    url = f"/v2.1/servers/{server_id}/os-instance-actions"

    def shown(version: str, caller: dict[str, str] = MEMBER) -> dict[str, Any]:
        return dict(api.get(f"{url}/{request_id}", caller, microversion(version)).json()["instanceAction"])

    assert set(shown("2.1")) == ACTION
    assert set(shown("2.1", ADMIN)) == ACTION | {"events"}
    action = shown("2.84", ADMIN)
    assert (action["action"], action["request_id"], action["user_id"], action["message"]) == (
        "stop",
        request_id,
        "ada",
        None,
    )
    assert set(action) == ACTION | {"events", "updated_at"}
    [event] = action["events"]
    assert set(event) == EVENT | {"traceback", "hostId", "host", "details"}
    assert (event["event"], event["result"], event["host"]) == ("compute_stop_instance", "Success", "north-host0")
    [event] = shown("2.62")["events"]
    assert set(event) == EVENT | {"hostId"}
    assert set(shown("2.51")["events"][0]) == EVENT
    assert api.get(f"{url}/req-unknown", MEMBER).status_code == 404
    assert api.get(url, STRANGER).status_code == 404


def test_move_has_the_events_of_all_who_take_part_newest_first(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    request_id = act(api, server_id, {"migrate": None}, caller=ADMIN).headers["x-openstack-request-id"]
    fleet.work()
    url = f"/v2.1/servers/{server_id}/os-instance-actions/{request_id}"
    for version in ("2.1", "2.51", "2.104"):
        events = api.get(url, ADMIN, microversion(version)).json()["instanceAction"]["events"]
        assert [event["event"] for event in events] == [
            "compute_finish_resize",
            "compute_resize_instance",
            "compute_prep_resize",
            "conductor_migrate_server",
            "cold_migrate",
        ]
        assert [event["start_time"] for event in events] == sorted((e["start_time"] for e in events), reverse=True)


def test_actions_are_listed_newest_first_in_pages_also_of_a_deleted_server(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    for body in ({"os-stop": None}, {"os-start": None}, {"forceDelete": None}):
        assert act(api, server_id, body).status_code == 202
        fleet.work()
    url = f"/v2.1/servers/{server_id}/os-instance-actions"
    assert api.get(url, MEMBER, microversion("2.20")).status_code == 404
    actions = api.get(url, MEMBER, microversion("2.21")).json()["instanceActions"]
    assert [action["action"] for action in actions] == ["delete", "start", "stop"]
    page = api.get(f"{url}?limit=1", MEMBER, microversion("2.58")).json()
    [link] = page["links"]
    assert [action["action"] for action in page["instanceActions"]] == ["delete"]
    following = api.get(link["href"], MEMBER, microversion("2.58")).json()
    assert [action["action"] for action in following["instanceActions"]] == ["start"]
    assert api.get(f"{url}?colour=red", MEMBER, microversion("2.58")).status_code == 400
    assert api.get(f"{url}?marker=no-such", MEMBER, microversion("2.58")).status_code == 400
    late = f"{url}?changes-since=2100-01-01T00:00:00"
    assert api.get(late, MEMBER, microversion("2.58")).json()["instanceActions"] == []
    assert api.get(f"{late}&changes-before=2000-01-01T00:00:00", MEMBER, microversion("2.66")).status_code == 400


def test_member_does_not_open_the_lock_that_an_administrator_has_just_put_on(
    api: Api, fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_id = new_server(fleet)
    assert act(api, server_id, {"lock": None}).status_code == 202
    unlock = Acceptance.unlock

    def after_an_administrator(self: Acceptance, uuid: str, **values: Any) -> InstanceRow:
        self.lock(uuid, by="admin", reason=None, request=NO_REQUEST)
        return unlock(self, uuid, **values)

    monkeypatch.setattr(Acceptance, "unlock", after_an_administrator)
    assert act(api, server_id, {"unlock": None}).status_code == 403
    assert api.get(f"/v2.1/servers/{server_id}", ADMIN, microversion("2.9")).json()["server"]["locked"]
    assert act(api, server_id, {"unlock": None}, caller=ADMIN).status_code == 202


def test_pages_of_actions_lack_none_while_an_older_one_goes_on(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    for body in ({"lock": None}, {"unlock": None}, {"os-stop": None}, {"lock": None}):
        assert act(api, server_id, body).status_code == 202
    url = f"/v2.1/servers/{server_id}/os-instance-actions?limit=2"
    page = api.get(url, MEMBER, microversion("2.58")).json()
    assert [action["action"] for action in page["instanceActions"]] == ["lock", "stop"]
    fleet.work()  # the stop is updated last, and began before the lock
    assert api.get(url, MEMBER, microversion("2.58")).json()["instanceActions"][0]["action"] == "lock"
    [link] = page["links"]
    rest = api.get(link["href"], MEMBER, microversion("2.58")).json()["instanceActions"]
    assert [action["action"] for action in rest] == ["unlock", "lock"]


def test_page_of_actions_follows_one_that_the_filter_does_not_find_any_more(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    for body in ({"lock": None}, {"unlock": None}, {"os-stop": None}):
        assert act(api, server_id, body).status_code == 202
    url = f"/v2.1/servers/{server_id}/os-instance-actions"
    newest = api.get(url, MEMBER, microversion("2.66")).json()["instanceActions"][0]
    page = api.get(f"{url}?limit=1&changes-before={newest['updated_at']}", MEMBER, microversion("2.66")).json()
    assert [action["action"] for action in page["instanceActions"]] == ["stop"]
    fleet.work()
    [link] = page["links"]
    following = api.get(link["href"], MEMBER, microversion("2.66"))
    assert following.status_code == 200, following.text
    assert [action["action"] for action in following.json()["instanceActions"]] == ["unlock"]


def test_migrations_have_the_keys_of_their_microversion(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    body = {"os-migrateLive": {"host": "north-host1", "block_migration": "auto"}}
    assert act(api, server_id, body, "2.25", ADMIN).status_code == 202

    def listed(version: str) -> list[dict[str, Any]]:
        url = f"/v2.1/os-migrations?instance_uuid={server_id}"
        return list(api.get(url, ADMIN, microversion(version)).json()["migrations"])

    url = f"/v2.1/servers/{server_id}/migrations"
    [live] = api.get(url, ADMIN, microversion("2.80")).json()["migrations"]
    assert (live["status"], live["server_uuid"], live["source_compute"]) == ("queued", server_id, "north-host0")
    assert set(listed("2.23")[0]) == MIGRATION | {"migration_type", "links"}
    one = f"{url}/{live['id']}"
    assert api.get(one, ADMIN, microversion("2.80")).json()["migration"] == live
    fleet.work()
    assert api.get(url, ADMIN, microversion("2.80")).json() == {"migrations": []}
    assert api.get(one, ADMIN, microversion("2.80")).status_code == 404
    assert api.request("DELETE", one, ADMIN | microversion("2.24")).status_code == 404
    assert set(listed("2.1")[0]) == MIGRATION
    [done] = listed("2.80")
    assert set(done) == MIGRATION | {"migration_type", "uuid", "user_id", "project_id"}
    assert (done["status"], done["dest_compute"]) == ("completed", "north-host1")
    assert api.get("/v2.1/os-migrations", MEMBER).status_code == 403
    assert api.get("/v2.1/os-migrations?colour=red", ADMIN, microversion("2.59")).status_code == 400


def test_manager_lists_migrations_of_the_own_project_and_asks_for_no_other(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    assert act(api, server_id, {"migrate": None}, caller=ADMIN).status_code == 202
    manager, latest = MEMBER | {"X-Roles": "manager"}, microversion("2.80")
    for query in ("", "&project_id=red"):
        listed = api.get(f"/v2.1/os-migrations?instance_uuid={server_id}{query}", manager, latest).json()["migrations"]
        assert [migration["project_id"] for migration in listed] == ["red"]
    answer = api.get("/v2.1/os-migrations?project_id=blue", manager, latest)
    assert answer.status_code == 403
    assert "os_compute_api:os-migrations:index:all_projects" in answer.json()["forbidden"]["message"]


def test_migrations_name_the_flavor_from_before_and_that_from_then_on(api: Api, fleet: ComputeFleet) -> None:
    old, new = (fleet.fleet.flavors.find(flavor_id).number for flavor_id in ("1", "2"))
    server_id = new_server(fleet, instance_type_id=old)
    for body in ({"resize": {"flavorRef": "2"}}, {"confirmResize": None}, {"migrate": None}):
        assert act(api, server_id, body, caller=ADMIN).status_code in {202, 204}
        fleet.work()
    listed = api.get(f"/v2.1/os-migrations?instance_uuid={server_id}", ADMIN, microversion("2.59")).json()["migrations"]
    flavors = [(each["old_instance_type_id"], each["new_instance_type_id"]) for each in listed]
    assert flavors == [(new, new), (old, new)]


def test_host_to_unshelve_on_is_in_the_zone_and_for_a_server_on_none(api: Api, fleet: ComputeFleet) -> None:
    body, latest = {"unshelve": {"host": "north-host1"}}, "2.91"
    shelved = new_server(fleet, vm_state="shelved")
    assert act(api, shelved, body, latest, ADMIN).status_code == 409
    offloaded = {"vm_state": "shelved_offloaded", "host": None, "node": None}
    elsewhere = new_server(fleet, **offloaded, pinned_availability_zone="elsewhere")
    assert act(api, elsewhere, body, latest, ADMIN).status_code == 409
    for zone, pinned in ((None, "elsewhere"), ("north", "elsewhere")):
        server_id = new_server(fleet, **offloaded, pinned_availability_zone=pinned)
        wanted = {"unshelve": {"host": "north-host1", "availability_zone": zone}}
        assert act(api, server_id, wanted, latest, ADMIN).status_code == 202
        fleet.work()
        assert api.get(f"/v2.1/servers/{server_id}", ADMIN).json()["server"]["OS-EXT-SRV-ATTR:host"] == "north-host1"


def test_host_to_unshelve_on_is_in_the_zone_that_the_server_has_just_been_pinned_to(
    api: Api, fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_id = new_server(fleet, vm_state="shelved_offloaded", host=None, node=None)
    accept = Acceptance.accept

    def after_a_pin(self: Acceptance, uuid: str, *values: Any) -> InstanceRow:
        self.update(uuid, {"pinned_availability_zone": "elsewhere"}, NO_REQUEST)
        return accept(self, uuid, *values)

    monkeypatch.setattr(Acceptance, "accept", after_a_pin)
    refused = act(api, server_id, {"unshelve": {"host": "north-host1"}}, "2.91", ADMIN)
    assert (refused.status_code, "elsewhere" in refused.text) == (409, True)
    assert status(api, server_id) == "SHELVED_OFFLOADED"


@pytest.mark.parametrize(
    "body",
    [{"evacuate": {"force": True}}, {"os-migrateLive": {"force": True, "host": None, "block_migration": "auto"}}],
)
def test_nothing_is_forced_to_no_host(api: Api, fleet: ComputeFleet, body: dict[str, Any]) -> None:
    answer = act(api, new_server(fleet), body, "2.67", ADMIN)
    assert (answer.status_code, "non-provided" in answer.text) == (400, True)


def test_lock_of_an_administrator_keeps_the_reason_that_was_given_before(api: Api, fleet: ComputeFleet) -> None:
    server_id = new_server(fleet)
    for body, caller in (({"lock": {"locked_reason": "mine"}}, MEMBER), ({"lock": None}, OTHER_ADMIN)):
        assert act(api, server_id, body, "2.73", caller).status_code == 202
    assert (
        api.get(f"/v2.1/servers/{server_id}", ADMIN, microversion("2.73")).json()["server"]["locked_reason"] == "mine"
    )
    assert act(api, server_id, {"unlock": None}, "2.73").status_code == 403


def test_evacuation_of_a_host_that_is_down(api: Api, fleet: ComputeFleet) -> None:
    nodes = nodes_in(fleet.native, fleet.cells["south"])
    host = nodes.services()[0]
    server_id = new_server(fleet)
    placed = {"host": host.host, "node": host.host, "flavor": FLAVOR, "project_id": "red"}
    server_id = fleet.create("south", **placed)
    nodes.update_service(host.uuid, disabled=False, disabled_reason=None, forced_down=True)
    response = act(api, server_id, {"evacuate": {"onSharedStorage": False}}, "2.13", ADMIN)
    assert (response.status_code, set(response.json())) == (200, {"adminPass"})
    fleet.work()
    server = api.get(f"/v2.1/servers/{server_id}", ADMIN).json()["server"]
    assert (server["status"], server["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", "south-host1")
