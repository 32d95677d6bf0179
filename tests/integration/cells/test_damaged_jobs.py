"""A damaged row takes no worker away: its job ends with an error that the log names, the others of the cell go on."""

import pytest
from structlog.testing import capture_logs

from fleetlight.cells.database.engines import writing
from fleetlight.manager.operations.actions.reclaiming import Reclaimer
from fleetlight.manager.operations.instances.instance_actions import ERROR, InstanceActionLog
from fleetlight.manager.operations.instances.instance_migrations import MigrationLog, MigrationQuery
from tests.support.fleets.acting_cell import REQUEST, ActingCell
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.waiting import wait_until

UNREADABLE = {
    "JSON that ends too soon": "metadata = '{'",
    "bytes in a column of JSON": "flavor = x'00ff'",
    "text that is no Unicode": "display_name = CAST(x'ff41' AS TEXT)",
    "text in a column of numbers": "launched_at = 'yesterday'",
    "a flag that is none": "deleted = 'perhaps'",
}


# Only SQLite has such rows: in PostgreSQL JSON, text and numbers are types.
pytestmark = [pytest.mark.no_rerun, pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)]


def damage(acting: ActingCell, uuid: str, what: str) -> None:
    with writing(acting.engine) as connection:
        connection.exec_driver_sql(f"UPDATE instances SET {what} WHERE uuid = ?", (uuid,))  # noqa: S608


@pytest.mark.parametrize("what", UNREADABLE.values(), ids=list(UNREADABLE))
def test_job_of_a_damaged_row_ends_with_an_error_and_the_others_go_on(acting: ActingCell, what: str) -> None:
    damaged, well = acting.instance(), acting.instance()
    for uuid in (damaged, well):
        acting.accept(uuid, "os-stop")
    damage(acting, damaged, what)
    with capture_logs() as logs, in_thread(acting.worker.run):
        wait_until(lambda: acting.count_live_jobs() == 0)
    assert acting.state(well) == ("stopped", None, 4)
    assert [entry["event"] for entry in logs] == ["job.failed", "job.failure_not_shown"]
    assert {entry["instance"] for entry in logs} == {damaged}
    found = InstanceActionLog(acting.engine, acting.cell).find(damaged, REQUEST.request_id or "")
    assert found is not None
    assert found[0].message == ERROR


def test_migration_of_a_damaged_row_ends_too(acting: ActingCell) -> None:
    damaged = acting.instance()
    acting.accept(damaged, "migrate")
    damage(acting, damaged, UNREADABLE["JSON that ends too soon"])
    acting.work()
    log = MigrationLog(acting.engine, acting.cell)
    assert [found.status for found in log.page(MigrationQuery(instance_uuid=damaged), 10)] == ["error"]


@pytest.mark.parametrize("parameters", ["'{'", "x'00ff'", "CAST(x'ff41' AS TEXT)"])
def test_job_that_cannot_be_read_ends_with_an_error_and_the_others_go_on(acting: ActingCell, parameters: str) -> None:
    damaged, well = acting.instance(), acting.instance()
    for uuid in (damaged, well):
        acting.accept(uuid, "os-stop")
    with writing(acting.engine) as connection:
        statement = f"UPDATE job_operations SET parameters = {parameters} WHERE instance_uuid = ?"  # noqa: S608
        connection.exec_driver_sql(statement, (damaged,))
    with capture_logs() as logs, in_thread(acting.worker.run):
        wait_until(lambda: acting.count_live_jobs() == 0)
    assert acting.state(well) == ("stopped", None, 4)
    assert [(entry["event"], entry["instance"]) for entry in logs] == [("job.unreadable", damaged)]
    found = InstanceActionLog(acting.engine, acting.cell).find(damaged, REQUEST.request_id or "")
    assert found is not None
    assert found[0].message == ERROR


@pytest.mark.parametrize("what", [*UNREADABLE.values(), """flavor = '{"name": "x"}'"""])
def test_damaged_row_that_is_due_to_be_reclaimed_keeps_no_other_from_it(acting: ActingCell, what: str) -> None:
    gone = {"vm_state": "soft-delete", "deleted_at": 1}
    damaged, well = acting.instance(**gone), acting.instance(**gone)
    damage(acting, damaged, what)
    reclaimer = Reclaimer(acting.acceptance, acting.engine, acting.cell, 1)
    with capture_logs() as logs:
        reclaimer.reclaim()
        acting.work()
    assert acting.record(well)["deleted"]
    is_found = "deleted" not in what
    assert [(entry["event"], entry["instance"]) for entry in logs] == [("reclaim.failed", damaged)] * is_found
