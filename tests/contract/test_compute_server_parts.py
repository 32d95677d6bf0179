"""What belongs to a server: metadata, tags, addresses, volumes and the rest, by microversion."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.sql.functions import count

from fleetlight.cells.tables import changes, instances
from tests.contract.compute_fleet import Api, ComputeFleet, microversion

OWNER = {"X-Roles": "member", "X-Project-Id": "red"}
READER = {"X-Roles": "reader", "X-Project-Id": "red"}
OTHER = {"X-Roles": "member", "X-Project-Id": "blue"}
NEWEST = "2.104"
VOLUME = {
    "volume_id": "aaaaaaaa-0000-4000-8000-000000000000",
    "device_name": "/dev/vda",
    "delete_on_termination": True,
    "boot_index": 0,
    "tag": None,
}
ADDRESSES = [
    {"label": "inside", "address": "10.0.0.7", "version": 4, "mac": "fa:16:3e:00:00:01"},
    {"label": "inside", "address": "fd00::7", "version": 6, "mac": "fa:16:3e:00:00:01"},
    {"label": "outside", "address": "192.0.2.7", "version": 4, "mac": "fa:16:3e:00:00:02"},
]


@pytest.fixture
def server(fleet: ComputeFleet) -> str:
    """The address of a running server of the project red, with things that belong to it."""
    uuid = fleet.create(
        "east",
        project_id="red",
        metadata={"role": "web"},
        tags=["a", "b"],
        ip_addresses=ADDRESSES,
        block_devices=[VOLUME],
    )
    return f"/v2.1/servers/{uuid}"


def send(
    api: Api,
    method: str,
    url: str,
    body: object = None,
    *,
    caller: Mapping[str, str] = OWNER,
    version: str = NEWEST,
) -> httpx.Response:
    return api.request(method, url, {**caller, **microversion(version)}, json=body)


def test_metadata_is_merged_replaced_and_removed(api: Api, server: str) -> None:
    url = f"{server}/metadata"
    assert send(api, "GET", url, caller=READER).json() == {"metadata": {"role": "web"}}
    merged = {"role": "db", "x y": ""}
    assert send(api, "POST", url, {"metadata": merged}).json() == {"metadata": merged}
    assert send(api, "POST", url, {"metadata": {"z": "1"}}).json() == {"metadata": merged | {"z": "1"}}
    assert send(api, "PUT", url, {"metadata": {"z": "2"}}).json() == {"metadata": {"z": "2"}}
    assert send(api, "PUT", f"{url}/y", {"meta": {"y": "3"}}).json() == {"meta": {"y": "3"}}
    assert send(api, "GET", f"{url}/y").json() == {"meta": {"y": "3"}}
    assert send(api, "DELETE", f"{url}/y").status_code == 204
    assert send(api, "GET", f"{url}/y").status_code == 404
    assert send(api, "DELETE", f"{url}/y").status_code == 404
    assert send(api, "GET", server).json()["server"]["metadata"] == {"z": "2"}


@pytest.mark.parametrize(
    ("call", "body", "status"),
    [
        ("POST metadata", {"metadata": {"key": None}}, 400),
        ("POST metadata", {"metadata": {"k" * 256: ""}}, 400),
        ("POST metadata", {"metadata": {"a/b": ""}}, 400),
        ("POST metadata", {"metadata": {"key": "x" * 256}}, 400),
        ("POST metadata", {"meta": {"key": "x"}}, 400),
        ("PUT metadata/y", {"meta": {"z": "3"}}, 400),
        ("PUT metadata/y", {"meta": {"y": "3", "z": "3"}}, 400),
        ("PUT metadata", {"metadata": {f"key{number}": "" for number in range(129)}}, 403),
        ("PUT metadata", {"metadata": {f"key{number}": "" for number in range(128)}}, 200),
    ],
)
def test_new_metadata_is_validated(api: Api, server: str, call: str, body: dict[str, Any], status: int) -> None:
    method, path = call.split()
    assert send(api, method, f"{server}/{path}", body).status_code == status


def test_tags_are_added_replaced_and_removed(api: Api, server: str) -> None:
    url = f"{server}/tags"
    assert send(api, "GET", url, caller=READER, version="2.26").json() == {"tags": ["a", "b"]}
    assert send(api, "GET", url, version="2.25").status_code == 404
    added = send(api, "PUT", f"{url}/c d")
    assert added.status_code == 201
    assert added.headers["Location"] == f"http://api.test{url}/c%20d"
    assert send(api, "PUT", f"{url}/c d").status_code == 204
    assert send(api, "GET", f"{url}/c d").status_code == 204
    assert send(api, "DELETE", f"{url}/c d").status_code == 204
    assert send(api, "GET", f"{url}/c d").status_code == 404
    assert send(api, "DELETE", f"{url}/c d").status_code == 404
    assert send(api, "PUT", url, {"tags": ["x", "y", "x"]}).json() == {"tags": ["x", "y"]}
    assert send(api, "DELETE", url).status_code == 204
    assert send(api, "GET", url).json() == {"tags": []}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {"tags": ["a,b"]}),
        ("", {"tags": ["a/b"]}),
        ("", {"tags": [""]}),
        ("", {"tags": ["x" * 61]}),
        ("", {"tags": [str(number) for number in range(51)]}),
        ("/a,b", None),
        ("/" + "x" * 61, None),
    ],
)
def test_wrong_tags_are_refused(api: Api, server: str, path: str, body: object) -> None:
    assert send(api, "PUT", f"{server}/tags{path}", body).status_code == 400


@pytest.mark.parametrize("tag", ["%ff", "a%C3", "%ED%A0%80", "%F8%88%80%80%80", "%C0%AF", "%FF%2Fb"])
def test_tag_of_bytes_that_are_no_text_is_refused(api: Api, server: str, tag: str) -> None:
    for method in ("PUT", "GET", "DELETE"):
        answer = send(api, method, f"{server}/tags/{tag}")
        assert (answer.status_code, answer.headers["Content-Type"].partition(";")[0]) == (404, "text/plain")
    assert send(api, "GET", f"{server}/tags").json() == {"tags": ["a", "b"]}
    # U+FFFD itself, and what else is text, may be a tag.
    for allowed in ("%EF%BF%BD", "%F0%9F%98%80", "%C3%A9"):
        assert send(api, "PUT", f"{server}/tags/{allowed}").status_code == 201


def test_server_has_no_more_than_fifty_tags(api: Api, server: str) -> None:
    send(api, "PUT", f"{server}/tags", {"tags": [str(number) for number in range(50)]})
    assert send(api, "PUT", f"{server}/tags/0").status_code == 204
    assert send(api, "PUT", f"{server}/tags/more").status_code == 400


def test_locked_server_keeps_its_metadata_but_can_be_tagged(api: Api, server: str) -> None:
    assert send(api, "POST", f"{server}/action", {"lock": None}).status_code == 202
    refused = send(api, "POST", f"{server}/metadata", {"metadata": {"a": "b"}})
    assert refused.status_code == 409
    assert "is locked" in refused.json()["conflictingRequest"]["message"]
    assert send(api, "POST", f"{server}/metadata", {"metadata": {}}, caller={}).status_code == 200
    assert send(api, "PUT", f"{server}/tags", {"tags": ["x"]}).status_code == 200


def test_state_must_allow_metadata_and_tags(api: Api, fleet: ComputeFleet) -> None:
    server = f"/v2.1/servers/{fleet.create('east', project_id='red', vm_state='building')}"
    for method, path, body, words in (
        ("POST", "metadata", {"metadata": {}}, "update metadata"),
        ("DELETE", "metadata/a", None, "delete metadata"),
        ("PUT", "tags", {"tags": []}, "update tags"),
        ("PUT", "tags/a", None, "update tag"),
        ("DELETE", "tags/a", None, "delete tag"),
        ("DELETE", "tags", None, "delete tags"),
    ):
        refused = send(api, method, f"{server}/{path}", body)
        assert refused.status_code == 409
        message = refused.json()["conflictingRequest"]["message"]
        assert message.startswith(f"Cannot '{words}' instance")
        assert message.endswith("while it is in vm_state building")


@pytest.mark.parametrize("path", ["metadata", "tags", "ips", "os-volume_attachments", "os-interface", "topology"])
def test_parts_of_a_server_are_its_projects(api: Api, server: str, path: str) -> None:
    assert send(api, "GET", f"{server}/{path}", caller=READER).status_code == 200
    assert send(api, "GET", f"{server}/{path}", caller=OTHER).status_code == 404
    assert send(api, "GET", f"/v2.1/servers/nothing/{path}").status_code == 404


def test_readers_change_nothing(api: Api, server: str) -> None:
    assert send(api, "POST", f"{server}/metadata", {"metadata": {}}, caller=READER).status_code == 403
    assert send(api, "PUT", f"{server}/tags/a", caller=READER).status_code == 403
    assert send(api, "POST", f"{server}/metadata", {"metadata": {"a": 1}}, caller=READER).status_code == 400


def test_addresses_are_grouped_by_network(api: Api, server: str) -> None:
    inside = [{"version": 4, "addr": "10.0.0.7"}, {"version": 6, "addr": "fd00::7"}]
    outside = [{"version": 4, "addr": "192.0.2.7"}]
    assert send(api, "GET", f"{server}/ips").json() == {"addresses": {"inside": inside, "outside": outside}}
    assert send(api, "GET", f"{server}/ips/outside").json() == {"outside": outside}
    assert send(api, "GET", f"{server}/ips/nowhere").status_code == 404


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("2.1", {"id", "volumeId", "serverId", "device"}),
        ("2.70", {"id", "volumeId", "serverId", "device", "tag"}),
        ("2.79", {"id", "volumeId", "serverId", "device", "tag", "delete_on_termination"}),
        ("2.89", {"volumeId", "serverId", "device", "tag", "delete_on_termination", "attachment_id", "bdm_uuid"}),
    ],
)
def test_volumes_have_exactly_the_keys_of_the_microversion(api: Api, server: str, version: str, keys: set[str]) -> None:
    url = f"{server}/os-volume_attachments"
    (listed,) = send(api, "GET", url, version=version).json()["volumeAttachments"]
    assert set(listed) == keys
    shown = send(api, "GET", f"{url}/{VOLUME['volume_id']}", version=version).json()["volumeAttachment"]
    assert shown == listed
    assert send(api, "GET", f"{url}?offset=1").json() == {"volumeAttachments": []}
    assert send(api, "GET", f"{url}/nothing").status_code == 404


@pytest.mark.parametrize(
    ("path", "since", "document"),
    [
        ("os-security-groups", 1, {"security_groups": []}),
        ("os-interface", 1, {"interfaceAttachments": []}),
        ("os-server-password", 1, {"password": ""}),
        ("topology", 78, {"nodes": [], "pagesize_kb": None}),
        ("shares", 97, {"shares": []}),
    ],
)
def test_what_a_server_has_none_of_is_empty(
    api: Api, server: str, path: str, since: int, document: dict[str, Any]
) -> None:
    assert send(api, "GET", f"{server}/{path}", version=f"2.{since}").json() == document
    if since > 1:
        assert send(api, "GET", f"{server}/{path}", version=f"2.{since - 1}").status_code == 404


@pytest.mark.parametrize(
    ("call", "caller", "body"),
    [
        ("GET diagnostics", {}, None),
        ("POST remote-consoles", OWNER, {"remote_console": {"protocol": "vnc", "type": "novnc"}}),
        ("POST os-interface", OWNER, {}),
        ("DELETE os-interface/x", OWNER, None),
        ("POST os-volume_attachments", OWNER, {"volumeAttachment": {"volumeId": VOLUME["volume_id"]}}),
        ("PUT os-volume_attachments/x", OWNER, {}),
        ("DELETE os-volume_attachments/x", OWNER, None),
    ],
)
def test_what_no_cell_can_do_gets_501(
    api: Api, server: str, call: str, caller: Mapping[str, str], body: object
) -> None:
    method, path = call.split(" ")
    answer = send(api, method, f"{server}/{path}", body, caller=caller)
    assert answer.status_code == 501
    assert answer.json()["notImplemented"]["code"] == 501
    assert send(api, method, f"{server}/{path}", body, caller=OTHER).status_code == 404


def test_change_is_announced_and_found_by_its_revision(api: Api, server: str, fleet: ComputeFleet) -> None:
    """A list from the index shows the tag once the change has arrived there."""
    send(api, "PUT", f"{server}/tags", {"tags": ["fresh"]})
    fleet.index()
    assert server.endswith(api.ids("/v2.1/servers?tags=fresh", OWNER, microversion("2.26"))[0])


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("PUT tags/a", None),
        ("PUT metadata", {"metadata": {"role": "web"}}),
        ("POST metadata", {"metadata": {"role": "web"}}),
        ("POST metadata", {"metadata": {}}),
        ("PUT metadata/role", {"meta": {"role": "web"}}),
        ("PUT ", {"server": {"name": "server", "accessIPv4": "10.1.1.1", "description": "known"}}),
        ("POST action", {"addSecurityGroup": {"name": "known"}}),
    ],
)
def test_what_is_so_already_is_no_change(api: Api, server: str, fleet: ComputeFleet, call: str, body: object) -> None:
    method, path = call.split(" ")
    url = f"{server}/{path}".rstrip("/")
    send(api, "PUT", server, {"server": {"accessIPv4": "10.1.1.1", "description": "known"}})
    send(api, "POST", f"{server}/action", {"addSecurityGroup": {"name": "known"}})
    before = stored(fleet, server)
    answer = send(api, method, url, body)
    assert answer.status_code == {"PUT tags/a": 204, "POST action": 202}.get(call, 200)
    assert stored(fleet, server) == before


@pytest.mark.parametrize(("method", "body"), [("PUT", {"tags": ["b", "a"]}), ("DELETE", None)])
def test_tags_that_are_set_together_are_announced_even_if_they_are_the_same(
    api: Api, server: str, fleet: ComputeFleet, method: str, body: object
) -> None:
    url = f"{server}/tags"
    send(api, method, url, body)
    revision, announced = stored(fleet, server)
    send(api, method, url, body)
    assert stored(fleet, server) == (revision + 1, announced + 1)


def stored(fleet: ComputeFleet, server: str) -> tuple[int, int]:
    """The revision of a server in east, and how many changes its cell has announced."""
    with fleet.engine("east").connect() as connection:
        named = instances.c.uuid == server.rpartition("/")[2]
        revision = connection.execute(select(instances.c.revision).where(named)).scalar_one()
        return revision, connection.execute(select(count()).select_from(changes)).scalar_one()
