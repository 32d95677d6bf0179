"""Workers on both databases: several share the jobs of a cell, a killed one loses nothing, a broken job ends alone."""

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from threading import Event
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, event, func, select, text, update
from sqlalchemy.engine import make_url
from structlog.testing import capture_logs

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import FleetSettings
from fleetlight.cells.tables import changes, instances
from fleetlight.cli.processes.cell_heartbeats import CellHeartbeats
from fleetlight.cli.settings import Settings
from fleetlight.indexer.stream.liveness import Probe
from fleetlight.manager.commands.working import run_worker, run_workers
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.instances.instance_actions import ERROR, SUCCESS, InstanceActionLog
from fleetlight.manager.operations.instances.instance_migrations import MigrationLog, MigrationQuery
from fleetlight.manager.operations.jobs import worker as worker_module
from fleetlight.manager.operations.jobs.maintenance import MaintenanceTask
from fleetlight.manager.operations.jobs.worker import Worker
from tests.support.fleets.acting_cell import FLAVOR, REQUEST, ActingCell
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.waiting import wait_until

_WORKER = """
import sys
from threading import Event
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.manager.operations.cell_worker import new_worker
fleet = Fleet(create_database_engine(sys.argv[1]))
cell = fleet.cell("one")
print("ready", flush=True)
new_worker(create_database_engine(cell.database_url), fleet, cell).run(Event())
"""
_EVENTS_OF_A_CREATION = 8


def create(acting: ActingCell, count: int) -> list[str]:
    values = [{"project_id": "demo", "flavor": {**FLAVOR, "memory_mb": 1, "root_gb": 0, "vcpus": 0}}] * count
    return [row.uuid for row in acting.acceptance.create(values, {}, REQUEST)]


def count_events(acting: ActingCell) -> int:
    """Events of instances and of what was done for them; hosts that join have some too."""
    of_instances = select(func.count()).where(~changes.c.event_type.startswith("hypervisor."))
    with acting.engine.connect() as connection:
        return connection.execute(of_instances).scalar_one()


def has_announced(acting: ActingCell, count: int) -> bool:
    return count_events(acting) >= count


def test_several_workers_share_the_jobs_and_do_each_once(acting: ActingCell, fleet: Fleet, cell: Cell) -> None:
    uuids = create(acting, 12)
    workers = [new_worker(acting.engine, fleet, cell) for _ in range(3)]

    def work(worker: Worker) -> None:
        # False also while another worker has what there is.
        wait_until(lambda: not worker.run_once() and not acting.count_live_jobs(), timeout_s=60)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, workers))
    assert {acting.state(uuid)[0] for uuid in uuids} == {"active"}
    assert count_events(acting) == len(uuids) * _EVENTS_OF_A_CREATION
    assert sum(acting.used().values()) == len(uuids)
    acting.check_revisions()


