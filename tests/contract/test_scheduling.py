"""The scheduler for programs: dry runs, claims, and allocation candidates of the whole fleet."""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest
from sqlalchemy import Connection, event, insert, select, text, update
from sqlalchemy.exc import OperationalError

from fleetlight.cells.database.engines import writing
from fleetlight.cells.errors import CellUnreachableError, NoValidHostError
from fleetlight.cells.fleet.compute.server_groups import ServerGroup
from fleetlight.cells.model import NO_REQUEST
from fleetlight.cells.tables import allocations, changes, compute_nodes, node_traits, services
from fleetlight.manager.operations.actions.accepting import create_in_several
from fleetlight.manager.operations.native_cells import acceptance_in, nodes_in
from fleetlight.notifications.payloads.request_spec import RequestSpecPayload
from fleetlight.notifications.payloads.selection import Selection
from fleetlight.notifications.registry import parse_payload
from tests.contract.compute_fleet import CELLS, MEMBER, Api, ComputeFleet, compute_fleet

ADMIN = {"X-Project-Id": "red", "X-User-Id": "ada"}
SIZE = {"vcpus": 2, "memory_mb": 4096, "root_gb": 20}
WHOLE = {"vcpus": 64, "memory_mb": 1024, "root_gb": 1}
URL = "/fleetlight/select-destinations"
MINIMAL = {"name": "web", "flavorRef": "1", "imageRef": str(UUID(int=7))}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        fleet.add_hosts(4)
        yield fleet


@pytest.fixture
def api(fleet: ComputeFleet) -> Api:
    return fleet.api()


def post(api: Api, **body: Any) -> httpx.Response:
    return api.request("POST", URL, ADMIN, json={"flavor": SIZE, **body})


def selected(api: Api, **body: Any) -> list[list[Selection]]:
    response = post(api, **body)
    assert response.status_code == 200, response.text
    return [[Selection.unwrap(each) for each in one] for one in response.json()["selections"]]


def of(group: ServerGroup) -> dict[str, str]:
    """The hint that names a group."""
    return {"group": group.uuid}


def message(response: httpx.Response) -> str:
    [fault] = response.json().values()
    return str(fault["message"])


def taken(fleet: ComputeFleet) -> dict[str, str]:
    """Who has claimed something, and on which host."""
    statement = (
        select(allocations.c.instance_uuid, services.c.host)
        .join_from(allocations, compute_nodes, compute_nodes.c.id == allocations.c.node_id)
        .join(services, services.c.id == compute_nodes.c.service_id)
    )
    found: dict[str, str] = {}
    for cell in CELLS:
        with fleet.engine(cell).connect() as connection:
            found |= {row.instance_uuid: row.host for row in connection.execute(statement)}
    return found


def announced(fleet: ComputeFleet, cell: str) -> list[dict[str, Any]]:
    """The notifications of the scheduler in the outbox of a cell."""
    with fleet.engine(cell).connect() as connection:
        messages = connection.execute(select(changes.c.message).order_by(changes.c.id)).scalars()
        inner = [msgspec.json.decode(msgspec.json.decode(each)["oslo.message"]) for each in messages]
    return [each for each in inner if each["event_type"].startswith("scheduler.")]


def test_dry_run_answers_with_selections_and_claims_nothing(api: Api, fleet: ComputeFleet) -> None:
    response = post(api, num_instances=2)
    assert response.status_code == 200, response.text
    assert response.headers["Fleetlight-Complete"] == "true"
    document = response.json()
    assert (document["claimed"], len(document["instance_uuids"])) == (False, 2)
    first, second = [[Selection.unwrap(each) for each in one] for one in document["selections"]]
    cell = fleet.cells[document["cell"]]
    assert [each.service_host.removeprefix(f"{cell.name}-") for each in first] == ["host0", "host2", "host3"]
    assert [each.service_host.removeprefix(f"{cell.name}-") for each in second] == ["host1", "host2", "host3"]
    assert {each.cell_uuid for each in (*first, *second)} == {cell.uuid}
    request = first[0].requested_allocations
    assert request is not None
    assert request.allocations[first[0].compute_node_uuid].resources == {
        "VCPU": 2,
        "MEMORY_MB": 4096,
        "DISK_GB": 20,
    }
    assert (first[0].allocation_request_version, first[0].availability_zone) == ("1.36", cell.name)
    assert taken(fleet) == {}
    assert announced(fleet, cell.name) == []


