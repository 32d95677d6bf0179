"""Sixteen clients want the last free capacity of a cell at once, over two API processes and several workers."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import select

from fleetlight.cells.model import NO_REQUEST
from fleetlight.cells.tables import jobs
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.hosts.cell_nodes import NewHost
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.manager.operations.opcodes.cluster import RedistributeConfiguration
from fleetlight.manager.operations.opcodes.filters.storing import JobFilters, NewFilter
from fleetlight.manager.operations.submitting import JobSubmission
from fleetlight.resources.amount import Amount
from tests.contract.compute_fleet import ComputeFleet
from tests.contract.conftest import fleet_of_any_database
from tests.support.rapi_calls import RapiCalls

__all__ = ["fleet_of_any_database"]

CLIENTS, FITTING = 16, 6


@pytest.fixture
def fleet(fleet_of_any_database: ComputeFleet) -> ComputeFleet:
    # Room for three on each of two nodes.
    hosts = [NewHost(name, Amount.of_gib(vcpus=64, memory_mib=3 * 1024 + 512, disk_gib=1000)) for name in ("a", "b")]
    fleet = fleet_of_any_database
    nodes_in(fleet.native, fleet.cells["north"]).add_hosts(hosts)
    fleet.index()
    return fleet


def test_as_many_reservations_succeed_as_fit_and_the_others_are_told(fleet: ComputeFleet) -> None:
    apis = [fleet.api(), fleet.api()]
    body = {"__version__": 1, "forthcoming": True, "beparams": {"memory": 1024}}
    numbers = [
        answer.json()
        for api in apis
        for answer in api.at_once(CLIENTS // 2, "POST", "/cells/north/2/instances", json=body)
    ]
    cell = fleet.cells["north"]

    def work(_number: int) -> None:
        worker = new_worker(fleet.engine("north"), fleet.fleet, cell)
        while worker.run_once():
            pass

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    fleet.work()
    rapi = RapiCalls(fleet, apis[1], "/cells/north/2")
    ended = [rapi.job(number) for number in numbers]
    failed = [job for job in ended if job["status"] == "error"]
    assert (len(ended) - len(failed), len(failed)) == (FITTING, CLIENTS - FITTING)
    assert {job["opresult"][0][1][1] for job in failed} == {"insufficient_resources"}
    assert sorted(node["pinst_cnt"] for node in rapi.get("/nodes?bulk=1")) == [3, 3]
    for each in rapi.get("/instances"):
        rapi.result("PUT", f"/instances/{each['id']}/rename", {"new_name": f"n{each['id'][:8]}"})
        more = {"os": "debian-12", "disk_template": "diskless", "nics": [{}]}
        assert rapi.result("POST", f"/instances/{each['id']}/create", more)


def test_no_more_jobs_go_on_than_a_limit_lets_however_many_are_submitted_at_once(fleet: ComputeFleet) -> None:
    limit = NewFilter(0, [["opcode", ["=", "OP_ID", RedistributeConfiguration.OP_ID]]], ["RATE_LIMIT", 2], [])
    JobFilters(fleet.engine("north"), fleet.cells["north"]).add(limit)
    together = Barrier(CLIENTS)

    def submit(_number: int) -> int:
        submission = JobSubmission(fleet.engine("north"), fleet.cells["north"])
        together.wait()
        return submission.submit([RedistributeConfiguration()], NO_REQUEST)

    with ThreadPoolExecutor(CLIENTS) as threads:
        assert len(set(threads.map(submit, range(CLIENTS)))) == CLIENTS
    with fleet.engine("north").connect() as connection:
        assert len(connection.execute(select(jobs.c.id).where(jobs.c.is_ready)).all()) == 2
