"""Bulk changes over HTTP: previewed, frozen, carried out once, stopped, gone on with, and seen by their owner alone."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, func, select

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import UNKNOWN, ClientConnection
from fleetlight.api.http.errors import UnauthorizedError
from fleetlight.api.identity import NoIdentity
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.cells.errors import CellUnreachableError, StateConflictError
from fleetlight.cells.fleet.bulk_changes import KEPT_US, MAX_OF_USER, YOUNG_US, Outcome
from fleetlight.cells.fleet.tables import bulk_changes, bulk_items
from fleetlight.cells.tables import instance_actions, jobs
from fleetlight.manager.faces.bulk import handlers
from fleetlight.manager.faces.bulk.item_actions import BulkAction, ItemActions
from fleetlight.manager.faces.bulk.running import AT_ONCE, BulkRunner
from fleetlight.manager.operations.instances.instance_actions import ActionProgress, InstanceActionLog
from fleetlight.manager.operations.jobs.ending import end_jobs
from fleetlight.manager.operations.jobs.errors import JobCanceledError
from fleetlight.manager.operations.jobs.model import Status
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, Api, BrokenCells, ComputeFleet, compute_fleet, searching
from tests.support.waiting import wait_until

BULK = "/fleetlight/bulk"
ADA, BOB, ROOT, READER = (
    {"X-User-Id": user, "X-Roles": role, "X-Project-Id": project}
    for user, role, project in (
        ("ada", "member", "red"),
        ("bob", "member", "red"),
        ("root", "admin", "demo"),
        ("ada", "reader", "red"),
    )
)
RED = 'project_id == "red"'
_LATEST_S = 60


def filled(fleet: ComputeFleet) -> ComputeFleet:
    """With six active instances of the project red, two in each cell, and one of blue."""
    fleet.add_hosts()
    for number in range(6):
        new_server(fleet, CELLS[number % 3])
    new_server(fleet, "north", project_id="blue")
    return fleet


def new_server(fleet: ComputeFleet, cell: str, project_id: str = "red") -> str:
    return fleet.create(cell, project_id=project_id, vm_state="active", host=f"{cell}-host0", node=f"{cell}-host0")


def api_of(fleet: ComputeFleet, **parts: Any) -> Api:
    """Lists come from the cells."""
    return fleet.api(**{"search": searching(enabled=False)} | parts)


@pytest.fixture(scope="module")
def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """For tests that change no instance."""
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield filled(fleet)


@pytest.fixture
def shared_api(shared_fleet: ComputeFleet) -> Iterator[Api]:
    yield api_of(shared_fleet)
    with shared_fleet.fleet.database.writing() as connection:
        for table in (bulk_items, bulk_changes):
            connection.execute(delete(table))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        yield filled(fleet)


@pytest.fixture
def any_fleet(fleet_of_any_database: ComputeFleet) -> ComputeFleet:
    return filled(fleet_of_any_database)


def preview(api: Api, user: Mapping[str, str] = ADA, **body: Any) -> Any:
    answer = api.request("POST", BULK, user, json={"action": "stop"} | body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def act(api: Api, verb: str, bulk: Any, user: Mapping[str, str] = ADA, **body: Any) -> httpx.Response:
    return api.request("POST", f"{BULK}/{bulk['id']}/{verb}", user, json=body)


def shown(api: Api, bulk: Any, user: Mapping[str, str] = ADA) -> Any:
    answer = api.get(f"{BULK}/{bulk['id']}", user)
    assert answer.status_code == 200, answer.text
    return answer.json()


def submitted(api: Api, bulk: Any, user: Mapping[str, str] = ADA) -> Any:
    """The bulk change, once nothing waits for being submitted."""

    def is_over() -> bool:
        now = shown(api, bulk, user)
        return bool(now["state"] != "running" or 0 < now["running"] + sum(counts(now)) == now["total"])

    wait_until(is_over)
    return shown(api, bulk, user)


def ended(fleet: ComputeFleet, api: Api, bulk: Any, user: Mapping[str, str] = ADA) -> Any:
    """The bulk change, once all its jobs have ended, which nothing does before."""
    assert submitted(api, bulk, user)["done"] == 0
    fleet.work()
    return shown(api, bulk, user)


def carried_out(fleet: ComputeFleet, api: Api, bulk: Any, user: Mapping[str, str] = ADA, **body: Any) -> Any:
    answer = act(api, "start", bulk, user, **body)
    assert answer.status_code == 202, answer.text
    return ended(fleet, api, bulk, user)


def counts(bulk: Any) -> tuple[int, ...]:
    return tuple(bulk[state] for state in ("done", "failed", "skipped", "unknown"))


def reasons(bulk: Any) -> Mapping[str, str]:
    return {item["uuid"]: item["reason"] for item in bulk["items"] if item["reason"] is not None}


def actions_of(fleet: ComputeFleet, bulk: Any) -> Mapping[str, int]:
    """How often each instance has taken an action of the bulk change."""
    columns = instance_actions.c
    statement = select(columns.instance_uuid, func.count()).where(columns.request_id == f"req-{bulk['id']}")
    found: dict[str, int] = {}
    for cell in fleet.cells:
        with fleet.engine(cell).connect() as connection:
            found |= {row[0]: row[1] for row in connection.execute(statement.group_by(columns.instance_uuid))}
    return found


class _Held:
    """Submits nothing after the first `free` items until it is `released`."""

    def __init__(self, patch: pytest.MonkeyPatch, free: int) -> None:
        self.released = asyncio.Event()
        self.reached = asyncio.Event()
        submit = ItemActions.submit
        left = free

        async def held(actions: ItemActions, request: ApiRequest, action: BulkAction) -> Outcome:
            nonlocal left
            left -= 1
            if left < 0:
                self.reached.set()
                await self.released.wait()
            return await submit(actions, request, action)

        patch.setattr(ItemActions, "submit", held)


def test_preview_freezes_what_matches_and_changes_nothing(shared_fleet: ComputeFleet, shared_api: Api) -> None:
    bulk = preview(shared_api, ROOT, filter=RED, all_projects=True)
    assert bulk["by_project"] == {"red": 6}
    assert bulk["by_cell"] == {"north": 2, "east": 2, "south": 2}
    assert (bulk["state"], bulk["total"], bulk["complete"], bulk["by"]) == ("previewed", 6, True, "root")
    assert {item["state"] for item in bulk["items"]} == {"waiting"}
    assert bulk == shown(shared_api, bulk, ROOT)
    assert not actions_of(shared_fleet, bulk)


# A reset is not for members, and makes no job.
@pytest.mark.parametrize("action", [action for action in BulkAction if action is not BulkAction.RESET_STATE])
def test_action_is_taken_by_each_instance_once_under_the_id_of_the_bulk_change(
    fleet: ComputeFleet, action: BulkAction
) -> None:
    api = api_of(fleet)
    bulk = preview(api, action=action.value)
    if action is BulkAction.START:
        carried_out(fleet, api, preview(api))
        fleet.work()
        bulk = preview(api, action="start")
    done = carried_out(fleet, api, bulk)
    assert (done["state"], counts(done)) == ("done", (6, 0, 0, 0)), reasons(done)
    assert list(actions_of(fleet, bulk).values()) == [1] * 6
    fleet.work()
    assert act(api, "start", bulk).status_code == 409


def test_what_changed_since_the_preview_is_skipped_with_its_reason(any_fleet: ComputeFleet) -> None:
    fleet, api = any_fleet, api_of(any_fleet)
    stopped = preview(api)["items"][0]["uuid"]
    assert api.request("POST", f"/v2.1/servers/{stopped}/action", ADA, json={"os-stop": None}).status_code == 202
    fleet.work()
    bulk = preview(api)
    gone, renamed = (item["uuid"] for item in bulk["items"][1:3])
    assert api.request("DELETE", f"/v2.1/servers/{gone}", ADA).status_code == 204
    assert api.request("PUT", f"/v2.1/servers/{renamed}", ADA, json={"server": {"name": "new"}}).status_code == 200
    new = new_server(fleet, "north")
    fleet.work()
    done = carried_out(fleet, api, bulk)
    assert (done["state"], counts(done)) == ("done", (3, 0, 3, 0))
    why = reasons(done)
    assert (why[gone], why[renamed]) == ("it is gone", "it has changed since the preview")
    assert "stopped" in why[stopped]
    assert not {new, gone, renamed, stopped} & actions_of(fleet, bulk).keys()


def test_instances_in_error_are_rebooted_hard_or_said_to_be_active(fleet: ComputeFleet) -> None:
    api = api_of(fleet)
    for cell in CELLS[:2]:
        fleet.create(cell, project_id="broken", vm_state="error", host=f"{cell}-host0", node=f"{cell}-host0")
    chosen = {"filter": 'project_id == "broken"', "all_projects": True}
    soft, hard, reset = (preview(api, ROOT, action=name, **chosen) for name in ("reboot", "hard-reboot", "reset-state"))
    act(api, "start", soft, ROOT)
    assert submitted(api, soft, ROOT)["skipped"] == 2
    act(api, "start", reset, ROOT)
    assert submitted(api, reset, ROOT)["done"] == 2
    act(api, "start", hard, ROOT)
    assert submitted(api, hard, ROOT)["skipped"] == 2, "they have changed since the preview"
    again = preview(api, ROOT, action="hard-reboot", **chosen)
    act(api, "start", again, ROOT)
    assert ended(fleet, api, again, ROOT)["done"] == 2
    assert api.request("POST", BULK, ADA, json={"action": "reset-state"}).status_code == 403


def test_stop_lets_the_items_in_hand_end_and_start_goes_on(
    any_fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, api = any_fleet, api_of(any_fleet)
    for _ in range(AT_ONCE):
        new_server(fleet, "east")
    bulk = preview(api)
    held = _Held(monkeypatch, free=2)

    act(api, "start", bulk)
    wait_until(lambda: shown(api, bulk)["state"] == "running" and held.reached.is_set())
    assert shown(api, bulk)["unknown"] == 0
    assert act(api, "start", bulk).status_code == 409
    stopped = act(api, "stop", bulk)
    assert (stopped.status_code, stopped.json()["state"]) == (202, "stopped")
    # Not while items of the first run are in hand.
    assert act(api, "start", bulk).status_code == 409
    held.released.set()
    wait_until(lambda: act(api, "start", bulk).status_code == 202)
    assert len(actions_of(fleet, bulk)) >= 2
    done = ended(fleet, api, bulk)
    assert (done["state"], counts(done)) == ("done", (14, 0, 0, 0)), reasons(done)
    assert set(actions_of(fleet, bulk).values()) == {1}


def test_process_that_ends_in_order_ends_what_it_has_in_hand_and_no_more(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(AT_ONCE):
        new_server(fleet, "east")
    api = api_of(fleet)
    bulk, end = preview(api), BulkRunner.end
    held = _Held(monkeypatch, free=0)

    async def end_and_release(runner: BulkRunner) -> None:
        # It has begun to end once this task has had its first step.
        task = asyncio.create_task(end(runner))
        await asyncio.sleep(0)
        held.released.set()
        await task

    monkeypatch.setattr(BulkRunner, "end", end_and_release)
    ending = api_of(fleet)

    async def begin_and_end() -> None:
        async with ending.app.router.lifespan_context(ending.app), asyncio.timeout(_LATEST_S):
            assert (await ending.ask("POST", f"{BULK}/{bulk['id']}/start", ADA, json={})).status_code == 202
            await held.reached.wait()

    ending.run(begin_and_end())
    left = shown(api, bulk)
    assert (left["state"], left["reason"]) == ("stopped", "the process ended that carried it out")
    assert (left["failed"], left["skipped"], left["unknown"]) == (0, 0, 0)
    assert 0 < left["running"] <= AT_ONCE
    assert counts(carried_out(fleet, api, bulk)) == (14, 0, 0, 0)


def test_killed_process_leaves_what_it_had_in_hand_as_unknown_and_another_goes_on(any_fleet: ComputeFleet) -> None:
    fleet, api = any_fleet, api_of(any_fleet)
    for _ in range(AT_ONCE):
        new_server(fleet, "east")
    bulk = preview(api)
    command = [sys.executable, "-m", "tests.support.fleets.killed_bulk", fleet.fleet_url, bulk["id"]]
    killed = subprocess.run(command, check=False, timeout=_LATEST_S)
    assert killed.returncode == -signal.SIGKILL
    left = shown(api, bulk)
    taken = actions_of(fleet, bulk)
    assert (left["state"], left["failed"], left["skipped"]) == ("stopped", 0, 0)
    assert left["unknown"] > 0
    assert left["running"] <= len(taken) <= left["running"] + left["unknown"]
    done = carried_out(fleet, api, bulk)
    assert (done["state"], done["unknown"], done["done"]) == ("done", left["unknown"], 14 - left["unknown"])
    assert set(reasons(done).values()) == {"the process ended while it was submitted: look at it"}
    assert set(actions_of(fleet, bulk).values()) == {1}


def test_items_run_until_their_jobs_have_ended_and_any_process_sees_that(any_fleet: ComputeFleet) -> None:
    fleet, api = any_fleet, api_of(any_fleet)
    bulk = preview(api)
    act(api, "start", bulk)
    begun = submitted(api, bulk)
    assert (begun["state"], begun["running"], {item["state"] for item in begun["items"]}) == ("running", 6, {"running"})
    # What the cells have accepted goes on.
    assert act(api, "stop", bulk).json()["running"] == 6
    with fleet.engine("east").begin() as connection:
        mine = select(jobs.c.id).where(jobs.c.request_id == f"req-{bulk['id']}").order_by(jobs.c.id)
        canceled, broken = connection.scalars(mine).all()
        end_jobs(connection, [canceled], Status.CANCELED, JobCanceledError(canceled), system_clock())
        end_jobs(connection, [broken], Status.ERROR, StateConflictError("x", "it is odd"), system_clock())
    fleet.work()
    restarted = api_of(fleet)
    [listed] = restarted.get(BULK, ADA).json()["bulk"]
    assert (listed["state"], listed["running"], counts(listed)) == ("done", 0, (4, 2, 0, 0))
    done = shown(restarted, bulk)
    assert done["state"] == "done"
    assert set(reasons(done).values()) == {"its job has failed, or was canceled: look at it"}


def test_jobs_of_a_cell_that_does_not_answer_count_as_running(
    fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = api_of(fleet)
    bulk = preview(api)
    act(api, "start", bulk)
    submitted(api, bulk)
    fleet.work()
    progress = InstanceActionLog.progress

    def unless_north(log: InstanceActionLog, uuids: Collection[str], request_id: str) -> Mapping[str, ActionProgress]:
        if log._cell.name == "north":
            raise CellUnreachableError("north", "away")
        return progress(log, uuids, request_id)

    monkeypatch.setattr(InstanceActionLog, "progress", unless_north)
    partly = shown(api, bulk)
    assert (partly["state"], partly["running"], partly["done"]) == ("running", 2, 4)
    fleet.remove_cell("north")
    left = shown(api_of(fleet), bulk)
    assert (left["state"], left["unknown"], set(reasons(left).values())) == ("done", 2, {"its cell has left the fleet"})


def test_run_ends_when_its_caller_has_lost_its_role(fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    class Revoked(NoIdentity):
        is_revoked = False

        async def authenticate(self, headers: Mapping[str, str], connection: ClientConnection = UNKNOWN) -> Caller:
            if self.is_revoked:
                raise UnauthorizedError("revoked")
            return await super().authenticate(headers, connection)

    identity = Revoked()
    api = api_of(fleet, identity=identity)
    bulk = preview(api)
    monkeypatch.setattr("fleetlight.api.identity.rights.RIGHTS_INTERVAL_S", 0.0)

    refusal = ItemActions.refusal

    async def revoked(*arguments: Any) -> Outcome | None:
        identity.is_revoked = True
        return await refusal(*arguments)

    monkeypatch.setattr(ItemActions, "refusal", revoked)
    assert act(api, "start", bulk).status_code == 202
    store = fleet.fleet.bulk_changes
    wait_until(lambda: api.run(asyncio.sleep(0.01)) or store.seen_by("ada", "red", 1)[0].state != "running")
    identity.is_revoked = False
    stopped = shown(api, bulk)
    assert stopped["state"] == "stopped"
    assert "credentials" in stopped["reason"]
    assert stopped["running"] < 6


def test_only_the_owner_sees_and_begins_a_bulk_change(shared_api: Api) -> None:
    bulk = preview(shared_api)
    assert [each["id"] for each in shared_api.get(BULK, ADA).json()["bulk"]] == [bulk["id"]]
    elsewhere = ADA | {"X-Project-Id": "blue"}
    for other in (BOB, ROOT, elsewhere):
        assert shared_api.get(BULK, other).json() == {"bulk": []}
        assert shared_api.get(f"{BULK}/{bulk['id']}", other).status_code == 404
        for verb in ("start", "stop"):
            assert act(shared_api, verb, bulk, other).status_code == 404
    assert (bulk["by_project"], bulk["by_cell"], bulk["total"]) == ({"red": 6}, {}, 6)


def test_preview_of_all_projects_is_not_shown_to_an_owner_who_has_lost_its_role(shared_api: Api) -> None:
    was_admin = ADA | {"X-Roles": "admin"}
    bulk = preview(shared_api, was_admin, filter="", all_projects=True)
    assert set(bulk["by_project"]) == {"red", "blue"}
    own = preview(shared_api)
    assert {each["id"] for each in shared_api.get(BULK, was_admin).json()["bulk"]} >= {bulk["id"], own["id"]}
    assert bulk["id"] not in {each["id"] for each in shared_api.get(BULK, ADA).json()["bulk"]}
    refusals = [act(shared_api, verb, bulk) for verb in ("start", "stop")]
    refusals.append(shared_api.get(f"{BULK}/{bulk['id']}", ADA))
    assert [refused.status_code for refused in refusals] == [403] * 3
    assert not any("blue" in refused.text for refused in refusals)
    assert shown(shared_api, own)["total"] == 6


def test_those_who_may_not_do_it_are_refused_before_anything_is_frozen(shared_api: Api) -> None:
    bulk = preview(shared_api)
    for answer in (
        shared_api.request("POST", BULK, READER, json={"action": "stop"}),
        shared_api.request("POST", BULK, ADA, json={"action": "stop", "all_projects": True}),
        act(shared_api, "start", bulk, READER),
    ):
        assert answer.status_code == 403
    assert len(shared_api.get(BULK, ADA).json()["bulk"]) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"action": "burn"},
        {"action": "stop", "filter": "name =="},
        {"action": "stop", "filter": 'cell == "north"'},
        {"action": "stop", "filter": "x" * 10_001},
        {"action": "stop", "fields": ["name"]},
    ],
)
def test_what_cannot_be_previewed_is_refused(shared_api: Api, body: Any) -> None:
    assert shared_api.request("POST", BULK, ADA, json=body).status_code == 400
    assert shared_api.get(BULK, ADA).json() == {"bulk": []}


def test_too_many_instances_are_refused_with_their_number(shared_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MAX_ITEMS", 5)
    answer = shared_api.request("POST", BULK, ADA, json={"action": "stop"})
    assert answer.status_code == 400
    assert "6 instances" in answer.json()["badRequest"]["message"]


@pytest.mark.parametrize("is_remembered", [False, True], ids=["skipped", "index while down"])
def test_incomplete_preview_is_begun_only_by_those_who_say_so(fleet: ComputeFleet, is_remembered: bool) -> None:
    settings = searching(enabled=is_remembered, staleness_limit_s=10, cell_timeout_s=1)
    if is_remembered:
        fleet.index("north", age_s=5000)
    partial = api_of(fleet, search=settings, pool=BrokenCells(fleet, hanging=["north"]))
    bulk = preview(partial)
    assert (bulk["complete"], bulk["total"], bulk["left_out"]) == (False, 4, [])
    (left_out,) = preview(partial, ROOT, filter=RED, all_projects=True)["left_out"]
    age_s = left_out.pop("age_s")
    assert left_out == {"cell": "north", "instances": 2 if is_remembered else None}
    assert (age_s is not None and age_s >= 5000) if is_remembered else age_s is None
    api = api_of(fleet)
    refused = act(api, "start", bulk)
    assert refused.status_code == 409
    assert "accept_incomplete" in refused.json()["conflictingRequest"]["message"]
    assert counts(carried_out(fleet, api, bulk, accept_incomplete=True)) == (4, 0, 0, 0)


def test_preview_gives_way_to_new_ones_and_what_was_begun_does_not(shared_fleet: ComputeFleet, shared_api: Api) -> None:
    later = 0

    def preview_later() -> Any:
        nonlocal later
        later += YOUNG_US
        return preview(api, filter='name == "none"')

    api = api_of(shared_fleet, clock=lambda: system_clock() + later)
    begun = preview_later()
    assert carried_out(shared_fleet, shared_api, begun)["state"] == "done"
    previews = [preview_later()["id"] for _ in range(MAX_OF_USER)]
    kept = [each["id"] for each in shared_api.get(BULK, ADA).json()["bulk"]]
    assert set(kept) == {begun["id"], *previews[1:]}
    for bulk_id in previews[1:]:
        carried_out(shared_fleet, shared_api, {"id": bulk_id})
    answer = shared_api.request("POST", BULK, ADA, json={"action": "stop"})
    assert answer.status_code == 403
    assert "bulk_changes" in answer.json()["forbidden"]["message"]
    assert preview(shared_api, BOB)["total"] == 6


def test_preview_that_was_just_made_gives_way_to_none(any_fleet: ComputeFleet) -> None:
    api = api_of(any_fleet)
    previews = [preview(api) for _ in range(MAX_OF_USER)]
    assert api.request("POST", BULK, ADA, json={"action": "stop"}).status_code == 403
    for each in previews:
        assert shown(api, each)["state"] == "previewed"


def test_bulk_change_is_gone_a_day_after_its_preview(shared_fleet: ComputeFleet) -> None:
    now = 1_700_000_000_000_000
    api = api_of(shared_fleet, clock=lambda: now)
    bulk = preview(api)
    now += KEPT_US - 1
    assert shown(api, bulk)["expires_at"] > shown(api, bulk)["created_at"]
    now += 1
    assert act(api, "start", bulk).status_code == 404
    preview(api)
    assert len(shared_fleet.fleet.bulk_changes.seen_by("ada", "red", 1)) == 1