def test_claims_are_made_when_asked_for_announced_and_given_back(api: Api, fleet: ComputeFleet) -> None:
    uuids = [str(UUID(int=1)), str(UUID(int=2))]
    body = post(api, instance_uuids=uuids, claim=True, availability_zone="south", ignore_hosts=["south-host0"]).json()
    assert (body["claimed"], body["instance_uuids"], body["cell"]) == (True, uuids, "south")
    assert taken(fleet) == {uuids[0]: "south-host1", uuids[1]: "south-host2"}
    started, ended = announced(fleet, "south")
    assert [started["event_type"], ended["event_type"]] == [
        "scheduler.select_destinations.start",
        "scheduler.select_destinations.end",
    ]
    assert started["publisher_id"] == "nova-scheduler:south"
    spec = parse_payload(ended["payload"])
    assert isinstance(spec, RequestSpecPayload)
    assert (spec.instance_uuid, spec.num_instances, spec.ignore_hosts) == (uuids[0], 2, ["south-host0"])
    assert spec.availability_zone == "south"
    for uuid in uuids:
        assert api.request("DELETE", f"{URL}/{uuid}", ADMIN).status_code == 204
    assert taken(fleet) == {}
    assert api.request("DELETE", f"{URL}/{uuids[0]}", ADMIN).status_code == 404


def test_what_an_instance_takes_up_is_neither_claimed_again_nor_given_back(api: Api, fleet: ComputeFleet) -> None:
    uuid = fleet.create(
        "north", host="north-host0", node="north-host0", flavor={**SIZE, "ephemeral_gb": 0, "flavorid": "m"}
    )
    assert post(api, instance_uuids=[uuid], claim=True).status_code == 409
    assert api.request("DELETE", f"{URL}/{uuid}", ADMIN).status_code == 404
    assert taken(fleet) == {uuid: "north-host0"}


def test_request_of_more_than_fits_is_refused_and_claims_nothing(api: Api, fleet: ComputeFleet) -> None:
    """Each host takes one; a cell has four."""
    refused = post(api, flavor=WHOLE, num_instances=13, claim=True)
    assert (refused.status_code, "No valid host" in message(refused)) == (409, True)
    assert taken(fleet) == {}
    assert [len(one) for one in selected(api, flavor=WHOLE, num_instances=4)] == [1, 1, 1, 1]


@pytest.mark.parametrize("claim", [False, True])
def test_request_that_no_cell_has_room_for_is_spread_over_several(api: Api, fleet: ComputeFleet, claim: bool) -> None:
    """Each host takes one; a cell has four."""
    answer = post(api, flavor=WHOLE, num_instances=9, claim=claim)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    chosen = [Selection.unwrap(one[0]) for one in document["selections"]]
    assert sorted(Counter(each.cell_uuid for each in chosen).values()) == [1, 4, 4]
    assert document["cell"] is None
    expected = dict(zip(document["instance_uuids"], (each.service_host for each in chosen), strict=True))
    assert len(set(expected.values())) == 9
    assert taken(fleet) == (expected if claim else {})


def test_each_cell_announces_what_it_gets_of_a_request(api: Api, fleet: ComputeFleet) -> None:
    post(api, flavor=WHOLE, num_instances=5, claim=True)
    counts = [
        spec.num_instances
        for cell in CELLS
        for each in announced(fleet, cell)
        if isinstance(spec := parse_payload(each["payload"]), RequestSpecPayload)
    ]
    assert sorted(counts) == [1, 1, 4, 4]


def test_servers_that_have_to_share_a_host_are_not_spread(api: Api, fleet: ComputeFleet) -> None:
    group = fleet.fleet.server_groups.create("g", "affinity", project_id="red", user_id="ada")
    half = {**WHOLE, "vcpus": 32}
    assert len({one[0].nodename for one in selected(api, flavor=half, num_instances=2, scheduler_hints=of(group))}) == 1
    assert post(api, flavor=half, num_instances=3, scheduler_hints=of(group)).status_code == 409


