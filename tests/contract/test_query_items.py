"""Queries about what cells have beside instances: nodes, groups, jobs and locks of native cells."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import insert, select, text, update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.tables import (
    cluster_parameters,
    job_filters,
    job_operations,
    network_connections,
    network_nics,
    networks,
    node_groups,
)
from fleetlight.manager.operations.actions.vocabulary import VOCABULARY
from fleetlight.manager.operations.jobs.model import NewJob, NewOperation
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.native_cells import nodes_in
from tests.contract.compute_fleet import CELLS, MEMBER, BrokenCells, ComputeFleet, compute_fleet, searching
from tests.support.servers.real_servers import new_databases

NETWORK = "10fac6e0-60d8-4b6c-afd9-6bf6ce247eea"


_KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]


@contextmanager
def small_fleet(request: pytest.FixtureRequest, folder: Path) -> Iterator[ComputeFleet]:
    """Two hosts in each cell, and two instances on the first host of each."""
    with ExitStack() as databases:
        new_database: Callable[[], str] | None = None
        if request.param == "postgresql":
            new_database = databases.enter_context(new_databases(request.getfixturevalue("postgresql_url")))
        with compute_fleet(folder, new_database=new_database) as fleet:
            fleet.add_hosts()
            for cell in CELLS:
                fleet.create(cell, display_name=f"web10.{cell}", host=f"{cell}-host0", node=f"{cell}-host0")
                fleet.create(cell, display_name=f"web9.{cell}", host=f"{cell}-host0", node=f"{cell}-host0")
            yield fleet


@pytest.fixture(params=_KINDS)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ComputeFleet]:
    """A small fleet of the test's own."""
    with small_fleet(request, tmp_path) as fleet:
        yield fleet


@pytest.fixture(params=_KINDS, scope="module")
def unchanged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """A small fleet, for tests that change nothing of it."""
    with small_fleet(request, tmp_path_factory.mktemp("unchanged")) as fleet:
        yield fleet


def ask(fleet: ComputeFleet, what: str, fields: str, **parameters: str) -> Any:
    response = fleet.api().get(f"/fleetlight/query?{urlencode({'what': what, 'fields': fields, **parameters})}")
    assert response.status_code == 200, response.text
    assert response.headers["fleetlight-complete"] == "true"
    return response.json()


def values(answer: Any) -> list[list[Any]]:
    assert all(status == 0 for row in answer["data"] for status, _ in row), answer["data"]
    return [[value for _, value in row] for row in answer["data"]]


def queue_a_stop(fleet: ComputeFleet, cell: str, at: int = 1_500_000_250_000) -> str:
    uuid = fleet.create(cell, display_name="busy", host=f"{cell}-host1", node=f"{cell}-host1")
    with writing(fleet.engine(cell)) as connection:
        add_jobs(connection, VOCABULARY, [NewJob([NewOperation("os-stop", {"origin": {}}, uuid)])], at)
    return uuid


def test_nodes_of_all_cells_come_in_nice_order_with_what_is_on_them(unchanged: ComputeFleet) -> None:
    answer = ask(unchanged, "node", "name,cell,group,role,pinst_cnt,pinst_list,mtotal,mfree,ndp/ssh_port")
    assert values(answer) == [
        [
            f"{cell}-host{number}",
            cell,
            "default",
            "R",
            0 if number else 2,
            [] if number else [f"web9.{cell}", f"web10.{cell}"],
            262_144,
            262_144,
            22,
        ]
        for cell in sorted(CELLS)
        for number in (0, 1)
    ]


def test_node_whose_service_is_down_is_offline_and_one_that_is_disabled_is_drained(fleet: ComputeFleet) -> None:
    nodes = nodes_in(fleet.native, fleet.cells["east"])
    down, off = nodes.services()
    nodes.update_service(down.uuid, forced_down=True)
    nodes.update_service(off.uuid, disabled=True)
    answer = ask(fleet, "node", "name,role,offline,drained,mfree", filter='cell == "east"')
    assert answer["data"] == [
        [[0, "east-host0"], [0, "O"], [0, True], [0, False], [4, None]],
        [[0, "east-host1"], [0, "D"], [0, False], [0, True], [0, 262_144]],
    ]


