"""python-novaclient, unmodified: its lists, its paging, and a server from its creation to its deletion."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from keystoneauth1.identity.v3 import Password
from keystoneauth1.session import Session
from novaclient import client, exceptions
from openstack.connection import Connection

from fleetlight.api.compute.server_lists.filter_and_order import SORTED
from tests.clients.conftest import INSTANCES
from tests.support.servers.live_api import LiveApi
from tests.support.waiting import wait_until

_WAIT_S = 120


NEWEST = "2.96"
# Options of a search, and what a server shows of it.
EXACT = {
    "status": "status",
    "vm_state": "OS-EXT-STS:vm_state",
    "power_state": "OS-EXT-STS:power_state",
    "host": "OS-EXT-SRV-ATTR:host",
    "project_id": "tenant_id",
    "tenant_id": "tenant_id",
    "user_id": "user_id",
    "uuid": "id",
    "locked": "locked",
}
PATTERNS = {
    "name": "name",
    "display_name": "name",
    "display_description": "description",
    "node": "OS-EXT-SRV-ATTR:hypervisor_hostname",
    "hostname": "OS-EXT-SRV-ATTR:hostname",
    "availability_zone": "OS-EXT-AZ:availability_zone",
    "key_name": "key_name",
    "reservation_id": "OS-EXT-SRV-ATTR:reservation_id",
    "root_device_name": "OS-EXT-SRV-ATTR:root_device_name",
    "launch_index": "OS-EXT-SRV-ATTR:launch_index",
}


@pytest.fixture(scope="module", params=["2.1", NEWEST])
def nova(request: pytest.FixtureRequest, live: LiveApi, admin: Connection) -> Any:
    """The client of an administrator, with the first and the last microversion that it knows."""
    return nova_client(request.param, live, admin)


@pytest.fixture(scope="module")
def newest(live: LiveApi, admin: Connection) -> Any:
    """The client of an administrator, with the last microversion that it knows."""
    return nova_client(NEWEST, live, admin)


def nova_client(microversion: str, live: LiveApi, admin: Connection) -> Any:
    auth = admin.config.auth
    session = Session(
        Password(
            auth_url=live.auth_url,
            username=auth["username"],
            password=auth["password"],
            project_name="demo",
            user_domain_name="Default",
            project_domain_name="Default",
        )
    )
    return client.Client(microversion, session=session, region_name="RegionOne")


@pytest.fixture(scope="module")
def fleet(newest: Any) -> list[Any]:
    """Every server as the newest microversion shows it, once the simulator has made them all."""

    def filled() -> list[Any]:
        servers: list[Any] = newest.servers.list(search_opts={"all_tenants": 1})
        assert len(servers) == INSTANCES
        return servers

    return wait_until(filled, timeout_s=120)


@pytest.mark.parametrize("detailed", [True, False])
def test_pages_chained_by_novaclient_are_the_whole_list(nova: Any, fleet: list[Any], *, detailed: bool) -> None:
    by_marker: list[str] = []
    while page := nova.servers.list(
        detailed=detailed, search_opts={"all_tenants": 1}, limit=7, marker=by_marker[-1] if by_marker else None
    ):
        by_marker += [server.id for server in page]
    everything = nova.servers.list(detailed=detailed, search_opts={"all_tenants": 1}, limit=-1)
    assert by_marker == [server.id for server in everything] == [server.id for server in fleet]


def test_search_options_and_sort_keys_reach_the_list(nova: Any, fleet: list[Any]) -> None:
    some = fleet[0]
    found = nova.servers.list(search_opts={"all_tenants": 1, "name": f"^{some.name}$", "status": some.status})
    assert some.id in {server.id for server in found}
    assert {server.name for server in found} == {some.name}
    ordered = nova.servers.list(
        search_opts={"all_tenants": 1}, sort_keys=["display_name", "created_at"], sort_dirs=["desc", "asc"]
    )
    assert [server.name for server in ordered] == sorted((server.name for server in fleet), reverse=True)


@pytest.mark.parametrize("option", [*EXACT, *PATTERNS])
def test_every_search_option_keeps_the_servers_that_have_the_value(newest: Any, fleet: list[Any], option: str) -> None:
    everything = [server.to_dict() for server in fleet]
    attribute = (EXACT | PATTERNS)[option]
    wanted = next((each[attribute] for each in everything if each[attribute] is not None), "no-such")
    has_it = (lambda value: value == wanted) if option in EXACT else (lambda value: str(wanted) in str(value))
    found = newest.servers.list(search_opts={"all_tenants": 1, option: wanted}, limit=-1)
    assert [server.id for server in found] == [each["id"] for each in everything if has_it(each[attribute])]


@pytest.mark.parametrize("option", ["image", "image_ref"])
def test_servers_are_found_by_their_image(newest: Any, fleet: list[Any], option: str) -> None:
    images = {server.id: server.image["id"] for server in fleet if server.image}
    wanted = next(iter(images.values()))
    found = newest.servers.list(search_opts={"all_tenants": 1, option: wanted}, limit=-1)
    assert [server.id for server in found] == [uuid for uuid, image in images.items() if image == wanted]


@pytest.mark.parametrize("key", sorted(SORTED | {"locked"}))
def test_pages_of_every_order_are_the_whole_list(newest: Any, fleet: list[Any], key: str) -> None:
    for direction in ("asc", "desc"):
        order = {"detailed": False, "search_opts": {"all_tenants": 1}, "sort_keys": [key], "sort_dirs": [direction]}
        whole = [server.id for server in newest.servers.list(**order, limit=-1)]
        paged: list[str] = []
        while page := newest.servers.list(**order, limit=13, marker=paged[-1] if paged else None):
            paged += [server.id for server in page]
        assert paged == whole
        assert sorted(whole) == sorted(server.id for server in fleet)


@pytest.fixture
def server(nova: Any) -> Iterator[Any]:
    """A new server that is active; it is gone when the test ends, also from lists, which may be older by seconds."""
    flavor = nova.flavors.find(name="m1.tiny")
    image = next(iter(nova.glance.list()))
    networks = {} if nova.api_version.ver_minor < 37 else {"nics": "none"}
    made = nova.servers.create("client-nova", image.id, flavor.id, **networks)
    reached(nova, made, "ACTIVE")
    yield made
    with suppress(exceptions.NotFound):
        nova.servers.delete(made)
    wait_until(lambda: is_gone(nova, made) and made not in nova.servers.list(), timeout_s=_WAIT_S)


def reached(nova: Any, server: Any, status: str) -> None:
    def is_reached() -> bool:
        shown = nova.servers.get(server)
        assert shown.status == status
        return getattr(shown, "OS-EXT-STS:task_state") is None

    wait_until(is_reached, timeout_s=_WAIT_S)


def is_gone(nova: Any, server: Any) -> bool:
    try:
        nova.servers.get(server)
    except exceptions.NotFound:
        return True
    return False


def test_a_server_is_created_acted_on_and_deleted(nova: Any, server: Any) -> None:
    with pytest.raises(exceptions.Conflict):
        nova.servers.start(server)
    nova.servers.stop(server)
    reached(nova, server, "SHUTOFF")
    nova.servers.start(server)
    reached(nova, server, "ACTIVE")
    nova.servers.set_meta(server, {"team": "a"})
    assert nova.servers.get(server).metadata == {"team": "a"}
    nova.servers.update(server, name="client-nova-renamed")
    wait_until(lambda: nova.servers.list(search_opts={"name": "^client-nova-renamed$"}) == [server], timeout_s=_WAIT_S)
    assert [action.action for action in nova.instance_action.list(server)] == ["start", "stop", "create"]
    nova.servers.delete(server)
    wait_until(lambda: is_gone(nova, server), timeout_s=_WAIT_S)


def test_flavors_limits_and_zones_are_there(nova: Any) -> None:
    assert "m1.tiny" in {flavor.name for flavor in nova.flavors.list()}
    assert {limit.name for limit in nova.limits.get().absolute} >= {"maxTotalInstances", "totalInstancesUsed"}
    assert all(zone.zoneState["available"] for zone in nova.availability_zones.list(detailed=False))
    assert {service.binary for service in nova.services.list()} == {"nova-compute"}