def test_members_that_keep_apart_are_spread_over_cells(api: Api, fleet: ComputeFleet) -> None:
    """A cell has four hosts, however much room they have; one of them has a member already."""
    group = fleet.fleet.server_groups.create("g", "anti-affinity", project_id="red", user_id="ada")
    uuid = fleet.create(
        "south", host="south-host1", node="south-host1", flavor={**SIZE, "ephemeral_gb": 0, "flavorid": "m"}
    )
    fleet.fleet.server_groups.add_members(group.uuid, [uuid], limit=1)
    chosen = selected(api, num_instances=11, scheduler_hints=of(group))
    assert len({one[0].service_host for one in chosen} - {"south-host1"}) == 11
    assert post(api, num_instances=12, scheduler_hints=of(group)).status_code == 409


def test_nothing_stays_claimed_when_one_of_several_cells_fails_at_the_end(api: Api, fleet: ComputeFleet) -> None:
    """The cell whose transaction ends last: those of the others have ended well."""
    group = fleet.fleet.server_groups.create("g", "anti-affinity", project_id="red", user_id="ada")
    engine = fleet.native.engine(min(fleet.cells.values(), key=lambda cell: cell.uuid))

    def fail(_connection: Connection) -> None:
        raise OperationalError("COMMIT", {}, Exception("connection lost"))

    event.listen(engine, "commit", fail)
    assert post(api, num_instances=12, scheduler_hints=of(group), claim=True).status_code == 503
    event.remove(engine, "commit", fail)
    assert taken(fleet) == {}
    assert fleet.fleet.server_groups.find(group.uuid, project_id=None).claimed == ()


def test_host_that_has_members_already_counts_for_those_that_it_may_have_beside_them(
    api: Api, fleet: ComputeFleet
) -> None:
    """Twelve hosts with two places each, of which two are taken, in two cells."""
    group = fleet.fleet.server_groups.create(
        "g", "anti-affinity", project_id="red", user_id="ada", max_server_per_host=2
    )
    for cell in ("south", "east"):
        host = f"{cell}-host1"
        uuid = fleet.create(cell, host=host, node=host, flavor={**SIZE, "ephemeral_gb": 0, "flavorid": "m"})
        fleet.fleet.server_groups.add_members(group.uuid, [uuid], limit=2)
    assert len(selected(api, num_instances=22, scheduler_hints=of(group))) == 22
    assert post(api, num_instances=23, scheduler_hints=of(group)).status_code == 409


def test_as_many_instances_as_a_request_may_have_find_their_hosts(api: Api, fleet: ComputeFleet) -> None:
    small = {"vcpus": 0, "memory_mb": 128, "root_gb": 0}
    assert len(selected(api, flavor=small, num_instances=1000, claim=True)) == 1000
    assert len(taken(fleet)) == 1000


def test_what_is_claimed_is_not_claimed_again(api: Api, fleet: ComputeFleet) -> None:
    uuids = [str(UUID(int=1)), str(UUID(int=2))]
    assert post(api, instance_uuids=uuids[:1], claim=True, availability_zone="south").status_code == 200
    held = taken(fleet)
    for zone, claim in product(("south", "north"), (True, False)):
        refused = post(api, instance_uuids=uuids, claim=claim, availability_zone=zone)
        assert (refused.status_code, uuids[0] in message(refused)) == (409, True)
    assert taken(fleet) == held
    assert api.request("DELETE", f"{URL}/{uuids[0]}", ADMIN).status_code == 204
    assert post(api, instance_uuids=uuids, claim=True, availability_zone="north").status_code == 200


@pytest.mark.parametrize(
    ("policy", "different"), [("anti-affinity", 4), ("soft-anti-affinity", 4), ("affinity", 1), ("soft-affinity", 1)]
)
def test_claims_of_a_group_see_each_other(api: Api, fleet: ComputeFleet, policy: str, different: int) -> None:
    group = fleet.fleet.server_groups.create("g", policy, project_id="red", user_id="ada")
    for _ in range(4):
        selected(api, scheduler_hints=of(group), claim=True, availability_zone="south")
    assert len(set(taken(fleet).values())) == different
    assert fleet.fleet.server_groups.find(group.uuid, project_id="red").members == ()


