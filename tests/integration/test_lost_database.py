"""The PostgreSQL of a cell and of the fleet goes away, again and again, while clients reserve and make real."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.engine import make_url
from structlog.testing import capture_logs

from bench.faults.proxy import TcpProxy
from fleetlight.cells.tables import allocations, changes, job_locks, jobs
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.hosts.cell_nodes import NewHost
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.amount import Amount
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet
from tests.support.servers.real_servers import new_databases

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(300)]

CLIENTS, WORKERS = 8, 2
INSTANCES = "/cells/north/2/instances"
# The database goes away when so many jobs have been accepted.
OUTAGES = frozenset({3, 7, 11, 15})
BODY = {
    "__version__": 1,
    "forthcoming": True,
    "os": "debian-12",
    "disk_template": "diskless",
    "beparams": {"memory": 1024},
    "nics": [{}],
}


@pytest.fixture
def fleet(tmp_path: Path, postgresql_url: str, proxy: TcpProxy) -> Iterator[ComputeFleet]:
    """The fleet and the cell `north` are on the server behind the proxy; there is room for what all clients want."""
    with ExitStack() as stack:
        new_database = stack.enter_context(new_databases(postgresql_url))
        places = iter(("fleet", "north", "east", "south"))

        def database() -> str:
            name = next(places)
            if name in {"east", "south"}:
                return f"sqlite:///{tmp_path}/{name}.db"
            behind = make_url(new_database()).set(host="127.0.0.1", port=proxy.port)
            return behind.render_as_string(hide_password=False)

        fleet = stack.enter_context(compute_fleet(tmp_path, new_database=database))
        size = Amount.of_gib(vcpus=64, memory_mib=CLIENTS // 2 * 1024, disk_gib=10)
        nodes_in(fleet.native, fleet.cells["north"]).add_hosts([NewHost(name, size) for name in ("a", "b")])
        yield fleet
        proxy.restore()


class Clients:
    """Reserve, and make real, each one instance; each asks again when it is told to."""

    def __init__(self, api: Api, proxy: TcpProxy) -> None:
        self._api = api
        self._proxy = proxy
        self.accepted: list[int] = []
        self.refused = 0

    async def live(self, name: str) -> None:
        await self._carried_out(INSTANCES, {**BODY, "name": name})
        await self._carried_out(f"{INSTANCES}/{name}/create", {})

    async def _carried_out(self, url: str, body: dict[str, Any]) -> None:
        number = await self._answer("POST", url, json=body)
        self.accepted.append(number)
        if len(self.accepted) in OUTAGES:
            self._proxy.cut()
        while True:
            job = await self._answer("GET", f"/2/jobs/{number}")
            if job["status"] in {"success", "error"}:
                return
            await asyncio.sleep(0.05)

    async def _answer(self, method: str, url: str, **content: Any) -> Any:
        while True:
            response = await self._api.ask(method, url, **content)
            if response.status_code == 200:
                return response.json()
            assert response.status_code == 503, response.text
            assert int(response.headers["Retry-After"]) > 0
            self.refused += 1
            self._proxy.restore()
            await asyncio.sleep(0.05)


def test_nothing_that_was_accepted_is_lost_or_done_twice_when_the_database_goes_away(
    fleet: ComputeFleet, proxy: TcpProxy
) -> None:
    cell, engine, api = fleet.cells["north"], fleet.engine("north"), fleet.api()
    clients = Clients(api, proxy)
    stop = threading.Event()
    threads = [threading.Thread(target=new_worker(engine, fleet.fleet, cell).run, args=(stop,)) for _ in range(WORKERS)]
    names = [f"web{number}" for number in range(CLIENTS)]

    async def live() -> None:
        await asyncio.gather(*map(clients.live, names))

    with capture_logs() as logs:
        for thread in threads:
            thread.start()
        try:
            api.run(live())
        finally:
            proxy.restore()
            stop.set()
            for thread in threads:
                thread.join()
        fleet.work()
    assert clients.refused >= len(OUTAGES)
    reasons = [str(entry["reason"]) for entry in logs if entry["event"] == "job.failed"]
    assert [reason for reason in reasons if "already" not in reason] == []
    assert {api.get(f"/2/jobs/{number}").json()["status"] for number in clients.accepted} <= {"success", "error"}
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(jobs).where(jobs.c.ended_at.is_(None))) == 0
        assert connection.scalar(select(func.count()).select_from(job_locks)) == 0
        columns = allocations.c
        taken = select(func.count(), func.sum(columns.memory_mib), func.bool_or(columns.is_forthcoming))
        per_node = connection.execute(taken.group_by(columns.node_id)).all()
        told = Counter(connection.scalars(select(changes.c.event_type)))
    assert [tuple(row) for row in per_node] == [(CLIENTS // 2, CLIENTS // 2 * 1024, False)] * 2
    assert (told["reservation.create.end"], told["instance.create.end"]) == (CLIENTS, CLIENTS)
    found = api.get(f"{INSTANCES}?bulk=1", {"Fleetlight-Consistency": "strong"}).json()
    assert sorted((each["name"], each["forthcoming"]) for each in found) == [(name, False) for name in names]
    assert fleet.fleet.count_mappings(cell.uuid) == CLIENTS
