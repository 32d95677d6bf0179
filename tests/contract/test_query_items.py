"""Queries about what cells have beside instances: nodes, groups, jobs and locks of native cells."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import text, update

from cells.database.engines import writing
from cells.tables import job_operations
from operations.actions.vocabulary import VOCABULARY
from operations.jobs.model import NewJob, NewOperation
from operations.jobs.queue import add_jobs
from tests.contract.compute_fleet import CELLS, MEMBER, BrokenCells, ComputeFleet, compute_fleet


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ComputeFleet]:
    """Two hosts in each cell, and an instance on the first host of each."""
    new_database: Callable[[], str] | None = None
    if request.param == "postgresql":
        new_database = request.getfixturevalue("new_postgresql_database")
    with compute_fleet(tmp_path, new_database=new_database) as fleet:
        fleet.add_hosts()
        for cell in CELLS:
            fleet.create(cell, display_name=f"web10.{cell}", host=f"{cell}-host0", node=f"{cell}-host0")
            fleet.create(cell, display_name=f"web9.{cell}", host=f"{cell}-host0", node=f"{cell}-host0")
        yield fleet


def ask(fleet: ComputeFleet, what: str, fields: str, **parameters: str) -> Any:
    response = fleet.api().get(f"/fleetlight/query?{urlencode({'what': what, 'fields': fields, **parameters})}")
    assert response.status_code == 200, response.text
    assert response.headers["fleetlight-complete"] == "true"
    return response.json()


def values(answer: Any) -> list[list[Any]]:
    assert all(status == 0 for row in answer["data"] for status, _ in row), answer["data"]
    return [[value for _, value in row] for row in answer["data"]]


def queue_a_stop(fleet: ComputeFleet, cell: str) -> str:
    uuid = fleet.create(cell, display_name="busy", host=f"{cell}-host1", node=f"{cell}-host1")
    with writing(fleet.engine(cell)) as connection:
        add_jobs(connection, VOCABULARY, [NewJob([NewOperation("os-stop", {"origin": {}}, uuid)])], 1_500_000_250_000)
    return uuid


def test_nodes_of_all_cells_come_in_nice_order_with_what_is_on_them(fleet: ComputeFleet) -> None:
    answer = ask(fleet, "node", "name,cell,group,role,pinst_cnt,pinst_list,mtotal,mfree,ndp/ssh_port")
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
    nodes = fleet.native.nodes(fleet.cells["east"])
    down, off = nodes.services()
    nodes.update_service(down.uuid, forced_down=True)
    nodes.update_service(off.uuid, disabled=True)
    answer = ask(fleet, "node", "name,role,offline,drained,mfree", filter='cell == "east"')
    assert answer["data"] == [
        [[0, "east-host0"], [0, "O"], [0, True], [0, False], [4, None]],
        [[0, "east-host1"], [0, "D"], [0, False], [0, True], [0, 262_144]],
    ]


def test_groups_of_one_name_in_several_cells_are_all_there_page_by_page(fleet: ComputeFleet) -> None:
    marker, found = None, []
    for _ in range(3):
        parameters = {"limit": "1"} | ({} if marker is None else {"marker": marker})
        answer = ask(fleet, "group", "name,cell,node_cnt,node_list,pinst_cnt", **parameters)
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


@pytest.mark.parametrize("what", ["network", "os", "export", "filter"])
def test_native_cell_has_none_of_the_others(fleet: ComputeFleet, what: str) -> None:
    field = {"export": "node", "filter": "uuid"}.get(what, "name")
    assert ask(fleet, what, field)["data"] == []


@pytest.mark.parametrize("order", ["name", "-name", "role,-name", "mfree", "ctime,name"])
def test_orders_and_pages_go_over_all_nodes(fleet: ComputeFleet, order: str) -> None:
    whole = values(ask(fleet, "node", "name,role,mfree,ctime", order=order))
    assert len(whole) == 6
    found: list[list[Any]] = []
    marker = None
    while len(found) < 6:
        parameters = {"limit": "4"} | ({} if marker is None else {"marker": marker})
        answer = ask(fleet, "node", "name,role,mfree,ctime", order=order, **parameters)
        found += values(answer)
        marker = answer["marker"]
    assert found == whole


def test_cell_that_is_down_is_missing_and_the_answer_says_so(fleet: ComputeFleet) -> None:
    api = fleet.api(pool=BrokenCells(fleet, hanging=["east"]), cell_timeout_s=0.2)
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


def test_members_learn_of_no_other_items(fleet: ComputeFleet) -> None:
    for what in ("node", "group", "job", "lock"):
        response = fleet.api().get(f"/fleetlight/query?what={what}&fields=cell", MEMBER)
        assert response.status_code == 404
        assert "there is: instance." in response.text
