"""A cell whose PostgreSQL database is lost under a running API is down in every face, and stays what it was."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text, update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.migrations import upgrade_cell
from fleetlight.cells.tables import cell_state
from fleetlight.manager.operations.jobs.metrics import WorkerMetrics
from fleetlight.manager.operations.mapping_upkeep import MappingUpkeep
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet, searching
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgresql, pytest.mark.no_rerun]


@pytest.fixture
def fleet(tmp_path: Path, new_postgresql_database: Callable[[], str]) -> Iterator[ComputeFleet]:
    """Six instances in three cells of PostgreSQL, which say whose they are, all indexed a minute ago."""
    with compute_fleet(tmp_path, new_database=new_postgresql_database) as fleet:
        fleet.fill(6)
        for name, cell in fleet.cells.items():
            with writing(fleet.engine(name)) as connection:
                connection.execute(update(cell_state).values(uuid=cell.uuid))
        fleet.number_changes()
        fleet.index(age_s=60)
        yield fleet


def take_schema(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))


def take_rows(engine: Engine) -> None:
    take_schema(engine)
    upgrade_cell(engine)
    with writing(engine) as connection:
        connection.execute(text("DELETE FROM cell_state"))


def exchange(engine: Engine) -> None:
    """As by a dump of another cell that is read into the tables, while connections are open."""
    with writing(engine) as connection:
        connection.execute(text("DELETE FROM instances"))
        connection.execute(update(cell_state).values(uuid=str(uuid4())))


LOSSES = {
    take_schema: "its database has no tables of a cell",
    take_rows: "its database is empty",
    exchange: "its database is that of another cell",
}


def listed(api: Api) -> tuple[int, str, str]:
    response = api.get("/v2.1/servers")
    route = next(each for each in response.headers["Fleetlight-Route"].split(",") if "east" in each)
    return len(response.json()["servers"]), response.headers["Fleetlight-Complete"], route


def board(api: Api) -> Any:
    [east] = [each for each in api.get("/fleetlight/cells").json()["cells"] if each["name"] == "east"]
    return east


@pytest.mark.parametrize(("lose", "reason"), LOSSES.items(), ids=[each.__name__ for each in LOSSES])
def test_cell_whose_database_is_lost_is_down_in_every_face(
    fleet: ComputeFleet, lose: Callable[[Engine], None], reason: str
) -> None:
    api, cell = fleet.api(search=searching(staleness_limit_s=30)), fleet.cells["east"]
    assert listed(api)[:2] == (6, "true")
    mappings = fleet.fleet.count_mappings(cell.uuid)
    lose(fleet.engine("east"))
    wait_until(lambda: listed(api)[1] == "false" and reason in board(api)["reason"])
    number, _, route = listed(api)
    assert (number, "index-while-down" in route, "age=" in route) == (6, True, True)
    assert board(api)["health"] == "down"
    found = api.get("/fleetlight/findings").json()
    assert not found["complete"]
    assert any(reason in each["reason"] for each in found["missing"] if each["cell"] == "east"), found["missing"]
    for path in ("/fleetlight/query?what=node&fields=name", "/2/instances?bulk=1"):
        answer = api.get(path)
        assert "east" in json.dumps(dict(answer.headers)) + answer.text, path
    adapter = open_adapter(cell)
    with pytest.raises(CellUnreachableError, match=reason):
        MappingUpkeep(adapter, fleet.fleet, WorkerMetrics(), interval_s=60).step()
    adapter.close()
    assert fleet.fleet.count_mappings(cell.uuid) == mappings
