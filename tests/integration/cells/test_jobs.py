"""Jobs in general, by a vocabulary that is not that of the actions: order, locks, dependencies, calls, ends."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from random import Random

import pytest
from opentelemetry.trace import StatusCode
from sqlalchemy import Engine, delete, event
from structlog.testing import capture_logs

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.cells.tables import jobs
from fleetlight.manager.operations.jobs.ending import end_jobs
from fleetlight.manager.operations.jobs.errors import NodeCallError
from fleetlight.manager.operations.jobs.model import NewOperation, Status
from fleetlight.manager.operations.jobs.pruning import Pruner
from fleetlight.manager.operations.jobs.queue import cancel_job
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.manager.operations.jobs.worker import Worker
from tests.support.fleets.tiny_vocabulary import TINY, JobCell, RememberingNodes, no_op, status_of
from tests.support.traced import RecordedTraces
from tests.support.waiting import wait_until

_SUCCESS = {Status.SUCCESS}


class Killed(BaseException):
    """The worker is killed here."""


@pytest.fixture
def nodes() -> RememberingNodes:
    return RememberingNodes()


@pytest.fixture
def world(engine: Engine, fleet: Fleet, cell: Cell, nodes: RememberingNodes) -> JobCell:
    times = count(1_800_000_000_000_000)
    return JobCell(engine, fleet, cell, nodes, lambda: next(times))


def test_operations_of_a_job_run_in_order_and_its_end_stays(world: JobCell) -> None:
    job = world.add(no_op(2), no_op(1, a=False), no_op(3))
    world.work()
    row = world.job(job)
    assert (row.status, row.is_ready) == ("success", False)
    assert row.received_at < row.started_at < row.ended_at
    operations = world.operations(job)
    assert [operation.status for operation in operations] == ["success"] * 3
    assert [operation.result for operation in operations] == [{"steps": 2}, {"steps": 1}, {"steps": 3}]
    times = [time for operation in operations for time in (operation.started_at, operation.ended_at)]
    assert times == sorted(times)
    said = [(0, "step 0"), (0, "step 1"), (1, "step 0"), (2, "step 0"), (2, "step 1"), (2, "step 2")]
    assert world.log(job) == [(serial, *entry) for serial, entry in enumerate(said, 1)]
    assert world.locks() == []


def test_operation_that_fails_ends_its_job_with_those_behind_it(world: JobCell) -> None:
    failing, well = world.add(no_op(), NewOperation("fail"), no_op()), world.add(no_op())
    with capture_logs() as logs:
        world.work()
    operations = world.operations(failing)
    assert [operation.status for operation in operations] == ["success", "error", "error"]
    assert [operation.result for operation in operations[1:]] == [["OpExecError", ["it cannot be done"]]] * 2
    assert [(entry["event"], entry["job"], entry["action"]) for entry in logs] == [
        ("job.failed", world.number(failing), "fail")
    ]
    assert (world.status(failing), world.status(well)) == ("error", "success")


def test_job_is_a_span_of_the_trace_of_its_request(world: JobCell) -> None:
    recorded = RecordedTraces()
    request = RequestContext("req-46f4d8ac-e61c-452d-926b-b508626a50af")
    ended = [world.add(no_op(), request=request), world.add(NewOperation("fail"), request=request), world.add(no_op())]
    worker = Worker(world.engine, world.fleet, world.cell, TINY, world.nodes, clock=world.clock, traces=recorded.traces)
    while worker.run_once():
        pass
    assert [world.status(job) for job in ended] == ["success", "error", "success"]
    assert {
        (span.name, span.status.status_code, span.attributes["fleetlight.status"], span.attributes["fleetlight.job"])
        for span in recorded.spans
        if span.attributes is not None and span.parent is not None and span.parent.span_id == 0x46F4D8ACE61C452D
    } == {
        ("job no-op", StatusCode.UNSET, "success", world.number(ended[0])),
        ("job fail", StatusCode.ERROR, "error", world.number(ended[1])),
    }
    assert len(recorded.spans) == 2


def test_operation_that_no_vocabulary_has_ends_its_job(world: JobCell) -> None:
    job = world.add(no_op())
    Worker(world.engine, world.fleet, world.cell, {}, world.nodes).run_once()
    assert world.status(job) == "error"
    assert world.operations(job)[0].result == ["OpExecError", ["operation no-op is not known to this worker"]]


def test_jobs_go_by_priority_and_then_by_number(world: JobCell) -> None:
    low, normal, high = (world.add(no_op(2, a=False), priority=priority) for priority in (10, 0, -10))
    later = world.add(no_op(2, a=False))
    world.work()
    assert sorted((low, normal, high, later), key=lambda job: world.job(job).ended_at) == [high, normal, later, low]


def test_job_that_waits_shows_what_for_and_goes_on_when_that_is_given_up(world: JobCell) -> None:
    first = world.add(no_op(2, a=False))
    world.worker.run_once()
    second = world.add(no_op(1, a=False, b=False), priority=-10)
    world.worker.run_once()
    row = world.job(second)
    assert (row.status, row.is_ready, world.operations(second)[0].status) == ("waiting", False, "waiting")
    assert [(lock.name, lock.job_id, lock.held_at is not None) for lock in world.locks()] == [
        ("a", first, True),
        ("a", second, False),
        ("b", second, False),
    ]
    world.worker.run_once()
    assert (world.status(first), world.status(second), world.job(second).is_ready) == ("success", "waiting", True)
    world.work()
    assert world.status(second) == "success"


def test_shared_locks_are_held_together_and_no_late_share_overtakes_a_job_that_wants_one_alone(world: JobCell) -> None:
    sharing = []
    for priority in (10, 9):
        sharing.append(world.add(no_op(3, a=True), priority=priority))
        world.worker.run_once()
    assert world.held() == {"a": sharing}
    alone, late = world.add(no_op(1, a=False)), world.add(no_op(1, a=True))
    for _ in range(2):
        world.worker.run_once()
    assert [(world.status(job), world.job(job).is_ready) for job in (alone, late)] == [("waiting", False)] * 2
    world.work()
    ends = [world.job(job).ended_at for job in (*reversed(sharing), alone, late)]
    assert ends == sorted(ends)


def test_jobs_that_may_share_a_lock_go_on_together_when_it_is_given_up(world: JobCell) -> None:
    world.add(no_op(2, a=False), priority=10)
    world.worker.run_once()
    sharing = [world.add(no_op(1, a=True)) for _ in range(3)]
    alone, behind = world.add(no_op(1, a=False)), world.add(no_op(1, a=True))
    for _ in range(5):
        world.worker.run_once()
    assert {world.job(job).is_ready for job in (*sharing, alone, behind)} == {False}
    world.worker.run_once()
    ready = [world.job(job).is_ready for job in (*sharing, alone, behind)]
    assert ready == [True, True, True, False, False]
    world.work()
    assert {world.status(job) for job in (*sharing, alone, behind)} == {"success"}


def test_all_locks_are_taken_together_or_none(world: JobCell) -> None:
    holder = world.add(no_op(2, b=False), priority=10)
    world.worker.run_once()
    both = world.add(no_op(1, a=False, b=False))
    world.worker.run_once()
    assert (world.status(both), world.held()) == ("waiting", {"b": [holder]})
    earlier = world.add(no_op(2, a=False), priority=-10)
    world.worker.run_once()
    assert world.held() == {"a": [earlier], "b": [holder]}
    world.work()
    ends = [world.job(job).ended_at for job in (earlier, holder, both)]
    assert ends == sorted(ends)


def test_waiting_jobs_cost_the_next_one_nothing(world: JobCell) -> None:
    def count_until_success(job: int) -> int:
        with statements(world.engine) as found:
            while world.status(job) != "success":
                world.worker.run_once()
        return len(found)

    def count_of_another_job(**locks: bool) -> int:
        return count_until_success(world.add(no_op(2, **locks), priority=-10))

    alone = count_of_another_job(), count_of_another_job(b=False)
    few = count_until_success(wait_for(world, "a", 2))
    world.work()
    first = wait_for(world, "a", 50)
    assert (count_of_another_job(), count_of_another_job(b=False)) == alone
    # Nor do they cost the one of them that comes next more.
    assert count_until_success(first) == few


def wait_for(world: JobCell, name: str, number: int) -> int:
    """Let jobs wait for a lock that another one holds, which goes on after all others; the number of the first."""
    world.add(no_op(4, **{name: False}), priority=10)
    world.worker.run_once()
    waiting = [world.add(no_op(1, **{name: False})) for _ in range(number)]
    for _ in waiting:
        world.worker.run_once()
    assert {(world.status(job), world.job(job).is_ready) for job in waiting} == {("waiting", False)}
    return waiting[0]


def test_indexes_find_the_jobs_that_are_ready_and_those_in_the_way(world: JobCell) -> None:
    wait_for(world, "a", 3)
    with statements(world.engine) as found:
        world.work()
    looks = next(statement for statement in found if "FROM jobs JOIN job_operations" in statement)
    takes = next(statement for statement in found if statement.startswith("UPDATE job_locks"))
    if world.engine.dialect.name != "sqlite":
        return  # PostgreSQL reads tables as small as these as a whole.
    look, take = (plan(world.engine, "EXPLAIN QUERY PLAN " + each) for each in (looks, takes))
    assert look.splitlines()[0] == "SCAN jobs USING INDEX ix_jobs_ready"
    assert "USING INDEX ix_job_locks_held (level=? AND name=?)" in take
    assert "USING INDEX ix_job_locks_of_name (level=? AND name=?)" in take
    assert "TEMP B-TREE" not in take
    assert "SCAN" not in take


def plan(engine: Engine, statement: str) -> str:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(statement, tuple(1 for _ in range(statement.count("?"))))
        return "\n".join(row[-1] for row in rows)


@contextmanager
def statements(engine: Engine) -> Iterator[list[str]]:
    found: list[str] = []

    def add(_connection: object, _cursor: object, statement: str, *_others: object) -> None:
        if not statement.startswith("BEGIN"):
            found.append(statement)

    event.listen(engine, "before_cursor_execute", add)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", add)


def test_job_waits_until_those_that_it_depends_on_have_ended(world: JobCell) -> None:
    first, second = world.add(no_op(4), priority=10), world.add(no_op(2), priority=10)
    last = world.add(no_op(1, a=False), depends_on={first: _SUCCESS, second: _SUCCESS}, priority=-10)
    world.worker.run_once()
    assert (world.status(last), world.job(last).is_ready, world.locks()) == ("waiting", False, [])
    world.work()
    ends = [world.job(job).ended_at for job in (first, second, last)]
    assert (ends, world.status(last)) == (sorted(ends), "success")


@pytest.mark.parametrize(("wanted", "status"), [("success", "error"), ("error", "success")])
def test_job_goes_on_only_after_the_ends_that_it_names(world: JobCell, wanted: str, status: str) -> None:
    failing = world.add(NewOperation("fail"))
    dependent = world.add(no_op(), depends_on={failing: {Status(wanted)}})
    behind = world.add(no_op(), depends_on={dependent: {Status.SUCCESS, Status.ERROR}})
    with capture_logs():
        world.work()
    assert (world.status(dependent), world.status(behind)) == (status, "success")


def test_job_that_depends_on_none_that_there_is_ends_with_an_error(world: JobCell) -> None:
    job = world.add(no_op(), depends_on={4711: _SUCCESS})
    with capture_logs():
        world.work()
    text_of_error = f"job {world.number(4711)}, which this one depends on, was not there before it"
    assert world.operations(job)[0].result == ["OpExecError", [text_of_error]]


def test_job_that_has_not_begun_can_be_canceled_and_frees_its_place(world: JobCell) -> None:
    holder = world.add(no_op(4, a=True), priority=10)
    world.worker.run_once()
    canceled, behind = world.add(no_op(1, a=False)), world.add(no_op(1, a=True))
    for _ in range(2):
        world.worker.run_once()
    assert [world.status(job) for job in (holder, canceled, behind)] == ["running", "waiting", "waiting"]
    assert cancel_job(world.engine, world.cell, world.number(canceled))[0]
    assert (world.status(canceled), world.operations(canceled)[0].status) == ("canceling", "canceling")
    world.work()
    assert [world.status(job) for job in (holder, canceled, behind)] == ["success", "canceled", "success"]
    assert world.job(behind).ended_at < world.job(holder).ended_at
    assert (world.log(canceled), world.job(canceled).started_at) == ([], None)


def test_running_operation_goes_on_and_those_behind_it_are_canceled(world: JobCell) -> None:
    job = world.add(no_op(3), no_op())
    world.worker.run_once()
    number = world.number(job)
    assert cancel_job(world.engine, world.cell, number) == (True, f"Job {number} will be canceled")
    assert [operation.status for operation in world.operations(job)] == ["running", "canceling"]
    assert world.status(job) == "canceling"
    world.work()
    assert [operation.status for operation in world.operations(job)] == ["success", "canceled"]
    assert (world.status(job), len(world.log(job))) == ("canceled", 3)


def test_nothing_is_left_to_cancel_of_a_last_operation_that_runs_and_of_a_job_that_has_ended(world: JobCell) -> None:
    job = world.add(no_op(2))
    world.worker.run_once()
    number = world.number(job)
    assert cancel_job(world.engine, world.cell, number) == (False, f"Job {number} is no longer waiting in the queue")
    world.work()
    for number in (world.number(job), world.number(4711)):
        assert cancel_job(world.engine, world.cell, number) == (False, f"Job {number} not found in queue")
    assert world.status(job) == "success"


def test_node_is_called_between_transactions_with_the_place_of_the_step_as_key(
    world: JobCell, nodes: RememberingNodes
) -> None:
    open_connections: list[int] = []
    nodes.on_call = lambda: open_connections.append(world.engine.pool.checkedout())  # type: ignore[attr-defined]
    job = world.add(no_op(), NewOperation("start", {"size": 5}))
    world.work()
    [(key, call)] = nodes.calls
    assert key == f"{job}-{world.job(job).received_at}-1-1"
    assert (call.host, call.name, call.parameters) == ("host1", "start", {"size": 5})
    assert (world.operations(job)[1].result, open_connections) == ("start done", [0])


def test_worker_that_is_killed_after_a_call_makes_it_again_with_the_same_key(
    world: JobCell, nodes: RememberingNodes
) -> None:
    job = world.add(NewOperation("start"))
    nodes.failure = Killed()
    with pytest.raises(Killed):
        world.work()
    nodes.failure = None
    world.worker = world.new_worker()
    world.work()
    assert (world.status(job), len(nodes.calls), len({key for key, _ in nodes.calls})) == ("success", 2, 1)


def test_call_that_fails_ends_the_job(world: JobCell, nodes: RememberingNodes) -> None:
    job = world.add(NewOperation("start"))
    nodes.failure = NodeCallError("host1", "start", "no answer")
    with capture_logs() as logs:
        world.work()
    assert world.operations(job)[0].result == ["OpExecError", ["start on host1: no answer"]]
    assert [(entry["event"], entry["exc_info"]) for entry in logs] == [("job.failed", None)]


def test_answer_for_a_job_that_was_ended_meanwhile_changes_nothing(world: JobCell, nodes: RememberingNodes) -> None:
    job = world.add(NewOperation("start"), no_op())
    other = world.new_worker()

    def work_too() -> None:
        nodes.on_call = lambda: None
        while other.run_once():
            pass

    nodes.on_call = work_too
    world.work()
    assert (world.status(job), [entry[2] for entry in world.log(job)]) == ("success", ["step 0", "step 0"])


def test_old_jobs_and_the_oldest_of_too_many_are_forgotten_with_what_belongs_to_them(world: JobCell) -> None:
    ended = [world.add(no_op(1, a=False)) for _ in range(6)]
    world.work()
    needed = world.add(no_op(), depends_on={ended[1]: _SUCCESS})
    live = world.add(no_op())
    kept_s = (world.clock() - world.job(ended[2]).ended_at) / 1e6
    just_now = world.job(ended[2]).ended_at + round(kept_s * 1e6)
    assert Pruner(world.engine, world.cell, kept_s=kept_s, kept_count=100, clock=lambda: just_now).prune() == 2
    assert left(world) == [ended[1], *ended[3:], needed, live]
    assert Pruner(world.engine, world.cell, kept_s=10**6, kept_count=2, clock=world.clock).prune() == 1
    assert left(world) == [ended[1], *ended[4:], needed, live]
    assert world.operations(ended[0]) == [] == world.log(ended[0])
    assert Pruner(world.engine, world.cell, kept_s=10**6, kept_count=2, clock=world.clock).prune() == 0
    world.work()
    assert Pruner(world.engine, world.cell, kept_s=10**6, kept_count=1, clock=world.clock).prune() == 4


def test_job_with_a_word_that_this_version_does_not_know_is_left_alone(world: JobCell) -> None:
    strange, damaged, well = (world.add(no_op(1, a=False)), world.add(no_op(1, b=False)), world.add(no_op()))
    with world.engine.begin() as connection:
        connection.execute(jobs.update().where(jobs.c.id == strange).values(stage="later"))
        connection.execute(jobs.update().where(jobs.c.id == damaged).values(status="??"))
    world.work()
    assert (world.status(well), world.job(strange).stage, world.status(damaged)) == ("success", "later", "??")


def test_failure_that_says_what_no_database_keeps_ends_its_job_all_the_same(world: JobCell) -> None:
    job = world.add(no_op())
    with world.engine.begin() as connection:
        end_jobs(connection, [job], Status.ERROR, ValueError("a\0b\udc80"), 1)
    assert world.operations(job)[0].result == ["OpExecError", ["a\\0b\\udc80"]]


def left(world: JobCell) -> list[int]:
    with world.engine.connect() as connection:
        return list(connection.execute(jobs.select().order_by(jobs.c.id)).scalars())


def test_number_of_a_forgotten_job_is_not_given_out_again(world: JobCell) -> None:
    job = world.add(no_op())
    world.work()
    with world.engine.begin() as connection:
        connection.execute(delete(jobs))
    assert world.add(no_op()) > job


def test_workers_at_the_same_time_never_hold_what_excludes_each_other(engine: Engine, fleet: Fleet, cell: Cell) -> None:
    random, guard = Random(5), threading.Lock()
    inside: dict[int, dict[str, bool]] = {}
    order: list[int] = []

    def enter(task: Task) -> None:
        locks = task.parameters["locks"]
        with guard:
            for others in inside.values():
                assert not any(not (locks[name] and others[name]) for name in locks.keys() & others.keys())
            inside[task.job.id] = locks
            order.append(task.job.id)

    def leave(task: Task) -> None:
        with guard:
            del inside[task.job.id]

    vocabulary = {"no-op": Operation((Step(enter), Step(lambda _task: None), Step(leave)), TINY["no-op"].locks)}
    world = JobCell(engine, fleet, cell)
    ids = [
        world.add(no_op(1, **{name: random.random() < 0.4 for name in random.sample("abc", random.randrange(1, 4))}))
        for _ in range(24)
    ]

    def work(_number: int) -> None:
        worker = Worker(engine, fleet, cell, vocabulary, world.nodes)
        wait_until(lambda: not worker.run_once() and {world.status(job) for job in ids} <= {"success", "error"})

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))
    assert {world.status(job) for job in ids} == {"success"}
    assert sorted(order) == ids
    assert world.locks() == []
    assert {status_of([operation.status for operation in world.operations(job)]) for job in ids} == {"success"}
