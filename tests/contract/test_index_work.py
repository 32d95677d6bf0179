"""`/fleetlight/index/work`: work on the index is ordered over HTTP; indexers carry it out, stop it and take it over."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fleetlight.cells.fleet.index_work import MAX_OPEN, WorkKind, WorkState
from fleetlight.cli.index.recorded_work import Progress
from fleetlight.indexer.backends.opening import open_writer
from tests.contract.answering import INDEX_KINDS, fleet_with_index
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet
from tests.contract.conftest import own_fleet
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.fleets.killed_work import ordered_work
from tests.support.waiting import wait_until

WORK = "/fleetlight/index/work"
_LATEST_S = 60


@pytest.fixture(params=INDEX_KINDS)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ComputeFleet]:
    """Six instances in three cells, none of them indexed."""
    with fleet_with_index(request.param, tmp_path, request) as fleet:
        for name in fleet.cells:
            fleet.create(name)
            fleet.create(name)
        fleet.number_changes()
        yield fleet


idle_fleet = own_fleet


def order(api: Api, **body: Any) -> Any:
    response = api.request("POST", WORK, json=body)
    assert response.status_code == 202, response.text
    return response.json()


def shown(api: Api, work: Any) -> Any:
    response = api.get(f"{WORK}/{work['id']}")
    assert response.status_code == 200, response.text
    return response.json()


def ended(fleet: ComputeFleet, api: Api, work: Any) -> Any:
    """The work, once an indexer that begins now has ended it."""
    with in_thread(ordered_work(fleet.fleet, fleet.fleet_url, fleet.index_settings).run):
        wait_until(lambda: shown(api, work)["ended_at"] is not None, _LATEST_S)
    return shown(api, work)


def indexed(fleet: ComputeFleet) -> int:
    writer = open_writer(fleet.index_settings)
    try:
        return sum(len(writer.revisions(cell.uuid, [""])) for cell in fleet.cells.values())
    finally:
        writer.close()


def test_sync_is_ordered_carried_out_and_says_what_it_did(fleet: ComputeFleet) -> None:
    api = fleet.api()
    work = order(api, kind="sync", cells=["east", fleet.cells["north"].uuid])
    assert (work["state"], work["cells"], work["started_at"], work["result"]) == (
        "waiting",
        ["east", "north"],
        None,
        None,
    )
    done = ended(fleet, api, work)
    assert (done["state"], done["result"]) == ("done", "4 instances of 2 cells synced")
    assert (done["done"], done["total"], done["left_s"], done["findings"]) == (4, 4, None, [])
    assert done["rate"] > 0
    assert indexed(fleet) == 4
    assert api.get(WORK).json() == {"work": [done]}


def test_verification_finds_what_a_repair_then_puts_right(fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.cli.index.verification._CATCH_UP_TIMEOUT_S", 1.0)
    api = fleet.api()
    ended(fleet, api, order(api, kind="sync"))
    lost = fleet.create("east")
    fleet.number_changes()
    fleet.index("north", "south", watermark=10_000)
    found = ended(fleet, api, order(api, kind="repair", cells=["east"]))
    assert (found["state"], [each["uuid"] for each in found["findings"]]) == ("done", [lost])
    assert found["findings"][0]["problem"].endswith("repaired")
    again = ended(fleet, api, order(api, kind="verify", cells=["east"]))
    assert (again["result"], again["findings"]) == ("1 of 1 cell agree with the index", [])


def test_rebuild_makes_a_new_index_of_all_cells(fleet: ComputeFleet) -> None:
    api = fleet.api()
    ended(fleet, api, order(api, kind="sync"))
    done = ended(fleet, api, order(api, kind="rebuild"))
    assert (done["state"], done["cells"]) == ("done", ["east", "north", "south"]), done["result"]
    assert indexed(fleet) == 6


def test_the_index_before_a_rebuild_is_returned_to_and_dropped(fleet: ComputeFleet) -> None:
    api = fleet.api()
    ended(fleet, api, order(api, kind="sync"))
    none = ended(fleet, api, order(api, kind="back"))
    assert (none["state"], none["result"]) == ("failed", "there is no previous index to go back to")
    ended(fleet, api, order(api, kind="rebuild"))
    back = ended(fleet, api, order(api, kind="back"))
    assert (back["state"], back["cells"]) == ("done", ["east", "north", "south"]), back["result"]
    assert indexed(fleet) == 6
    results = [ended(fleet, api, order(api, kind="drop-old"))["result"] for _ in range(2)]
    assert results == ["the old index is dropped", "there is no old index"]
    refused = api.request("POST", WORK, json={"kind": "drop-old", "cells": ["east"]})
    assert (refused.status_code, indexed(fleet)) == (400, 6)


def test_purge_says_how_many_left_the_index(fleet: ComputeFleet) -> None:
    api = fleet.api()
    done = ended(fleet, api, order(api, kind="purge"))
    assert (done["state"], done["result"]) == ("done", "0 deleted instances removed from the index")


def test_running_work_stops_between_two_batches(fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    api = fleet.api()
    work = order(api, kind="sync")
    show = Progress.show

    def stopped_meanwhile(progress: Progress, cell: str, done: int) -> None:
        fleet.fleet.index_work.stop(work["id"], 1)
        show(progress, cell, done)

    monkeypatch.setattr(Progress, "show", stopped_meanwhile)
    done = ended(fleet, api, work)
    assert (done["state"], done["result"]) == ("stopped", "stopped")
    writer = open_writer(fleet.index_settings)
    progress = writer.load_progress().values()
    writer.close()
    assert not any(each.is_complete for each in progress)


def test_work_whose_indexer_was_killed_is_carried_out_by_another(fleet: ComputeFleet) -> None:
    api = fleet.api()
    work = order(api, kind="sync")
    command = [sys.executable, "-m", "tests.support.fleets.killed_work", fleet.fleet_url]
    killed = subprocess.run(
        [*command, fleet.index_settings.model_dump_json(exclude_defaults=True)], check=False, timeout=_LATEST_S
    )
    assert killed.returncode == -signal.SIGKILL
    assert shown(api, work)["state"] == "running"
    done = ended(fleet, api, work)
    assert (done["state"], done["done"]) == ("done", 6)
    assert indexed(fleet) == 6


def test_work_that_kills_its_indexers_is_given_up(idle_fleet: ComputeFleet) -> None:
    api, store = idle_fleet.api(), idle_fleet.fleet.index_work
    work = order(api, kind="sync")
    for _ in range(3):
        found = store.find(work["id"])
        assert found is not None
        store.begin(found, 1)
    done = ended(idle_fleet, api, work)
    assert (done["state"], done["result"]) == ("failed", "given up: 3 indexers ended while they were at it")


def test_indexer_that_ends_in_order_leaves_its_work_to_another(
    idle_fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, store = idle_fleet.api(), idle_fleet.fleet.index_work
    idle_fleet.create("east")
    idle_fleet.number_changes()
    work = order(api, kind="sync")
    with monkeypatch.context() as patch, ExitStack() as indexer:
        patch.setattr(Progress, "show", lambda progress, *_: progress.pause(_LATEST_S))
        run = ordered_work(idle_fleet.fleet, idle_fleet.fleet_url, idle_fleet.index_settings).run
        indexer.enter_context(in_thread(run))
        wait_until(lambda: shown(api, work)["state"] == "running", _LATEST_S)
    found = store.find(work["id"])
    assert found is not None
    assert (found.state, found.attempts) == (WorkState.WAITING, 0)
    assert ended(idle_fleet, api, work)["state"] == "done"


def test_waiting_work_is_stopped_at_once_and_stays_so(idle_fleet: ComputeFleet) -> None:
    api = idle_fleet.api()
    work = order(api, kind="verify")
    for _ in range(2):
        response = api.request("DELETE", f"{WORK}/{work['id']}")
        assert (response.status_code, response.json()["state"]) == (202, "stopped")
    assert not idle_fleet.fleet.index_work.open()


def test_second_order_of_a_kind_for_a_cell_is_refused_and_named(idle_fleet: ComputeFleet) -> None:
    api = idle_fleet.api()
    first = order(api, kind="sync", cells=["east"])
    refused = api.request("POST", WORK, json={"kind": "sync"})
    assert refused.status_code == 409
    assert first["id"] in refused.json()["conflictingRequest"]["message"]
    order(api, kind="sync", cells=["north"])
    order(api, kind="verify", cells=["east"])
    order(api, kind="rebuild")
    assert api.request("POST", WORK, json={"kind": "rebuild"}).status_code == 409


def test_orders_are_bounded(idle_fleet: ComputeFleet) -> None:
    store = idle_fleet.fleet.index_work
    for number in range(MAX_OPEN):
        store.order(WorkKind.RETRY, [str(number)], "ada", number)
    refused = idle_fleet.api().request("POST", WORK, json={"kind": "sync"})
    assert refused.status_code == 409
    assert str(MAX_OPEN) in refused.json()["conflictingRequest"]["message"]


def test_what_has_ended_long_ago_is_forgotten(idle_fleet: ComputeFleet) -> None:
    store = idle_fleet.fleet.index_work
    for number in range(205):
        store.stop(store.order(WorkKind.VERIFY, ["cell"], "ada", number).id, number)
    kept = [each.ordered_at for each in store.all()]
    assert kept == list(range(204, 4, -1))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"kind": "burn"}, 400),
        ({"kind": "sync", "cells": ["nowhere"]}, 404),
        ({"kind": "rebuild", "cells": ["east"]}, 400),
        ({"kind": "sync", "cells": "east"}, 400),
        ({}, 400),
    ],
)
def test_what_cannot_be_ordered_is_refused(idle_fleet: ComputeFleet, body: Any, status: int) -> None:
    assert idle_fleet.api().request("POST", WORK, json=body).status_code == status
    assert not idle_fleet.fleet.index_work.all()


def test_unknown_work_is_not_found(idle_fleet: ComputeFleet) -> None:
    for method in ("GET", "DELETE"):
        assert idle_fleet.api().request(method, f"{WORK}/nothing").status_code == 404


@pytest.mark.parametrize(
    ("method", "path"), [("POST", WORK), ("GET", WORK), ("GET", f"{WORK}/x"), ("DELETE", f"{WORK}/x")]
)
def test_members_are_refused_by_the_name_of_the_policy(idle_fleet: ComputeFleet, method: str, path: str) -> None:
    response = idle_fleet.api().request(method, path, MEMBER, json={"kind": "sync"} if method == "POST" else None)
    assert response.status_code == 403
    assert "fleetlight:index:work" in response.json()["forbidden"]["message"]