def test_claims_that_share_a_host_go_to_the_cell_of_the_first(api: Api, fleet: ComputeFleet) -> None:
    group = fleet.fleet.server_groups.create("g", "affinity", project_id="red", user_id="ada")
    [[first, *_]] = selected(api, scheduler_hints=of(group), claim=True, host="south-host2")
    [[second, *_]] = selected(api, scheduler_hints=of(group), claim=True)
    assert (first.service_host, second.service_host) == ("south-host2", "south-host2")


def test_claim_that_is_given_back_is_no_member_any_more(api: Api, fleet: ComputeFleet) -> None:
    group = fleet.fleet.server_groups.create("g", "anti-affinity", project_id="red", user_id="ada")
    uuid = str(UUID(int=1))
    wanted = {"host": "south-host1", "scheduler_hints": of(group), "claim": True, "instance_uuids": [uuid]}
    assert post(api, **wanted).status_code == 200
    assert post(api, **wanted | {"instance_uuids": [str(UUID(int=2))]}).status_code == 409
    assert api.request("DELETE", f"{URL}/{uuid}", ADMIN).status_code == 204
    assert post(api, **wanted).status_code == 200


def test_alternates_are_told_only_if_wanted_and_versions_as_asked_for(api: Api) -> None:
    [[chosen]] = selected(api, alternates=False)
    assert chosen.has_zone
    [[older, *_]] = selected(api, version="1.0")
    assert (older.sent_version, older.has_zone) == ("1.0", False)


def test_named_host_may_be_disabled_and_hints_and_groups_count(api: Api, fleet: ComputeFleet) -> None:
    nodes = nodes_in(fleet.native, fleet.cells["east"])
    nodes.update_service(nodes.services(host="east-host3")[0].uuid, disabled=True, disabled_reason=None)
    [[chosen, *alternates]] = selected(api, host="east-host3")
    assert (chosen.service_host, alternates) == ("east-host3", [])
    uuid = fleet.create("east", host="east-host1", node="east-host1")
    [[beside, *_]] = selected(api, scheduler_hints={"same_host": [uuid]})
    assert beside.service_host == "east-host1"
    group = fleet.fleet.server_groups.create("g", "anti-affinity", project_id="red", user_id="ada")
    hosts = {one[0].service_host for one in selected(api, num_instances=4, scheduler_hints={"group": group.uuid})}
    assert len(hosts) == 4


def test_traits_ratios_and_reserves_decide_on_the_host(api: Api, fleet: ComputeFleet) -> None:
    with writing(fleet.engine("east")) as connection:
        node = connection.scalar(select(compute_nodes.c.id).where(compute_nodes.c.hypervisor_hostname == "east-host2"))
        connection.execute(insert(node_traits).values(node_id=node, trait="CUSTOM_GPU"))
        of_node = update(compute_nodes).where(compute_nodes.c.id == node)
        connection.execute(of_node.values(vcpus_permille=2000, reserved_memory_mib=262_144 - 2048))
    wanted = {**SIZE, "memory_mb": 1024, "vcpus": 128, "extra_specs": {"trait:CUSTOM_GPU": "required"}}
    [[chosen]] = selected(api, flavor=wanted)
    assert chosen.service_host == "east-host2"
    assert post(api, flavor={**wanted, "vcpus": 129}).status_code == 409
    assert post(api, flavor={**wanted, "memory_mb": 2049}).status_code == 409
    [[other, *_]] = selected(
        api, flavor={**SIZE, "extra_specs": {"trait:CUSTOM_GPU": "forbidden"}}, availability_zone="east"
    )
    assert other.service_host != "east-host2"


UUIDS = [f"{number:08x}-1111-1111-1111-111111111111" for number in range(2500)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"scheduler_hints": {"different_host": UUIDS}}, 200),
        ({"scheduler_hints": {"same_host": UUIDS}}, 409),
        ({"flavor": {**SIZE, "extra_specs": {f"trait:T{number}": "required" for number in range(2500)}}}, 409),
    ],
    ids=["different hosts", "same hosts", "traits"],
)
def test_request_that_names_many_things_is_answered(api: Api, body: dict[str, Any], status: int) -> None:
    assert post(api, **body).status_code == status