def test_groups_of_one_name_in_several_cells_are_all_there_page_by_page(unchanged: ComputeFleet) -> None:
    marker, found = None, []
    for _ in range(3):
        parameters = {"limit": "1"} | ({} if marker is None else {"marker": marker})
        answer = ask(unchanged, "group", "name,cell,node_cnt,node_list,pinst_cnt", **parameters)
        found += values(answer)
        marker = answer["marker"]
    assert marker is None
    assert found == [["default", cell, 2, [f"{cell}-host0", f"{cell}-host1"], 2] for cell in sorted(CELLS)]


def test_action_of_the_compute_api_is_a_job(fleet: ComputeFleet) -> None:
    uuid = queue_a_stop(fleet, "north")
    answer = ask(fleet, "job", "id,cell,status,priority,ops,opstatus,summary,received_ts,oplog")
    ops = [{"OP_ID": "OP_SERVER_STOP", "instance_uuid": uuid, "instance_name": "busy"}]
    received = [1_500_000, 250_000]
    assert values(answer) == [[10001, "north", "queued", 0, ops, ["queued"], ["SERVER_STOP(busy)"], received, [[]]]]
    assert ask(fleet, "job", "start_ts,end_ts")["data"] == [[[3, None], [3, None]]]


def test_jobs_of_all_cells_come_in_the_order_of_their_times(fleet: ComputeFleet) -> None:
    for cell, second in (("north", 3), ("east", 1), ("south", 2)):
        queue_a_stop(fleet, cell, second * 1_000_000)
    newest = ask(fleet, "job", "cell", order="-received_ts", limit="2")
    assert values(newest) == [["north"], ["south"]]
    assert values(ask(fleet, "job", "cell", order="-received_ts", limit="2", marker=newest["marker"])) == [["east"]]
    assert values(ask(fleet, "job", "cell", order="start_ts,cell")) == [["east"], ["north"], ["south"]]


def test_jobs_of_an_instance_are_asked_for_by_its_uuid(fleet: ComputeFleet) -> None:
    mine, other = queue_a_stop(fleet, "north"), queue_a_stop(fleet, "north")
    found = values(ask(fleet, "job", "id,instance", filter=f'instance == "{mine}"'))
    assert found == [[10001, mine]]
    with writing(fleet.engine("north")) as connection:
        of_other = job_operations.c.instance_uuid == other
        connection.execute(update(job_operations).where(of_other).values(instance_uuid=None))
    assert ask(fleet, "job", "instance")["data"] == [[[0, mine]], [[3, None]]]


@pytest.mark.parametrize("number", [-1, -(2**63) - 1, 2**63, 10**30])
def test_number_that_no_job_can_have_finds_none(fleet: ComputeFleet, number: int) -> None:
    queue_a_stop(fleet, "north")
    assert ask(fleet, "job", "id", filter=f"id == {number}")["data"] == []


def test_job_that_has_ended_says_when(fleet: ComputeFleet) -> None:
    queue_a_stop(fleet, "north")
    fleet.work()
    [[status, opstatus, end]] = values(ask(fleet, "job", "status,opstatus,end_ts", filter="received_ts < 1500001"))
    assert (status, opstatus) == ("success", ["success"])
    assert end > [1_500_000, 250_000]


def test_lock_names_the_job_that_waits_for_it(fleet: ComputeFleet) -> None:
    uuid = queue_a_stop(fleet, "north")
    answer = ask(fleet, "lock", "name,cell,mode,owner,pending")
    assert answer["data"] == [
        [[0, f"instance/{uuid}"], [0, "north"], [3, None], [3, None], [0, [["exclusive", ["job 10001"]]]]]
    ]


