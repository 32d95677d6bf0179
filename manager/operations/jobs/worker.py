"""The worker, which carries out the jobs of a native cell step by step.

Each step is one transaction with its changes, its announcement, and the position of the job. So a worker that is killed
leaves every job between two steps, where another worker continues. Any number of workers may run. The call of a node
for a step precedes its transaction, without locks.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from threading import Event
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import Connection, Engine

from fleetlight.cells.database.commits import Commits
from fleetlight.cells.database.engines import cell_failures, one_statement, writing
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, NoValidHostError, UnreadableRowError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.kinds.native.instance_rows import is_damage, lock_row_if_free, read_row
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.retrying import retrying_until
from fleetlight.manager.operations.instances.locked_instance import LockedInstance
from fleetlight.manager.operations.jobs.ending import end_jobs, end_operation
from fleetlight.manager.operations.jobs.errors import JobCanceledError, JobError, NodeAwayError, UnknownOperationError
from fleetlight.manager.operations.jobs.failures import ends_alone
from fleetlight.manager.operations.jobs.locks import take_locks, want_locks
from fleetlight.manager.operations.jobs.maintenance import MaintenanceTask
from fleetlight.manager.operations.jobs.metrics import WorkerMetrics
from fleetlight.manager.operations.jobs.model import ENDED, Job, JobPosition, Stage, Status
from fleetlight.manager.operations.jobs.nodes import Nodes
from fleetlight.manager.operations.jobs.queue import (
    begin_job,
    check_dependencies,
    count_unended,
    fill_in,
    let_wait,
    lock_first_job,
    lock_unread_job,
    read_job,
    ready_jobs,
    save_operation,
)
from fleetlight.manager.operations.jobs.vocabulary import MakeCall, Operation, Step, Task, Vocabulary
from fleetlight.resources.clock import Clock, system_clock

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces

_log = structlog.get_logger(__name__)

_LONGEST_WAIT_S = 10.0
# Without commits in the cell, a worker looks for work at this interval.
_LONGEST_REST_S = 60.0
POLL_INTERVAL_S = 0.1
"""Interval of reading an empty queue, and of checking for commits."""
# Interval of trying a job that waits for a node.
_NODE_REST_S = 1.0
_UNREACHABLE = (CellUnreachableError, FleetUnreachableError)
# Logged without traceback: their text says everything, and callers could fill logs with them.
_EXPLAINED = (NoValidHostError, UnreadableRowError, JobError)
# Interval of counting the queue, which reads all kept jobs.
_COUNT_INTERVAL_S = 15.0
# Jobs that are read together; more only if other transactions have locked these.
_LOOKED_AT = 8


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of a node."""

    value: Any


