"""`GET /fleetlight/cells`: how each cell is, how far the index follows it, and what lists take of it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.fleet.failures import Failure, FailureSummary
from fleetlight.cells.fleet.restored_cells import RestoredCell
from fleetlight.cells.tables import cell_state, jobs
from fleetlight.indexer.backends.base import REPAIRS
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.resources.clock import system_clock
from tests.contract.answering import INDEX_KINDS, fleet_with_index
from tests.contract.compute_fleet import MEMBER, BrokenCells, ComputeFleet, searching


@pytest.fixture
def index_kind() -> str:
    """An index of every kind says how far it follows a cell: tests of that are run with each."""
    return "sqlite"


with_every_index = pytest.mark.parametrize("index_kind", INDEX_KINDS)


@pytest.fixture
def fleet(index_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ComputeFleet]:
    """Six instances and six hosts in three cells, all indexed."""
    with fleet_with_index(index_kind, tmp_path, request) as fleet:
        fleet.add_hosts()
        fleet.fill(6)
        fleet.number_changes()
        fleet.index(watermark=10_000)
        yield fleet


def board(fleet: ComputeFleet, **options: Any) -> Any:
    response = fleet.api(**options).get("/fleetlight/cells")
    assert response.status_code == 200, response.text
    return response.json()


def state(answer: Any, cell: str = "east") -> Any:
    [found] = [each for each in answer["cells"] if each["name"] == cell]
    return found


@with_every_index
def test_cell_that_the_index_follows_is_ok_and_counted(fleet: ComputeFleet) -> None:
    answer = board(fleet)
    assert [each["name"] for each in answer["cells"]] == ["east", "north", "south"]
    east = state(answer)
    assert (east["health"], east["reason"], east["route"], east["enabled"]) == ("ok", None, "index", True)
    assert (east["instances"], east["nodes"], east["lag"], east["watermark"]) == (2, 2, 0, 10_000)
    assert (east["dead_letters"], east["jobs_waiting"], east["jobs_running"]) == (0, 0, 0)
    assert east["age_s"] < 60
    assert east["epoch"] is not None
    assert east["followers"] is None  # SQLite cannot say
    assert answer["safe_connect"] == {"uses_index": True, "reason": None, "since": None}
    assert answer["index"] == {"backend": fleet.index_settings.backend}
    assert (answer["seal"]["holds"], answer["seal"]["reason"]) == (True, None)
    assert datetime.fromisoformat(answer["seal"]["at"]).tzinfo == UTC


def test_cell_that_went_back_to_a_backup_is_named_until_that_is_acknowledged(fleet: ComputeFleet) -> None:
    uuid, restored = fleet.cells["east"].uuid, fleet.fleet.restored_cells
    for watermark in (6743, 0):
        restored.record(uuid, RestoredCell(system_clock(), watermark, 8))
    east = state(board(fleet))
    assert (east["health"], east["route"]) == ("ok", "index")
    assert "had followed it to change 6743, its log ended at 8" in east["reason"]
    assert datetime.fromisoformat(east["restored_at"]).tzinfo == UTC
    assert state(board(fleet), "north")["restored_at"] is None
    restored.acknowledge(uuid)
    east = state(board(fleet))
    assert (east["reason"], east["restored_at"]) == (None, None)


def test_lag_is_what_the_cell_has_numbered_and_the_index_does_not_show(fleet: ComputeFleet) -> None:
    with writing(fleet.engine("east")) as connection:
        connection.execute(update(cell_state).values(last_sequence=10_007))
    assert state(board(fleet))["lag"] == 7


@with_every_index
def test_lag_of_another_epoch_is_not_known(fleet: ComputeFleet) -> None:
    fleet.number_changes()  # by relays that take over
    assert state(board(fleet))["lag"] is None


@with_every_index
@pytest.mark.parametrize("change", ["stale", "incomplete"])
def test_cell_that_the_index_lacks_something_of_is_behind_and_listed_live(fleet: ComputeFleet, change: str) -> None:
    fleet.index("east", age_s=5000 if change == "stale" else 0, is_complete=change == "stale")
    east = state(board(fleet))
    assert (east["health"], east["route"]) == ("behind", "live")
    assert ("stale" if change == "stale" else "does not have all rows") in east["reason"]


@with_every_index
def test_cell_whose_index_is_suspected_is_uncertain(fleet: ComputeFleet) -> None:
    writer = open_writer(fleet.index_settings)
    writer.prepare()
    writer.save_state(REPAIRS, {fleet.cells["east"].uuid: 1})
    writer.close()
    answer = board(fleet)
    assert (state(answer)["health"], state(answer)["route"]) == ("uncertain", "live")
    assert "repaired" in state(answer)["reason"]
    assert state(answer, "north")["health"] == "ok"


def test_cell_that_does_not_answer_is_down_and_still_listed_from_the_index(fleet: ComputeFleet) -> None:
    east = state(board(fleet, pool=BrokenCells(fleet, failing_after={"east": 0})))
    assert (east["health"], east["route"], east["instances"]) == ("down", "index", 2)
    assert "east" in east["reason"] or fleet.cells["east"].uuid in east["reason"]
    assert (east["lag"], east["nodes"], east["jobs_waiting"], east["keeps_past_until"]) == (None, None, None, None)


def test_cell_that_neither_answers_nor_is_followed_is_skipped(fleet: ComputeFleet) -> None:
    fleet.add_cell("west")
    found = state(board(fleet, pool=BrokenCells(fleet, failing_after={"west": 0})), "west")
    assert (found["health"], found["route"], found["instances"], found["age_s"]) == ("down", "skipped", None, None)


def test_disabled_cell_says_so_and_is_listed_all_the_same(fleet: ComputeFleet) -> None:
    fleet.fleet.set_disabled(fleet.cells["east"].uuid, True)
    east = state(board(fleet))
    assert (east["health"], east["enabled"], east["route"]) == ("disabled", False, "index")


def test_jobs_are_those_that_have_not_ended(fleet: ComputeFleet) -> None:
    row = {"priority": 0, "is_ready": False, "stage": "", "position": 0, "operation_count": 1, "received_at": 1}
    with writing(fleet.engine("east")) as connection:
        for status in ("queued", "waiting", "running", "canceling", "success"):
            ended_at = 2 if status == "success" else None
            connection.execute(insert(jobs).values(row | {"status": status, "ended_at": ended_at}))
    east = state(board(fleet))
    assert (east["jobs_waiting"], east["jobs_running"]) == (2, 2)


def test_past_is_kept_since_what_was_forgotten_and_asked_for_just_there(fleet: ComputeFleet) -> None:
    first = state(board(fleet))["keeps_past_until"]
    assert first is not None
    moment = round(datetime.now(UTC).timestamp() * 1e6)
    with writing(fleet.engine("east")) as connection:
        connection.execute(update(cell_state).values(forgotten_until=moment))
    kept = state(board(fleet))["keeps_past_until"]
    assert kept > first
    asked = f"/fleetlight/query?what=instance&fields=name&all_projects=1&as_of={kept}"
    assert fleet.api().get(asked).status_code == 200
    assert fleet.api().get(f"{asked[:-8]}0Z").status_code != 200


def test_dead_letters_are_counted_by_cell(fleet: ComputeFleet) -> None:
    summary = FailureSummary("0" * 36, fleet.cells["east"].uuid, "malformed", "no JSON", None, 1, 1)
    fleet.fleet.failures.add([Failure(summary, "key", {}, b"{")])
    answer = board(fleet)
    assert (state(answer)["dead_letters"], state(answer, "north")["dead_letters"]) == (1, 0)


def test_index_that_failed_is_not_used_with_its_reason_and_since(fleet: ComputeFleet) -> None:
    api = fleet.api()
    api.index.failed(IndexUnavailableError("somebody broke it"))
    answer = api.get("/fleetlight/cells").json()
    assert (answer["safe_connect"]["uses_index"], answer["safe_connect"]["reason"]) == (False, "somebody broke it")
    assert answer["safe_connect"]["since"].endswith("Z")
    assert answer["seal"] is None
    east = state(answer)
    assert (east["health"], east["route"], east["instances"]) == ("uncertain", "live", None)


def test_fleet_that_lists_without_an_index_has_none_to_wait_for(fleet: ComputeFleet) -> None:
    east = state(board(fleet, search=searching(enabled=False)))
    assert (east["health"], east["route"], east["watermark"]) == ("ok", "live", None)
    assert "search.enabled" in east["reason"]


def test_members_are_refused_by_the_name_of_the_policy(fleet: ComputeFleet) -> None:
    response = fleet.api().get("/fleetlight/cells", MEMBER)
    assert response.status_code == 403
    assert "fleetlight:cells" in response.json()["forbidden"]["message"]