def test_native_cell_has_no_exports(unchanged: ComputeFleet) -> None:
    assert ask(unchanged, "export", "node")["data"] == []


def test_hosts_can_install_what_the_demo_is_made_of(fleet: ComputeFleet) -> None:
    node = nodes_in(fleet.native, fleet.cells["east"]).nodes()[0]
    with writing(fleet.engine("east")) as connection:
        connection.execute(
            update(cluster_parameters).values(
                parameters={
                    "hidden_os": ["rocky-9"],
                    "blacklisted_os": ["cirros-0.6.3"],
                    "osparams": {"debian-12": {"a": "1"}, "debian-12+small": {"b": "2"}, "debian": {"c": "3"}},
                }
            )
        )
    fields = "name,valid,hidden,blacklisted,trusted,variants,api_versions,parameters"
    assert values(ask(fleet, "os", fields, filter='cell == "east"')) == [
        ["cirros-0.6.3", True, False, True, True, [], [20], []],
        ["debian-12", True, False, False, True, [], [20], []],
        ["rocky-9", True, True, False, True, [], [20], []],
        ["ubuntu-24.04", True, False, False, True, [], [20], []],
    ]
    debian = ask(fleet, "os", "node_status,osparams,os_hvp", filter='cell == "east" and name == "debian-12"')
    [[status, parameters, of_hypervisors]] = values(debian)
    assert status[node.uuid] == [["", True, "", [], [], [20], True]]
    assert len(status) == 2
    assert (parameters, of_hypervisors) == ({"debian-12": {"a": "1"}, "debian-12+small": {"b": "2"}}, {})
    api = fleet.api()
    assert api.get("/cells/east/2/os").json() == ["debian-12", "ubuntu-24.04"]
    assert [each["name"] for each in api.get("/cells/east/2/os?bulk=1").json()] == [
        "cirros-0.6.3",
        "debian-12",
        "rocky-9",
        "ubuntu-24.04",
    ]


def add_network(fleet: ComputeFleet, cell: str, uuid: str = NETWORK, **given: Any) -> None:
    row = {"name": "front", "network": "192.0.2.0/28", "external_reservations": [], "tags": ["blue"], **given}
    with writing(fleet.engine(cell)) as connection:
        row |= {"uuid": uuid, "serial_no": 3, "created_at": 1_500_000, "updated_at": 2_500_000}
        connection.execute(insert(networks).values(**row))


def test_network_tells_of_its_addresses_and_what_is_in_it(fleet: ComputeFleet) -> None:
    add_network(fleet, "east", gateway="192.0.2.1", external_reservations=["192.0.2.4"])
    uuid = fleet.create("east", display_name="in.example.com")
    with writing(fleet.engine("east")) as connection:
        group = connection.scalar(select(node_groups.c.uuid))
        connected = {"group_uuid": group, "mode": "bridged", "link": "br1", "vlan": ""}
        connection.execute(insert(network_connections).values(network_uuid=NETWORK, **connected))
        nic = {"instance_uuid": uuid, "network_uuid": NETWORK}
        connection.execute(insert(network_nics).values(position=0, address="192.0.2.2", **nic))
        connection.execute(insert(network_nics).values(position=1, **nic))
    fields = (
        "name,cell,uuid,network,gateway,serial_no,tags,ctime,mtime,free_count,reserved_count,map,external_reservations,"
        "group_list,group_cnt,inst_list,inst_cnt"
    )
    assert values(ask(fleet, "network", fields)) == [
        [
            "front",
            "east",
            NETWORK,
            "192.0.2.0/28",
            "192.0.2.1",
            3,
            ["blue"],
            1.5,
            2.5,
            11,
            5,
            "XXX.X..........X",
            "192.0.2.0, 192.0.2.1, 192.0.2.4, 192.0.2.15",
            [["default", "bridged", "br1", ""]],
            1,
            ["in.example.com"],
            1,
        ]
    ]
    assert ask(fleet, "network", "network6,gateway6,mac_prefix")["data"] == [[[3, None]] * 3]