@pytest.mark.parametrize(
    ("specs", "named"),
    [
        ({"resources:VGPU": "1"}, "resources:VGPU=1"),
        ({"resources:CUSTOM_GOLD": "2"}, "resources:CUSTOM_GOLD=2"),
        ({"resources:VCPU": "-1"}, "resources:VCPU=-1"),
        ({"resources:VCPU": "many"}, "resources:VCPU=many"),
        ({"resources1:VCPU": "2"}, "resources1:VCPU=2"),
        ({"trait1:CUSTOM_GPU": "required"}, "trait1:CUSTOM_GPU=required"),
        ({"hw:numa_nodes": "2"}, "hw:numa_nodes=2"),
        ({"hw:numa_mem.0": "512", "hw:numa_cpus.0": "0"}, "hw:numa_cpus.0=0, hw:numa_mem.0=512"),
        ({"hw:cpu_policy": "mixed"}, "hw:cpu_policy=mixed"),
        ({"hw:cpu_thread_policy": "isolate"}, "hw:cpu_thread_policy=isolate"),
        ({"hw:mem_page_size": "large"}, "hw:mem_page_size=large"),
        ({"hw:mem_encryption": "True"}, "hw:mem_encryption=True"),
        ({"capabilities:hypervisor_type": "QEMU"}, "capabilities:hypervisor_type=QEMU"),
        ({"pci_passthrough:alias": "gpu:1"}, "pci_passthrough:alias=gpu:1"),
        ({"os:secure_boot": "required"}, "os:secure_boot=required"),
        ({"hw:maxphysaddr_bits": "42"}, "hw:maxphysaddr_bits=42"),
        (
            {"hw:maxphysaddr_mode": "emulate", "hw:maxphysaddr_bits": "42"},
            "hw:maxphysaddr_bits=42, hw:maxphysaddr_mode=emulate",
        ),
        ({"hw:pci_numa_affinity_policy": "socket"}, "hw:pci_numa_affinity_policy=socket"),
        ({"hw:sound_model": "virtio"}, "hw:sound_model=virtio"),
        ({"hypervisor_type": "xen"}, "hypervisor_type=xen"),
        ({"num_instances": "0"}, "num_instances=0"),
        ({"hw:of_next_year": "1"}, "hw:of_next_year=1"),
    ],
)
@pytest.mark.parametrize("claim", [False, True])
def test_extra_spec_that_no_host_can_fulfil_is_named(
    api: Api, fleet: ComputeFleet, specs: dict[str, str], named: str, claim: bool
) -> None:
    refused = post(api, flavor={**SIZE, "extra_specs": specs}, claim=claim)
    assert (refused.status_code, f"of the flavor: {named}." in message(refused)) == (409, True)
    assert taken(fleet) == {}


@pytest.mark.parametrize(
    "specs",
    [
        {"resources:VGPU": "0", "hw:mem_encryption": "false", "hw:cpu_policy": "shared", "hw:mem_page_size": "small"},
        {"hw:boot_menu": "true", "quota:cpu_shares": "4", "hw:cpu_sockets": "1", "owner": "ada", "ours:colour": "blue"},
        {"os:secure_boot": "optional", "hw:sound_model": "ich9", "hw:viommu_model": "intel", "hw:locked_memory": "yes"},
        {"hw:usb_model": "nec-xhci", "hw:redirected_usb_ports": "4", "hw:pci_numa_affinity_policy": "legacy"},
    ],
)
def test_extra_spec_that_asks_nothing_of_a_host_is_no_matter_of_the_scheduler(api: Api, specs: dict[str, str]) -> None:
    assert post(api, flavor={**SIZE, "extra_specs": specs}).status_code == 200


def test_resources_of_an_extra_spec_count_instead_of_the_sizes_of_the_flavor(api: Api) -> None:
    specs = {"resources:VCPU": "3", "resources:MEMORY_MB": "100", "resources:DISK_GB": "0"}
    [[chosen, *_]] = selected(api, flavor={**SIZE, "extra_specs": specs})
    request = chosen.requested_allocations
    assert request is not None
    assert request.allocations[chosen.compute_node_uuid].resources == {"VCPU": 3, "MEMORY_MB": 100}
    assert post(api, flavor={**SIZE, "extra_specs": {"resources:VCPU": "65"}}).status_code == 409


