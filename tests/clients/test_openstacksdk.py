"""openstacksdk, unmodified: logging in, and lists with every filter and sort key, page by page."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import openstack
import pytest
from keystoneauth1.exceptions import Unauthorized
from openstack import exceptions
from openstack.compute.v2.server import Server
from openstack.connection import Connection

from fleetlight.api.compute.protocol.parameters import PAGING_NAMES, PARAMETERS
from fleetlight.api.compute.server_lists.filter_and_order import SORTED
from tests.clients.conftest import INSTANCES, connection, identity_of, user_id_of
from tests.support.servers.live_api import LiveApi
from tests.support.waiting import wait_until

Servers = list[Server]


@pytest.fixture(scope="module")
def fleet(admin: Connection) -> Servers:
    """Every server of every project, once the simulator has made them all; nothing changes any more."""

    def filled() -> Servers:
        servers = list(admin.compute.servers(all_projects=True))
        assert len(servers) == INSTANCES
        return servers

    return wait_until(filled, timeout_s=120)


def ids(servers: Any) -> list[str]:
    return [server.id for server in servers]


def test_login_says_who_and_where(member: Connection, live: LiveApi) -> None:
    assert identity_of(member).get_user(user_id_of(member)).name == "demo"
    assert member.current_project.name == "demo"
    assert member.endpoint_for("compute") == f"{live.url}/v2.1"
    assert member.endpoint_for("identity") == f"{live.url}/identity/v3"


def test_wrong_password_is_no_login(live: LiveApi) -> None:
    auth = {"auth_url": live.auth_url, "username": "demo", "password": "wrong", "project_name": "demo"}
    domains = {"user_domain_name": "Default", "project_domain_name": "Default"}
    with (
        closing(openstack.connect(auth=auth | domains, load_yaml_config=False, load_envvars=False)) as wrong,
        pytest.raises(exceptions.SDKException, match="HTTP 401"),
    ):
        wrong.authorize()


def test_a_token_that_was_revoked_is_replaced_without_the_program_noticing(live: LiveApi) -> None:
    with closing(connection(live, "fleetlight-demo")) as program:
        token = program.authorize()
        program.session.delete(
            f"{live.auth_url}/v3/auth/tokens", headers={"X-Subject-Token": token}, endpoint_filter={}
        )
        assert list(program.compute.servers(limit=1, paginated=False))
        assert program.session.get_token() != token


def test_an_application_credential_is_made_used_and_removed(member: Connection, live: LiveApi) -> None:
    identity, user_id = identity_of(member), user_id_of(member)
    made = identity.create_application_credential(user_id, "nightly", roles=[{"name": "reader"}])
    auth = {
        "auth_url": live.auth_url,
        "application_credential_id": made.id,
        "application_credential_secret": made.secret,
    }
    with closing(
        openstack.connect(auth_type="v3applicationcredential", auth=auth, load_yaml_config=False, load_envvars=False)
    ) as program:
        assert list(program.compute.servers(limit=1, paginated=False))
        assert [each.name for each in identity.application_credentials(user_id)] == ["nightly"]
        identity.delete_application_credential(user_id, made)
        with pytest.raises(Unauthorized):
            list(program.compute.servers(limit=1, paginated=False))


def test_administrators_look_users_and_projects_up_by_name(admin: Connection, member: Connection) -> None:
    identity = identity_of(admin)
    assert {project.name for project in identity.projects()} >= {"demo", "analytics"}
    user = identity.find_user("demo", ignore_missing=False)
    project = identity.find_project("demo", ignore_missing=False)
    assignments = identity.role_assignments(user_id=user.id, scope_project_id=project.id)
    names = {role.id: role.name for role in identity.roles()}
    assert [names[each.role["id"]] for each in assignments] == ["member"]
    assert [domain.name for domain in identity.domains()] == ["Default"]
    with pytest.raises(exceptions.ForbiddenException):
        list(identity_of(member).users())


def test_members_see_their_project_and_administrators_all(
    admin: Connection, member: Connection, fleet: Servers
) -> None:
    own = [server.id for server in fleet if server.project_id == "demo"]
    assert 0 < len(own) < len(fleet)
    assert ids(member.compute.servers()) == own
    assert ids(admin.compute.servers()) == own
    with pytest.raises(exceptions.ForbiddenException):
        list(member.compute.servers(all_projects=True))


@pytest.mark.parametrize("details", [True, False])
@pytest.mark.parametrize("limit", [7, INSTANCES, 1000])
def test_pages_chained_by_the_sdk_are_the_whole_list(
    admin: Connection, fleet: Servers, limit: int, *, details: bool
) -> None:
    paged = ids(admin.compute.servers(details=details, all_projects=True, limit=limit))
    assert paged == ids(fleet)


FILTERS: list[tuple[str, Callable[[Server], Any], str]] = [
    # filter, what a server has there, and how the two are compared
    ("name", lambda server: server.name, "pattern"),
    ("status", lambda server: server.status, "exact"),
    ("vm_state", lambda server: server.vm_state, "exact"),
    ("power_state", lambda server: server.power_state, "exact"),
    ("project_id", lambda server: server.project_id, "exact"),
    ("user_id", lambda server: server.user_id, "exact"),
    ("compute_host", lambda server: server.compute_host, "exact"),
    ("node", lambda server: server.hypervisor_hostname, "pattern"),
    ("hostname", lambda server: server.hostname, "pattern"),
    ("availability_zone", lambda server: server.availability_zone, "pattern"),
    ("image", lambda server: server.image.id if server.image else None, "exact"),
    ("key_name", lambda server: server.key_name, "pattern"),
    ("reservation_id", lambda server: server.reservation_id, "pattern"),
    ("root_device_name", lambda server: server.root_device_name, "pattern"),
    ("id", lambda server: server.id, "exact"),
    ("locked", lambda server: server.is_locked, "exact"),
    ("tags", lambda server: server.tags, "member"),
    ("any_tags", lambda server: server.tags, "member"),
    ("not_tags", lambda server: server.tags, "no member"),
    ("not_any_tags", lambda server: server.tags, "no member"),
    ("created_at", lambda server: server.created_at[:19].replace("T", " "), "pattern"),
    ("launched_at", lambda server: server.launched_at and server.launched_at[:19].replace("T", " "), "pattern"),
    ("launch_index", lambda server: str(server.launch_index), "pattern"),
    ("ipv4_address", lambda server: [each["addr"] for on in server.addresses.values() for each in on], "part"),
]
# What a simulated fleet has everywhere, or nowhere, or perhaps: filter, value, and who is kept.
FIXED_FILTERS: list[tuple[str, Any, Callable[[Server], bool]]] = [
    ("auto_disk_config", "1", lambda server: server.disk_config == "AUTO"),
    ("has_config_drive", "True", lambda server: bool(server.has_config_drive)),
    ("deleted_only", False, lambda _server: True),
    ("is_soft_deleted", True, lambda _server: True),
    ("description", "no-such", lambda _server: True),  # there is no such column, so it says nothing
    ("task_state", "spawning", lambda _server: False),
    ("terminated_at", "20", lambda _server: False),
    ("progress", "^100$", lambda _server: False),
    ("kernel_id", "no-such", lambda _server: False),
    ("ramdisk_id", "no-such", lambda _server: False),
    ("locked_by", "admin", lambda _server: False),
    ("access_ipv4", "203", lambda _server: False),
    ("access_ipv6", "2001", lambda _server: False),
    ("ipv6_address", "2001", lambda _server: False),
]
# Tried below, and in another way.
OTHER_FILTERS = ("flavor", "changes_since", "changes_before", "all_projects")


@pytest.mark.parametrize(("name", "value_of", "comparison"), FILTERS, ids=[name for name, _, _ in FILTERS])
def test_filters_keep_exactly_the_servers_that_have_the_value(
    admin: Connection, fleet: Servers, name: str, value_of: Callable[[Server], Any], comparison: str
) -> None:
    values = [value_of(server) for server in fleet]
    wanted = next(value for value in values if value not in (None, []))
    if isinstance(wanted, list):
        wanted = wanted[0]
    matches: Callable[[Any], bool] = {
        "exact": lambda value: value == wanted,
        "pattern": lambda value: value is not None and wanted in value,
        "member": lambda value: wanted in value,
        "no member": lambda value: wanted not in value,
        "part": lambda value: any(wanted in each for each in value),
    }[comparison]
    expected = [server.id for server, value in zip(fleet, values, strict=True) if matches(value)]
    assert ids(admin.compute.servers(all_projects=True, **{name: wanted})) == expected


@pytest.mark.parametrize(("name", "value", "is_kept"), FIXED_FILTERS, ids=[name for name, _, _ in FIXED_FILTERS])
def test_filters_that_say_little_about_this_fleet_are_understood(
    admin: Connection, fleet: Servers, name: str, value: Any, is_kept: Callable[[Server], bool]
) -> None:
    expected = [server.id for server in fleet if is_kept(server)]
    assert ids(admin.compute.servers(all_projects=True, **{name: value})) == expected


def test_flavor_is_named_by_its_id(admin: Connection, fleet: Servers) -> None:
    name = fleet[0].flavor.original_name
    flavor = admin.compute.find_flavor(name, ignore_missing=False)
    expected = [server.id for server in fleet if server.flavor.original_name == name]
    assert ids(admin.compute.servers(all_projects=True, flavor=flavor.id)) == expected
    assert ids(admin.compute.servers(all_projects=True, flavor="no-such")) == []


def test_no_filter_that_the_sdk_has_a_name_for_is_left_out() -> None:
    """The others are tried with novaclient."""
    tried = [*(name for name, _, _ in FILTERS), *(name for name, _, _ in FIXED_FILTERS), *OTHER_FILTERS]
    parameters = {Server._query_mapping._mapping[name] for name in tried}
    assert set(PARAMETERS) - PAGING_NAMES - parameters == {
        "display_description",
        "display_name",
        # Ours.
        "forthcoming",
        "image_ref",
        "tenant_id",
    }


def test_filters_combine_and_time_filters_part_the_fleet(admin: Connection, fleet: Servers) -> None:
    some = fleet[0]
    expected = [each.id for each in fleet if each.project_id == some.project_id and each.status == some.status]
    assert ids(admin.compute.servers(all_projects=True, project_id=some.project_id, status=some.status)) == expected
    moments = sorted(server.updated_at for server in fleet)
    middle = moments[len(moments) // 2]
    # Other tests delete servers of theirs, which `changes_since` lists too.
    known = set(ids(fleet))
    since = known.intersection(ids(admin.compute.servers(all_projects=True, changes_since=middle)))
    before = known.intersection(ids(admin.compute.servers(all_projects=True, changes_before=middle)))
    # The SDK shows whole seconds, and the cells compare microseconds.
    assert since == {server.id for server in fleet if server.updated_at >= middle}
    assert before >= {server.id for server in fleet if server.updated_at < middle}
    assert before <= {server.id for server in fleet if server.updated_at <= middle}
    assert since | before == known


SORT_KEYS: dict[str, Callable[[Server], Any]] = {
    "display_name": lambda server: server.name,
    "created_at": lambda server: server.created_at,
    "uuid": lambda server: server.id,
    "vm_state": lambda server: server.vm_state,
    "project_id": lambda server: server.project_id,
    "user_id": lambda server: server.user_id,
    "host": lambda server: server.compute_host,
    "node": lambda server: server.hypervisor_hostname,
    "availability_zone": lambda server: server.availability_zone,
    "root_device_name": lambda server: server.root_device_name,
    "power_state": lambda server: server.power_state,
}


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("key", SORT_KEYS)
def test_lists_come_in_the_order_asked_for_over_all_pages(
    admin: Connection, fleet: Servers, key: str, direction: str
) -> None:
    servers = list(admin.compute.servers(all_projects=True, sort_key=key, sort_dir=direction, limit=25))
    values = [SORT_KEYS[key](server) for server in servers]
    assert values == sorted(values, reverse=direction == "desc")
    assert sorted(ids(servers)) == sorted(ids(fleet))


@pytest.mark.parametrize("key", sorted(SORTED | {"locked"}))
def test_pages_of_every_order_are_the_whole_list_in_that_order(admin: Connection, fleet: Servers, key: str) -> None:
    """Also of keys that no server shows."""
    for direction in ("asc", "desc"):
        order: dict[str, Any] = {"details": False, "all_projects": True, "sort_key": key, "sort_dir": direction}
        whole = ids(admin.compute.servers(**order))
        assert ids(admin.compute.servers(**order, limit=13)) == whole
        assert sorted(whole) == sorted(ids(fleet))


def test_a_server_is_found_by_id_and_by_name(admin: Connection, member: Connection, fleet: Servers) -> None:
    mine = next(server for server in fleet if server.project_id == "demo")
    theirs = next(server for server in fleet if server.project_id != "demo")
    assert member.compute.get_server(mine.id).name == mine.name
    assert admin.compute.find_server(theirs.name, all_projects=True, ignore_missing=False).name == theirs.name
    with pytest.raises(exceptions.NotFoundException):
        member.compute.get_server(theirs.id)


def test_images_are_those_of_the_servers(member: Connection, fleet: Servers) -> None:
    images = {image.id: image for image in member.image.images()}
    assert {server.image.id for server in fleet if server.image} <= set(images)
    some = next(iter(images.values()))
    assert some.status == "active"
    assert member.image.find_image(some.name, ignore_missing=False).id == some.id
    assert member.image.get_image(some.id).name == some.name
    assert member.image.find_image("none") is None
    assert [image.id for image in member.image.images(limit=1)] == list(images)
