"""The actions of servers as jobs: what the compute API has accepted is seen, kept and canceled as any job."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, select
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from structlog.testing import capture_logs

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instance_action_events, job_locks, job_log, job_operations, jobs
from fleetlight.manager.operations.actions.vocabulary import VOCABULARY
from fleetlight.manager.operations.instances.instance_actions import ERROR, InstanceActionLog
from fleetlight.manager.operations.jobs.errors import NodeCallError
from fleetlight.manager.operations.jobs.failures import ends_alone
from fleetlight.manager.operations.jobs.queue import cancel_job
from fleetlight.manager.operations.jobs.worker import Worker
from tests.support.fleets.acting_cell import FLAVOR, REQUEST, ActingCell
from tests.support.fleets.tiny_vocabulary import RememberingNodes


@pytest.fixture
def nodes() -> RememberingNodes:
    return RememberingNodes()


@pytest.fixture
def acting(engine: Engine, fleet: Fleet, cell: Cell, nodes: RememberingNodes) -> ActingCell:
    acting = ActingCell(engine, fleet, cell)
    acting.worker = Worker(engine, fleet, cell, VOCABULARY, nodes)
    return acting


def rows(acting: ActingCell) -> Sequence[Any]:
    statement = select(jobs, job_operations).join(job_operations, job_operations.c.job_id == jobs.c.id)
    with acting.engine.connect() as connection:
        return connection.execute(statement.order_by(jobs.c.id)).all()


def test_action_is_a_job_that_keeps_its_end_and_who_wanted_it(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.do(uuid, "os-stop")
    [row] = rows(acting)
    assert (row.status, row.priority, row.operation, row.instance_uuid) == ("success", 0, "os-stop", uuid)
    assert (row.request_id, row.user_id, row.project_id) == (REQUEST.request_id, REQUEST.user_id, REQUEST.project_id)
    assert row.received_at <= row.started_at <= row.ended_at


def test_actions_of_one_instance_wait_for_each_other_in_the_order_of_acceptance(acting: ActingCell) -> None:
    uuid = acting.instance()
    for _ in range(2):
        acting.accept(uuid, "trigger_crash_dump")
    acting.worker.run_once()
    with acting.engine.connect() as connection:
        locks = connection.execute(select(job_locks).order_by(job_locks.c.job_id)).all()
    assert {(lock.level, lock.name, lock.is_shared) for lock in locks} == {("instance", uuid, False)}
    assert [lock.held_at is not None for lock in locks] == [True, False]
    acting.work()
    first, second = rows(acting)
    assert (first.status, second.status) == ("success", "success")
    assert first.ended_at <= second.started_at


def test_log_of_a_job_names_the_host_that_was_chosen(acting: ActingCell) -> None:
    acting.do(acting.instance(), "migrate")
    with acting.engine.connect() as connection:
        entries = connection.execute(select(job_log.c.serial, job_log.c.type, job_log.c.data)).all()
    assert [tuple(entry) for entry in entries] == [(1, "message", "host host2 was chosen")]


def test_job_that_a_deletion_takes_the_place_of_is_canceled(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.accept(uuid, "resize", flavor=FLAVOR, flavor_number=2)
    acting.worker.run_once()
    acting.accept(uuid, "delete")
    acting.work()
    given_up, deletion = rows(acting)
    assert (given_up.status, given_up.result[0], deletion.status) == ("canceled", "OpExecError", "success")


@pytest.mark.parametrize(
    ("action", "states", "calls"),
    [
        ("os-stop", {}, ["stop"]),
        ("os-start", {"vm_state": "stopped"}, ["start"]),
        ("reboot SOFT", {}, ["reboot"]),
        ("os-migrateLive", {}, ["migrate", "leave"]),
        ("delete", {}, ["delete"]),
    ],
)
def test_host_is_called_for_what_it_has_to_do(
    acting: ActingCell, nodes: RememberingNodes, action: str, states: dict[str, Any], calls: list[str]
) -> None:
    uuid = acting.instance(**states)
    acting.do(uuid, action)
    guest = {"hypervisor": None, "memory": 2048, "vcpus": 2, "disks": [20 * 1024]}
    assert [made.name for _, made in nodes.calls] == calls
    for _, made in nodes.calls:
        assert made.host == "host1"
        assert {name: made.parameters[name] for name in ("instance_uuid", "guest")} == {
            "instance_uuid": uuid,
            "guest": guest,
        }


def test_host_that_cannot_do_it_shows_in_the_instance(acting: ActingCell, nodes: RememberingNodes) -> None:
    uuid = acting.instance()
    nodes.failure = NodeCallError("host1", "reboot", "the hypervisor is gone")
    with capture_logs():
        acting.do(uuid, "reboot SOFT")
    assert acting.state(uuid)[:2] == ("error", None)
    assert acting.record(uuid)["fault"]["message"] == "reboot on host1: the hypervisor is gone"
    assert acting.events()[-1].event_type == "instance.reboot.error"


def test_what_a_database_says_is_told_to_the_log_alone(acting: ActingCell, nodes: RememberingNodes) -> None:
    uuid = acting.instance()
    statement = "INSERT INTO secrets VALUES (1)"
    nodes.failure = IntegrityError(statement, None, Exception("Key (name)=(ada) already exists"))
    with capture_logs() as logs:
        acting.do(uuid, "reboot SOFT")
    [row] = rows(acting)
    with acting.engine.connect() as connection:
        [result] = connection.scalars(select(job_operations.c.result))
        [details] = connection.scalars(select(instance_action_events.c.details))
    text = "unexpected error of the database (IntegrityError): the log of the worker tells it by this job"
    assert (result, details) == (["OpExecError", [text]], text)
    assert acting.record(uuid)["fault"]["message"] == text
    [failed] = [entry for entry in logs if entry["event"] == "job.failed"]
    assert (failed["job"], statement in failed["reason"]) == (job_number(acting.cell, row.id), True)


@pytest.mark.parametrize(
    "error",
    [
        DBAPIError("x", None, Exception("server closed the connection"), connection_invalidated=True),
        ProgrammingError("x", None, psycopg.errors.ReadOnlySqlTransaction("on a standby")),
        PoolTimeoutError("every connection is in use"),
    ],
)
def test_database_that_is_away_ends_no_job(error: Exception) -> None:
    assert not ends_alone(error)


def test_action_that_is_canceled_leaves_the_instance_as_it_was(acting: ActingCell) -> None:
    uuid = acting.instance()
    acting.accept(uuid, "os-stop")
    [row] = rows(acting)
    assert cancel_job(acting.engine, acting.cell, job_number(acting.cell, row.id))[0]
    acting.work()
    assert acting.state(uuid) == ("active", None, 1)
    assert rows(acting)[0].status == "canceled"
    found = InstanceActionLog(acting.engine, acting.cell).find(uuid, "req-1")
    assert found is not None
    assert found[0].message == ERROR


def test_creation_that_is_canceled_ends_in_error(acting: ActingCell) -> None:
    [created] = acting.acceptance.create([{"flavor": FLAVOR}], {}, REQUEST)
    assert cancel_job(acting.engine, acting.cell, job_number(acting.cell, rows(acting)[0].id))[0]
    acting.work()
    assert acting.state(created.uuid)[:2] == ("error", None)