def test_dedicated_processors_are_those_of_hosts_that_give_none_twice(api: Api, fleet: ComputeFleet) -> None:
    for cell in CELLS:
        with writing(fleet.engine(cell)) as connection:
            is_single = compute_nodes.c.hypervisor_hostname == "east-host2"
            connection.execute(update(compute_nodes).where(~is_single).values(vcpus_permille=1001))
    dedicated = {**SIZE, "extra_specs": {"hw:cpu_policy": "dedicated"}}
    [[chosen]] = selected(api, flavor=dedicated)
    assert chosen.service_host == "east-host2"
    assert post(api, flavor=dedicated, availability_zone="north").status_code == 409


def test_server_says_in_its_fault_which_extra_spec_no_host_fulfils(api: Api, fleet: ComputeFleet) -> None:
    fleet.fleet.flavors.change_extra_specs("1", lambda _specs: {"os:secure_boot": "required"})
    created = api.request("POST", "/v2.1/servers", ADMIN, json={"server": MINIMAL})
    assert created.status_code == 202, created.text
    fleet.work()
    server = api.get(f"/v2.1/servers/{created.json()['server']['id']}", ADMIN).json()["server"]
    assert (server["status"], "os:secure_boot=required" in server["fault"]["message"]) == ("ERROR", True)


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ({"hw:cpu_thread_policy": "isolate"}, "Cannot set cpu thread pinning policy in a non dedicated"),
        ({"hw:cpu_policy": "dedicated", "resources:VCPU": "2"}, "use one or the other"),
        ({"hw:numa_nodes": "3"}, "cannot be evenly distributed"),
        ({"hw:numa_nodes": "1", "hw:numa_cpus.0": "0-99999999999", "hw:numa_mem.0": "1"}, "Invalid range expression"),
        ({"hw:mem_page_size": "odd"}, "Invalid memory page size 'odd'"),
        ({"pci_passthrough:alias": "gpu:1"}, "PCI alias gpu is not defined"),
    ],
)
def test_flavor_that_no_server_can_have_is_refused_at_the_request(
    api: Api, fleet: ComputeFleet, specs: dict[str, str], said: str
) -> None:
    uuid = fleet.create("north", host="north-host0", node="north-host0")
    fleet.fleet.flavors.change_extra_specs("1", lambda _specs: specs)
    created = api.request("POST", "/v2.1/servers", ADMIN, json={"server": MINIMAL})
    assert (created.status_code, said in message(created)) == (400, True)
    resized = api.request("POST", f"/v2.1/servers/{uuid}/action", ADMIN, json={"resize": {"flavorRef": "1"}})
    assert (resized.status_code, said in message(resized)) == (400, True)


def create(api: Api, count: int) -> httpx.Response:
    """A request for servers of the flavor 1."""
    server = {**MINIMAL, "min_count": count}
    return api.request("POST", "/v2.1/servers", ADMIN, json={"server": server})


def statuses(api: Api) -> Counter[tuple[str, str]]:
    """How many servers there are of each status, and zone, by both."""
    found = api.get("/v2.1/servers/detail", ADMIN).json()["servers"]
    return Counter((server["status"], server["OS-EXT-AZ:availability_zone"]) for server in found)


def test_new_servers_that_no_cell_has_room_for_are_spread_over_several(api: Api, fleet: ComputeFleet) -> None:
    """Each host takes one; a cell has four."""
    fleet.fleet.flavors.change_extra_specs("1", lambda _specs: {"resources:VCPU": "64"})
    fleet.fleet.quotas.set_limits("red", {"instances": 20})
    created = create(api, 5)
    assert created.status_code == 202, created.text
    tokens = created.headers["Fleetlight-Token"].split()
    fleet.work()
    assert sorted(statuses(api).values()) == [1, 4]
    assert {status for status, _ in statuses(api)} == {"ACTIVE"}
    named = fleet.fleet.cells_of([token.partition(":")[0] for token in tokens])
    assert set(named.values()) == {fleet.cells[zone].uuid for _, zone in statuses(api)}
    fresh = api.get(
        "/v2.1/servers", ADMIN, {"Fleetlight-Consistency": f"at-least {created.headers['Fleetlight-Token']}"}
    )
    assert len(fresh.json()["servers"]) == 5
    assert create(api, 8).status_code == 202
    fleet.work()
    assert sum(count for (status, _), count in statuses(api).items() if status == "ERROR") == 8


