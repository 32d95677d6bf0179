"""The API database of a deployment hangs: its cells are waited for once, and the others answer as always."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from bench.faults.proxy import TcpProxy
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.nova_db.adapter import NovaDbAdapter
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell, CellAdapter, InstanceRow
from fleetlight.query.page import PageRequest
from tests.contract.compute_fleet import ComputeFleet, compute_fleet, searching
from tests.support.fleets.nova_tables import CELL0, CELL1, SmallNova, small_nova
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.postgresql, pytest.mark.timeout(300)]

LIST = "/v2.1/servers?all_tenants=1"
PATIENCE_S = 2


@pytest.fixture
def nova(tmp_path: Path, new_postgresql_database: Callable[[], str]) -> SmallNova:
    made = small_nova(tmp_path, new_postgresql_database())
    made.add("cell0", 1)
    made.add("cell1", 2)
    return made


@pytest.fixture
def fleet(tmp_path: Path, nova: SmallNova, proxy: TcpProxy) -> Iterator[ComputeFleet]:
    """Three cells of our own, and those of a deployment whose API database is behind the proxy."""
    (tmp_path / "own").mkdir()
    address = make_url(nova.urls["api"]).set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    with compute_fleet(tmp_path / "own") as made:
        for name, url, nova_uuid in (
            ("cell0", nova.urls["cell0"], CELL0),
            ("cell1", nova.urls["cell1"], CELL1),
            ("waiting", address, None),
        ):
            made.fleet.add_cell(name, CellKind.NOVA_DB, url, "", api_database_url=address, nova_uuid=nova_uuid)
        yield made


def test_cells_of_the_deployment_are_waited_for_once_and_asked_again_when_it_answers(
    fleet: ComputeFleet, proxy: TcpProxy
) -> None:
    own = {fleet.create(cell) for cell in ("north", "east", "south")}
    theirs = {cell.uuid for cell in fleet.fleet.cells() if cell.kind is CellKind.NOVA_DB}
    asked: Counter[str] = Counter()

    class Counting:
        """Of a cell of Nova, which is asked for pages."""

        def __init__(self, cell: Cell) -> None:
            self._adapter: CellAdapter = open_adapter(cell, statement_timeout_s=PATIENCE_S)
            self.cell = cell

        def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
            asked[self.cell.uuid] += 1
            return self._adapter.read_page(request)

        def find(self, uuid: str) -> InstanceRow | None:
            return self._adapter.find(uuid)

        def probe(self) -> None:
            if isinstance(self._adapter, NovaDbAdapter):
                self._adapter.probe()
            else:
                self._adapter.find(uuid=str(self.cell.uuid))

        def close(self) -> None:
            self._adapter.close()

    pool = CellPool(fleet.fleet.cells, Counting, deadline_s=PATIENCE_S, probe_interval_s=0.05, list_timeout_s=60)
    api = fleet.api(search=searching(enabled=False, cell_timeout_s=60), pool=pool)

    def is_complete() -> bool:
        return api.get(LIST).headers["Fleetlight-Complete"] == "true"

    wait_until(is_complete)
    assert len(api.ids(LIST)) == len(own) + 2
    proxy.hold()
    wait_until(lambda: not is_complete() and pool.hanging() >= theirs)
    before = asked.copy()
    assert not is_complete()
    assert [asked[uuid] - before[uuid] for uuid in theirs] == [0, 0, 0], "nobody waits for them any more"
    # A busy machine may have made one of our own cells slow for a moment.
    wait_until(lambda: own <= set(api.ids(LIST)))
    proxy.restore()
    wait_until(is_complete)
    fleet.close_pool(pool)


def test_cell_does_not_answer_a_probe_while_its_api_database_hangs(fleet: ComputeFleet, proxy: TcpProxy) -> None:
    cell = next(cell for cell in fleet.fleet.cells() if cell.name == "cell1")
    with closing(NovaDbAdapter(cell, statement_timeout_s=1)) as adapter:
        wait_until(lambda: answers(adapter))
        proxy.hold()
        assert adapter.find(cell.uuid) is None, "its own database answers"
        with pytest.raises(CellUnreachableError, match="API database"):
            adapter.probe()
        proxy.restore()
        wait_until(lambda: answers(adapter))


def answers(adapter: NovaDbAdapter) -> bool:
    try:
        adapter.probe()
    except CellUnreachableError:
        return False
    return True