def test_address_outside_of_a_network_makes_only_its_pool_unknown(fleet: ComputeFleet) -> None:
    add_network(fleet, "east", external_reservations=["198.51.100.1"])
    answer = ask(fleet, "network", "name,free_count,map,external_reservations,inst_cnt")
    assert answer["data"] == [[[0, "front"], [2, None], [2, None], [2, None], [0, 0]]]


def test_filter_of_jobs_is_shown_as_it_was_made(fleet: ComputeFleet) -> None:
    made = {"priority": 5, "watermark": 29, "predicates": [["jobid", [">", "id", 9]]], "action": "PAUSE"}
    with writing(fleet.engine("east")) as connection:
        connection.execute(insert(job_filters).values(uuid=NETWORK, reason_trail=[["me", "", 7]], **made))
    fields = "uuid,priority,watermark,predicates,action,reason_trail,cell"
    watermark = job_number(fleet.cells["east"], 29)
    shown = {**made, "watermark": watermark}
    assert values(ask(fleet, "filter", fields)) == [[NETWORK, *shown.values(), [["me", "", 7]], "east"]]


def configure(fleet: ComputeFleet, cell: str, **parameters: Any) -> None:
    with writing(fleet.engine(cell)) as connection:
        connection.execute(update(cluster_parameters).values(parameters=parameters, tags=["site"]))


def test_parameters_of_a_cell_fill_in_those_of_groups_and_nodes(fleet: ComputeFleet) -> None:
    configure(
        fleet, "east", ndparams={"ssh_port": 2222}, ipolicy={"vcpu-ratio": 8.0}, diskparams={"plain": {"stripes": 2}}
    )
    with writing(fleet.engine("east")) as connection:
        connection.execute(
            update(node_groups).values(ipolicy={"spindle-ratio": 4.0}, ndparams={"spindle_count": 3}, diskparams={})
        )
    fields = "ipolicy,custom_ipolicy,diskparams,custom_diskparams,ndparams,ndp/ssh_port,ndp/spindle_count"
    [[policy, own, disks, own_disks, nodes, port, spindles]] = values(
        ask(fleet, "group", fields, filter='cell == "east"')
    )
    assert (policy["vcpu-ratio"], policy["spindle-ratio"], own) == (8.0, 4.0, {"spindle-ratio": 4.0})
    assert policy["minmax"][0]["max"]["memory-size"] == 32_768
    assert (disks["plain"], disks["drbd"]["protocol"], own_disks) == ({"stripes": 2}, "C", {})
    assert (nodes["ssh_port"], nodes["ovs_name"], port, spindles) == (2222, "switch1", 2222, 3)
    of_nodes = values(ask(fleet, "node", "ndp/ssh_port,ndp/spindle_count", filter='cell == "east"'))
    assert of_nodes == [[2222, 3], [2222, 3]]


def test_cell_is_a_cluster_with_parameters(fleet: ComputeFleet) -> None:
    configure(fleet, "east", beparams={"default": {"maxmem": 256}}, hvparams={"kvm": {"acpi": False}})
    info = fleet.api().get("/cells/east/2/info").json()
    assert info["beparams"]["default"] == {
        "minmem": 128,
        "maxmem": 256,
        "vcpus": 1,
        "auto_balance": True,
        "always_failover": False,
        "spindle_use": 1,
    }
    assert (info["hvparams"]["kvm"]["acpi"], info["hvparams"]["kvm"]["serial_speed"]) == (False, 38_400)
    assert info["default_hypervisor"] == info["enabled_hypervisors"][0]
    assert (info["vg_name"], info["volume_group_name"]) == ("xenvg", "xenvg")
    assert info["candidate_pool_size"] == 10
    assert info["tags"] == ["site"] == fleet.api().get("/cells/east/2/tags").json()
    assert 1.6e9 < info["ctime"] < 4e9