def values(*numbers: int) -> list[dict[str, Any]]:
    """Of new servers that need a host each."""
    flavor = {"flavorid": "w", "name": "w", "ephemeral_gb": 0, **WHOLE}
    common = {"project_id": "red", "user_id": "ada", "display_name": "server", "image_ref": "", "flavor": flavor}
    return [{**common, "uuid": str(UUID(int=number))} for number in numbers]


@pytest.mark.parametrize("broken", ["north", "south"])
def test_cell_that_cannot_take_its_servers_is_the_one_that_is_named(fleet: ComputeFleet, broken: str) -> None:
    parts = [
        (acceptance_in(fleet.native, fleet.fleet, fleet.cells[name]), values(at)) for at, name in enumerate(CELLS, 1)
    ]
    with writing(fleet.engine(broken)) as connection:
        connection.execute(text("ALTER TABLE changes RENAME TO away"))
    with pytest.raises(CellUnreachableError) as failure:
        create_in_several(parts, {}, NO_REQUEST)
    assert failure.value.cell == broken
    assert taken(fleet) == {}


def test_servers_are_created_in_no_cell_when_another_one_has_lost_its_room(api: Api, fleet: ComputeFleet) -> None:
    north, south = (acceptance_in(fleet.native, fleet.fleet, fleet.cells[name]) for name in ("north", "south"))
    for parts in (
        [(north, values(1, 2)), (south, values(3, 4, 5, 6, 7))],
        [(south, values(1, 2)), (north, values(3, 4, 5, 6, 7))],
    ):
        with pytest.raises(NoValidHostError):
            create_in_several(parts, {}, NO_REQUEST)
    assert taken(fleet) == {}
    assert fleet.fleet.cells_of([str(UUID(int=number)) for number in range(1, 8)]) == {}


def test_aggregates_that_a_flavor_asks_for_decide_on_the_host(api: Api, fleet: ComputeFleet) -> None:
    aggregate = fleet.fleet.aggregates.create("fast", {"ssd": "true"})
    fleet.fleet.aggregates.add_host(aggregate.number, "south-host3")
    specs = {"aggregate_instance_extra_specs:ssd": "true"}
    [[chosen]] = selected(api, flavor={**SIZE, "extra_specs": specs})
    assert chosen.service_host == "south-host3"
    assert post(api, flavor={**SIZE, "extra_specs": {"aggregate_instance_extra_specs:ssd": "false"}}).status_code == 409


@pytest.mark.parametrize(
    "body",
    [
        {"flavor": None},
        {"flavor_ref": "1"},
        {"flavor": None, "flavor_ref": "no-such"},
        {"num_instances": 0},
        {"num_instances": 1001},
        {"instance_uuids": ["server"]},
        {"instance_uuids": [str(UUID(int=1))] * 2},
        {"instance_uuids": [str(UUID(int=1))], "num_instances": 2},
        {"version": "2.0"},
        {"scheduler_hints": {"group": str(UUID(int=1))}},
        {"scheduler_hints": {"near": "x"}},
        {"flavor": {"vcpus": -1, "memory_mb": 1, "root_gb": 1}},
    ],
)
def test_bodies_that_make_no_sense_are_refused(api: Api, body: dict[str, Any]) -> None:
    assert post(api, **body).status_code == 400


