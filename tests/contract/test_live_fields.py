"""What only nodes know, in lists of nodes and instances: said by those that have an agent, by way of the cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.tables import compute_nodes, services
from fleetlight.manager.agents.drivers.driver import RUNNING as RUNS_THERE
from fleetlight.manager.agents.drivers.driver import SHUT_DOWN
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.resources.power_states import RUNNING as POWERED_ON
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, compute_fleet
from tests.support.played.played_hosts import NODE, PlayedHosts, guest

LIVE = "bootid,ctotal,cnos,cnodes,csockets,mtotal,mnode,mfree,dtotal,dfree"
SAID = ["boot of north-host0", 16, 2, 1, 4, 1000, 100, 700, 5000, 3000]
WANTED_UP, WANTED_DOWN = {"vm_state": "active", "power_state": POWERED_ON}, {"vm_state": "stopped"}
NORMAL, NO_DATA, UNAVAILABLE, OFFLINE = 0, 2, 3, 4


@contextmanager
def fleet_with_agents(folder: Path) -> Iterator[ComputeFleet]:
    """Three hosts in each cell, of which those of north have agents, but for the last one."""
    with compute_fleet(folder) as fleet:
        fleet.add_hosts(3)
        set_agents(fleet, "north", 2)
        yield fleet


@pytest.fixture(scope="module")
def still_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """For tests that only read: no instances, and a stopped one on the first host."""
    with fleet_with_agents(tmp_path_factory.mktemp("still")) as fleet:
        fleet.create("north", host="north-host0", node="north-host0", **WANTED_DOWN)
        yield fleet


@pytest.fixture
def still(still_fleet: ComputeFleet, hosts: PlayedHosts) -> Api:
    return still_fleet.api(nodes=hosts)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with fleet_with_agents(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def api(fleet: ComputeFleet, hosts: PlayedHosts) -> Api:
    return fleet.api(nodes=hosts)


def set_agents(fleet: ComputeFleet, cell: str, count: int) -> None:
    for number in range(count):
        AgentAddresses(fleet.engine(cell), fleet.cells[cell]).set(f"{cell}-host{number}", "10.0.0.1:1811")


def ask(api: Api, what: str, fields: str, headers: Any = None, **parameters: str) -> Any:
    query = urlencode({"what": what, "fields": fields, **parameters})
    response = api.get(f"/fleetlight/query?{query}", headers or {})
    assert (response.status_code, response.headers["fleetlight-complete"]) == (200, "true"), response.text
    return response.json()


def rows(api: Api, what: str, fields: str, **parameters: Any) -> list[Any]:
    """The cells of each row; a lone field without its list."""
    data = ask(api, what, fields, **parameters)["data"]
    return [row[0] if "," not in fields else row for row in data]


def in_north(api: Api, fields: str, more: str = "") -> list[Any]:
    return rows(api, "node", fields, filter=f'cell == "north"{more}')


def mark_offline(fleet: ComputeFleet, host: str) -> None:
    with writing(fleet.engine("north")) as connection:
        connection.execute(update(services).where(services.c.host == host).values(forced_down=True))


def test_nodes_with_an_agent_say_what_they_have_and_others_are_as_the_database_says(still: Api) -> None:
    first, second, last = in_north(still, LIVE)
    assert first == [[NORMAL, value] for value in SAID]
    assert second[0] == [NORMAL, "boot of north-host1"]
    assert last == [
        [UNAVAILABLE, None],
        *[[NORMAL, each] for each in (64, 0, 1, 1, 262_144, 0, 262_144)],
        *[[NORMAL, 4_096_000]] * 2,
    ]


def test_second_answer_calls_nobody(still: Api, hosts: PlayedHosts) -> None:
    first = in_north(still, LIVE)
    assert hosts.called() == {"north-host0", "north-host1"}
    assert (in_north(still, LIVE), hosts.called()) == (first, set())


def test_query_without_a_live_field_calls_nobody(still: Api, hosts: PlayedHosts) -> None:
    ask(still, "node", "name,offline,pinst_list,group,ndparams")
    ask(still, "node", "name", filter="vm_capable and not offline", order="-pinst_cnt")
    ask(still, "instance", "name,pnode,be/memory,hvparams,admin_state")
    ask(still, "instance", "name", filter='pnode == "north-host0"')
    ask(still, "group", "name,pinst_list")
    assert hosts.calls == []


@pytest.mark.parametrize(
    ("fields", "flags"),
    [
        ("bootid", ("bootid",)),
        ("dfree", ("diskinfo",)),
        ("mfree", ("hv",)),
        ("cnos,dtotal", ("diskinfo", "hv")),
    ],
)
def test_only_what_is_asked_for_is_collected(
    still: Api, hosts: PlayedHosts, fields: str, flags: tuple[str, ...]
) -> None:
    in_north(still, fields)
    assert sorted(hosts.calls) == [("north-host0", flags), ("north-host1", flags)]


def test_only_nodes_that_the_rest_of_the_filter_lets_pass_are_called(still: Api, hosts: PlayedHosts) -> None:
    assert in_north(still, "name", ' and name == "north-host1" and mfree == 700') == [[NORMAL, "north-host1"]]
    assert hosts.called() == {"north-host1"}
    assert in_north(still, "mfree", ' and name == "north-host2"') == [[NORMAL, 262_144]]
    assert hosts.called() == set()


def test_only_nodes_of_the_page_are_called(still: Api, hosts: PlayedHosts) -> None:
    page = ask(still, "node", "name,mfree", filter='cell == "north"', limit="1")
    assert (page["data"], hosts.called()) == ([[[0, "north-host0"], [0, 700]]], {"north-host0"})


def test_filter_and_order_are_by_what_nodes_say(still: Api, hosts: PlayedHosts) -> None:
    hosts.nodes = {"north-host0": {**NODE, "memory_free": 5}, "north-host1": {**NODE, "memory_free": 500_000}}
    assert in_north(still, "name", " and mfree > 100") == [[0, "north-host1"], [0, "north-host2"]]
    ordered = {"filter": 'cell == "north"', "order": "-mfree"}
    names = ["north-host1", "north-host2", "north-host0"]
    assert [value for _, value in rows(still, "node", "name", **ordered)] == names
    found: list[str] = []
    marker: dict[str, str] = {}
    while True:
        page = ask(still, "node", "name", **ordered, limit="1", **marker)
        found += [row[0][1] for row in page["data"]]
        if page["marker"] is None:
            break
        marker = {"marker": page["marker"]}
    assert found == names


def test_node_that_fails_costs_its_own_row(still: Api, hosts: PlayedHosts) -> None:
    hosts.failing["north-host0"] = "no answer"
    first, second, _ = in_north(still, "mfree,dfree,bootid")
    assert first == [[NO_DATA, None]] * 3
    assert second == [[0, 700], [0, 3000], [0, "boot of north-host1"]]
    # Nothing is remembered of a failure.
    del hosts.failing["north-host0"]
    assert in_north(still, "mfree")[0] == [0, 700]


def test_node_that_is_marked_offline_is_not_called(fleet: ComputeFleet, api: Api, hosts: PlayedHosts) -> None:
    in_north(api, LIVE)
    hosts.calls.clear()
    mark_offline(fleet, "north-host0")
    assert in_north(api, LIVE)[0] == [[OFFLINE, None]] * 10
    assert hosts.called() == set()


def test_node_that_may_have_no_instances_is_asked_for_its_boot_alone(
    fleet: ComputeFleet, api: Api, hosts: PlayedHosts
) -> None:
    with writing(fleet.engine("north")) as connection:
        of_node = compute_nodes.c.hypervisor_hostname == "north-host0"
        connection.execute(update(compute_nodes).where(of_node).values(vm_capable=False))
    first, second, _ = in_north(api, "bootid,mfree,dfree")
    assert first == [[0, "boot of north-host0"], [UNAVAILABLE, None], [UNAVAILABLE, None]]
    assert second[1:] == [[0, 700], [0, 3000]]
    assert sorted(hosts.calls) == [("north-host0", ("bootid",)), ("north-host1", ("bootid", "diskinfo", "hv"))]


@pytest.mark.parametrize(
    ("change", "cell"),
    [({"memory_free": "much"}, [NO_DATA, None]), ({"memory_free": None}, [NO_DATA, None])],
    ids=["of another kind", "missing"],
)
def test_value_that_is_none_is_not_shown(still: Api, hosts: PlayedHosts, change: Any, cell: Any) -> None:
    hosts.nodes["north-host0"] = {**NODE, **change}
    assert in_north(still, "mfree")[0] == cell


def test_slow_node_costs_its_own_row_within_the_time_limit(still: Api, hosts: PlayedHosts) -> None:
    is_over = Event()
    limits: list[float] = []

    def hang(node: str, timeout_s: float) -> None:
        if node == "north-host0":
            limits.append(timeout_s)
            is_over.wait(30)

    hosts.during = hang
    asked = {"filter": 'cell == "north"', "headers": {"Fleetlight-Cell-Timeout": "0.2"}}
    assert rows(still, "node", "mfree", **asked) == [[NO_DATA, None], [0, 700], [0, 262_144]]
    assert limits == [0.2]
    is_over.set()


def test_nodes_are_called_all_at_once(fleet: ComputeFleet, api: Api, hosts: PlayedHosts) -> None:
    set_agents(fleet, "east", 3)
    set_agents(fleet, "south", 3)
    together = Barrier(8)

    def wait_for_others() -> None:
        together.wait(10)

    # Each call goes on when all the others have begun.
    hosts.during = lambda _node, _timeout_s: wait_for_others()
    assert [value for _, value in rows(api, "node", "mfree") if value == 700] == [700] * 8


def test_agent_is_asked_as_soon_as_it_is_set_and_not_after_it_was_removed(
    fleet: ComputeFleet, api: Api, hosts: PlayedHosts
) -> None:
    addresses = AgentAddresses(fleet.engine("north"), fleet.cells["north"])
    assert in_north(api, "mfree")[2] == [0, 262_144]
    addresses.set("north-host2", "10.0.0.3:1811")
    assert in_north(api, "mfree")[2] == [0, 700]
    addresses.set("north-host2", None)
    assert in_north(api, "mfree")[2] == [0, 262_144]


RUNS = [[0, True], [0, 512], [0, 2]]
DOWN = [[0, False], [3, None], [3, None]]
ON_NODE, ELSEWHERE = "north-host0", "north-host1"
CASES: dict[str, tuple[Any, str | None, int, list[Any]]] = {
    "wanted, runs": (WANTED_UP, ON_NODE, RUNS_THERE, [[0, "running"], *RUNS]),
    "not wanted, runs": (WANTED_DOWN, ON_NODE, RUNS_THERE, [[0, "ERROR_up"], *RUNS]),
    "wanted, runs elsewhere": (WANTED_UP, ELSEWHERE, RUNS_THERE, [[0, "ERROR_wrongnode"], *RUNS]),
    "not wanted, runs elsewhere": (WANTED_DOWN, ELSEWHERE, RUNS_THERE, [[0, "ERROR_wrongnode"], *RUNS]),
    "not wanted, shut down elsewhere": (WANTED_DOWN, ELSEWHERE, SHUT_DOWN, [[0, "ADMIN_down"], *DOWN]),
    "wanted, shut down": (WANTED_UP, ON_NODE, SHUT_DOWN, [[0, "ERROR_down"], *DOWN]),
    "not wanted, shut down": (WANTED_DOWN, ON_NODE, SHUT_DOWN, [[0, "ADMIN_down"], *DOWN]),
    "wanted, not there": (WANTED_UP, None, SHUT_DOWN, [[0, "ERROR_down"], *DOWN]),
    "not wanted, not there": (WANTED_DOWN, None, SHUT_DOWN, [[0, "ADMIN_down"], *DOWN]),
}
"""What is wanted of an instance, which node has it in which state, and what is shown of it."""


def test_status_of_an_instance_is_by_what_nodes_say(fleet: ComputeFleet, api: Api, hosts: PlayedHosts) -> None:
    for name, (values, seen_on, state, _) in CASES.items():
        uuid = fleet.create("north", display_name=name, host=ON_NODE, node=ON_NODE, **values)
        if seen_on is not None:
            hosts.guests.setdefault(seen_on, {})[uuid] = guest(state=state)
    fleet.index()
    # The other node is not called, since no instance is to be on it; it is remembered.
    in_north(api, "mfree")
    hosts.calls.clear()
    fields = "name,status,oper_state,oper_ram,oper_vcpus"
    for consistency in ("any", "strong"):
        found = rows(api, "instance", fields, headers={"Fleetlight-Consistency": consistency})
        assert {name: cells for (_, name), *cells in found} == {name: cells for name, (*_, cells) in CASES.items()}
    assert hosts.calls == []


def test_instance_that_runs_elsewhere_is_seen_there_if_that_is_known(
    fleet: ComputeFleet, api: Api, hosts: PlayedHosts
) -> None:
    uuid = fleet.create("north", host=ON_NODE, node=ON_NODE, **WANTED_UP)
    hosts.guests[ELSEWHERE] = {uuid: guest()}
    assert rows(api, "instance", "status") == [[0, "ERROR_down"]]
    assert hosts.called() == {ON_NODE}
    in_north(api, "mfree")
    assert rows(api, "instance", "status") == [[0, "ERROR_wrongnode"]]


def test_instances_of_a_node_that_is_away_say_so(fleet: ComputeFleet, api: Api, hosts: PlayedHosts) -> None:
    for number in (0, 1, 2):
        host = f"north-host{number}"
        fleet.create("north", display_name=f"web{number}", host=host, node=host, **WANTED_UP)
    hosts.failing["north-host0"] = "no answer"
    mark_offline(fleet, "north-host1")
    assert rows(api, "instance", "name,status,oper_state,oper_ram", order="name") == [
        [[0, "web0"], [0, "ERROR_nodedown"], [2, None], [2, None]],
        [[0, "web1"], [0, "ERROR_nodeoffline"], [2, None], [4, None]],
        # Its node has no agent.
        [[0, "web2"], [0, "running"], [0, True], [2, None]],
    ]
    assert hosts.called() == {"north-host0"}


def test_instances_are_found_and_counted_by_what_nodes_say(fleet: ComputeFleet, api: Api, hosts: PlayedHosts) -> None:
    uuids = [
        fleet.create("north", display_name=f"web{number}", host="north-host0", node="north-host0", **WANTED_UP)
        for number in range(3)
    ]
    hosts.guests["north-host0"] = {uuids[1]: guest()}
    assert rows(api, "instance", "name", filter='status == "ERROR_down"', order="name") == [[0, "web0"], [0, "web2"]]
    assert rows(api, "instance", "name", filter='oper_state and name == "web1"') == [[0, "web1"]]
    hosts.calls.clear()
    assert rows(api, "instance", "name", filter='oper_state and name == "nobody"') == []
    assert hosts.calls == []
    counts = api.get("/fleetlight/query/counts?what=instance&by=status").json()["groups"]
    assert {(each["by"]["status"], each["count"]) for each in counts} == {("ERROR_down", 2), ("running", 1)}


def test_reservations_and_deleted_instances_have_no_guest(fleet: ComputeFleet, api: Api, hosts: PlayedHosts) -> None:
    fleet.create("north", display_name="later", host="north-host0", node="north-host0", forthcoming=True)
    assert rows(api, "instance", "name,status,oper_state") == [[[0, "later"], [0, "ADMIN_down"], [0, False]]]
    assert hosts.calls == []


def test_members_see_the_status_of_their_own_and_no_other_node_is_called(
    fleet: ComputeFleet, api: Api, hosts: PlayedHosts
) -> None:
    fleet.create("north", display_name="theirs", project_id="other", host="north-host1", node="north-host1")
    own = fleet.create("north", display_name="own", host="north-host0", node="north-host0", **WANTED_DOWN)
    hosts.guests["north-host0"] = {own: guest()}
    member = {**MEMBER, "X-Project-Id": "demo", "X-User-Id": "ada"}
    assert rows(api, "instance", "name,status", headers=member) == [[[0, "own"], [0, "ERROR_up"]]]
    assert hosts.called() == {"north-host0"}


def test_remote_api_shows_what_nodes_say(fleet: ComputeFleet, api: Api, hosts: PlayedHosts) -> None:
    uuid = fleet.create("north", display_name="web", host="north-host0", node="north-host0", **WANTED_UP)
    hosts.guests["north-host0"] = {uuid: guest(memory=300)}
    node = api.get("/2/nodes/north-host0").json()
    assert (node["mfree"], node["cnodes"], node["dtotal"]) == (700, 1, 5000)
    [instance] = api.get("/2/instances?bulk=1").json()
    assert (instance["status"], instance["oper_ram"], instance["oper_vcpus"]) == ("running", 300, 2)


def test_answers_of_guests_that_are_none_are_not_believed(fleet: ComputeFleet, api: Api, hosts: PlayedHosts) -> None:
    fleet.create("north", display_name="web", host="north-host0", node="north-host0", **WANTED_UP)
    hosts.guests["north-host0"] = {"other": "running"}
    assert rows(api, "instance", "status,oper_state") == [[[0, "ERROR_nodedown"], [2, None]]]
