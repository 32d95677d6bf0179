"""A cell is stopped, slowed and cut off in the middle of paging: real PostgreSQL cells, and a network in between."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy.engine import make_url

from bench.faults.proxy import TcpProxy
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell, CellAdapter
from tests.contract.compute_fleet import CELLS, ComputeFleet, compute_fleet, searching
from tests.contract.paging import page_through
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.no_rerun, pytest.mark.postgresql, pytest.mark.timeout(300)]

FAULTS: dict[str, Callable[[TcpProxy], None]] = {
    "stopped": TcpProxy.cut,
    "cut off": TcpProxy.hold,
    "slowed": lambda proxy: proxy.slow_down(0.02),
    "too slow": lambda proxy: proxy.slow_down(5),
}


@pytest.fixture
def fleet(tmp_path: Path, new_postgresql_database: Callable[[], str]) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path, new_database=new_postgresql_database) as fleet:
        yield fleet


@pytest.mark.parametrize(
    ("fault", "has_index"), [*((fault, True) for fault in FAULTS), ("stopped", False), ("cut off", False)]
)
def test_paging_goes_on_and_no_page_is_wrong(proxy: TcpProxy, fleet: ComputeFleet, fault: str, has_index: bool) -> None:
    def open_through_network(cell: Cell) -> CellAdapter:
        if cell.name == "east":
            address = make_url(cell.database_url).set(host="127.0.0.1", port=proxy.port)
            cell = replace(cell, database_url=address.render_as_string(hide_password=False))
        return open_adapter(cell)

    everything = {fleet.create(CELLS[number % len(CELLS)], display_name=f"{number:02}") for number in range(15)}
    fleet.index(age_s=3600)  # so that the cells are asked
    pool = CellPool(fleet.fleet.cells, open_through_network, deadline_s=1, probe_interval_s=0.05, list_timeout_s=60)
    api = fleet.api(search=searching(enabled=has_index, cell_timeout_s=60), pool=pool)
    is_faulty = False

    def get(url: str) -> httpx.Response:
        # Until then, and where the cell is only slow, nobody is to be taken for one that is down.
        deadline_s = 1 if is_faulty and fault in {"cut off", "too slow"} else 60
        return api.get(url, {"Fleetlight-Cell-Timeout": str(deadline_s)})

    def fail() -> None:
        nonlocal is_faulty
        is_faulty = True
        FAULTS[fault](proxy)

    with ExitStack() as stack:
        stack.callback(fleet.close_pool, pool)
        stack.callback(proxy.restore)
        seen = page_through(get, "east", fail, has_index=has_index)
        if has_index or fault == "slowed":
            assert set(seen) == everything, "no row left out"
        else:
            assert set(seen) < everything
        proxy.restore()
        wait_until(lambda: get("/v2.1/servers").headers["Fleetlight-Complete"] == "true")