def test_cell_that_does_not_answer_costs_its_hosts_alone(fleet: ComputeFleet, api: Api) -> None:
    fleet.fleet.set_disabled(fleet.cells["south"].uuid, True)
    try:
        assert selected(api)[0][0].cell_uuid != fleet.cells["south"].uuid
        assert post(api, availability_zone="south").status_code == 409
    finally:
        fleet.fleet.set_disabled(fleet.cells["south"].uuid, False)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", URL),
        ("DELETE", f"{URL}/{UUID(int=1)}"),
        ("GET", "/fleetlight/allocation-candidates?resources=VCPU:1"),
    ],
)
def test_only_administrators_ask_the_scheduler(api: Api, method: str, path: str) -> None:
    assert api.request(method, path, MEMBER, json={"flavor": SIZE}).status_code == 403


def candidates(api: Api, query: str) -> Any:
    response = api.get(f"/fleetlight/allocation-candidates?{query}", ADMIN)
    assert response.status_code == 200, response.text
    return response.json()


def test_candidates_are_told_in_the_shape_of_placement(api: Api, fleet: ComputeFleet) -> None:
    found = candidates(api, "resources=VCPU:2,MEMORY_MB:4096,DISK_GB:20")
    assert len(found["allocation_requests"]) == len(found["provider_summaries"]) == 12
    [uuid] = found["allocation_requests"][0]["allocations"]
    assert found["allocation_requests"][0] == {
        "allocations": {uuid: {"resources": {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20}}},
        "mappings": {"": [uuid]},
    }
    assert found["provider_summaries"][uuid] == {
        "resources": {
            "VCPU": {"capacity": 64, "used": 0},
            "MEMORY_MB": {"capacity": 262_144, "used": 0},
            "DISK_GB": {"capacity": 4000, "used": 0},
        },
        "traits": [],
        "parent_provider_uuid": None,
        "root_provider_uuid": uuid,
    }


def test_candidates_of_all_cells_come_in_the_order_of_the_scheduler(api: Api, fleet: ComputeFleet) -> None:
    flavor = {"flavorid": "m", "vcpus": 1, "memory_mb": 1024, "root_gb": 1, "ephemeral_gb": 0}
    for cell in CELLS:
        for number in (0, 1, 2):
            fleet.create(cell, host=f"{cell}-host{number}", node=f"{cell}-host{number}", flavor=flavor)
    found = candidates(api, "resources=VCPU:1&limit=4")
    used = [
        found["provider_summaries"][uuid]["resources"]["VCPU"]["used"]
        for request in found["allocation_requests"]
        for uuid in request["allocations"]
    ]
    assert used == [0, 0, 0, 1]


def test_candidates_have_the_traits_and_aggregates_that_are_asked_for(api: Api, fleet: ComputeFleet) -> None:
    with writing(fleet.engine("north")) as connection:
        nodes = connection.execute(select(compute_nodes.c.id).order_by(compute_nodes.c.id)).scalars().all()
        for node in nodes[:2]:
            connection.execute(insert(node_traits).values(node_id=node, trait="CUSTOM_GPU"))
    found = candidates(api, "resources=VCPU:1&required=CUSTOM_GPU")
    assert [summary["traits"] for summary in found["provider_summaries"].values()] == [["CUSTOM_GPU"]] * 2
    assert len(candidates(api, "resources=VCPU:1&required=!CUSTOM_GPU")["allocation_requests"]) == 10
    aggregate = fleet.fleet.aggregates.create("fast", {})
    fleet.fleet.aggregates.add_host(aggregate.number, "south-host3")
    assert len(candidates(api, f"resources=VCPU:1&member_of={aggregate.uuid}")["allocation_requests"]) == 1
    assert (
        len(candidates(api, f"resources=VCPU:1&member_of=in:{UUID(int=1)},{aggregate.uuid}")["allocation_requests"])
        == 1
    )


@pytest.mark.parametrize(
    "query",
    [
        "",
        *(f"resources={text}" for text in ("", "VCPU", "VCPU:0", "VCPU:1,VCPU:2", "GPU:1", "VCPU:9999999999999999999")),
        *(f"resources=VCPU:1&{text}" for text in ("limit=0", "limit=x", "required=gpu", "in_tree=x")),
    ],
)
def test_questions_for_candidates_that_make_no_sense_are_refused(api: Api, query: str) -> None:
    refused = api.get(f"/fleetlight/allocation-candidates?{query}", ADMIN)
    assert (refused.status_code, bool(message(refused))) == (400, True)