class Worker:
    """One worker of one cell. `run` works until `stop` is set; `run_once` makes a single step.

    vocabulary: the known operations. nodes: of the cell.
    maintenance: tasks between jobs, such as fleetlight.manager.operations.actions.reclaiming.
    heartbeat: called by `run` after each step, and before each wait for a database.
    node_rest_s: how long a job rests if its node is away. metrics: counters of `run`, if any.
    traces: of the process; None: make none.
    """

    def __init__(
        self,
        engine: Engine,
        fleet: Fleet,
        cell: Cell,
        vocabulary: Vocabulary,
        nodes: Nodes,
        *,
        clock: Clock = system_clock,
        maintenance: Sequence[MaintenanceTask] = (),
        heartbeat: Callable[[], None] = lambda: None,
        node_rest_s: float = _NODE_REST_S,
        metrics: WorkerMetrics | None = None,
        traces: "Traces | None" = None,
    ) -> None:
        self._engine = engine
        self._commits = Commits(engine, _LONGEST_REST_S)
        self._fleet = fleet
        self._cell = cell
        self._vocabulary = vocabulary
        self._nodes = nodes
        self._clock = clock
        self._maintenance = maintenance
        self._heartbeat = heartbeat
        self._node_rest_s = node_rest_s
        self._metrics = metrics or WorkerMetrics()
        self._traces = traces
        self._count_due_s = 0.0
        self._resting: dict[str, float] = {}
        self._is_waiting = False

    def run(self, stop: Event) -> None:
        """Work until `stop` is set; waits with increasing intervals while a database is away."""
        self._metrics.cell_known(self._cell.uuid)
        retrying = retrying_until(stop, _UNREACHABLE, self._tell_of_wait, longest_wait_s=_LONGEST_WAIT_S)
        while not stop.is_set():
            may_be_new = self._commits.may_be_new()
            for task in self._maintenance:
                retrying(task, may_be_new=may_be_new)
            retrying(self._count_queue)
            has_worked = (self._has_rested() or may_be_new) and retrying(self.run_once)
            if self._is_waiting and not stop.is_set():
                _log.info("worker.cell_worked_again", cell=self._cell.name)
                self._is_waiting = False
            self._heartbeat()
            if not has_worked:
                self._commits.wait(stop, POLL_INTERVAL_S, max(0.0, self._due_s() - time.monotonic()))

    def run_once(self) -> bool:
        """Make one step of one job; returns False if there is none, or other workers have all jobs.

        Raises CellUnreachableError and FleetUnreachableError, after which the job is at its previous step.
        """
        with cell_failures(self._cell.name):
            return any(self._work_on_one_of(places) for places in self._together())

    def _count_queue(self) -> None:
        if time.monotonic() < self._count_due_s:
            return
        with cell_failures(self._cell.name), one_statement(self._engine) as connection:
            counts, waiting_since = count_unended(connection)
        self._metrics.queue_seen(self._cell.uuid, counts, waiting_since)
        self._count_due_s = time.monotonic() + _COUNT_INTERVAL_S

    def _count_if_ended(self, place: JobPosition, job: Job) -> None:
        """Count a job that has ended, after the commit of its transaction."""
        if job.status not in ENDED:
            return
        self._metrics.ended(self._cell.uuid, place.operation, job.status, place.received_at)
        if self._traces is not None:
            self._traces.job_ended(
                job.request.request_id,
                f"job {place.operation}",
                place.received_at,
                self._clock(),
                self._attributes(job),
                has_failed=job.status is not Status.SUCCESS,
            )

    def _attributes(self, job: Job) -> dict[str, str | int | bool]:
        about = {} if job.instance_uuid is None else {"fleetlight.instance": job.instance_uuid}
        number = job_number(self._cell, job.id)
        return {"fleetlight.cell": self._cell.uuid, "fleetlight.job": number, "fleetlight.status": job.status, **about}

    def _rests(self, place: JobPosition) -> bool:
        """Whether a job rests, since it waits for a node, and is not tried at each step of other jobs."""
        return time.monotonic() < self._resting.get(place.key, 0.0)

    def _has_rested(self) -> bool:
        """Whether the rest of a job has ended since the last call."""
        now, resting = time.monotonic(), self._resting
        self._resting = {key: until for key, until in resting.items() if now < until}
        return len(self._resting) < len(resting)

    def _due_s(self) -> float:
        """Return the monotonic time of the next work if no transaction commits before."""
        return min([self._count_due_s, *(task.due_s for task in self._maintenance), *self._resting.values()])

    def _together(self) -> Iterator[Sequence[JobPosition]]:
        """Yield positions of ready jobs in order, in groups; a job whose next step calls a node is alone."""
        for page in self._pages():
            awake = [place for place in page if not self._rests(place)]
            for calls, group in groupby(awake, key=lambda place: self._next_call(place) is not None):
                places = list(group)
                yield from ([place] for place in places) if calls else [places]

    def _pages(self) -> Iterator[Sequence[JobPosition]]:
        """Yield pages of ready jobs, read without SQLite's write lock."""
        last = None
        while True:
            with one_statement(self._engine) as connection:
                found = ready_jobs(connection, _LOOKED_AT, last)
            yield found
            if len(found) < _LOOKED_AT:
                return
            last = found[-1]

    def _work_on_one_of(self, places: Sequence[JobPosition]) -> bool:
        """Make the next step, or handle its failure, of the first job that no other worker has; False without one."""
        left = places
        while left:
            at = left[0] if len(left) == 1 else None
            try:
                answer = None if at is None else self._ask_node(at)
                with writing(self._engine) as connection:
                    job = lock_first_job(connection, left)
                    if job is None:
                        return False
                    at = next(place for place in left if place.job_id == job.id)
                    has_advanced = self._advance(connection, at, job, answer)
                if has_advanced:
                    self._count_if_ended(at, job)
                    return True
            except Exception as error:
                if not ends_alone(error):
                    raise
                if at is None:
                    # A job cannot be read: try them one by one.
                    return any(self._work_on_one_of([place]) for place in left)
                return self._take_failure(at, error)
            # Another transaction has locked the job's instance.
            left = left[left.index(at) + 1 :]
        return False

    def _take_failure(self, place: JobPosition, error: Exception) -> bool:
        """Handle a failed step: the job rests, goes on, or ends; False if it rests, or another worker has it."""
        if isinstance(error, NodeAwayError):
            # Rest only this job, so that later jobs do not wait for its node.
            self._resting[place.key] = time.monotonic() + self._node_rest_s
            return False
        with writing(self._engine) as connection:
            job = self._end_failed(connection, place, error)
        if job is not None:
            self._count_if_ended(place, job)
        return job is not None

    def _next_call(self, place: JobPosition) -> tuple[Operation, Step, MakeCall] | None:
        """Return the operation, step and call of a begun job's next step, if that calls a node; else None."""
        operation = self._vocabulary.get(place.operation)
        if operation is None or place.stage is not Stage.STEPS:
            return None
        step = operation.step(place.next_step)
        return None if step is None or step.call is None else (operation, step, step.call)

    def _ask_node(self, place: JobPosition) -> _Answer | None:
        """Make the call of the next step, if it has one, and return the answer."""
        found = self._next_call(place)
        if found is None:
            return None
        operation, step, make_call = found
        with self._engine.connect() as connection:
            job = read_job(connection, place)
            if job is None:
                return None
            uuid = job.instance_uuid
            row = None if uuid is None else read_row(connection, self._cell, uuid)
            task = self._task(connection, job, row, self._clock())
            if operation.is_over(task) or not step.applies(task):
                return None
            call = make_call(task)
        if call is None:
            return _Answer(None)
        return _Answer(self._nodes.call(replace(call, order=0 if row is None else row.revision), place.key))

    def _advance(self, connection: Connection, place: JobPosition, job: Job, answer: _Answer | None) -> bool:
        """Make the next step that applies, and end the operation if none follows."""
        is_free, row = self._lock_instance(connection, job)
        if not is_free:
            return False
        now = self._clock()
        has_begun = job.stage is Stage.STEPS
        if not has_begun and job.status is Status.CANCELING:
            raise JobCanceledError(job_number(self._cell, job.id))
        if job.stage is Stage.DEPENDENCIES:
            check_dependencies(connection, self._cell, job)
            return True
        operation = self._operation(job)
        if not has_begun and not self._begin(connection, place, job, operation, now):
            return True
        task = self._task(connection, job, row, now, None if answer is None else answer.value)
        number = operation.next_step(task)
        if number is not None:
            step = operation.steps[operation.place(number)]
            if step.call is None or (answer is not None and number == place.next_step):
                step.run(task)
                job.next_step = number + 1
                number = operation.next_step(task)
            # Otherwise the call of a node must precede the next transaction.
        if number is None:
            self._end(connection, job, now, has_locked_names=not has_begun)
        else:
            job.next_step = number
            if not has_begun:
                begin_job(connection, job, now)
            save_operation(connection, job, Status.RUNNING, now)
        return True

    def _begin(self, connection: Connection, place: JobPosition, job: Job, operation: Operation, now: int) -> bool:
        """Take the locks of an operation that has not begun; returns whether it goes on in this transaction."""
        locks = operation.locks(job.parameters, job.instance_uuid)
        if job.stage is Stage.REQUEST:
            want_locks(connection, [(job.id, place.priority, lock) for lock in locks], now)
        if not take_locks(connection, job.id, now):
            let_wait(connection, job, Stage.LOCKS)
            return False
        job.stage, job.status = Stage.STEPS, Status.RUNNING
        if any(lock.is_shared for lock in locks):
            # End here: a step could wait for rows of a job that releases its share and waits for the names of locks.
            begin_job(connection, job, now)
            save_operation(connection, job, Status.RUNNING, now)
            return False
        return True

    def _end(self, connection: Connection, job: Job, now: int, *, has_locked_names: bool) -> None:
        """End an operation. has_locked_names: whether it has taken its locks in this transaction."""
        end_operation(connection, job, now, has_locked_names=has_locked_names)
        if job.status is Status.CANCELING:
            end_jobs(connection, [job.id], Status.CANCELED, JobCanceledError(job_number(self._cell, job.id)), now)
            job.status = Status.CANCELED
        elif job.position + 1 == job.operation_count:
            job.status = Status.SUCCESS

    def _end_failed(self, connection: Connection, place: JobPosition, error: Exception) -> Job | None:
        """Recover, or end a job whose step has failed with `error`; None if it does not exist any more."""
        job = lock_unread_job(connection, place)
        is_free, row = (False, None) if job is None else self._lock_instance(connection, job)
        if job is None or not is_free:
            return None
        now = self._clock()
        is_canceled = isinstance(error, JobCanceledError)
        if job.stage is Stage.LOCKS and not is_canceled and not take_locks(connection, job.id, now):
            let_wait(connection, job, Stage.LOCKS)
            return job
        try:
            fill_in(connection, job)
        except Exception as failure:
            if not is_damage(failure):
                raise
            _log.error("job.unreadable", **self._names(job), reason=type(failure).__name__)
        else:
            final = self._recover(self._task(connection, job, row, now), error) if job.stage is Stage.STEPS else error
            if final is None:
                return job
            error = final
            if not is_canceled:
                self._log_failure(_log.warning, "job.failed", job, error)
            # With the unchanged row: the changes of a failed recovery are undone.
            self._show_failure(self._task(connection, job, row, now), error)
        job.status = Status.CANCELED if is_canceled else Status.ERROR
        end_jobs(connection, [job.id], job.status, error, now)
        return job

    def _recover(self, task: Task, error: Exception) -> Exception | None:
        """Recover from a failed step; returns the error that ends the job if that is impossible."""
        operation = self._vocabulary.get(task.job.operation)
        if operation is None:
            return error
        notes = dict(task.notes)
        attempt = task.connection.begin_nested()
        try:
            place = operation.recover(task, error)
        except Exception as failure:
            attempt.rollback()
            if not ends_alone(failure):
                raise
            task.notes.clear()
            task.notes.update(notes)
            return failure
        attempt.commit()
        task.job.next_step = operation.in_next_round(task.job.next_step, place)
        save_operation(task.connection, task.job, Status.RUNNING, task.now)
        self._log_failure(_log.warning, "job.goes_on", task.job, error)
        return None

    def _show_failure(self, task: Task, error: Exception) -> None:
        attempt = task.connection.begin_nested()
        try:
            self._operation(task.job).show_failure(task, error)
            attempt.commit()
        except Exception as failure:
            if not ends_alone(failure):
                raise
            # The instance stays as it is, and its job must not be retried for ever.
            attempt.rollback()
            self._log_failure(_log.error, "job.failure_not_shown", task.job, failure)

    def _operation(self, job: Job) -> Operation:
        operation = self._vocabulary.get(job.operation)
        if operation is None:
            raise UnknownOperationError(job.operation)
        return operation

    def _lock_instance(self, connection: Connection, job: Job) -> tuple[bool, InstanceRow | None]:
        """Lock the instance of a job; returns whether no other transaction has it, and its row."""
        if job.instance_uuid is None or not job.has_instance:
            return True, None
        row = lock_row_if_free(connection, self._cell, job.instance_uuid)
        return row is not None, row

    def _task(self, connection: Connection, job: Job, row: InstanceRow | None, now: int, answer: object = None) -> Task:
        about = None if row is None else LockedInstance(connection, self._cell, row)
        return Task(job, connection, self._cell, self._fleet, now, about, answer)

    def _log_failure(self, log: Callable[..., object], event: str, job: Job, error: Exception) -> None:
        trace = None if isinstance(error, _EXPLAINED) else error
        log(event, **self._names(job), reason=str(error), exc_info=trace)

    def _names(self, job: Job) -> dict[str, Any]:
        return {
            "cell": self._cell.name,
            "job": job_number(self._cell, job.id),
            "instance": job.instance_uuid,
            "action": job.operation,
        }

    def _tell_of_wait(self, error: object, attempt: int, _wait_s: float) -> None:
        self._is_waiting = True
        self._heartbeat()
        self._metrics.failures.labels(self._cell.uuid, type(error).__name__).inc()
        _log.warning("worker.waiting", cell=self._cell.name, attempt=attempt, reason=str(error))
