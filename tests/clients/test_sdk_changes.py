"""openstacksdk, unmodified: servers, key pairs and server groups from their creation to their deletion."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openstack import exceptions
from openstack.compute.v2.server import Server
from openstack.connection import Connection

from tests.support.waiting import wait_until

NewServer = Callable[..., Server]
_WAIT_S = 120


@pytest.fixture
def new_server(member: Connection) -> Iterator[NewServer]:
    """Makes servers that are active; they are gone when the test ends, also from lists, which may lag by seconds."""
    made: list[Server] = []

    def create(name: str, **values: object) -> Server:
        image = member.image.find_image("debian-12", ignore_missing=False)
        flavor = member.compute.find_flavor("m1.tiny", ignore_missing=False)
        defaults = {"image_id": image.id, "flavor_id": flavor.id, "networks": "none"}
        made.append(member.compute.create_server(name=name, **(defaults | values)))
        return member.compute.wait_for_server(made[-1], interval=1, wait=_WAIT_S)

    yield create
    for server in made:
        member.compute.delete_server(server, ignore_missing=True)
    for server in made:
        member.compute.wait_for_delete(server, interval=1, wait=_WAIT_S)
    gone = {server.id for server in made}
    wait_until(lambda: gone.isdisjoint(each.id for each in member.compute.servers(details=False)), timeout_s=_WAIT_S)


def wait_for(member: Connection, server: Server, status: str) -> None:
    """Until nothing is done to the server any more: its status alone may still be that of before."""

    def is_reached() -> bool:
        shown = member.compute.get_server(server.id)
        assert shown.status == status
        return shown.task_state is None

    wait_until(is_reached, timeout_s=_WAIT_S)


def wait_until_listed(connected: Connection, expected: list[str], **query: Any) -> None:
    """Lists may be as old as the index, by seconds."""

    def is_listed() -> bool:
        assert [server.id for server in connected.compute.servers(**query)] == expected
        return True

    wait_until(is_listed, timeout_s=_WAIT_S)


def test_a_server_is_created_as_asked_for(member: Connection, admin: Connection, new_server: NewServer) -> None:
    server = new_server("client-created", metadata={"team": "a"}, tags=["one"], description="by the sdk")
    shown = member.compute.get_server(server.id)
    assert (shown.name, shown.status, shown.project_id) == ("client-created", "ACTIVE", "demo")
    assert (shown.metadata, shown.tags, shown.description) == ({"team": "a"}, ["one"], "by the sdk")
    assert shown.flavor.original_name == "m1.tiny"
    wait_until_listed(member, [server.id], name="^client-created$")
    assert admin.compute.get_server(server.id).compute_host


def test_a_server_is_stopped_started_rebooted_paused_and_renamed(member: Connection, new_server: NewServer) -> None:
    server = new_server("client-actions")
    steps: list[tuple[Callable[[], object], str]] = [
        (lambda: member.compute.stop_server(server), "SHUTOFF"),
        (lambda: member.compute.start_server(server), "ACTIVE"),
        (lambda: member.compute.reboot_server(server, "HARD"), "ACTIVE"),
        (lambda: member.compute.pause_server(server), "PAUSED"),
        (lambda: member.compute.unpause_server(server), "ACTIVE"),
        (lambda: member.compute.suspend_server(server), "SUSPENDED"),
        (lambda: member.compute.resume_server(server), "ACTIVE"),
    ]
    for act, status in steps:
        act()
        wait_for(member, server, status)
    assert member.compute.update_server(server, name="client-renamed").name == "client-renamed"
    actions = [action.action for action in member.compute.server_actions(server)]
    assert actions[:3] == ["resume", "suspend", "unpause"]
    assert actions[-1] == "create"


def test_a_server_is_resized_and_the_new_size_confirmed(member: Connection, new_server: NewServer) -> None:
    server = new_server("client-resized")
    small = member.compute.find_flavor("m1.small", ignore_missing=False)
    member.compute.resize_server(server, small.id)
    wait_for(member, server, "VERIFY_RESIZE")
    member.compute.confirm_server_resize(server)
    wait_for(member, server, "ACTIVE")
    assert member.compute.get_server(server.id).flavor.original_name == "m1.small"


def test_metadata_and_tags_of_a_server_are_changed(member: Connection, new_server: NewServer) -> None:
    server = new_server("client-metadata", metadata={"kept": "1", "gone": "2"})
    member.compute.set_server_metadata(server.id, added="3")
    member.compute.delete_server_metadata(server.id, ["gone"])
    assert member.compute.get_server_metadata(server.id).metadata == {"kept": "1", "added": "3"}
    member.compute.add_tag_to_server(server, "blue")
    assert member.compute.get_server(server.id).tags == ["blue"]


def test_an_action_that_the_state_does_not_allow_is_a_conflict(member: Connection, new_server: NewServer) -> None:
    server = new_server("client-conflict")
    with pytest.raises(exceptions.ConflictException):
        member.compute.start_server(server)
    member.compute.lock_server(server)
    assert member.compute.get_server(server.id).is_locked
    with pytest.raises(exceptions.ConflictException):
        member.compute.stop_server(server)
    member.compute.unlock_server(server)


def test_a_deleted_server_is_gone_for_its_project_and_kept_for_administrators(
    member: Connection, admin: Connection, new_server: NewServer
) -> None:
    server = new_server("client-deleted")
    member.compute.delete_server(server)
    member.compute.wait_for_delete(server, interval=1, wait=_WAIT_S)
    with pytest.raises(exceptions.NotFoundException):
        member.compute.get_server(server.id)
    wait_until_listed(member, [], name="^client-deleted$")
    wait_until_listed(admin, [server.id], id=server.id, deleted_only=True, all_projects=True)


def test_a_key_pair_is_made_used_and_deleted(member: Connection, new_server: NewServer) -> None:
    keypair = member.compute.create_keypair(name="client-key", public_key=_PUBLIC_KEY)
    try:
        assert new_server("client-keyed", key_name="client-key").key_name == "client-key"
        assert "client-key" in {each.name for each in member.compute.keypairs()}
    finally:
        member.compute.delete_keypair(keypair)
    assert member.compute.find_keypair("client-key") is None


def test_a_server_group_has_the_servers_that_were_put_into_it(member: Connection, new_server: NewServer) -> None:
    group = member.compute.create_server_group(name="client-group", policy="anti-affinity")
    try:
        server = new_server("client-grouped", scheduler_hints={"group": group.id})
        assert member.compute.get_server_group(group.id).member_ids == [server.id]
    finally:
        member.compute.delete_server_group(group)
    assert member.compute.find_server_group(group.id) is None


def test_members_see_their_quota_and_what_they_use(member: Connection, new_server: NewServer) -> None:
    before = member.compute.get_limits().absolute
    assert before.instances == -1  # projects of a simulated fleet have no quota
    new_server("client-counted")
    assert member.compute.get_limits().absolute.instances_used == before.instances_used + 1


def test_administrators_see_hosts_and_members_do_not(member: Connection, admin: Connection) -> None:
    assert {service.status for service in admin.compute.services()} == {"enabled"}
    assert list(admin.compute.hypervisors(details=True))
    assert [zone.name for zone in member.compute.availability_zones()]
    with pytest.raises(exceptions.ForbiddenException):
        list(member.compute.hypervisors())


_PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPyl6qw0Aq2QHLyUSoyYkSVNtc4mI3t7kFuCgJQyCcHb client"
