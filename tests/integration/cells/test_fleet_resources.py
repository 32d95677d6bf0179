"""Flavors, key pairs, quotas, server groups and aggregates in the fleet database."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest

from fleetlight.cells.errors import AggregateInUseError, QuotaExceededError, ResourceExistsError, ResourceNotFoundError
from fleetlight.cells.fleet.compute.default_flavors import DEFAULT_FLAVORS
from fleetlight.cells.fleet.compute.flavors import BY_AGE, SORT_KEYS, Flavor, FlavorQuery
from fleetlight.cells.fleet.compute.keypairs import SSH, PublicKey
from fleetlight.cells.fleet.compute.quotas import DEFAULT_CLASS, DEFAULTS, UNLIMITED, check
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cells.model import Cell

TINY = Flavor("tiny", memory_mb=64, vcpus=1, root_gb=1, flavorid="t")


def _ids(fleet: Fleet, query: FlavorQuery) -> list[str]:
    return [flavor.flavorid for flavor in fleet.flavors.page(query)]


def test_new_fleet_has_the_default_flavors_once(fleet: Fleet) -> None:
    upgrade_fleet(fleet.database.engine)
    flavors = fleet.flavors.page(FlavorQuery(None))
    assert [(flavor.flavorid, flavor.number, flavor.name) for flavor in flavors] == [
        (str(number), number, default.name) for number, default in enumerate(DEFAULT_FLAVORS, start=1)
    ]


def test_flavor_is_created_described_and_deleted(fleet: Fleet) -> None:
    created = fleet.flavors.create(TINY)
    assert created.number == len(DEFAULT_FLAVORS) + 1
    fleet.flavors.describe("t", "for tests")
    assert fleet.flavors.find("t").description == "for tests"
    fleet.flavors.delete("t")
    with pytest.raises(ResourceNotFoundError):
        fleet.flavors.find("t")


def test_name_and_id_of_a_flavor_are_taken_once(fleet: Fleet) -> None:
    fleet.flavors.create(TINY)
    for taken in (Flavor("tiny", 1, 1, 1), Flavor("other", 1, 1, 1, flavorid="t")):
        with pytest.raises(ResourceExistsError):
            fleet.flavors.create(taken)


def test_private_flavor_is_seen_by_those_who_have_access(fleet: Fleet) -> None:
    fleet.flavors.create(Flavor("own", 1, 1, 1, flavorid="own", is_public=False))
    assert fleet.flavors.add_access("own", "red") == ("red",)
    with pytest.raises(ResourceExistsError):
        fleet.flavors.add_access("own", "red")
    with pytest.raises(ResourceNotFoundError):
        fleet.flavors.find("own", project_id="blue")
    assert fleet.flavors.find("own", project_id="red").name == "own"
    assert "own" in _ids(fleet, FlavorQuery("red"))
    assert "own" not in _ids(fleet, FlavorQuery("blue"))
    assert _ids(fleet, FlavorQuery(None, is_public=False)) == ["own"]
    assert fleet.flavors.remove_access("own", "red") == ()
    with pytest.raises(ResourceNotFoundError):
        fleet.flavors.remove_access("own", "red")


@pytest.mark.parametrize("is_descending", [False, True])
def test_pages_of_flavors_join_to_the_whole_list(fleet: Fleet, is_descending: bool) -> None:
    """root_gb has ties, which the number breaks."""
    whole = _ids(fleet, FlavorQuery(None, sort_key="root_gb", is_descending=is_descending))
    paged: list[str] = []
    while len(paged) < len(whole):
        marker = paged[-1] if paged else None
        query = FlavorQuery(None, sort_key="root_gb", is_descending=is_descending, marker=marker, limit=2)
        paged += _ids(fleet, query)
    assert paged == whole


def test_flavors_are_filtered(fleet: Fleet) -> None:
    assert _ids(fleet, FlavorQuery(None, min_memory_mb=8192)) == ["4", "6"]
    assert _ids(fleet, FlavorQuery(None, min_root_gb=80, limit=1)) == ["4"]
    assert _ids(fleet, FlavorQuery(None, keep=lambda flavor: "large" in flavor.name, limit=2)) == ["4", "5"]


def test_unknown_marker_of_flavors_is_refused(fleet: Fleet) -> None:
    with pytest.raises(ResourceNotFoundError):
        fleet.flavors.page(FlavorQuery(None, marker="nothing"))


def test_keypairs_belong_to_users(fleet: Fleet) -> None:
    key = PublicKey(SSH, "ssh-rsa AAAA", "00:11")
    for name in ("b", "a", "c"):
        assert fleet.keypairs.add("ada", name, key).name == name
    fleet.keypairs.add("bob", "a", key)
    with pytest.raises(ResourceExistsError):
        fleet.keypairs.add("ada", "a", key)
    assert [keypair.name for keypair in fleet.keypairs.page("ada", limit=2)] == ["a", "b"]
    assert [keypair.name for keypair in fleet.keypairs.page("ada", marker="b", limit=2)] == ["c"]
    fleet.keypairs.remove("ada", "a")
    with pytest.raises(ResourceNotFoundError):
        fleet.keypairs.find("ada", "a")
    assert fleet.keypairs.find("bob", "a").user_id == "bob"


def test_quota_of_a_project_stands_over_the_default(fleet: Fleet) -> None:
    assert fleet.quotas.limits("red") == DEFAULTS
    fleet.quotas.set_class(DEFAULT_CLASS, {"cores": 40})
    fleet.quotas.set_limits("red", {"instances": 5, "cores": UNLIMITED})
    fleet.quotas.set_limits("red", {"instances": 6})
    assert fleet.quotas.limits("red") == DEFAULTS | {"instances": 6, "cores": UNLIMITED}
    assert fleet.quotas.limits("blue") == DEFAULTS | {"cores": 40}
    fleet.quotas.reset("red")
    assert fleet.quotas.limits("red") == fleet.quotas.defaults() == DEFAULTS | {"cores": 40}


def test_quota_counts_what_is_there(fleet: Fleet, cell: Cell) -> None:
    live, deleted = (InstanceMapping(f"{n}", cell.uuid, "red", "ada", 1, queued_for_delete=n == 1) for n in range(2))
    fleet.add_mappings([live, deleted])
    fleet.keypairs.add("ada", "a", PublicKey(SSH, "ssh-rsa AAAA", "00:11"))
    fleet.server_groups.create("group", "affinity", project_id="red", user_id="ada")
    assert fleet.quotas.counts("red", "ada") == {"instances": 1, "server_groups": 1, "key_pairs": 1}
    assert fleet.quotas.counts("blue", "bob") == {"instances": 0, "server_groups": 0, "key_pairs": 0}


def test_quota_is_what_can_be_reached_and_not_passed() -> None:
    check({"cores": 20}, {"cores": 18}, {"cores": 2})
    check({"cores": UNLIMITED}, {"cores": 18}, {"cores": 2000})
    check({"cores": 1}, {"cores": 18}, {"cores": 0})
    with pytest.raises(QuotaExceededError, match="Requested 3, but already used 18 of 20 cores"):
        check({"cores": 20}, {"cores": 18}, {"cores": 3})


def test_server_group_lists_members_that_are_not_deleted(fleet: Fleet, cell: Cell) -> None:
    group = fleet.server_groups.create("apart", "anti-affinity", project_id="red", user_id="ada", max_server_per_host=2)
    uuids = [f"0000000{n}-0000-4000-8000-000000000000" for n in range(3)]
    fleet.add_mappings([InstanceMapping(uuid, cell.uuid, "red", "ada", n) for n, uuid in enumerate(uuids)])
    fleet.server_groups.add_members(group.uuid, uuids, limit=3)
    fleet.mark_queued_for_delete(cell.uuid, uuids[:1])
    assert fleet.server_groups.find(group.uuid, project_id="red").members == tuple(uuids[1:])
    assert fleet.server_groups.of_instance(uuids[0], project_id=None) == (group.uuid,)
    with pytest.raises(QuotaExceededError):
        fleet.server_groups.add_members(group.uuid, [cell.uuid, group.uuid], limit=3)


def test_server_groups_of_other_projects_are_not_found(fleet: Fleet) -> None:
    red, blue = (fleet.server_groups.create("g", "affinity", project_id=name, user_id="u") for name in ("red", "blue"))
    assert [group.uuid for group in fleet.server_groups.page("red", limit=10)] == [red.uuid]
    assert [group.uuid for group in fleet.server_groups.page(None, limit=1, offset=1)] == [blue.uuid]
    with pytest.raises(ResourceNotFoundError):
        fleet.server_groups.delete(blue.uuid, project_id="red")
    fleet.server_groups.delete(blue.uuid, project_id=None)
    with pytest.raises(ResourceNotFoundError):
        fleet.server_groups.find(blue.uuid, project_id=None)


def test_aggregate_keeps_its_hosts_and_metadata_until_it_is_empty(fleet: Fleet) -> None:
    made = fleet.aggregates.create("racks", {"availability_zone": "east"})
    for host in ("host2", "host1"):
        fleet.aggregates.add_host(made.number, host)
    with pytest.raises(ResourceExistsError):
        fleet.aggregates.add_host(made.number, "host1")
    changed = fleet.aggregates.change(made.number, "rows", {"ssd": "true"})
    assert (changed.name, changed.zone, changed.metadata, changed.hosts) == (
        "rows",
        None,
        {"ssd": "true"},
        ("host1", "host2"),
    )
    assert fleet.aggregates.all() == [changed]
    with pytest.raises(AggregateInUseError):
        fleet.aggregates.remove(made.number)
    fleet.aggregates.remove_host(made.number, "host1")
    fleet.aggregates.forget_host("host2")
    fleet.aggregates.remove(made.number)
    with pytest.raises(ResourceNotFoundError):
        fleet.aggregates.find(made.number)


def test_name_of_an_aggregate_is_taken_once(fleet: Fleet) -> None:
    fleet.aggregates.create("racks", {})
    other = fleet.aggregates.create("rows", {})
    with pytest.raises(ResourceExistsError):
        fleet.aggregates.create("racks", {})
    with pytest.raises(ResourceExistsError):
        fleet.aggregates.change(other.number, "racks", {})
    with pytest.raises(ResourceNotFoundError):
        fleet.aggregates.change(2**70, "third", {})


def test_hosts_are_known_as_they_were_last_seen(fleet: Fleet, cell: Cell) -> None:
    hosts = fleet.known_hosts
    hosts.remember({cell.uuid: ["b", "a"], "other": ["c"]})
    assert hosts.of([cell.uuid, "other", "unknown"]) == {cell.uuid: ["a", "b"], "other": ["c"], "unknown": []}
    hosts.remember({cell.uuid: ["b", "d"]})
    assert hosts.of([cell.uuid, "other"]) == {cell.uuid: ["b", "d"], "other": ["c"]}
    hosts.forget(cell.uuid, "d")
    assert hosts.of([cell.uuid]) == {cell.uuid: ["b"]}
    fleet.set_disabled(cell.uuid, True)
    fleet.remove_cell(fleet.cell(cell.uuid))
    assert hosts.of([cell.uuid, "other"]) == {cell.uuid: [], "other": ["c"]}


def test_group_that_is_deleted_while_members_join_goes_with_them(fleet: Fleet) -> None:
    def join(group_uuid: str) -> None:
        for _ in range(10):
            try:
                fleet.server_groups.add_members(group_uuid, [str(uuid4())], limit=UNLIMITED)
            except ResourceNotFoundError:
                return

    with ThreadPoolExecutor(4) as threads:
        for _ in range(20):
            group = fleet.server_groups.create("short-lived", "affinity", project_id="red", user_id="ada")
            joining = [threads.submit(join, group.uuid) for _ in range(3)]
            fleet.server_groups.delete(group.uuid, project_id="red")
            for each in joining:
                each.result()
    assert fleet.server_groups.page("red", limit=10) == ()


def test_hosts_are_noted_by_several_at_once(fleet: Fleet, cell: Cell) -> None:
    seen = {cell.uuid: [f"host{number}" for number in range(20)]}
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(fleet.known_hosts.remember, [seen] * 8))
    assert fleet.known_hosts.of(seen) == {cell.uuid: sorted(seen[cell.uuid])}


def test_limits_are_set_by_several_at_once(fleet: Fleet) -> None:
    def set_all(number: int) -> None:
        fleet.quotas.set_limits("red", {"cores": number, "ram": number})
        fleet.quotas.set_class("gold", {"cores": number, "ram": number})

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(set_all, range(32)))
    for limits in (fleet.quotas.limits("red"), fleet.quotas.of_class("gold")):
        assert limits["cores"] == limits["ram"], "of two who set them one is the last"


def test_limits_of_quota_classes_are_kept_apart(fleet: Fleet) -> None:
    fleet.quotas.set_class("gold", {"cores": 7})
    fleet.quotas.set_class("gold", {"ram": 8})
    assert fleet.quotas.of_class("gold") == DEFAULTS | {"cores": 7, "ram": 8}
    assert fleet.quotas.of_class(DEFAULT_CLASS) == fleet.quotas.defaults() == DEFAULTS


@pytest.mark.parametrize("key", [*SORT_KEYS, BY_AGE])
def test_pages_of_flavors_are_the_whole_list_by_every_key(fleet: Fleet, key: str) -> None:
    fleet.flavors.create(TINY)
    for is_descending in (False, True):
        query = FlavorQuery(None, sort_key=key, is_descending=is_descending)
        paged: list[str] = []
        while page := _ids(fleet, replace(query, limit=2, marker=paged[-1] if paged else None)):
            paged += page
        assert paged == _ids(fleet, query)