@pytest.mark.parametrize("damage", ["{broken", "7", '{"beparams": 7, "hidden_os": {}, "ipolicy": []}'])
@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_damaged_parameters_of_a_cell_are_the_defaults(fleet: ComputeFleet, damage: str) -> None:
    with writing(fleet.engine("east")) as connection:
        connection.execute(text("UPDATE cluster_parameters SET parameters = :damage, tags = '{'"), {"damage": damage})
    info = fleet.api().get("/cells/east/2/info").json()
    assert (info["beparams"]["default"]["maxmem"], info["hidden_os"], info["tags"]) == (128, [], [])
    assert len(ask(fleet, "os", "name")["data"]) == 12


@pytest.mark.parametrize("order", ["name", "-name", "role,-name", "mfree", "ctime,name"])
def test_orders_and_pages_go_over_all_nodes(unchanged: ComputeFleet, order: str) -> None:
    whole = values(ask(unchanged, "node", "name,role,mfree,ctime", order=order))
    assert len(whole) == 6
    found: list[list[Any]] = []
    marker = None
    while len(found) < 6:
        parameters = {"limit": "4"} | ({} if marker is None else {"marker": marker})
        answer = ask(unchanged, "node", "name,role,mfree,ctime", order=order, **parameters)
        found += values(answer)
        marker = answer["marker"]
    assert found == whole


def test_cell_that_is_down_is_missing_and_the_answer_says_so(unchanged: ComputeFleet) -> None:
    api = unchanged.api(search=searching(cell_timeout_s=0.2), pool=BrokenCells(unchanged, hanging=["east"]))
    response = api.get("/fleetlight/query?what=node&fields=cell")
    assert response.status_code == 200
    assert response.headers["fleetlight-complete"] == "false"
    assert "east=skipped" in response.headers["fleetlight-route"]
    assert {row[0][1] for row in response.json()["data"]} == {"north", "south"}


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_damaged_value_is_not_known_and_hides_nothing_else(fleet: ComputeFleet) -> None:
    queue_a_stop(fleet, "north")
    with writing(fleet.engine("north")) as connection:
        connection.execute(update(job_operations).values(result=text("'{broken'")))
        connection.execute(text("UPDATE compute_nodes SET tags = '[1', ndparams = '7'"))
    assert ask(fleet, "job", "id,opresult")["data"] == [[[0, 10001], [2, None]]]
    assert len(ask(fleet, "node", "name,tags,ndparams", filter='cell == "north"')["data"]) == 2


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_damaged_number_is_not_known_and_hides_nothing_else(fleet: ComputeFleet) -> None:
    queue_a_stop(fleet, "north")
    with writing(fleet.engine("north")) as connection:
        connection.execute(text("UPDATE compute_nodes SET memory_mib = 'x', updated_at = 'y', serial_no = 'z'"))
        connection.execute(text("UPDATE job_operations SET started_at = 'x'"))
        connection.execute(text("UPDATE jobs SET received_at = 'y'"))
    for order in ("name", "mtotal,mfree", "-serial_no", "mtime"):
        rows = ask(fleet, "node", "cell,mtotal,mfree,serial_no,ctime", order=order)["data"]
        assert [row[1:4] for row in rows if row[0] == [0, "north"]] == [[[2, None]] * 3] * 2
        assert [row[1] for row in rows if row[0] != [0, "north"]] == [[0, 262_144]] * 4
    assert ask(fleet, "job", "id,opstart,received_ts")["data"] == [[[0, 10001], [0, [None]], [2, None]]]


def test_members_learn_of_no_other_items(unchanged: ComputeFleet) -> None:
    for what in ("node", "group", "job", "lock"):
        response = unchanged.api().get(f"/fleetlight/query?what={what}&fields=cell", MEMBER)
        assert response.status_code == 404
        assert "there is: instance." in response.text