def test_killed_worker_loses_and_doubles_nothing(acting: ActingCell, fleet: Fleet) -> None:
    uuids = create(acting, 8)
    fleet_url = fleet._engine.url.render_as_string(hide_password=False)
    for kill in range(2):
        process = subprocess.Popen([sys.executable, "-c", _WORKER, fleet_url], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        wait_until(partial(has_announced, acting, len(uuids) * (2 + 2 * kill)), timeout_s=60)
        process.kill()
        process.wait(timeout=60)
        process.stdout.close()
    acting.work()
    assert {acting.state(uuid)[:2] for uuid in uuids} == {("active", None)}
    assert count_events(acting) == len(uuids) * _EVENTS_OF_A_CREATION
    acting.check_revisions()


@pytest.mark.parametrize(
    "new_database", [pytest.param("postgresql", marks=pytest.mark.postgresql, id="postgresql")], indirect=True
)
def test_worker_that_has_jobs_and_gets_nothing_done_is_not_alive_until_it_does(
    acting: ActingCell, fleet: Fleet, cell: Cell
) -> None:
    [uuid] = create(acting, 1)
    heartbeats = CellHeartbeats(timeout_s=1.0)
    stuck = Probe(False, {"status": "stuck", "cells": [cell.name]})
    settings = Settings(fleet=FleetSettings(cells_refresh_interval_s=0.05))
    with ExitStack() as lock:
        # As a session does that somebody has left open.
        lock.enter_context(acting.engine.begin()).execute(text("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE"))
        with in_thread(partial(run_workers, settings, fleet, fleet.cells, heartbeats)):
            wait_until(lambda: heartbeats.healthz() == stuck)
            lock.close()
            wait_until(lambda: acting.state(uuid)[0] == "active")
            wait_until(lambda: heartbeats.healthz().is_well)


@pytest.mark.parametrize("is_away", [True, False])
def test_worker_that_has_nothing_to_do_or_waits_for_its_database_is_alive(
    acting: ActingCell, fleet: Fleet, cell: Cell, is_away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting it again would not help."""
    # What wakes it at the latest, well before it would count as stuck.
    monkeypatch.setattr(worker_module, "_COUNT_INTERVAL_S", 0.05)
    followed = replace(cell, database_url="sqlite:////nowhere/at/all.db") if is_away else acting.cell
    beats: list[None] = []

    def run(stop: Event) -> None:
        run_worker(Settings(fleet=FleetSettings()), fleet, followed, stop, lambda: beats.append(None))

    with in_thread(run):
        wait_until(lambda: len(beats) > 4)


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
def test_worker_without_commits_asks_its_database_nothing(acting: ActingCell, fleet: Fleet) -> None:
    acting.instance()
    statements: list[str] = []
    beats: list[None] = []
    tasks = [MaintenanceTask(lambda: 0, 0.02)]
    worker = new_worker(acting.engine, fleet, acting.cell, maintenance=tasks, heartbeat=lambda: beats.append(None))
    with in_thread(worker.run):
        wait_until(lambda: len(beats) > 5)
        event.listen(acting.engine, "before_cursor_execute", lambda _c, _cursor, text, *_: statements.append(text))
        before = len(beats)
        wait_until(lambda: len(beats) > before + 10)
        assert statements == []
        uuid = acting.instance()
        acting.accept(uuid, "os-stop")
        wait_until(lambda: acting.state(uuid)[0] == "stopped")


def test_worker_that_had_to_wait_says_when_it_goes_on(acting: ActingCell, fleet: Fleet) -> None:
    failures = iter([CellUnreachableError(acting.cell.name, "it is away")])

    def reclaim() -> int:
        for failure in failures:
            raise failure
        return 0

    worker = new_worker(acting.engine, fleet, acting.cell, maintenance=[MaintenanceTask(reclaim)])
    with capture_logs() as logs, in_thread(worker.run):
        wait_until(lambda: len(logs) == 2)
    assert [entry["event"] for entry in logs] == ["worker.waiting", "worker.cell_worked_again"]


def test_job_that_breaks_ends_alone_and_shows_why(acting: ActingCell) -> None:
    broken, well = acting.instance(), acting.instance()
    acting.accept(broken, "os-stop")
    acting.accept(well, "os-stop")
    with acting.engine.begin() as connection:
        # No contract has such a value, so the next step cannot be announced.
        next_revision = instances.c.revision + 1
        is_broken = instances.c.uuid == broken
        connection.execute(update(instances).where(is_broken).values(metadata={"size": 5}, revision=next_revision))
    acting.work()
    assert acting.state(well) == ("stopped", None, 4)
    assert acting.count_live_jobs() == 0
    found = InstanceActionLog(acting.engine, acting.cell).find(broken, "req-1")
    assert found is not None
    assert found[0].message == ERROR


def work_on(worker: Worker) -> None:
    while worker.run_once():
        """There is more to do."""


def test_job_waits_for_the_tables_that_its_worker_needs(acting: ActingCell) -> None:
    """A worker that is started before `fleetlight database upgrade`, while an older one has left something to do."""
    [uuid] = create(acting, 1)
    _run(acting.engine, "ALTER TABLE changes RENAME TO not_made_yet")
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(CellUnreachableError, match="`fleetlight database upgrade` brings its tables"):
                work_on(acting.worker)
    assert logs == []
    _run(acting.engine, "ALTER TABLE not_made_yet RENAME TO changes")
    acting.work()
    assert acting.record(uuid)["vm_state"] == "active"


# SQLite knows no accounts.
@pytest.mark.parametrize("new_database", [pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True)
def test_job_waits_for_the_rights_that_its_worker_needs(acting: ActingCell, fleet: Fleet, cell: Cell) -> None:
    [uuid] = create(acting, 1)
    role = f"worker_{uuid4().hex}"
    rights = [f"GRANT ALL ON ALL {kind} IN SCHEMA public TO {role}" for kind in ("TABLES", "SEQUENCES")]
    _run(acting.engine, f"CREATE ROLE {role}", *rights, f"REVOKE ALL ON changes FROM {role}")
    url = make_url(cell.database_url).update_query_dict({"options": f"-c role={role}"})
    engine = create_database_engine(url.render_as_string(hide_password=False))
    worker = new_worker(engine, fleet, cell)
    try:
        with pytest.raises(CellUnreachableError, match=r"permission denied.*`fleetlight accounts postgresql`"):
            work_on(worker)
        _run(acting.engine, f"GRANT ALL ON changes TO {role}")
        work_on(worker)
    finally:
        engine.dispose()
        _run(acting.engine, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    assert acting.record(uuid)["vm_state"] == "active"


def _run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_instance_action_is_found_by_its_request_also_after_deletion(acting: ActingCell) -> None:
    uuid = acting.instance()
    log = InstanceActionLog(acting.engine, acting.cell)
    acting.accept(uuid, "os-stop")
    found = log.find(uuid, "req-1")
    assert found is not None
    assert (found[0].action, found[0].user_id, found[0].message, list(found[1])) == ("stop", "ada", None, [])
    acting.work()
    acting.do(uuid, "delete")
    found = log.find(uuid, "req-1")
    assert found is not None
    action, [event] = found
    assert (action.action, event.event, event.result) == ("delete", "compute_terminate_instance", SUCCESS)
    assert event.finish_time is not None
    assert [action.action for action in log.actions(uuid)] == ["delete", "stop"]
    assert log.find(uuid, "req-2") is None


def test_failed_action_says_so_with_a_traceback(acting: ActingCell) -> None:
    [row] = acting.acceptance.create([{"flavor": {**FLAVOR, "vcpus": 1000}}], {}, REQUEST)
    acting.work()
    found = InstanceActionLog(acting.engine, acting.cell).find(row.uuid, "req-1")
    assert found is not None
    assert found[0].message == ERROR


def test_migrations_are_listed_newest_first_page_by_page(acting: ActingCell) -> None:
    first, second = acting.instance(), acting.instance()
    acting.do(first, "migrate")
    acting.do(second, "os-migrateLive")
    log = MigrationLog(acting.engine, acting.cell)
    [newest] = log.page(MigrationQuery(), 1)
    [older] = log.page(MigrationQuery(), 1, (newest.created_at, newest.uuid))
    assert (newest.instance_uuid, newest.migration_type, newest.status) == (second, "live-migration", "completed")
    assert (older.instance_uuid, older.migration_type, older.status) == (first, "migration", "finished")
    assert (older.source_compute, older.dest_compute) == ("host1", "host2")
    assert [found.id for found in log.page(MigrationQuery(instance_uuid=first), 10)] == [older.id]
    acting.do(first, "confirmResize")
    assert [found.status for found in log.page(MigrationQuery(instance_uuid=first), 10)] == ["confirmed"]


@pytest.mark.parametrize(
    ("policy", "states", "hosts"),
    [("affinity", {"active": 6}, 1), ("anti-affinity", {"active": 2, "error": 4}, 2)],
)
def test_policy_of_a_group_holds_however_many_requests_come_at_once(
    acting: ActingCell, fleet: Fleet, policy: str, states: Mapping[str, int], hosts: int
) -> None:
    group = fleet.server_groups.create("group", policy, project_id="demo", user_id="ada")
    uuids = [str(UUID(int=number)) for number in range(6)]
    # Members are those that the fleet has heard of; each is placed by a request of its own.
    fleet.add_mappings([InstanceMapping(uuid, acting.cell.uuid, "demo", "ada", 0) for uuid in uuids])
    fleet.server_groups.add_members(group.uuid, uuids, limit=10)

    def create_one(uuid: str) -> None:
        values = {"uuid": uuid, "project_id": "demo", "flavor": FLAVOR, "server_groups": [group.uuid]}
        acting.acceptance.create([values], {}, REQUEST)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(create_one, uuids))
    acting.work()
    assert Counter(acting.state(uuid)[0] for uuid in uuids) == states
    assert len(acting.used()) == hosts
